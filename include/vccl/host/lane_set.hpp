#pragma once
/// \file
/// The lanes of one endpoint and the ports that they take: opened, told to the peer in a blob, connected as the peer's blob
/// says. Which of them are in use is not known here. Owner thread of the endpoint only; set-up may allocate and make system
/// calls.

#include <vccl/base/clock.hpp>
#include <vccl/host/blob.hpp>
#include <vccl/host/context.hpp>
#include <vccl/host/options.hpp>
#include <vccl/qp/lane.hpp>

#include <time.h>

namespace vccl::inline v0 {

/// What an endpoint says of its lanes.
template <verbs_backend B>
class lane_set {
public:
    unsigned lanes() const noexcept { return count_; }  ///< the primary included; 0 before local_info()
    /// The local port of a lane, for messages.
    port_name lane_port(lane_id l) const noexcept { return l.value < count_ ? own_.lane[l.value].port : port_name{"?"}; }
    /// The peer's port of a lane, once its blob is known.
    port_name peer_port(lane_id l) const noexcept { return l.value < count_ ? peer_.lane[l.value].port : port_name{"?"}; }

protected:
    VCCL_COLD lane_set(host_context<B>& context, starting_point from, channel_id channel, const endpoint_options& options)
        : context_(context), context_stamp_(context.stamp()), from_(from), options_(options), channel_(channel) {}

    open_port<B>& port_of(unsigned l) noexcept { return context_.port(slots_[l]); }
    VCCL_COLD bool any_port_up() noexcept {
        for (unsigned l = 0; l < count_; ++l)
            if (port_of(l).up.load()) return true;
        return false;
    }

    /// Effects: opens the ports that the policy chooses, makes a lane's QPs on each, and writes both into the own blob.
    template <class Port>
    VCCL_COLD status open_lanes(Port& choice, const lane_shape& shape) {
        if (!detail::in_range(options_)) return errc::invalid_argument;
        const topology& t = context_.shape();
        auto ports = from_.is_port ? lanes_for(t, from_.port, channel_, choice, options_.lanes)
                                   : lanes_for(t, from_.gpu, channel_, choice, options_.lanes);
        if (!ports) return ports.error();
        count_ = ports->size();
        if (options_.first_lane >= count_) return status{errc::no_port, options_.first_lane};
        own_ = connection_blob{};
        own_.nonce = detail::random_word(options_.seed);
        own_.session = options_.session;
        own_.channel = channel_.value;
        own_.lanes = static_cast<std::uint8_t>(count_);
        own_.group = static_cast<std::uint8_t>(shape.group);
        own_.max_chunk = options_.max_chunk;
        for (unsigned l = 0; l < count_; ++l) {
            auto slot = context_.open((*ports)[l]);
            if (!slot) return on_lane(slot.error(), l);
            slots_[l] = *slot;
            if (status s = lanes_[l].create(port_of(l).port, l, shape, own_.nonce); !s) return on_lane(s, l);
            auto end = lanes_[l].end();
            auto attributes = port_of(l).port.query();
            if (!end || !attributes) return on_lane(end ? attributes.error() : end.error(), l);
            blob_lane& b = own_.lane[l];
            b.port = port_of(l).name;
            b.end = *end;
            b.rail = t.ports[(*ports)[l].value].rail.value;
            b.up = attributes->state == port_state::active;
            b.link = static_cast<std::uint8_t>(attributes->link);
        }
        own_.host = t.hosts[t.host_of((*ports)[0]).value].name.view();
        return {};
    }

    /// Effects: connects the lanes whose ports are up at both ends; peers whose addresses are still being asked for get a
    /// tenth of a second in all to be found. Returns: the lanes that are connected, a bit each.
    VCCL_COLD std::uint32_t connect_lanes() noexcept {
        constexpr timespec pause{0, 1'000'000};
        const steady_clock clock;  // the kernel and the network are waited for here: real time, whatever the endpoint's clock
        const nanoseconds deadline = clock.now() + nanoseconds{100'000'000};
        std::uint32_t up = 0, early = 0;
        for (unsigned l = 0; l < count_; ++l)
            if (own_.lane[l].up && peer_.lane[l].up && port_of(l).up.load()) early |= 1u << l;
        for (;;) {
            for (unsigned l = 0; l < count_; ++l)
                if ((early >> l & 1) != 0) try_lane(l, up, early);
            if (early == 0 || clock.now() >= deadline) break;
            ::nanosleep(&pause, nullptr);
        }
        if (up != 0) refused_ = {};
        return up;
    }

    static status on_lane(status s, unsigned l) noexcept {
        s.lane = static_cast<std::uint8_t>(l);
        return s;
    }

    VCCL_COLD void try_lane(unsigned l, std::uint32_t& up, std::uint32_t& early) noexcept {
        const status s = lanes_[l].connect(peer_.lane[l].end);
        if (s) up |= 1u << l;
        if (!is_too_early(s)) early &= ~(1u << l);
        if (!s && (refused_ || is_too_early(refused_))) refused_ = on_lane(s, l);
    }

    lane<B> lanes_[max_lanes];
    unsigned slots_[max_lanes]{};  ///< of each lane's port in the context, and in every registration
    unsigned count_{};
    host_context<B>& context_;
    std::uint64_t context_stamp_;
    starting_point from_;
    endpoint_options options_;
    channel_id channel_;
    connection_blob own_{}, peer_{};
    status refused_{};  ///< why none of the lanes whose ports are up could be connected; the first that tells of more than haste
};

}  // namespace vccl::inline v0
