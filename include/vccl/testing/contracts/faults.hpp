#pragma once
/// \file
/// Contracts of a broken path: what the sender sees and may not see, that the fence accounts for everything all the same, and
/// that the path works again once mended. For backend authors whose fixture can inflict faults; see testing/contracts.hpp.

#include <vccl/testing/contracts/fence.hpp>

#include <string>
#include <utility>

namespace vccl::inline v0::testing {

/// Returns: whether the case must be left out, after saying so.
template <class F>
bool left_out(F& fixture, fault what) {
    if (can(fixture, what)) return false;
    MESSAGE("skipped: this fixture cannot inflict: " << std::string(name(what)));
    return true;
}

/// A break that at least lasts as long as its object lives.
template <class F>
class broken {
public:
    broken(F& fixture, fault what) : fixture_(fixture), what_(what) { must(fixture_.inflict(what_), "inflict"); }
    void mend() {
        if (!std::exchange(mended_, true)) must(fixture_.mend(what_), "mend");
    }
    ~broken() {
        if (!mended_) (void)fixture_.mend(what_);
    }
    broken(const broken&) = delete;
    broken& operator=(const broken&) = delete;

private:
    F& fixture_;
    fault what_;
    bool mended_{false};
};

/// Waits until the port has reported an event of this kind.
template <class F>
bool await_event(F& fixture, typename F::backend::port& port, async_event::kind wanted) {
    return wait_until(fixture, [&] {
        for (;;) {
            const async_event event = must(port.next_event(), "next_event");
            if (event.what == async_event::kind::none) return false;
            if (event.what == wanted) return true;
        }
    });
}
template <class Port>
void forget_events(Port& port) {
    while (must(port.next_event(), "next_event").what != async_event::kind::none) {}
}
template <class F>
bool await_state(F& fixture, typename F::backend::port& port, port_state wanted) {
    return wait_until(fixture, [&] { return must(port.query(), "query").state == wanted; });
}

constexpr bool at_local_end(fault f) noexcept { return f == fault::local_port || f == fault::local_cable; }
constexpr bool at_remote_end(fault f) noexcept { return f == fault::remote_port || f == fault::remote_cable; }

/// WRs are outstanding while the path breaks. A sender whose own port died may get LOC_QP_OP_ERR, RETRY_EXC, flushes only, or no
/// completion at all; in every other case RETRY_EXC. Either way to_error accounts for each WR once, what completed has
/// landed, and the mended path carries traffic over the rebuilt QPs.
template <class F>
void must_outlive(fault what) {
    F fixture;
    if (left_out(fixture, what)) return;
    if constexpr (fault_fixture<F>) {
        constexpr std::uint32_t count = 32, length = 16 * 1024;
        connection<F> c{fixture, {.bytes = std::size_t{count} * length}};
        auto& port = at_remote_end(what) ? fixture.remote() : fixture.local();
        const bool has_events = at_local_end(what) || at_remote_end(what);
        forget_events(port);
        c.a.fill(31);
        c.b.fill(77);

        const auto post = [&](std::uint32_t i) {
            must(c.a.qp->post(c.make(work_op::write, std::size_t{i} * length, std::size_t{i} * length, length, i)), "post");
        };
        for (std::uint32_t i = 0; i < count / 2; ++i) post(i);
        broken<F> path{fixture, what};
        for (std::uint32_t i = count / 2; i < count; ++i) post(i);

        if (has_events) {
            CHECK(await_event(fixture, port, async_event::kind::port_error));
            CHECK(await_state(fixture, port, port_state::down));
        }
        const auto failed = [&] {
            c.collect();
            return std::any_of(c.a.done.begin(), c.a.done.end(), [](const auto& d) { return d.status != wc_status::success; });
        };
        // The retry time of the stock timers is 0.2 s; whoever is still silent after this stays so.
        const bool told = wait_until(fixture, failed, at_local_end(what) ? nanoseconds{1'000'000'000} : patience);
        if (!at_local_end(what)) CHECK(told);

        must(c.a.qp->to_error(), "to_error");
        REQUIRE(c.await(c.a, count));
        check_each_once(c.a.done, 0, count);
        const auto first =
            std::find_if(c.a.done.begin(), c.a.done.end(), [](const auto& d) { return d.status != wc_status::success; });
        REQUIRE(first != c.a.done.end());
        CAPTURE(int(first->status));
        if (at_local_end(what))
            CHECK(one_of(first->status, {wc_status::loc_qp_op_err, wc_status::retry_exc_err, wc_status::wr_flush_err}));
        else
            CHECK(first->status == wc_status::retry_exc_err);
        CHECK(std::all_of(first + 1, c.a.done.end(), [](const auto& d) { return d.status == wc_status::wr_flush_err; }));
        for (auto d = c.a.done.begin(); d != first; ++d) {
            const auto at = static_cast<std::ptrdiff_t>(d->wr_id * length);
            CHECK(std::equal(c.a.memory.begin() + at, c.a.memory.begin() + at + length, c.b.memory.begin() + at));
        }

        path.mend();
        CHECK(await_state(fixture, port, port_state::active));
        if (has_events) CHECK(await_event(fixture, port, async_event::kind::port_active));
        c.rebuild();
        c.must_carry();
    }
}

VCCL_CONTRACT(contract_local_port, "the local port goes down with WRs outstanding, and comes back", F) {
    must_outlive<F>(fault::local_port);
}
VCCL_CONTRACT(contract_remote_port, "the remote port goes down with WRs outstanding, and comes back", F) {
    must_outlive<F>(fault::remote_port);
}
VCCL_CONTRACT(contract_local_cable, "the local cable is pulled with WRs outstanding, and put back", F) {
    must_outlive<F>(fault::local_cable);
}
VCCL_CONTRACT(contract_remote_cable, "the remote cable is pulled with WRs outstanding, and put back", F) {
    must_outlive<F>(fault::remote_cable);
}
VCCL_CONTRACT(contract_switch, "the switch dies with WRs outstanding, and revives", F) { must_outlive<F>(fault::rail_switch); }
VCCL_CONTRACT(contract_blackout, "every packet is lost with WRs outstanding, then none", F) { must_outlive<F>(fault::blackout); }

VCCL_CONTRACT(contract_flap, "a port that goes down and up again and again works afterwards", F) {
    F fixture;
    if (left_out(fixture, fault::local_port)) return;
    if constexpr (fault_fixture<F>) {
        connection<F> c{fixture};
        for (int i = 0; i < 5; ++i) {
            broken<F> port{fixture, fault::local_port};
            CHECK(await_state(fixture, fixture.local(), port_state::down));
            port.mend();
            CHECK(await_state(fixture, fixture.local(), port_state::active));
        }
        c.rebuild();
        c.must_carry();
    }
}

VCCL_CONTRACT(contract_blip, "a path that is back before the retries are used up loses nothing", F) {
    F fixture;
    const fault what = can(fixture, fault::rail_switch) ? fault::rail_switch : fault::blackout;
    if (left_out(fixture, what)) return;
    if constexpr (fault_fixture<F>) {
        // Retries last 3.7 s; the path is away for some milliseconds.
        connection<F> c{fixture, {.timers = {.timeout = 17, .retry_count = 6}}};
        constexpr unsigned count = 8, length = 8 * 1024;
        c.a.fill(41);
        c.b.clear(0);
        broken<F> path{fixture, what};
        for (unsigned i = 0; i < count; ++i)
            must(c.a.qp->post(c.make(work_op::write, i * length, i * length, length, i)), "post");
        let_pass(fixture, nanoseconds{5'000'000});
        c.collect();
        CHECK(c.a.done.empty());
        path.mend();
        REQUIRE(c.await(c.a, count));
        for (const completion& done : c.a.done) CHECK(done.status == wc_status::success);
        CHECK(c.a.memory == c.b.memory);
    }
}

VCCL_CONTRACT(contract_lossy, "a path that loses some packets delivers every byte, and every atomic once", F) {
    F fixture;
    if (left_out(fixture, fault::loss)) return;
    if constexpr (fault_fixture<F>) {
        constexpr std::uint32_t writes = 24, length = 32 * 1024, atomics = 40;
        connection<F> c{fixture, {.bytes = std::size_t{writes} * length + 64, .timers = {.timeout = 12, .retry_count = 6}}};
        c.a.fill(51);
        c.b.clear(0);
        broken<F> path{fixture, fault::loss};
        for (std::uint32_t i = 0; i < writes; ++i)
            must(c.a.qp->post(c.make(work_op::write, std::size_t{i} * length, std::size_t{i} * length, length, i)), "post");
        REQUIRE(c.await(c.a, writes));
        for (const completion& done : c.a.done) CHECK(done.status == wc_status::success);
        CHECK(std::equal(c.a.memory.begin(), c.a.memory.begin() + writes * length, c.b.memory.begin()));
        if constexpr (F::backend::capabilities.atomics) {
            for (std::uint32_t i = 0; i < atomics; ++i) {
                work w = c.make(work_op::fetch_add, std::size_t{writes} * length, std::size_t{writes} * length, 8, i);
                w.swap_add = 1;
                REQUIRE(c.run(w).status == wc_status::success);
                CHECK(c.a.word(std::size_t{writes} * length) == i);
            }
            CHECK(c.b.word(std::size_t{writes} * length) == atomics);
        }
    }
}

}  // namespace vccl::inline v0::testing

#define VCCL_FAULT_CONTRACTS(...)                          \
    VCCL_RUN_CONTRACT(contract_local_port, __VA_ARGS__);   \
    VCCL_RUN_CONTRACT(contract_remote_port, __VA_ARGS__);  \
    VCCL_RUN_CONTRACT(contract_local_cable, __VA_ARGS__);  \
    VCCL_RUN_CONTRACT(contract_remote_cable, __VA_ARGS__); \
    VCCL_RUN_CONTRACT(contract_switch, __VA_ARGS__);       \
    VCCL_RUN_CONTRACT(contract_blackout, __VA_ARGS__);     \
    VCCL_RUN_CONTRACT(contract_flap, __VA_ARGS__);         \
    VCCL_RUN_CONTRACT(contract_blip, __VA_ARGS__);         \
    VCCL_RUN_CONTRACT(contract_lossy, __VA_ARGS__)
