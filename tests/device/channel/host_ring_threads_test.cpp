// Threads claim words of a host ring that is always short of room, and give up; for ThreadSanitizer, too. The proxy is a loop
// that takes requests and counts them.
#include <vccl/device/host_ring_ref.hpp>

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

using namespace vccl::device;

namespace {

constexpr std::uint32_t size_log = 4, ring_size = 1u << size_log;

/// A ring with its words at `start`, as if so many had passed.
struct bare_ring {
    host_ring_words words;
    std::array<std::uint64_t, ring_size> ring{};
    host_ring_head head;
    channel_words channel;
    std::array<reply_words, reply_slot::count> replies{};
    host_words host;
    std::uint64_t taken;

    explicit bare_ring(std::uint64_t start) : taken(start) {
        words.cursor = ring_cursor{static_cast<std::uint32_t>(start), static_cast<std::uint32_t>(start) + ring_size}.pack();
        words.consumed = head.consumed = channel.done = start;
        for (std::uint64_t i = start; i < start + ring_size; ++i) ring[i % ring_size] = lap_flag(i, size_log) ^ 1;
    }
    host_ring_ref<queue_policy<>> ref(std::int64_t timeout_ns, const host_wait* wait = nullptr) {
        return {{&words, ring.data(), size_log, 1, &head, &channel, replies.data(), &host, wait}, 0, timeout_ns};
    }
    ring_cursor cursor() const { return ring_cursor::unpack(load<order::acquire, scope::gpu>(&words.cursor)); }
    /// Until all posters have ended and nothing is left; joins them.
    template <class Act>
    void serve(std::vector<std::thread>& posters, const std::atomic<unsigned>& ended, Act&& act) {
        for (request got; true;) {
            const bool last = ended == posters.size();  // before the look: what they posted is found by it
            if (take(got))
                act(got);
            else if (last)
                break;
            else
                std::this_thread::yield();
        }
        for (std::thread& p : posters) p.join();
    }
    /// The next request, if it is there.
    bool take(request& r) {
        std::uint64_t w[max_request_words];
        const auto there = [&](unsigned i) {
            w[i] = load<order::acquire, scope::system>(&ring[(taken + i) % ring_size]);
            return (w[i] & 1) == lap_flag(taken + i, size_log);
        };
        if (!there(0)) return false;
        const unsigned n = words_of(static_cast<request_op>(w[0] >> 1 & 15));
        for (unsigned i = 1; i < n; ++i)
            if (!there(i)) return false;
        r = decode_request(w);
        taken += n;
        store<order::release, scope::system>(&channel.done, taken);
        store<order::release, scope::system>(&head.consumed, taken);
        return true;
    }
    void answer(const request& r, std::uint64_t old) {
        const reply_slot slot = reply_slot::unpack(r.length);
        const reply_words words = reply_words::make(old, slot.lap);
        store<order::release, scope::system>(&replies[slot.number].low, words.low);
        store<order::release, scope::system>(&replies[slot.number].high, words.high);
    }
};

}  // namespace

TEST_CASE("A cursor counts round") {
    const ring_cursor c{0xfffffffe, 14};
    CHECK(ring_cursor::unpack(c.pack()).next == c.next);
    CHECK(c.room() == 16);
    const ring_cursor after = ring_cursor::unpack(c.pack() + ring_cursor::claim(5));
    CHECK(after.next == 3);
    CHECK(after.limit == 14);
    CHECK(ring_cursor::unpack(after.pack() + ring_cursor::claim(12)).room() == -1);
    CHECK(after.closed().room() == -1);
    CHECK(after.with_taken(0x1'0000'0003, 16).room() == 16);
    CHECK(after.with_taken(0x0'ffff'fff0, 16).limit == 14);  // an old look takes no room away
    CHECK(after.with_taken(0x0'7000'0000, 16).limit == 14);  // nor does a very old one bring any
}

TEST_CASE("Who has no time takes the room that there is, and leaves the ring as it was if there is none") {
    bare_ring r(0);
    const auto tx = r.ref(0);
    request got;
    for (unsigned lap = 0; lap < 5; ++lap) {
        for (unsigned i = 0; i < 5; ++i) CHECK(tx.put(vccl::thread_scope{}, i, i, 8));
        const ring_cursor full = r.cursor();
        CHECK(full.room() == 1);
        CHECK(tx.put(vccl::thread_scope{}, 9, 9, 8).what == outcome::timeout);
        CHECK(r.cursor().pack() == full.pack());
        for (unsigned i = 0; i < 5; ++i) {
            REQUIRE(r.take(got));
            CHECK(got.remote == i);
        }
        CHECK_FALSE(r.take(got));
        CHECK(tx.flush(vccl::thread_scope{}));
    }
}

TEST_CASE("However many claim in vain while somebody has the cursor and stands still, their number does not go round") {
    bare_ring r(0);
    constexpr std::uint32_t vain = 1u << 30;
    r.words.cursor = ring_cursor{ring_size + vain, ring_size}.pack();
    for (unsigned i = 0; i < 4; ++i) {
        CHECK(r.ref(0).put(vccl::thread_scope{}, 1, 1, 8).what == outcome::timeout);
        CHECK(r.cursor().room() < 0);
    }
    CHECK(r.cursor().next - r.cursor().limit < vain);
    CHECK(r.ring[0] == 0);
}

