#pragma once
/// \file
/// Contracts of a QP's states: RESET, INIT, RTR, RTS and ERR. For backend authors; see testing/contracts.hpp.

#include <vccl/testing/contracts/connection.hpp>

namespace vccl::inline v0::testing {

VCCL_CONTRACT(contract_states, "a QP climbs RESET, INIT, RTR, RTS, and says where it is", F) {
    F fixture;
    endpoint<F> e{fixture.local(), {}};
    CHECK(must(e.qp->state(), "state") == qp_state::reset);
    must(e.qp->to_init(), "to_init");
    CHECK(must(e.qp->state(), "state") == qp_state::init);

    const port_attributes own = must(e.port.query(), "query");
    const qp_peer itself{.number = e.qp->number(), .first_psn = psn{77}, .address = own.address, .lid = own.lid, .mtu = own.mtu};
    must(e.qp->to_ready_to_receive(itself, {}), "to_ready_to_receive");
    CHECK(must(e.qp->state(), "state") == qp_state::ready_to_receive);
    must(e.qp->to_ready_to_send(psn{77}, {}), "to_ready_to_send");
    CHECK(must(e.qp->state(), "state") == qp_state::ready_to_send);
    must(e.qp->to_error(), "to_error");
    CHECK(must(e.qp->state(), "state") == qp_state::error);
    must(e.qp->to_error(), "to_error a second time");
    must(e.qp->to_reset(), "to_reset");
    CHECK(must(e.qp->state(), "state") == qp_state::reset);
}

VCCL_CONTRACT(contract_state_order, "a step out of order is refused and changes nothing", F) {
    F fixture;
    endpoint<F> e{fixture.local(), {}};
    const port_attributes own = must(e.port.query(), "query");
    const qp_peer itself{.number = e.qp->number(), .first_psn = psn{1}, .address = own.address, .lid = own.lid, .mtu = own.mtu};
    CHECK_FALSE(e.qp->to_ready_to_receive(itself, {}));
    CHECK_FALSE(e.qp->to_ready_to_send(psn{1}, {}));
    CHECK(must(e.qp->state(), "state") == qp_state::reset);
    must(e.qp->to_init(), "to_init");
    CHECK_FALSE(e.qp->to_ready_to_send(psn{1}, {}));
    CHECK(must(e.qp->state(), "state") == qp_state::init);
}

VCCL_CONTRACT(contract_error_from_any_state, "a QP can be moved to ERR from INIT, RTR and RTS, and back to RESET", F) {
    F fixture;
    endpoint<F> e{fixture.local(), {}};
    const port_attributes own = must(e.port.query(), "query");
    const qp_peer itself{.number = e.qp->number(), .first_psn = psn{5}, .address = own.address, .lid = own.lid, .mtu = own.mtu};
    for (int steps = 1; steps <= 3; ++steps) {
        CAPTURE(steps);
        must(e.qp->to_init(), "to_init");
        if (steps >= 2) must(e.qp->to_ready_to_receive(itself, {}), "to_ready_to_receive");
        if (steps >= 3) must(e.qp->to_ready_to_send(psn{5}, {}), "to_ready_to_send");
        must(e.qp->to_error(), "to_error");
        CHECK(must(e.qp->state(), "state") == qp_state::error);
        must(e.qp->to_reset(), "to_reset");
    }
}

VCCL_CONTRACT(contract_numbers_differ, "two QPs of a port have two numbers, two registrations two keys", F) {
    F fixture;
    endpoint<F> one{fixture.local(), {}};
    endpoint<F> two{fixture.local(), {}};
    CHECK(one.qp->number() != two.qp->number());
    CHECK(one.mr->remote_key() != two.mr->remote_key());
}

VCCL_CONTRACT(contract_port_is_described, "an active port tells its MTU and its address", F) {
    F fixture;
    const port_attributes local = must(fixture.local().query(), "query");
    const port_attributes remote = must(fixture.remote().query(), "query");
    CHECK(local.state == port_state::active);
    CHECK(remote.state == port_state::active);
    CHECK((local.mtu == 256 || local.mtu == 512 || local.mtu == 1024 || local.mtu == 2048 || local.mtu == 4096));
    CHECK_FALSE((local.address == remote.address && local.lid == remote.lid));
}

}  // namespace vccl::inline v0::testing

#define VCCL_LADDER_CONTRACTS(...)                                 \
    VCCL_RUN_CONTRACT(contract_states, __VA_ARGS__);               \
    VCCL_RUN_CONTRACT(contract_state_order, __VA_ARGS__);          \
    VCCL_RUN_CONTRACT(contract_error_from_any_state, __VA_ARGS__); \
    VCCL_RUN_CONTRACT(contract_numbers_differ, __VA_ARGS__);       \
    VCCL_RUN_CONTRACT(contract_port_is_described, __VA_ARGS__)
