/// \file
/// The software RNIC when memory has run out: packets are lost and QPs fail, as on a NIC; nothing is thrown out of a post
/// or a poll, and what is posted afterwards works. The program's own allocation functions refuse on command.

#include "support.hpp"

#include <cstdlib>
#include <new>

namespace {

bool memory_is_out = false;

// Not inlined: the compiler would match `free` against `new`.
__attribute__((noinline)) void* allocate(std::size_t bytes) noexcept {
    return memory_is_out ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
}

__attribute__((noinline)) void release(void* p) noexcept { std::free(p); }

}  // namespace

void* operator new(std::size_t bytes) {
    if (void* p = allocate(bytes)) return p;
    throw std::bad_alloc{};
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return operator new(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes); }
void operator delete(void* p) noexcept { release(p); }
void operator delete(void* p, std::size_t) noexcept { release(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { release(p); }
void operator delete[](void* p) noexcept { release(p); }
void operator delete[](void* p, std::size_t) noexcept { release(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { release(p); }

using namespace soft_test;

namespace {

/// Memory is out while it lives.
struct shortage {
    shortage() { memory_is_out = true; }
    ~shortage() { memory_is_out = false; }
};

end_options patient() {
    end_options o;
    o.limits.send_depth = 4096;
    o.cq_depth = 16384;
    return o;
}

}  // namespace

TEST_CASE("No memory for packets in flight: they are lost, sent again when there is memory, and arrive once") {
    auto p = make_pair(by_hand(), patient());
    fill(p.a, 3);
    {
        const shortage now;
        for (std::uint64_t i = 0; i < 64; ++i) REQUIRE(p.a.qp.post(write(p.a, p.b, 8192, i, i * 8192)));
        p.fabric.advance(1_ms);
    }
    run_dry(p.fabric);
    const auto done = drain(p.a);
    REQUIRE(done.size() == 64);
    for (const auto& c : done) CHECK(c.status == wc_status::success);
    CHECK(std::equal(p.a.words.begin(), p.a.words.begin() + 64 * 1024, p.b.words.begin()));
}

TEST_CASE("No memory for what is to happen next: each QP does its work or ends in ERR, and a new one works") {
    const auto options = by_hand();
    auto fabric = take(soft_fabric::create(soft_topology(2, 2, 2, 2), options));
    const auto a = take(fabric.host("A")), b = take(fabric.host("B"));
    std::vector<end> from, to;
    end_options o;
    o.bytes = 4096;
    for (int i = 0; i < 700; ++i) {
        from.push_back(make_end(a, "A.nic0.p0", o));
        to.push_back(make_end(b, "B.nic0.p0", o));
        join(from.back(), to.back(), o);
        join(to.back(), from.back(), o);
    }
    {
        const shortage now;
        for (std::size_t i = 0; i < from.size(); ++i) (void)from[i].qp.post(write(from[i], to[i], 64));
        for (std::size_t i = 0; i < from.size(); ++i) (void)to[i].qp.post(write(to[i], from[i], 64));
        fabric.advance(1_ms);
    }
    run_dry(fabric);
    std::size_t flushed = 0;
    for (auto* ends : {&from, &to})
        for (end& e : *ends) {
            const auto done = drain(e);
            REQUIRE(done.size() == 1);
            flushed += done[0].status == wc_status::wr_flush_err;
            CHECK((done[0].status == wc_status::success || done[0].status == wc_status::wr_flush_err ||
                   done[0].status == wc_status::retry_exc_err));
        }
    CHECK(flushed > 0);  // otherwise there was no shortage

    end again = make_end(a, "A.nic0.p0", o), there = make_end(b, "B.nic0.p0", o);
    join(again, there, o);
    join(there, again, o);
    REQUIRE(again.qp.post(write(again, there, 64)));
    run_dry(fabric);
    const auto done = drain(again);
    REQUIRE(done.size() == 1);
    CHECK(done[0].status == wc_status::success);
}
