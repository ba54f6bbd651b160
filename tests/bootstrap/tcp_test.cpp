/// \file
/// The TCP bootstrap over loopback: ranks as threads, and strangers of all kinds among them. Every wait has a limit; no test
/// depends on how fast anything is.

#include <vccl/bootstrap/tcp_text.hpp>

#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <string>
#include <thread>

using namespace vccl;
using namespace vccl::literals;

namespace {

constexpr nanoseconds limit = 30_s;

job_secret secret_of(std::string_view text) { return *job_secret::from_text(text); }
const job_secret good = secret_of("the secret of the right job");

std::vector<std::byte> bytes_of(std::string_view s) {
    const auto* const p = reinterpret_cast<const std::byte*>(s.data());
    return {p, p + s.size()};
}

/// Rank 0 as a listener whose address is known, and each further rank as a thread.
struct job {
    explicit job(std::uint32_t n) : ranks(n) {
        auto l = bootstrap_listener::open("127.0.0.1:0");
        REQUIRE(l);
        root = l->address();
        listener.reset(new bootstrap_listener(std::move(*l)));
    }
    job_place place(std::uint32_t rank) const {
        job_place p;
        p.rank = rank;
        p.ranks = ranks;
        p.root = root;
        return p;
    }
    result<tcp_bootstrap> lead(nanoseconds timeout = limit, const bootstrap_limits& limits = {}) {
        return tcp_bootstrap::join(place(0), std::move(*listener), good, timeout, limits);
    }
    /// Runs `each(rank)` on a thread for ranks 1 … n - 1, and `lead` here.
    void run(const std::function<void(tcp_bootstrap&)>& each, const bootstrap_limits& limits = {}) {
        std::vector<std::thread> threads;
        std::vector<status> why(ranks);
        for (std::uint32_t r = 1; r < ranks; ++r)
            threads.emplace_back([&, r] {
                auto b = tcp_bootstrap::join(place(r), good, limit, limits);
                why[r] = b.error();
                if (b) each(*b);
            });
        auto b = lead(limit, limits);
        why[0] = b.error();
        if (b) each(*b);
        for (auto& t : threads) t.join();
        for (std::uint32_t r = 0; r < ranks; ++r) CHECK_MESSAGE(why[r], "rank ", r, " errc ", int(why[r].code));
    }
    std::uint32_t ranks;
    std::string root;
    owned<bootstrap_listener> listener;
};

/// Joined, and stays until all others have.
void attend(result<tcp_bootstrap> b) {
    CHECK_MESSAGE(b, "errc ", int(b.error().code), " detail ", b.error().detail, " extra ", b.error().extra);
    if (b) CHECK(b->barrier(limit));
}

/// A connection of nobody in particular.
bootstrap_stream stranger(const std::string& root) {
    const auto at = detail::resolve_address(root);
    REQUIRE(at);
    detail::socket_fd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&at->where.storage), at->where.length) == 0);
    const timeval patience{20, 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return bootstrap_stream(std::move(fd));
}
/// Has the other end hung up (after at most what it had to say)?
bool hung_up(const bootstrap_stream& s) {
    char buffer[4096];
    for (;;) {
        const ssize_t n = ::recv(s.fd(), buffer, sizeof buffer, 0);
        if (n <= 0) return n == 0 || errno == ECONNRESET;
    }
}

/// Everybody sends every other one its name and a tag, and checks what came.
void meet(tcp_bootstrap& b) {
    const std::size_t more = b.ranks() > 4 ? 500 : 40'000;
    for (std::uint32_t round = 0; round < 3; ++round) {
        std::vector<parcel> out;
        for (std::uint32_t p = 0; p < b.ranks(); ++p)
            out.push_back({p, 100 * round + b.rank(),
                           bytes_of(std::string(round * more, 'x') + std::to_string(b.rank()) + " to " + std::to_string(p))});
        auto got = b.exchange(std::move(out), limit);
        CHECK_MESSAGE(got, "errc ", int(got.error().code));
        if (!got) return;
        CHECK(got->size() == b.ranks());
        for (const parcel& p : *got) {
            CHECK(p.tag == 100 * round + p.peer);
            CHECK(p.bytes ==
                  bytes_of(std::string(round * more, 'x') + std::to_string(p.peer) + " to " + std::to_string(b.rank())));
        }
    }
    CHECK(b.barrier(limit));
}

}  // namespace

