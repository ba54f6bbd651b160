#pragma once
/// \file
/// The live view of `vccl-fabric watch`, as text: ports with their rates, and what happened to them between two looks. A value
/// that is fed with what soft_fabric::status() says; it does no I/O. One thread.

#include "fabric_text.hpp"

#include <algorithm>
#include <deque>

namespace vccl_fabric {

class watch_view {
public:
    /// `events`: how many lines of them are kept.
    explicit watch_view(std::string fabric, std::size_t events = 12) : fabric_(std::move(fabric)), most_events_(events) {}

    /// Effects: takes the ports as they are at `now`, on the fabric's clock; the first look is what the next is compared with.
    void look(std::vector<vccl::verbs::soft_port_status> rows, vccl::nanoseconds now) {
        if (!first_ && rows.size() == rows_.size())
            for (std::size_t i = 0; i < rows.size(); ++i) compare(before_[i], rows_[i], rows[i], now);
        seconds_ = first_ ? 0 : static_cast<double>((now - at_).count) * 1e-9;
        before_ = first_ ? rows : std::move(rows_);
        rows_ = std::move(rows);
        at_ = now;
        if (first_) began_ = now;
        first_ = false;
    }

    /// Returns: the view, lines that end in '\n'.
    std::string text() const {
        double most = 0;
        for (std::size_t i = 0; i < rows_.size(); ++i)
            most = std::max({most, out(i), in(i), static_cast<double>(rows_[i].bytes_per_second)});
        std::string all = "fabric " + fabric_ + "   " + since(at_) + "\n" +
                          row("PORT", "RAIL", "STATE", "OUT", "", "IN", "", "DROPPED", "DOWNS", "FAULTS");
        for (std::size_t i = 0; i < rows_.size(); ++i) {
            const auto& p = rows_[i];
            all += row(std::string(p.name.view()), std::to_string(p.rail.value), state_text(p), rate_text(out(i)),
                       bar(out(i), most), rate_text(in(i)), bar(in(i), most), std::to_string(p.dropped), std::to_string(p.downs),
                       faults_text(p.faults));
        }
        all += events_.empty() ? "no events since the watch began\n" : "events\n";
        for (const std::string& e : events_) all += "  " + e + "\n";
        return all;
    }

private:
    using port = vccl::verbs::soft_port_status;

    void compare(const port& earlier, const port& was, const port& is, vccl::nanoseconds now) {
        const std::string name(is.name.view());
        const std::string then = state_text(was), state = state_text(is);
        // A port that went down and up again between two looks shows only in the count.
        if (const unsigned times = is.downs - was.downs; times > (is.up ? 0u : was.up ? 1u : 0u))
            event(now, name + " went down " + std::to_string(times) + (times == 1 ? " time" : " times"));
        if (then != state) event(now, name + ": " + then + " -> " + state);
        if (is.faults != was.faults) event(now, name + ": faults " + faults_text(was.faults) + " -> " + faults_text(is.faults));
        if (is.bytes_per_second != was.bytes_per_second)
            event(now, name + ": limit " + limit_text(was) + " -> " + limit_text(is));
        // Told when it begins, not at every look.
        if (is.dropped > was.dropped && was.dropped == earlier.dropped) event(now, name + " drops packets");
    }
    void event(vccl::nanoseconds now, const std::string& what) {
        events_.push_back(since(now) + "  " + what);
        if (events_.size() > most_events_) events_.pop_front();
    }

    std::string since(vccl::nanoseconds t) const {
        char text[32];
        std::snprintf(text, sizeof text, "%9.3f s", static_cast<double>((t - began_).count) * 1e-9);
        return text;
    }
    double out(std::size_t i) const { return rate(rows_[i].bytes_out, i < before_.size() ? before_[i].bytes_out : 0); }
    double in(std::size_t i) const { return rate(rows_[i].bytes_in, i < before_.size() ? before_[i].bytes_in : 0); }
    double rate(std::uint64_t now, std::uint64_t then) const {
        return seconds_ > 0 && now > then ? static_cast<double>(now - then) / seconds_ : 0;
    }
    static std::string bar(double part, double whole) {
        constexpr std::size_t width = 10;
        const auto full = whole > 0 ? static_cast<std::size_t>(part / whole * width + 0.5) : 0;
        return std::string(full, '#') + std::string(width - full, '.');
    }
    static std::string row(const std::string& name, const std::string& rail, const std::string& state, const std::string& out,
                           const std::string& out_bar, const std::string& in, const std::string& in_bar,
                           const std::string& dropped, const std::string& downs, const std::string& faults) {
        char text[256];
        std::snprintf(text, sizeof text, "%-14s %4s  %-11s %11s %-10s %11s %-10s %9s %5s  %s\n", name.c_str(), rail.c_str(),
                      state.c_str(), out.c_str(), out_bar.c_str(), in.c_str(), in_bar.c_str(), dropped.c_str(), downs.c_str(),
                      faults.c_str());
        return text;
    }

    std::string fabric_;
    std::size_t most_events_;
    std::vector<port> rows_, before_;
    std::deque<std::string> events_;
    vccl::nanoseconds at_{}, began_{};
    double seconds_{};
    bool first_{true};
};

}  // namespace vccl_fabric
