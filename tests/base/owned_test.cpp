#include <vccl/base/owned.hpp>

#include <doctest/doctest.h>

#include <utility>

namespace {

struct counted {
    explicit counted(int v) noexcept : value(v) { ++alive; }
    ~counted() { --alive; }
    counted(const counted&) = delete;

    vccl::owned<counted> next;
    int value;
    static inline int alive = 0;
};

}  // namespace

TEST_CASE("an owned object ends with its owner, once, whoever that is by then") {
    {
        vccl::owned<counted> a(new counted(1));
        vccl::owned<counted> b = std::move(a);
        CHECK_FALSE(a);
        REQUIRE(b);
        CHECK(b->value == 1);
        a = std::move(b);
        CHECK(counted::alive == 1);
        counted* const bare = a.release();
        CHECK_FALSE(a);
        a.reset(bare);
        a.reset(new counted(2));
        CHECK(counted::alive == 1);
    }
    CHECK(counted::alive == 0);
}

TEST_CASE("a chain of owned objects is taken apart from its head") {
    vccl::owned<counted> head;
    for (int i = 0; i < 3; ++i) {
        vccl::owned<counted> fresh(new counted(i));
        fresh->next = std::move(head);
        head = std::move(fresh);
    }
    for (int left = 3; head; --left) {
        CHECK(counted::alive == left);
        head = std::move(head->next);
    }
    CHECK(counted::alive == 0);
}

TEST_CASE("an owned array is indexed and ends as one") {
    vccl::owned_array<int> a(new int[4]{1, 2, 3, 4});
    CHECK(a[2] == 3);
    a.reset();
    CHECK_FALSE(a);
}

TEST_CASE("a late value is made when asked for, replaced, and ended with its owner") {
    {
        vccl::late<counted> v;
        CHECK_FALSE(v);
        CHECK(counted::alive == 0);
        v.emplace(1);
        CHECK(v.emplace(2).value == 2);
        CHECK((*v).value == 2);
        CHECK(counted::alive == 1);
        v.reset();
        CHECK_FALSE(v);
        CHECK(counted::alive == 0);
        v.emplace(3);
    }
    CHECK(counted::alive == 0);
}