TEST_CASE("Ranks find each other and exchange parcels, one rank and many") {
    for (const std::uint32_t n : {2u, 3u, 16u}) job(n).run(meet);
    auto alone = tcp_bootstrap::join({}, good, limit);
    REQUIRE(alone);
    meet(*alone);
}

TEST_CASE("Who calls before the root listens, waits for it") {
    job j(2);
    // The port is known, but nobody listens there: that of a listener which is gone.
    std::string root;
    {
        auto l = bootstrap_listener::open("127.0.0.1:0");
        REQUIRE(l);
        root = l->address();
    }
    job_place first = j.place(0), second = j.place(1);
    first.root = second.root = root;
    std::thread caller([&] { attend(tcp_bootstrap::join(second, good, limit)); });
    attend(tcp_bootstrap::join(first, good, limit));
    caller.join();
}

TEST_CASE("Strangers are turned away, and the job comes together all the same") {
    job j(3);
    std::vector<bootstrap_stream> crowd;
    // Silent ones, more than the waiting room has places; one with noise; one that says it is a rank, and no more; one that
    // sends far more than any message.
    for (int i = 0; i < 20; ++i) crowd.push_back(stranger(j.root));
    crowd.push_back(stranger(j.root));
    crowd.back().put(std::array<char, 32>{"GET / HTTP/1.1\r\n\r\n"});
    (void)crowd.back().pump(0);
    crowd.push_back(stranger(j.root));
    bootstrap_hello hello;
    hello.rank = 1;
    hello.ranks = 3;
    crowd.back().put(hello);
    (void)crowd.back().pump(0);
    crowd.push_back(stranger(j.root));
    crowd.back().put(std::array<char, 100'000>{});
    (void)crowd.back().pump(0);
    bootstrap_limits limits;
    limits.waiting = 8;
    j.run(meet, limits);
    for (const bootstrap_stream& s : crowd) CHECK(hung_up(s));
}

TEST_CASE("A caller that is slow to prove itself is turned away") {
    job j(2);
    bootstrap_stream slow = stranger(j.root);
    bootstrap_limits limits;
    limits.patience = 10_ms;
    std::thread root([&] { attend(j.lead(limit, limits)); });
    CHECK(hung_up(slow));
    attend(tcp_bootstrap::join(j.place(1), good, limit));
    root.join();
}

TEST_CASE("Without the secret nobody gets in, and a root without it gets no rank") {
    job j(2);
    status stranger_why;
    std::thread others([&] {
        stranger_why = tcp_bootstrap::join(j.place(1), secret_of("the secret of another job"), limit).error();
        attend(tcp_bootstrap::join(j.place(1), good, limit));
    });
    attend(j.lead());
    others.join();
    CHECK(stranger_why.code == errc::wrong_peer);
    CHECK(stranger_why.about == subject::secret);
}

TEST_CASE("A proof that was heard is of no use to who says it again") {
    // A real handshake, recorded: hello and proof of rank 1 in a first job with the same secret.
    job first(2), second(2);
    bootstrap_hello hello;
    hello.rank = 1;
    hello.ranks = 2;
    bootstrap_proof proof;
    std::thread root([&] { CHECK(first.lead()); });
    bootstrap_stream line = stranger(first.root);
    line.put(hello);
    std::optional<bootstrap_challenge> challenge;
    while (!challenge) {
        REQUIRE(line.pump(sizeof(bootstrap_challenge)));
        challenge = line.take<bootstrap_challenge>();
    }
    proof.code = handshake_code(good, handshake_role::rank_knows, hello, challenge->nonce);
    line.put(proof);
    REQUIRE(line.pump(0));
    root.join();

    std::thread other([&] { attend(second.lead()); });
    bootstrap_stream again = stranger(second.root);
    again.put(hello);
    again.put(proof);
    (void)again.pump(0);
    CHECK(hung_up(again));
    attend(tcp_bootstrap::join(second.place(1), good, limit));
    other.join();
}

TEST_CASE("A rank of another size of job, and one that is there already, are told so") {
    job j(3);
    status wrong_size, twice;
    std::thread others([&] {
        job_place p = j.place(1);
        p.ranks = 4;
        wrong_size = tcp_bootstrap::join(p, good, limit).error();
        auto one = tcp_bootstrap::join(j.place(1), good, limit);
        CHECK(one);
        twice = tcp_bootstrap::join(j.place(1), good, limit).error();
        std::thread two([&] { attend(tcp_bootstrap::join(j.place(2), good, limit)); });
        attend(std::move(one));
        two.join();
    });
    attend(j.lead());
    others.join();
    CHECK(wrong_size.code == errc::wrong_peer);
    CHECK(wrong_size == status{errc::wrong_peer, subject::ranks, 4, 3});
    CHECK(twice == status{errc::already_exists, subject::rank, 1});
}

TEST_CASE("A rank that leaves before all are there may come back") {
    job j(3);
    std::thread others([&] {
        CHECK(tcp_bootstrap::join(j.place(1), good, limit));  // and is gone
        auto again = tcp_bootstrap::join(j.place(1), good, limit);
        while (again.error().code == errc::already_exists) again = tcp_bootstrap::join(j.place(1), good, limit);
        CHECK(again);
        auto last = tcp_bootstrap::join(j.place(2), good, limit);
        CHECK(last);
        if (again && last) {
            std::thread two([&] { meet(*last); });
            meet(*again);
            two.join();
        }
    });
    auto b = j.lead();
    CHECK(b);
    if (b) meet(*b);
    others.join();
}

TEST_CASE("Ranks that do not come are named when the time is over, at the root and at those who wait") {
    job j(4);
    status waiting;
    std::thread one([&] {
        auto b = tcp_bootstrap::join(j.place(1), good, limit);
        CHECK(b);
        if (b) waiting = b->exchange({}, limit).error();
    });
    status why;
    std::thread root([&] { why = j.lead(1_s).error(); });
    root.join();
    one.join();
    CHECK(why == status{errc::timeout, subject::rank, 2, 2});
    CHECK(waiting == why);
    CHECK(tcp_bootstrap::join(job(2).place(1), good, 0_ns).error().code == errc::timeout);
}

TEST_CASE("A rank that dies in the middle of an exchange ends it for all, by name") {
    job j(4);
    j.run([](tcp_bootstrap& b) {
        CHECK(b.barrier(limit));
        if (b.rank() == 2) return;  // gone, with its connection
        const status s = b.exchange({{0, 1, bytes_of("hello")}}, limit).error();
        CHECK(s == status{errc::peer_lost, subject::rank, 2});
        CHECK(b.barrier(limit).code == errc::peer_lost);
    });
}

TEST_CASE("Who has a parcel for nobody is told, and so are all others, at once") {
    for (const std::uint32_t who : {0u, 1u}) {
        CAPTURE(who);
        job(3).run([who](tcp_bootstrap& b) {
            CHECK(b.barrier(limit));
            std::vector<parcel> out{{1, 0, bytes_of("good")}};
            if (b.rank() == who) out.push_back({3, 0, bytes_of("bad")});
            const status expected{b.rank() == who ? errc::invalid_argument : errc::aborted, subject::rank,
                                  b.rank() == who ? 3 : who};
            CHECK(b.exchange(out, limit).error() == expected);
            CHECK(b.barrier(limit) == expected);
        });
    }
}

TEST_CASE("Parcels that are too large are refused") {
    bootstrap_limits limits;
    limits.frame_bytes = 1000;
    job(2).run(
        [](tcp_bootstrap& b) {
            CHECK(b.barrier(limit));
            const status s = b.exchange({{1 - b.rank(), 0, std::vector<std::byte>(b.rank() == 1 ? 2000 : 10)}}, limit).error();
            CHECK((s.code == errc::too_large || s.code == errc::aborted));
        },
        limits);
}

TEST_CASE("A frame that was changed on its way, or said twice, ends the connection") {
    const message_code key = hmac_sha256(good.bytes, {});
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    const auto say = [&](std::span<const unsigned char> raw) {
        CHECK(::send(fds[0], raw.data(), raw.size(), 0) == ssize_t(raw.size()));
    };
    const auto recorded = [&] {
        int own[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, own) == 0);
        bootstrap_stream rank{detail::socket_fd(own[0])};
        rank.secure(key, false, 1000);
        rank.put_frame(bytes_of("three words here"));
        CHECK(rank.pump(0));
        std::vector<unsigned char> raw(200);
        raw.resize(static_cast<std::size_t>(::recv(own[1], raw.data(), raw.size(), 0)));
        ::close(own[1]);
        return raw;
    }();
    bootstrap_stream root{detail::socket_fd(fds[1])};
    root.secure(key, true, 1000);
    say(recorded);
    CHECK(root.pump(2000));
    auto first = root.take_frame();
    REQUIRE(first);
    REQUIRE(*first);
    CHECK(**first == bytes_of("three words here"));
    say(recorded);  // again
    CHECK(root.pump(2000));
    CHECK(root.take_frame().error().code == errc::wrong_peer);

    for (const std::size_t at : {std::size_t{5}, std::size_t{40}, recorded.size() - 1}) {
        auto changed = recorded;
        changed[at] ^= 1;
        int more[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, more) == 0);
        bootstrap_stream other{detail::socket_fd(more[1])};
        other.secure(key, true, 1000);
        CHECK(::send(more[0], changed.data(), changed.size(), 0) == ssize_t(changed.size()));
        CHECK(other.pump(2000));
        CHECK(other.take_frame().error().code == errc::wrong_peer);
        ::close(more[0]);
    }
    ::close(fds[0]);

    int large[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, large) == 0);
    bootstrap_stream bounded{detail::socket_fd(large[1])};
    bounded.secure(key, true, 8);
    CHECK(::send(large[0], recorded.data(), recorded.size(), 0) == ssize_t(recorded.size()));
    CHECK(bounded.pump(2000));
    const status s = bounded.take_frame().error();
    CHECK(s.code == errc::too_large);
    CHECK(s.detail == 16);
    ::close(large[0]);
}

