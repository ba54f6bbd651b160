#pragma once
/// \file
/// What is wrong with a fault command, for a person: which word, and what could stand there. Any thread.

#include <vccl/base/status_text.hpp>
#include <vccl/verbs/soft/command.hpp>

#include <string>

namespace vccl::inline v0::verbs {

/// `s`: what `soft_fabric::command` or `check_command` said to `text`; `t`: the fabric's topology.
VCCL_COLD inline std::string describe_command_fault(const vccl::status& s, std::string_view text, const topology& t) {
    std::string_view word, verb, rest = text;
    for (std::uint32_t i = 0; i <= s.detail; ++i) {
        word = soft_detail::next_word(rest);
        if (i == 0) verb = word;
    }
    const std::string quoted = word.empty() ? "the end" : "'" + std::string(word) + "'";
    if (s.code == errc::not_found) {
        std::string known;
        const bool rails = verb.starts_with("switch-");
        rail_id next{};
        for (const auto& p : t.ports) {
            if (!rails) known.append(" ").append(p.name.view());
            if (next.value <= p.rail.value) next.value = static_cast<std::uint16_t>(p.rail.value + 1);
        }
        for (std::uint16_t r = 0; rails && r < next.value; ++r) known.append(" rail").append(std::to_string(r));
        return "nothing is called " + quoted + (rails ? "; rails:" : "; ports:") + known;
    }
    if (s.code != errc::parse_error) return describe(s);
    if (s.detail == 0) return quoted + " is no command";
    std::string form;
    for (const auto& known : soft_detail::fault_spellings)
        if (known.word == verb) form.append("; it goes: ").append(verb).append(" ").append(soft_detail::form_of(known.operand));
    if (word.empty()) return std::string("'").append(verb).append("' needs more words").append(form);
    return std::string("cannot make sense of ").append(quoted).append(" or of what follows it").append(form);
}

}  // namespace vccl::inline v0::verbs