TEST_CASE("A flush waits for a request that was overtaken by half a round of the counters") {
    bare_ring r(0);
    constexpr std::uint64_t far = (std::uint64_t{1} << 31) + 100;
    r.words.cursor = ring_cursor{static_cast<std::uint32_t>(far), static_cast<std::uint32_t>(far) + ring_size}.pack();
    r.words.consumed = r.head.consumed = far;  // by other channels; this one's first request is still under way
    CHECK(r.ref(0).flush(vccl::thread_scope{}).what == outcome::timeout);
    r.channel.done = far;
    CHECK(r.ref(0).flush(vccl::thread_scope{}));
}

TEST_CASE("A flush ends while others wait for room, as soon as all is done that may have been claimed before") {
    bare_ring r(0);
    r.words.cursor = ring_cursor{ring_size + 3, ring_size}.pack();
    r.channel.done = ring_size - 1;
    CHECK(r.ref(0).flush(vccl::thread_scope{}).what == outcome::timeout);
    r.channel.done = ring_size;
    CHECK(r.ref(0).flush(vccl::thread_scope{}));
}

TEST_CASE("Who had the cursor to itself while others claimed in vain makes way for them, after its own post") {
    for (const bool others : {false, true}) {
        bare_ring r(0);
        for (unsigned i = 0; i < 5; ++i) CHECK(r.ref(0).put(vccl::thread_scope{}, i, i, 8));
        struct waiting {
            bare_ring& ring;
            bool others;
            unsigned passes, open;
        } seen{r, others, 0, 0};
        const host_wait wait{&seen, [](void* self) {
                                 auto& w = *static_cast<waiting*>(self);
                                 request got;
                                 w.open += w.ring.cursor().room() >= 0;
                                 if (w.passes++ == 0 && w.others) w.ring.words.cursor += ring_cursor::claim(3);
                                 while (w.ring.take(got)) {}
                             }};
        CHECK(r.ref(1'000'000'000, &wait).put(vccl::thread_scope{}, 9, 9, 8));
        CHECK(seen.passes == (others ? 2 : 1));
        CHECK(seen.open == (others ? 1 : 0));
        CHECK(r.taken == (others ? 18 : 15));
    }
}

TEST_CASE("Threads that give up leave no holes: what was said to be posted arrives, once and in each thread's order") {
    for (const std::uint64_t start : {std::uint64_t{0}, (std::uint64_t{1} << 32) - 1000}) {
        CAPTURE(start);
        constexpr unsigned threads = 4;
        constexpr std::uint64_t posts = 20'000;
        bare_ring r(start);
        std::array<std::uint64_t, threads> posted{}, sum{}, seen{}, found{}, got_sum{};
        std::atomic<unsigned> ended{};
        std::vector<std::thread> posters;
        for (unsigned t = 0; t < threads; ++t) {
            posters.emplace_back([&, t] {
                const auto patient = r.ref(10'000'000'000), hasty = r.ref(t % 2 == 0 ? 0 : 20'000);
                for (std::uint64_t i = 1; i <= posts; ++i) {
                    const auto& tx = i % 3 == 0 ? patient : hasty;
                    const device_result done = i % 2 == 0 ? tx.put(vccl::thread_scope{}, i, t, 8)
                                                          : tx.put_signal(vccl::thread_scope{}, i, t, 8, 1, i << 40);
                    if (!done) continue;
                    ++posted[t];
                    sum[t] += i;
                }
                ++ended;
            });
        }
        bool in_order = true;
        r.serve(posters, ended, [&](const request& got) {
            const auto t = static_cast<std::size_t>(got.local) % threads;
            in_order &= got.remote > found[t] && (got.op == request_op::put || got.value == got.remote << 40);
            found[t] = got.remote;
            ++seen[t];
            got_sum[t] += got.remote;
        });
        CHECK(in_order);
        CHECK(seen == posted);
        CHECK(got_sum == sum);
        CHECK(r.cursor().next == static_cast<std::uint32_t>(r.taken));
        CHECK(r.ref(0).flush(vccl::thread_scope{}));
        MESSAGE("posted ", posted[0], " and ", posted[1], " of ", posts);
    }
}

TEST_CASE("Threads that give up waiting for an old value leave no slot behind, and nobody gets another's value") {
    constexpr unsigned threads = 4;
    constexpr std::uint64_t asks = 5'000;
    bare_ring r(0);
    std::array<std::vector<std::uint64_t>, threads> got;
    std::array<bool, threads> waited_in_vain{};
    std::atomic<unsigned> ended{};
    std::vector<std::thread> posters;
    for (unsigned t = 0; t < threads; ++t) {
        posters.emplace_back([&, t] {
            const auto patient = r.ref(10'000'000'000), hasty = r.ref(t % 2 == 0 ? 0 : 20'000);
            for (std::uint64_t i = 1; i <= asks; ++i) {
                std::uint64_t old = 0;
                const bool waits = i % 3 == 0;
                if ((waits ? patient : hasty).fetch_add(vccl::thread_scope{}, 0, 1, old)) {
                    got[t].push_back(old);
                } else if (waits) {
                    waited_in_vain[t] = true;
                    break;
                }
            }
            ++ended;
        });
    }
    std::uint64_t sum = 0;
    r.serve(posters, ended, [&](const request& asked) {
        r.answer(asked, sum);
        sum += asked.value;
    });
    std::vector<bool> seen(sum);
    unsigned wrong = 0;
    for (unsigned t = 0; t < threads; ++t) {
        CHECK_FALSE(waited_in_vain[t]);
        std::uint64_t next = 0;
        for (const std::uint64_t old : got[t]) {
            wrong += old < next || old >= sum || seen[old];
            if (old < sum) seen[old] = true;
            next = old + 1;
        }
    }
    CHECK(wrong == 0);
    MESSAGE("additions ", sum, " of ", threads * asks);
}