TEST_CASE("Packed parcels come back, and what is cut short or names nobody does not") {
    std::vector<std::byte> raw;
    pack_parcel(raw, 1, {9, 7, bytes_of("abc")});
    pack_parcel(raw, 0, {9, 8, {}});
    const auto back = unpack_parcels(raw, 2);
    REQUIRE(back);
    CHECK(back->size() == 2);
    CHECK((*back)[0].peer == 1);
    CHECK((*back)[0].tag == 7);
    CHECK((*back)[0].bytes == bytes_of("abc"));
    CHECK(unpack_parcels(raw, 1).error().code == errc::protocol_violation);
    for (std::size_t n = 1; n < raw.size(); ++n)
        if (n != 15) CHECK(unpack_parcels(std::span(raw).first(n), 2).error().code == errc::protocol_violation);
}

TEST_CASE("Secrets are texts of some length; addresses are host and port") {
    CHECK(job_secret::from_text("too short").error().code == errc::invalid_argument);
    CHECK(std::memcmp(job_secret::random()->bytes, job_secret::random()->bytes, 32) != 0);
    CHECK(bootstrap_listener::open("nowhere").error().code == errc::invalid_argument);
    CHECK(bootstrap_listener::open("host.invalid:1").error().code == errc::not_found);
    CHECK(bootstrap_listener::open("127.0.0.1:port").error().code == errc::invalid_argument);
}

