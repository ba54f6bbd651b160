#include <vccl/base/ids.hpp>

#include <doctest/doctest.h>

#include <concepts>
#include <utility>

namespace {
template <class A, class B>
concept comparable = requires(A a, B b) { a == b; };
}  // namespace

TEST_CASE("an identifier does not mix with another kind, nor with a bare number") {
    static_assert(!std::convertible_to<vccl::lkey, vccl::rkey>);
    static_assert(!std::convertible_to<std::uint32_t, vccl::qpn>);
    static_assert(!std::convertible_to<vccl::qpn, std::uint32_t>);
    static_assert(!comparable<vccl::lkey, vccl::rkey>);
    static_assert(comparable<vccl::lkey, vccl::lkey>);
    static_assert(std::is_trivially_copyable_v<vccl::sequence> && sizeof(vccl::sequence) == 8);
    static_assert(sizeof(vccl::lane_id) == 1);
}

TEST_CASE("identifiers start at zero and compare by number") {
    CHECK(vccl::qpn{}.value == 0);
    CHECK(vccl::sequence{3} < vccl::sequence{4});
    CHECK(vccl::epoch{2} == vccl::epoch{2});
    CHECK(vccl::epoch{2} != vccl::epoch{3});
}

TEST_CASE("adding a count wraps in the identifier's own width") {
    CHECK((vccl::sequence{41} + std::uint64_t{1}) == vccl::sequence{42});
    CHECK((vccl::lane_id{255} + std::uint8_t{1}) == vccl::lane_id{0});
    CHECK((vccl::epoch{0xffffffffU} + 2U) == vccl::epoch{1});
}
