// Every stock port policy and combination passes the contract suite; policies that break a rule are caught by it.
#include <vccl/policy/port_policies.hpp>
#include <vccl/testing/port_policy_contract.hpp>

#include <tuple>

namespace {

using namespace vccl;

using pair_of_both = first_of<sibling_port, adjacent_gpu>;
using one_after_the_other = each_of<sibling_port, adjacent_gpu>;
using parity_then_neighbour = first_of<channel_parity, adjacent_gpu>;
using nested = each_of<first_of<no_backup, sibling_port>, adjacent_gpu>;

struct backs_itself_up {
    using policy_axis = axis::port;
    result<port_id> backup_for(const topology& t, port_id p, channel_id) const noexcept {
        return t.valid(p) ? result<port_id>{p} : result<port_id>{errc::no_port};
    }
};
struct next_index {  // the arithmetic on numbers that a topology replaces
    using policy_axis = axis::port;
    result<port_id> backup_for(const topology& t, port_id p, channel_id) const noexcept {
        if (!t.valid(p)) return errc::no_port;
        return port_id{static_cast<std::uint16_t>((p.value + 1) % t.ports.size())};
    }
};
struct believes_in_missing_ports {
    using policy_axis = axis::port;
    result<port_id> backup_for(const topology&, port_id p, channel_id) const noexcept { return p + std::uint16_t{1}; }
};
struct changes_its_mind {
    using policy_axis = axis::port;
    mutable bool turn{};
    result<port_id> backup_for(const topology& t, port_id p, channel_id c) const noexcept {
        turn = !turn;
        return turn ? sibling_port{}.backup_for(t, p, c) : result<port_id>{errc::no_port};
    }
};
struct two_truths {
    using policy_axis = axis::port;
    result<port_id> backup_for(const topology& t, port_id p, channel_id c) const noexcept {
        return sibling_port{}.backup_for(t, p, c);
    }
    lane_list backups_for(const topology&, port_id, channel_id) const noexcept { return {}; }
};
struct primary_anywhere {
    using policy_axis = axis::port;
    result<port_id> backup_for(const topology& t, port_id p, channel_id c) const noexcept {
        return sibling_port{}.backup_for(t, p, c);
    }
    result<port_id> primary_for(const topology&, gpu_id, channel_id) const noexcept { return port_id{0}; }
};

TEST_CASE_TEMPLATE("the port policy contract catches a policy that breaks it", P, backs_itself_up, next_index,
                   believes_in_missing_ports, changes_its_mind, two_truths, primary_anywhere) {
    CHECK_NE(vccl::testing::port_policy_violation(P{}, make_cluster(2, 2, 2, 2)), std::string{});
}

}  // namespace

namespace vccl::testing {
TEST_CASE_TEMPLATE_INVOKE(port_policy_contract, no_backup, sibling_port, adjacent_gpu, channel_parity, pair_of_both,
                          one_after_the_other, parity_then_neighbour, nested);
}