namespace {

/// How the rank that calls itself so is told that it cannot join.
std::string refusal_of(const job_place& p, const job_secret& secret, nanoseconds timeout = limit) {
    const auto b = tcp_bootstrap::join(p, secret, timeout);
    CHECK_FALSE(b);
    return b ? "" : describe_join_fault(b.error(), p);
}
void check_says(const std::string& text, std::initializer_list<std::string> words) {
    for (const std::string& w : words) CHECK_MESSAGE(text.find(w) != std::string::npos, text, " lacks ", w);
}

}  // namespace

TEST_CASE("Who cannot join is told what happened, where, and what to do") {
    job j(3);
    const job_place root = j.place(0);
    const job_place p = j.place(1);
    job_place unknown = p, nowhere = p, none = p, many = p, wide = p;
    check_says(refusal_of(root, good), {"rank 0 cannot join", root.root, "Address already in use", "VCCL_PORT"});
    for (const char* text : {"host:", ":1", "host:1x", "127.0.0.1:65536", "localhost:65536"}) {
        nowhere.root = text;
        check_says(refusal_of(nowhere, good), {"HOST:PORT"});
    }
    nowhere.root = "nowhere";
    check_says(refusal_of(nowhere, good), {"rank 1 cannot join", "\"nowhere\"", "HOST:PORT", "VCCL_ROOT"});
    unknown.root = "host.invalid:1";
    check_says(refusal_of(unknown, good), {"host.invalid:1", "does not know that name", "VCCL_ROOT"});
    none.rank = none.ranks;
    check_says(refusal_of(none, good), {"rank 3 cannot join", "only 3"});
    many.ranks = most_bootstrap_ranks + 1;
    check_says(refusal_of(many, good), {"1 to 65536 ranks, not 65537"});
    std::string wrong_secret, twice, wrong_size;
    std::thread others([&] {
        wrong_secret = refusal_of(p, secret_of("the secret of another job"));
        wide.ranks = 4;
        wrong_size = refusal_of(wide, good);
        auto one = tcp_bootstrap::join(p, good, limit);
        twice = refusal_of(p, good);
        std::thread two([&] { attend(tcp_bootstrap::join(j.place(2), good, limit)); });
        attend(std::move(one));
        two.join();
    });
    attend(j.lead());
    others.join();
    check_says(wrong_secret, {"rank 1 cannot join", p.root, "does not know this job's secret", "VCCL_SECRET"});
    check_says(wrong_size, {"there are 4 ranks, rank 0 that there are 3"});
    check_says(twice, {"another process is rank 1 already"});
    // The port is free again.
    check_says(refusal_of(p, good, 0_ns), {p.root, "rank 0 did not answer in time", "Does it run"});
    check_says(refusal_of(root, good, 0_ns), {"rank 1 and 1 more did not come in time", "this secret"});
}

