#pragma once
/// \file
/// Fault commands as text: one parser for the control tool, scripts and tests. `parse` gives a value, `apply` carries it
/// out on the control words. A target is a port, or a NIC or host for all of its ports, or `all`. Any thread.
///
///     down|up|cable-down|cable-up TARGET        hang|drop-acks|no-event|fail-flush|twice TARGET
///     switch-down|switch-up railN               partial TARGET PACKETS     error TARGET      gid-change TARGET
///     loss|dup|reorder TARGET PERCENT           on-down TARGET retry|op-error|flush|silent
///     delay TARGET TIME    rate TARGET BYTES/s  flap TARGET TIME-DOWN TIME-UP COUNTx         clear TARGET

#include <vccl/base/status.hpp>
#include <vccl/model/topology.hpp>
#include <vccl/verbs/soft/control.hpp>

#include <string_view>
#include <vector>

namespace vccl::inline v0::verbs::soft_detail {

enum class fault_verb : std::uint8_t {
    down,
    up,
    cable_down,
    cable_up,
    switch_down,
    switch_up,
    loss,
    duplicate,
    reorder,
    delay,
    rate,
    flap,
    hang,
    drop_acks,
    no_event,
    fail_flush,
    active_twice,
    gid_change,
    partial,
    error,
    on_down,
    clear,
};

struct fault_command {
    fault_verb verb{};
    std::vector<std::uint32_t> ports;
    std::uint32_t rail{};
    std::uint64_t amount{};       ///< parts per million, packets, bytes per second, or repetitions
    std::int64_t first{}, second{};  ///< nanoseconds: delay; flap down and up
};

/// Splits off the next word; empty at the end.
inline std::string_view next_word(std::string_view& text) noexcept {
    const auto start = text.find_first_not_of(" \t\r\n");
    if (start == std::string_view::npos) return text = {};
    text.remove_prefix(start);
    const auto word = text.substr(0, text.find_first_of(" \t\r\n"));
    text.remove_prefix(word.size());
    return word;
}

/// Reads "12.5" as millionths and leaves the unit in `text`; false when there is no number, or it is too large or too small.
inline bool read_number(std::string_view& text, std::uint64_t& millionths) noexcept {
    std::uint64_t value = 0, scale = 1'000'000;
    bool digits = false, fraction = false;
    while (!text.empty()) {
        const char c = text.front();
        if (c == '.' && !fraction) {
            fraction = true;
        } else if (c >= '0' && c <= '9') {
            digits = true;
            const auto d = static_cast<std::uint64_t>(c - '0');
            if (!fraction) {
                if (value > 100'000'000'000'000'000ull) return false;
                value = value * 10 + d * 1'000'000;
            } else if (scale > 1) {
                value += d * (scale /= 10);
            } else if (value == 0 && d != 0) {
                return false;
            }
        } else {
            break;
        }
        text.remove_prefix(1);
    }
    millionths = value;
    return digits;
}

struct unit {
    std::string_view name;
    std::uint64_t factor;
};

/// "5ms" with the units of a kind; scaled to the unit whose factor is 1.
template <std::size_t N>
bool read_quantity(std::string_view text, const unit (&units)[N], std::uint64_t& out) noexcept {
    std::uint64_t millionths{};
    if (!read_number(text, millionths)) return false;
    for (const unit& u : units) {
        if (u.name != text) continue;
        if (u.factor != 0 && millionths > (std::uint64_t{1} << 62) / u.factor) {
            out = millionths / 1'000'000 * u.factor;  // too large for the fraction to matter
            return millionths / 1'000'000 <= (std::uint64_t{1} << 62) / u.factor;
        }
        out = millionths * u.factor / 1'000'000;
        return out * 1'000'000 == millionths * u.factor;  // what cannot be had exactly is not what was asked for
    }
    return false;
}

inline constexpr unit time_units[] = {{"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}};
inline constexpr unit rate_units[] = {{"", 1},
                                      {"B/s", 1},
                                      {"kB/s", 1'000},
                                      {"MB/s", 1'000'000},
                                      {"GB/s", 1'000'000'000},
                                      {"Mbit/s", 125'000},
                                      {"Gbit/s", 125'000'000}};
inline constexpr unit share_units[] = {{"%", 10'000}, {"ppm", 1}};
inline constexpr unit count_units[] = {{"", 1}, {"x", 1}};

enum class fault_operand : std::uint8_t { none, rail, share, time, rate, count, flap, behaviour };

struct fault_spelling {
    std::string_view word;
    fault_verb verb;
    fault_operand operand;
};

inline constexpr fault_spelling fault_spellings[] = {
    {"down", fault_verb::down, fault_operand::none},
    {"up", fault_verb::up, fault_operand::none},
    {"cable-down", fault_verb::cable_down, fault_operand::none},
    {"cable-up", fault_verb::cable_up, fault_operand::none},
    {"switch-down", fault_verb::switch_down, fault_operand::rail},
    {"switch-up", fault_verb::switch_up, fault_operand::rail},
    {"loss", fault_verb::loss, fault_operand::share},
    {"dup", fault_verb::duplicate, fault_operand::share},
    {"reorder", fault_verb::reorder, fault_operand::share},
    {"delay", fault_verb::delay, fault_operand::time},
    {"rate", fault_verb::rate, fault_operand::rate},
    {"flap", fault_verb::flap, fault_operand::flap},
    {"hang", fault_verb::hang, fault_operand::none},
    {"drop-acks", fault_verb::drop_acks, fault_operand::none},
    {"no-event", fault_verb::no_event, fault_operand::none},
    {"fail-flush", fault_verb::fail_flush, fault_operand::none},
    {"twice", fault_verb::active_twice, fault_operand::none},
    {"gid-change", fault_verb::gid_change, fault_operand::none},
    {"partial", fault_verb::partial, fault_operand::count},
    {"error", fault_verb::error, fault_operand::none},
    {"on-down", fault_verb::on_down, fault_operand::behaviour},
    {"clear", fault_verb::clear, fault_operand::none},
};

/// What follows a command's word, for a person.
constexpr std::string_view form_of(fault_operand o) noexcept {
    switch (o) {
        case fault_operand::none: return "TARGET";
        case fault_operand::rail: return "railN";
        case fault_operand::share: return "TARGET PERCENT, such as 5%";
        case fault_operand::time: return "TARGET TIME, such as 20us";
        case fault_operand::rate: return "TARGET BYTES/s, such as 2GB/s";
        case fault_operand::count: return "TARGET COUNT";
        case fault_operand::flap: return "TARGET TIME-DOWN TIME-UP COUNTx, such as 5ms 10ms 20x";
        case fault_operand::behaviour: return "TARGET retry|op-error|flush|silent";
    }
    return "";
}

/// How many words a whole command has.
constexpr std::uint32_t words_of(fault_operand o) noexcept {
    return o == fault_operand::none || o == fault_operand::rail ? 2 : o == fault_operand::flap ? 5 : 3;
}

/// The ports that a target names: itself, or everything below a NIC or host.
inline std::vector<std::uint32_t> ports_named(const topology& t, std::string_view target) {
    std::vector<std::uint32_t> found;
    for (std::uint32_t i = 0; i < t.ports.size(); ++i) {
        const auto name = t.ports[i].name.view();
        if (target == "all" || name == target ||
            (name.size() > target.size() && name.starts_with(target) && name[target.size()] == '.'))
            found.push_back(i);
    }
    return found;
}

/// `not_found`: no such port or rail. `parse_error`: no such command, or its operand is missing or wrong; `detail` is the
/// number of the word at fault, from 0.
inline result<fault_command> parse(std::string_view text, const topology& t, std::uint32_t rails) {
    const auto verb = next_word(text);
    const fault_spelling* spelling = nullptr;
    for (const auto& s : fault_spellings)
        if (s.word == verb) spelling = &s;
    if (spelling == nullptr) return status{errc::parse_error, 0};
    fault_command c;
    c.verb = spelling->verb;

    const auto target = next_word(text);
    if (target.empty()) return status{errc::parse_error, 1};
    if (spelling->operand == fault_operand::rail) {
        std::uint64_t rail{};
        if (!target.starts_with("rail") || !read_quantity(target.substr(4), count_units, rail))
            return status{errc::parse_error, 1};
        if (rail >= rails) return status{errc::not_found, 1};
        c.rail = static_cast<std::uint32_t>(rail);
    } else {
        c.ports = ports_named(t, target);
        if (c.ports.empty()) return status{errc::not_found, 1};
    }

    bool good = true;
    std::uint64_t down{}, up{};
    switch (spelling->operand) {
        case fault_operand::none:
        case fault_operand::rail: break;
        case fault_operand::share: good = read_quantity(next_word(text), share_units, c.amount) && c.amount <= 1'000'000; break;
        case fault_operand::rate: good = read_quantity(next_word(text), rate_units, c.amount); break;
        case fault_operand::count: good = read_quantity(next_word(text), count_units, c.amount) && c.amount <= 0xffffffff; break;
        case fault_operand::time:
            good = read_quantity(next_word(text), time_units, down) && down <= 3'600'000'000'000;
            c.first = static_cast<std::int64_t>(down);
            break;
        case fault_operand::flap:
            good = read_quantity(next_word(text), time_units, down) && read_quantity(next_word(text), time_units, up) &&
                   read_quantity(next_word(text), count_units, c.amount) && down + up > 0 && down <= 3'600'000'000'000 &&
                   up <= 3'600'000'000'000 && c.amount > 0 && c.amount <= 1'000'000;
            c.first = static_cast<std::int64_t>(down);
            c.second = static_cast<std::int64_t>(up);
            break;
        case fault_operand::behaviour: {
            const auto word = next_word(text);
            constexpr std::string_view words[] = {"retry", "op-error", "flush", "silent"};
            good = false;
            for (std::uint32_t i = 0; i < 4; ++i)
                if (words[i] == word) {
                    c.amount = i;
                    good = true;
                }
            break;
        }
    }
    if (!good) return status{errc::parse_error, 2};
    if (!next_word(text).empty()) return status{errc::parse_error, words_of(spelling->operand)};
    return result<fault_command>(std::move(c));
}

/// Carries a command out, except `flap`, which takes time and is the engine's.
inline void apply(const segment& s, const fault_command& c) noexcept {
    if (c.verb == fault_verb::switch_down || c.verb == fault_verb::switch_up)
        set_rail(s, c.rail, c.verb == fault_verb::switch_up);
    const auto ppm = static_cast<std::uint32_t>(c.amount);
    for (const std::uint32_t i : c.ports) {
        port_control& p = s.port(i);
        switch (c.verb) {
            case fault_verb::down: set_link(s, i, link_up, false); break;
            case fault_verb::up: set_link(s, i, link_up, true); break;
            case fault_verb::cable_down: set_link(s, i, link_cable, false); break;
            case fault_verb::cable_up: set_link(s, i, link_cable, true); break;
            case fault_verb::loss:
                p.loss = ppm;
                set_fault(s, i, fault_loss, ppm != 0);
                break;
            case fault_verb::duplicate:
                p.duplicate = ppm;
                set_fault(s, i, fault_duplicate, ppm != 0);
                break;
            case fault_verb::reorder:
                p.reorder = ppm;
                set_fault(s, i, fault_reorder, ppm != 0);
                break;
            case fault_verb::delay:
                p.delay = c.first;
                set_fault(s, i, fault_delay, c.first != 0);
                break;
            case fault_verb::rate: set_rate(s, i, c.amount); break;
            case fault_verb::hang: set_fault(s, i, fault_hang, true); break;
            case fault_verb::drop_acks: set_fault(s, i, fault_drop_acks, true); break;
            case fault_verb::no_event: set_fault(s, i, fault_no_event, true); break;
            case fault_verb::fail_flush: set_fault(s, i, fault_flush, true); break;
            case fault_verb::active_twice: set_fault(s, i, fault_active_twice, true); break;
            case fault_verb::gid_change: change_gid(s, i); break;
            case fault_verb::partial:
                p.partial = ppm;
                set_fault(s, i, fault_partial, true);
                break;
            case fault_verb::error: set_fault(s, i, fault_error_once, true); break;
            case fault_verb::on_down:
                p.on_down = ppm;
                announce(s);
                break;
            case fault_verb::clear: clear_faults(s, i); break;
            case fault_verb::flap:
            case fault_verb::switch_down:
            case fault_verb::switch_up: break;
        }
    }
}

}  // namespace vccl::inline v0::verbs::soft_detail
