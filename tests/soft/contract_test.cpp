/// The contract suite on the software RNIC: in real time, by hand with a wire that takes time, and once for each way in which
/// a sender may learn (or not learn) that its own port died.
#include <vccl/base/clock.hpp>
#include <vccl/testing/contracts.hpp>
#include <vccl/verbs/soft.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <thread>

namespace soft_contract {

using namespace vccl;
using namespace vccl::literals;
using testing::fault;
using verbs::port_down_behaviour;

class fabric_fixture {
public:
    using backend = verbs::soft;

    explicit fabric_fixture(const verbs::soft_options& options)
        : fabric_(testing::must(verbs::soft_fabric::create(verbs::soft_topology(2, 1, 1, 1), options), "create")) {
        local_.emplace(open("A"));
        remote_.emplace(open("B"));
    }
    backend::port& local() { return *local_; }
    backend::port& remote() { return *remote_; }

    bool can(fault) const { return true; }
    status inflict(fault what) { return fabric_.command(words(what).broken); }
    status mend(fault what) { return fabric_.command(words(what).mended); }

protected:
    verbs::soft_fabric fabric_;

private:
    struct command_pair {
        const char *broken, *mended;
    };
    static command_pair words(fault what) {
        switch (what) {
            case fault::local_port: return {"down A.nic0.p0", "up A.nic0.p0"};
            case fault::remote_port: return {"down B.nic0.p0", "up B.nic0.p0"};
            case fault::local_cable: return {"cable-down A.nic0.p0", "cable-up A.nic0.p0"};
            case fault::remote_cable: return {"cable-down B.nic0.p0", "cable-up B.nic0.p0"};
            case fault::rail_switch: return {"switch-down rail0", "switch-up rail0"};
            case fault::blackout: return {"loss all 100%", "clear all"};
            case fault::loss: return {"loss all 3%", "clear all"};
        }
        return {};
    }
    backend::port open(const char* host) {
        auto backend = testing::must(fabric_.host(host), "host");
        return testing::must(backend.open(std::string_view(std::string(host) + ".nic0.p0")), "open");
    }

    std::optional<backend::port> local_, remote_;
};

struct real_time : fabric_fixture {
    explicit real_time(const verbs::soft_options& options = {}) : fabric_fixture(options) {}
    void drive() { std::this_thread::yield(); }
    nanoseconds now() const { return steady_clock{}.now(); }
};

/// A wire that takes time: without one all is over when post returns.
struct paced : real_time {
    paced() : real_time(options()) {}

private:
    static verbs::soft_options options() {
        verbs::soft_options o;
        o.bytes_per_second = 4'000'000'000;
        o.latency = 20_us;
        return o;
    }
};

template <port_down_behaviour OwnPortDown>
struct by_hand : fabric_fixture {
    by_hand() : fabric_fixture(options()) {}
    void drive() { fabric_.advance(std::clamp(fabric_.next_event_at() - fabric_.now(), 1_us, 1_ms)); }
    nanoseconds now() const { return fabric_.now(); }

private:
    static verbs::soft_options options() {
        verbs::soft_options o;
        o.manual_time = true;
        o.bytes_per_second = 12'500'000'000;
        o.latency = 2_us;
        o.on_port_down = OwnPortDown;
        return o;
    }
};

using stepped = by_hand<port_down_behaviour::retry>;
using stepped_op_error = by_hand<port_down_behaviour::op_error>;
using stepped_flush = by_hand<port_down_behaviour::flush>;
using stepped_silent = by_hand<port_down_behaviour::silent>;

static_assert(testing::fault_fixture<real_time> && testing::fault_fixture<stepped>);

}  // namespace soft_contract

TYPE_TO_STRING(soft_contract::real_time);
TYPE_TO_STRING(soft_contract::paced);
TYPE_TO_STRING(soft_contract::stepped);
TYPE_TO_STRING(soft_contract::stepped_op_error);
TYPE_TO_STRING(soft_contract::stepped_flush);
TYPE_TO_STRING(soft_contract::stepped_silent);

VCCL_BACKEND_CONTRACTS(soft_contract::real_time, soft_contract::stepped);
VCCL_FENCE_CONTRACTS(soft_contract::paced);
VCCL_FAULT_CONTRACTS(soft_contract::paced, soft_contract::stepped_op_error, soft_contract::stepped_flush,
                     soft_contract::stepped_silent);