TEST_CASE("A port that talks, but is no rank 0, is known by its answer") {
    const auto listener = detail::listen_at(*detail::resolve_address("127.0.0.1:0"));
    REQUIRE(listener);
    const std::string root(detail::own_address(listener->get()).view());
    std::thread other([&] {
        pollfd p{listener->get(), POLLIN, 0};
        REQUIRE(::poll(&p, 1, 20'000) == 1);
        bootstrap_stream caller(detail::socket_fd(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC)));
        caller.put(std::array<char, sizeof(bootstrap_challenge)>{"SSH-2.0-OpenSSH_9.2p1"});
        CHECK(caller.pump(0));
        CHECK(hung_up(caller));
    });
    check_says(refusal_of({.rank = 1, .ranks = 2, .root = root}, good), {root, "is no rank 0 of a job", "VCCL_PORT"});
    other.join();
}

TEST_CASE("A welcome that is none is told as what it is") {
    struct answer {
        std::string what;
        std::function<void(bootstrap_stream&, const message_code&)> give;
        const char* said;
    };
    const std::vector<std::byte> welcome{static_cast<std::byte>(bootstrap_frame::welcome)};
    for (const answer& a : {answer{"under another key",
                                   [&](bootstrap_stream& rank, const message_code&) {
                                       rank.secure({}, true, 1000);
                                       rank.put_frame(welcome);
                                   },
                                   "a message of rank 0 was changed on its way"},
                            answer{"larger than any",
                                   [&](bootstrap_stream& rank, const message_code& key) {
                                       rank.secure(key, true, 1000);
                                       rank.put_frame(std::vector<std::byte>(2000));
                                   },
                                   "frame_bytes"},
                            answer{"of another kind",
                                   [&](bootstrap_stream& rank, const message_code& key) {
                                       rank.secure(key, true, 1000);
                                       rank.put_frame(std::vector<std::byte>{static_cast<std::byte>(bootstrap_frame::parcels)});
                                   },
                                   "rank 0 sends what it must not; build all ranks from one version"},
                            answer{"a refusal for a reason that this version does not know",
                                   [&](bootstrap_stream& rank, const message_code& key) {
                                       rank.secure(key, true, 1000);
                                       rank.put_frame(detail::failure_frame(static_cast<errc>(250)));
                                   },
                                   "rank 0 sends what it must not; build all ranks from one version"},
                            answer{"a refusal of the rank's number",
                                   [&](bootstrap_stream& rank, const message_code& key) {
                                       rank.secure(key, true, 1000);
                                       rank.put_frame(detail::failure_frame(detail::rank_fault(errc::wrong_peer, 1)));
                                   },
                                   "rank 0 does not take this rank's number, 1"}}) {
        CAPTURE(a.what);
        const auto listener = detail::listen_at(*detail::resolve_address("127.0.0.1:0"));
        REQUIRE(listener);
        std::thread other([&] {
            pollfd p{listener->get(), POLLIN, 0};
            REQUIRE(::poll(&p, 1, 20'000) == 1);
            bootstrap_stream rank(detail::socket_fd(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC)));
            std::optional<bootstrap_hello> hello;
            while (!(hello = rank.take<bootstrap_hello>())) REQUIRE(rank.pump(sizeof *hello));
            bootstrap_challenge challenge;
            challenge.code = handshake_code(good, handshake_role::root_knows, *hello, challenge.nonce);
            rank.put(challenge);
            while (!rank.take<bootstrap_proof>()) REQUIRE(rank.pump(sizeof(bootstrap_proof)));
            a.give(rank, handshake_code(good, handshake_role::key, *hello, challenge.nonce));
            CHECK(rank.pump(0));
            CHECK(hung_up(rank));
        });
        const job_place place{.rank = 1, .ranks = 2, .root = std::string(detail::own_address(listener->get()).view())};
        bootstrap_limits limits;
        limits.frame_bytes = 1000;
        const auto b = tcp_bootstrap::join(place, good, limit, limits);
        CHECK_FALSE(b);
        if (!b) check_says(describe_join_fault(b.error(), place), {"rank 1 cannot join", place.root, a.said});
        other.join();
    }
}

TEST_CASE("Who cannot exchange is told whose fault it is") {
    check_says(describe_exchange_fault({errc::peer_lost, subject::rank, 5}), {"rank 5 is gone"});
    check_says(describe_exchange_fault({errc::timeout, subject::rank, 5}), {"rank 5 did not come"});
    check_says(describe_exchange_fault(errc::timeout), {"a rank did not come"});
    check_says(describe_exchange_fault({errc::invalid_argument, subject::rank, 9}), {"rank 9", "does not have"});
    check_says(describe_exchange_fault({errc::too_large, subject::rank, 2}), {"rank 2", "frame_bytes"});
    check_says(describe_exchange_fault(errc::io_error), {"MPI"});
}
