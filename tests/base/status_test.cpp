#include <vccl/base/status.hpp>
#include <vccl/base/status_text.hpp>

#include <doctest/doctest.h>

#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

using vccl::errc;
using vccl::result;
using vccl::status;
using vccl::wc_status;

TEST_CASE("a status is true exactly when nothing went wrong") {
    CHECK(status{});
    CHECK(status{errc::ok});
    CHECK_FALSE(status{errc::timeout});
    CHECK_FALSE(status{errc::system, 13});
}

TEST_CASE("a status carries its code and its number, and knows no lane unless told") {
    const status s{errc::system, 13};
    CHECK(s.code == errc::system);
    CHECK(s.detail == 13);
    CHECK(s.wc == wc_status::success);
    CHECK(s.lane == status::no_lane);
    CHECK(s.epoch == 0);
}

TEST_CASE("statuses are equal only when every field is") {
    status a{errc::lane_failed, 7};
    status b = a;
    CHECK(a == b);
    b.lane = 1;
    CHECK(a != b);
    b = a;
    b.wc = wc_status::retry_exc_err;
    CHECK(a != b);
    b = a;
    b.epoch = 2;
    CHECK(a != b);
}

TEST_CASE("a status in words says what was expected and what was found") {
    using vccl::describe;
    using vccl::subject;
    const auto ends_with = [](const status& s, std::string_view end) {
        const std::string line = describe(s);
        INFO(line);
        CHECK(line.ends_with(end));
        CHECK(line.starts_with(vccl::text(s.code)));
    };
    ends_with({errc::policy_mismatch, subject::qps, 1, 4}, "(QPs a lane: 1 here, 4 at the peer)");
    ends_with({errc::policy_mismatch, subject::lanes, 2, 1}, "(lanes: 2 here, 1 at the peer)");
    ends_with({errc::policy_mismatch, subject::stripes, 2, 4}, "(stripes: 2 here, 4 at the peer)");
    ends_with({errc::wrong_peer, subject::ranks, 4, 3}, "(ranks: 4 here, 3 at the peer)");
    ends_with({errc::timeout, subject::peer_address, 0},
              "(nobody has told the peer's Ethernet address so far; check its port, cables, switch and VLAN)");
    ends_with({errc::wrong_peer, subject::secret, 0}, "(it does not know the job's secret)");
    ends_with({errc::peer_lost, subject::rank, 3}, "(rank 3)");
    ends_with({errc::timeout, subject::rank, 3, 1}, "(rank 3)");
    ends_with({errc::timeout, subject::rank, 3, 5}, "(rank 3 and 4 more)");
    ends_with({errc::permission, subject::owner, 1001},
              "(the software fabric of that name is user 1001's: choose another name, or run as that user)");
    CHECK(vccl::describe({errc::no_memory, subject::shared_memory, 66, 64}).find("(66 MiB of /dev/shm wanted, 64 MiB free; ") !=
          std::string::npos);
    ends_with({errc::policy_mismatch, subject::link, 0, 1}, "(link layer: InfiniBand here, Ethernet at the peer)");
    ends_with({errc::rail_mismatch, subject::rail, 3, 9}, "(rail: 3 here, 9 at the peer)");
    ends_with({errc::wrong_peer, subject::role, 1, 1}, "(role: sender here, sender at the peer)");
    ends_with({errc::wrong_peer, subject::role, 2, 77}, "(role: receiver here, 77 at the peer)");
    ends_with({errc::wrong_peer, subject::session_low, 5, 0}, "(session: 5 here, 0 at the peer)");
    ends_with({errc::wrong_peer, subject::session_high, 0, 1}, "(high half of the session: 0 here, 1 at the peer)");
    ends_with({errc::wrong_peer, subject::channel, 7, 6}, "(channel: 7 here, 6 at the peer)");
    ends_with({errc::version_mismatch, subject::wire_version, 1, 2}, "(wire version: 1 here, 2 at the peer)");
    ends_with({errc::too_large, subject::bytes, 5000, 5001}, "(bytes: 5001 asked for, 5000 at most)");
    ends_with({errc::too_large, subject::bytes, 5000, ~0u}, "(bytes: 4294967295 or more asked for, 5000 at most)");
    ends_with({errc::busy, subject::in_flight, 3}, "(chunks in flight: 3)");
    ends_with({errc::would_block, subject::room, 64}, "(it holds 64)");
    ends_with({errc::permission, subject::memlock, 12, 64}, "(the limit is 64 KiB)");
    ends_with({errc::permission, subject::system_error, 13}, ": Permission denied");
    ends_with({errc::aborted, subject::peer_code, static_cast<std::uint32_t>(errc::remote_access)},
              "; the peer's reason: " + std::string(vccl::text(errc::remote_access)));
    ends_with({errc::aborted, subject::peer_code, 250}, "; the peer's reason: unknown error");
    ends_with({errc::aborted, subject::peer_code, static_cast<std::uint32_t>(errc::aborted)},
              std::string(vccl::text(errc::aborted)) + " (the peer did)");
    ends_with({errc::timeout}, std::string(vccl::text(errc::timeout)));
    ends_with({errc::timeout, subject::suspended, 0}, "(no lane is up at present)");
    ends_with({errc::no_port, subject::port, 3}, "(port 3 of the topology)");
    ends_with({errc::not_found, subject::gpu, vccl::unnamed_index}, "(no GPU of that name in the topology)");
    ends_with({errc::not_found, subject::fabric, 2}, "(a software fabric of that name; `vccl-fabric list` shows what there is)");
}

