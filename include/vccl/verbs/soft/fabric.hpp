#pragma once
/// \file
/// `soft_fabric`: owns a software fabric and its faults. Create one in this process, or a named one that other processes
/// attach to; ask it for a host's backend; move its time by hand; break its ports. Any thread, except manual time.

#include <vccl/verbs/soft/handles.hpp>

#include <string>

namespace vccl::inline v0::verbs {

/// A row of `vccl-fabric status`.
struct soft_port_status {
    port_name name;  ///< as fault commands call it
    rail_id rail;            ///< its switch plane
    /// Traffic needs all three: the port, its cable, the switch of its rail.
    /// @{
    bool up{}, cable{}, switch_up{};
    /// @}
    std::uint32_t faults{};  ///< soft_detail::fault_bits
    std::uint64_t bytes_per_second{};  ///< as commands have set it; 0: unlimited
    /// Since the fabric was made, this port; `dropped` counts packets that a fault took.
    /// @{
    std::uint64_t bytes_out{}, bytes_in{}, packets_out{}, dropped{};
    /// @}
    std::uint32_t downs{};  ///< times that the port went down
};

/// Move-only. The creator's destructor takes the name away; attached processes keep what they have.
class soft_fabric {
public:
    soft_fabric(soft_fabric&&) noexcept = default;
    /// Swaps: what was held before goes with `o`.
    soft_fabric& operator=(soft_fabric&& o) noexcept {
        std::swap(engine_, o.engine_);
        std::swap(creator_, o.creator_);
        return *this;
    }
    ~soft_fabric() {
        if (engine_ && creator_) engine_->unlink();
    }

    /// In this process: anonymous memory.
    static result<soft_fabric> create(const topology& t, const soft_options& o = {}) {
        if (auto s = check(t, o); !s) return s;
        auto map = soft_detail::segment_map::anonymous(t, o);
        if (!map) return map.error();
        return result<soft_fabric>(
            soft_fabric(std::make_shared<soft_detail::engine>(std::move(*map), topology(t), o.manual_time), false));
    }
    /// For this process and others, under a name of letters, digits, '-' and '_'. `already_exists`: a live process has it.
    /// `permission` (`subject::owner`): another user has it. `no_memory` (`subject::shared_memory`): /dev/shm is full.
    static result<soft_fabric> create_shared(std::string_view name, const topology& t, const soft_options& o = {}) {
        if (auto s = check(t, o); !s) return s;
        if (o.manual_time) return errc::unsupported;
        auto map = soft_detail::segment_map::create(name, t, o);
        if (!map) return map.error();
        return result<soft_fabric>(soft_fabric(std::make_shared<soft_detail::engine>(std::move(*map), topology(t), false), true));
    }
    /// `not_found`: no such fabric. `permission` (`subject::owner`): it is another user's. `version_mismatch`, `bad_blob`:
    /// something else has that name.
    static result<soft_fabric> attach(std::string_view name) {
        auto map = soft_detail::segment_map::attach(name);
        if (!map) return map.error();
        auto shape = soft_detail::topology_from(map->view.topology_bytes(), map->view.at.topology_size);
        if (!shape) return shape.error();
        if (shape->ports.size() != map->view.at.port_count) return errc::bad_blob;
        for (const auto& p : shape->ports)
            if (p.rail.value >= map->view.at.rail_count) return errc::bad_blob;
        return result<soft_fabric>(
            soft_fabric(std::make_shared<soft_detail::engine>(std::move(*map), std::move(*shape), false), false));
    }

    /// The backend of one host. `not_found`: no such host; `no_memory`: too many processes use the fabric.
    result<soft> host(std::string_view name) {
        const auto& hosts = shape().hosts;
        for (std::uint16_t i = 0; i < hosts.size(); ++i) {
            if (hosts[i].name.view() != name) continue;
            if (auto s = engine_->claim_slot(); !s) return s;
            return result<soft>(soft(engine_, host_id{i}));
        }
        return vccl::status{errc::not_found, subject::host, unnamed_index};
    }
    /// What it was made with, hosts of other processes included.
    const topology& shape() const noexcept { return engine_->shape(); }

    /// Manual time. `step` runs the next event that is due now, or says that there is none; `advance` runs all that fall
    /// due on the way and moves the clock. One thread.
    manual_clock clock() const noexcept { return {engine_->manual_now()}; }
    /// Manual time, or CLOCK_MONOTONIC.
    nanoseconds now() const noexcept { return engine_->now(); }
    /// Requires: manual time.
    /// @{
    bool step() noexcept { return engine_->step(); }
    void advance(nanoseconds by) noexcept { engine_->advance(by); }
    /// @}
    /// `nanoseconds::never()` when nothing is to happen.
    nanoseconds next_event_at() const noexcept { return engine_->next_event_at(); }
    /// Of all events so far: equal for equal seeds and calls.
    std::uint64_t event_hash() const noexcept { return engine_->event_hash(); }

    /// A fault command, see soft/command.hpp for the words. `parse_error`, `not_found`: nothing was changed.
    vccl::status command(std::string_view text) { return engine_->command(text); }
    /// Would `command` carry it out? Changes nothing. command_text.hpp says the answer in words.
    vccl::status check_command(std::string_view text) const {
        return soft_detail::parse(text, shape(), engine_->control().at.rail_count).error();
    }

    /// A row for each port, in the topology's order. Allocates; any thread.
    std::vector<soft_port_status> status() const {
        std::vector<soft_port_status> rows;
        for (std::uint32_t i = 0; i < shape().ports.size(); ++i) {
            const auto& p = engine_->control().port(i);
            const auto& named = shape().ports[i];
            const std::uint32_t link = p.link.load(std::memory_order_relaxed);
            rows.push_back({named.name, named.rail, (link & soft_detail::link_up) != 0, (link & soft_detail::link_cable) != 0,
                            engine_->control().rail(named.rail.value).up.load(std::memory_order_relaxed) != 0,
                            p.faults.load(std::memory_order_relaxed), p.rate.load(std::memory_order_relaxed),
                            p.out_bytes.load(std::memory_order_relaxed), p.in_bytes.load(std::memory_order_relaxed),
                            p.out_packets.load(std::memory_order_relaxed), p.dropped.load(std::memory_order_relaxed),
                            p.downs.load(std::memory_order_relaxed)});
        }
        return rows;
    }

private:
    soft_fabric(std::shared_ptr<soft_detail::engine> e, bool creator) noexcept : engine_(std::move(e)), creator_(creator) {}

    static vccl::status check(const topology& t, const soft_options& o) noexcept {
        const bool power = (o.ring_bytes & (o.ring_bytes - 1)) == 0;
        if (!power || !soft_detail::valid_mtu(o.mtu) || o.latency.count < 0 || o.processes == 0 ||
            o.processes > soft_detail::max_slots || o.ring_bytes < 65536 || o.memory_bytes > soft_detail::max_memory ||
            t.ports.empty() || t.ports.size() > soft_detail::max_ports || !soft_detail::consistent(t))
            return errc::invalid_argument;
        for (const auto& p : t.ports)
            if (p.rail.value >= soft_detail::max_rails) return errc::invalid_argument;
        return {};
    }

    std::shared_ptr<soft_detail::engine> engine_;
    bool creator_{};
};

}  // namespace vccl::inline v0::verbs
