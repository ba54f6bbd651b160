#pragma once
// The handler that tells NCCL's log what happened to a connection. A port has many connections, which all fail over when it dies:
// the first says so as a warning, the others, for a second, as information.
#include "log.hpp"

#include <vccl/base/clock.hpp>
#include <vccl/policy/completion.hpp>
#include <vccl/telemetry/event_text.hpp>

#include <mutex>
#include <vector>

namespace nccl_net {

/// What a connection is called in the log. Filled when both ends know each other; outlives the endpoint.
struct channel_label {
    std::string peer;  // "to B" or "from B"
    std::string lanes[vccl::max_lanes];  // "A.nic0.p0>B.nic0.p0"
    unsigned count{};
    bool quiet{};  // closing: what happens now is nobody's concern
    bool end_said{};  // the log has why it failed

    vccl::lane_names names() const {
        vccl::lane_names out{};
        for (unsigned l = 0; l < count; ++l) out.names[l] = lanes[l];
        return out;
    }
    /// This end's port of a lane.
    std::string port(vccl::lane_id l) const {
        return l.value < count ? lanes[l.value].substr(0, lanes[l.value].find('>')) : std::string();
    }
    std::string all() const {
        std::string out;
        for (unsigned l = 0; l < count; ++l) out += (l ? ", " : "") + lanes[l];
        return out;
    }
};

/// Tells the first of many like events from the rest: those within a second. Any thread.
class firsts {
public:
    bool is_first(const std::string& what) {
        const std::scoped_lock lock(mutex_);
        const vccl::nanoseconds now = vccl::steady_clock{}.now();
        for (seen& s : seen_)
            if (s.what == what) {
                const bool old = now - s.at > vccl::nanoseconds{1'000'000'000};
                if (old) s.at = now;
                return old;
            }
        seen_.push_back({what, now});
        return true;
    }

private:
    struct seen {
        std::string what;
        vccl::nanoseconds at;
    };
    std::mutex mutex_;
    std::vector<seen> seen_;
};

struct event_log {
    using policy_axis = vccl::axis::completion;
    channel_label* label{};

    void on_event(const vccl::channel_event& e) noexcept {
        using kind = vccl::channel_event::kind;
        if (!label || label->quiet) return;
        try {
            const std::string line = label->peer + ": " + vccl::describe(e, label->names());
            switch (e.what) {
                case kind::failed:
                    label->end_said = true;
                    say(e.what, "", line + "; lanes: " + label->all());
                    break;
                case kind::failed_over: say(e.what, label->port(e.to), line); break;
                case kind::suspended: say(e.what, label->port(e.lane), line); break;
                case kind::lane_failed:
                case kind::lane_restored:
                case kind::failed_back: info(line); break;
                default: break;
            }
        } catch (...) {  // no memory for a line: the channel matters more
        }
    }

private:
    static void say(vccl::channel_event::kind what, const std::string& port, const std::string& line) {
        static firsts& all = *new firsts;  // never destroyed, as the keeper's thread may outlast statics
        if (all.is_first(std::to_string(static_cast<int>(what)) + port))
            warn(line);
        else
            info(line);
    }
};
static_assert(vccl::completion_handler<event_log>);

}  // namespace nccl_net