namespace {

std::vector<std::string> lines_of(const std::string& file) {
    std::ifstream in(std::string(VCCL_SOURCE_DIR) + "/" + file);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    REQUIRE_MESSAGE(!lines.empty(), file);
    return lines;
}

/// The names of `errc` in the order of their numbers, from the header itself.
std::vector<std::string> errc_names() {
    std::vector<std::string> names;
    bool inside = false;
    for (const std::string& line : lines_of("include/vccl/base/status.hpp")) {
        if (inside && line == "};") break;
        if (inside && line.find("//") != 4)
            names.push_back(line.substr(4, line.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", 4) - 4));
        if (line.starts_with("enum class errc ")) inside = true;
    }
    return names;
}

}  // namespace

TEST_CASE("docs/errors.md has every code in order, with the words that text() has for it") {
    const std::vector<std::string> names = errc_names();
    REQUIRE(names.size() == static_cast<std::size_t>(errc::io_error) + 1);
    std::size_t next = 0;
    for (const std::string& line : lines_of("docs/errors.md")) {
        if (next == names.size()) break;
        if (!line.starts_with("| `")) continue;
        CHECK(line.starts_with("| `" + names[next] + "` | " + std::string(vccl::text(static_cast<errc>(next))) + " | "));
        ++next;
    }
    CHECK(next == names.size());
}

TEST_CASE("a status in words names the lane and the completion behind it") {
    status s{errc::remote_access, 17};
    s.lane = 1;
    s.wc = wc_status::rem_access_err;
    s.extra = 0x88;
    CHECK(vccl::describe(s).ends_with(" (lane 1) [REM_ACCESS_ERR, vendor error 136]"));
    CHECK(vccl::describe(s, "mlx5_0:1").ends_with(" (mlx5_0:1) [REM_ACCESS_ERR, vendor error 136]"));
}

TEST_CASE("completion statuses have libibverbs' numbers") {
    CHECK(static_cast<int>(wc_status::wr_flush_err) == 5);
    CHECK(static_cast<int>(wc_status::rem_access_err) == 10);
    CHECK(static_cast<int>(wc_status::retry_exc_err) == 12);
    CHECK(static_cast<int>(wc_status::rnr_retry_exc_err) == 13);
    CHECK(static_cast<int>(wc_status::general_err) == 21);
}

namespace {
constexpr result<int> half(int n) {
    if (n % 2 != 0) return status{errc::invalid_argument, static_cast<std::uint32_t>(n)};
    return n / 2;
}
}  // namespace

TEST_CASE("a result of a small type is a value or a reason, also in constant expressions") {
    static_assert(half(8).has_value() && *half(8) == 4);
    static_assert(!half(3));
    CHECK(half(8).error() == status{});
    CHECK(half(3).error() == status{errc::invalid_argument, 3});
    CHECK(half(3).value_or(-1) == -1);
    CHECK(half(8).value_or(-1) == 4);
    static_assert(std::is_trivially_copyable_v<result<int>>);
}

TEST_CASE("a result from a bare errc is an error") {
    const result<int> small = errc::busy;
    const result<std::string> large = errc::busy;
    CHECK_FALSE(small);
    CHECK_FALSE(large);
    CHECK(small.error().code == errc::busy);
    CHECK(large.error().code == errc::busy);
}

TEST_CASE("a result of a move-only value hands the value over once") {
    using owner = std::unique_ptr<int>;
    static_assert(!std::is_copy_constructible_v<result<owner>>);
    result<owner> r{std::make_unique<int>(5)};
    REQUIRE(r.has_value());
    result<owner> moved{std::move(r)};
    REQUIRE(moved);
    CHECK(**moved == 5);
    const owner taken = std::move(*moved);
    CHECK(*taken == 5);
    const owner also = result<owner>{std::make_unique<int>(6)}.value();
    CHECK(*also == 6);
}

namespace {
struct counted {
    static inline int alive = 0;
    int tag{};
    explicit counted(int t) noexcept : tag(t) { ++alive; }
    counted(counted&& o) noexcept : tag(o.tag) { ++alive; }
    counted(const counted& o) noexcept : tag(o.tag) { ++alive; }
    counted& operator=(const counted&) = delete;
    ~counted() { --alive; }
};
}  // namespace

TEST_CASE("a result destroys its value exactly once, through copies, moves and assignments") {
    counted::alive = 0;
    {
        result<counted> a{counted{1}};
        CHECK(counted::alive == 1);
        result<counted> copy{a};
        CHECK(counted::alive == 2);
        CHECK(copy->tag == 1);
        copy = result<counted>{errc::timeout};
        CHECK(counted::alive == 1);
        CHECK_FALSE(copy);
        CHECK(copy.error().code == errc::timeout);
        copy = result<counted>{counted{2}};
        CHECK(counted::alive == 2);
        REQUIRE(copy);
        CHECK(copy->tag == 2);
        copy = std::move(a);
        REQUIRE(copy);
        CHECK(copy->tag == 1);
    }
    CHECK(counted::alive == 0);
}

TEST_CASE("a result that holds a value has no reason, and value_or leaves a value alone") {
    const result<std::string> good{std::string{"yes"}};
    const result<std::string> bad{errc::not_found};
    CHECK(good.error() == status{});
    CHECK(good.value_or("no") == "yes");
    CHECK(bad.value_or("no") == "no");
    CHECK(good->size() == 3);
}
