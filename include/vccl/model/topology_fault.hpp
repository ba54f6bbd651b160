#pragma once
/// \file
/// What can be wrong with the text of a topology, and the sentence that says so. Set-up only, any thread.

#include <vccl/model/topology.hpp>

#include <string>

namespace vccl::inline v0 {

/// What is wrong with a line; `describe` makes a sentence of it.
enum class topology_cause : std::uint8_t {
    none,
    empty,              ///< no host at all
    unknown_kind,       ///< a line starts with another word than host, nic, port, gpu
    missing_name,       ///< nothing follows the kind
    bad_name,           ///< longer than 47 characters, or with a sign that the text form uses
    repeated_name,      ///< two lines declare one name
    no_parent,          ///< neither the name nor an attribute says what the thing belongs to
    undeclared,         ///< a name is used that no line declares
    wrong_kind,         ///< a name is used for another kind of thing than it is
    cyclic,             ///< a thing belongs to itself, directly or by a detour
    contradiction,      ///< two statements cannot both hold
    unknown_attribute,
    repeated_attribute,
    bad_value,
    too_many,           ///< more than 65,535 things of one kind
};

/// Where and why a text is no topology. `name` is the offending word.
struct topology_fault {
    unsigned line{};  ///< from 1; 0 for the text as a whole
    topology_cause cause{topology_cause::none};  ///< `none`: nothing is wrong.
    fixed_name<48> name;  ///< empty where no single word is to blame
};

/// Returns: the fault in one sentence that says what to do, such as
/// "line 3: A.nic9 is used but never declared; add the line that declares it".
inline std::string describe(const topology_fault& f) {
    const std::string n(f.name.view());
    const auto sentence = [&]() -> std::string {
        switch (f.cause) {
            case topology_cause::none: return "nothing is wrong";
            case topology_cause::empty: return "the topology names no host; start with a line such as: host A";
            case topology_cause::unknown_kind: return n + " is not a kind of thing; lines start with host, nic, port or gpu";
            case topology_cause::missing_name: return n + " needs a name after it";
            case topology_cause::bad_name: return n + " cannot be a name; use at most 47 characters and none of = , #";
            case topology_cause::repeated_name: return n + " is declared twice; remove or rename one";
            case topology_cause::no_parent: return n + " belongs to nothing; add host=NAME (nic, gpu) or nic=NAME (port)";
            case topology_cause::undeclared: return n + " is used but never declared; add the line that declares it";
            case topology_cause::wrong_kind: return n + " is another kind of thing than is needed here";
            case topology_cause::cyclic: return n + " belongs to itself; say which host or NIC it is part of";
            case topology_cause::contradiction: return n + " contradicts what was said before; keep one of the two";
            case topology_cause::unknown_attribute:
                return n + " is not known here; nic: host numa pci, port: nic number rail rate, gpu: host numa pci near to";
            case topology_cause::repeated_attribute: return n + " is given twice; keep one";
            case topology_cause::bad_value:
                return n + " has a value that cannot be read; write for example numa=0 rail=1 rate=25GB/s to=A.nic0:2";
            case topology_cause::too_many: return "more than 65535 things of the kind " + n;
        }
        return n;
    };
    return f.line == 0 ? sentence() : "line " + std::to_string(f.line) + ": " + sentence();
}

}  // namespace vccl::inline v0
