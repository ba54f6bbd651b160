#pragma once
/// \file
/// A topology as text that a person writes and reads back; print_topology is in topology_print.hpp. Set-up only, any thread.
///
///     # two hosts may stand in one text, in any order
///     host A
///     nic  A.nic0     numa=0 pci=0000:3b:00.0
///     port A.nic0.p0  rail=0 rate=25GB/s
///     nic  mlx5_1     host=A numa=1
///     port mlx5_1:1   nic=mlx5_1 number=1 rail=2 rate=200Gb/s
///     gpu  A.gpu0     numa=0 near=A.nic0
///     gpu  A.gpu1     numa=1 to=A.nic0:40,mlx5_1:2
///
/// A thing belongs to what its name says before the last dot, or to `host=` / `nic=`. Port numbers count from 1 in the
/// order of the lines unless `number=` says otherwise; rail 0 and an unknown rate are the defaults. `near=` lists the
/// nearest NICs, `to=` gives distances; a NIC in neither list is as far as the NUMA nodes say. `to=unknown`: no distances.

#include <vccl/model/path_distance.hpp>
#include <vccl/model/topology.hpp>
#include <vccl/model/topology_fault.hpp>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace vccl::inline v0 {

namespace detail {

class topology_parser {
public:
    explicit topology_parser(std::string_view text) : text_(text) {}

    bool run() { return split() && place() && build(); }
    topology take() { return std::move(out_); }
    const topology_fault& fault() const noexcept { return fault_; }

private:
    using cause = topology_cause;
    enum class kind : std::uint8_t { host, nic, port, gpu };
    static constexpr std::string_view kind_names[] = {"host", "nic", "port", "gpu"};

    struct attribute {
        std::string_view key, value;
    };
    struct statement {
        unsigned line;
        kind what;
        std::string_view name;
        std::vector<attribute> attributes;
        std::size_t parent{none};   ///< index into statements_
        std::uint16_t index{};      ///< index into the topology's list of its kind
    };
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    bool fail(unsigned line, cause why, std::string_view name) {
        fault_ = {line, why, name};
        return false;
    }

    /// Text to statements.
    bool split() {
        unsigned line = 0;
        for (std::string_view rest = text_; !rest.empty();) {
            ++line;
            const std::size_t end = std::min(rest.find('\n'), rest.size());
            std::string_view row = rest.substr(0, end);
            rest.remove_prefix(std::min(end + 1, rest.size()));
            row = row.substr(0, row.find('#'));
            const std::string_view what = word(row);
            if (what.empty()) continue;
            std::size_t k = 0;
            while (k < 4 && kind_names[k] != what) ++k;
            if (k == 4) return fail(line, cause::unknown_kind, what);
            statement s{line, static_cast<kind>(k), word(row), {}};
            if (s.name.empty()) return fail(line, cause::missing_name, what);
            if (s.name.size() > 47 || s.name.find_first_of(std::string_view("=,\0", 3)) != std::string_view::npos)
                return fail(line, cause::bad_name, s.name);
            if (find(s.name) != none) return fail(line, cause::repeated_name, s.name);
            for (std::string_view a = word(row); !a.empty(); a = word(row)) {
                const std::size_t eq = a.find('=');
                if (eq == std::string_view::npos || eq + 1 == a.size()) return fail(line, cause::bad_value, a);
                if (value_of(s, a.substr(0, eq))) return fail(line, cause::repeated_attribute, a.substr(0, eq));
                s.attributes.push_back({a.substr(0, eq), a.substr(eq + 1)});
            }
            if (++count_[k] > 0xffff) return fail(line, cause::too_many, what);
            s.index = static_cast<std::uint16_t>(count_[k] - 1);
            statements_.push_back(std::move(s));
        }
        return count_[0] != 0 || fail(0, cause::empty, {});
    }

    /// Finds what each thing belongs to.
    bool place() {
        for (statement& s : statements_) {
            if (s.what == kind::host) continue;
            const kind wanted = s.what == kind::port ? kind::nic : kind::host;
            const std::size_t dot = s.name.rfind('.');
            const std::string_view by_name = dot == std::string_view::npos ? std::string_view{} : s.name.substr(0, dot);
            const attribute* given = value_of(s, kind_names[static_cast<unsigned>(wanted)]);
            const std::string_view name = given ? given->value : by_name;
            if (name.empty()) return fail(s.line, cause::no_parent, s.name);
            s.parent = find(name);
            if (s.parent == none) return fail(s.line, cause::undeclared, name);
            if (name == s.name) return fail(s.line, cause::cyclic, name);
            if (given && find(by_name) != none && by_name != name && statements_[find(by_name)].what == wanted)
                return fail(s.line, cause::contradiction, given->value);
        }
        for (const statement& s : statements_) {
            std::size_t up = s.parent;
            for (std::size_t steps = 0; up != none && &statements_[up] != &s && steps < statements_.size(); ++steps)
                up = statements_[up].parent;
            if (up != none && &statements_[up] == &s) return fail(s.line, cause::cyclic, s.name);
        }
        for (const statement& s : statements_)
            if (s.what != kind::host && statements_[s.parent].what != (s.what == kind::port ? kind::nic : kind::host))
                return fail(s.line, cause::wrong_kind, statements_[s.parent].name);
        return true;
    }

    /// Statements to topology. GPUs come last: their distances speak of all NICs.
    bool build() {
        for (const statement& s : statements_) {
            if (s.what == kind::host) {
                if (!known(s, {})) return false;
                out_.hosts.push_back({s.name});
            } else if (s.what == kind::nic) {
                topology::nic n{s.name, host_id{statements_[s.parent].index}, -1, {}};
                if (!known(s, {"host", "numa", "pci"}) || !numa(s, n.numa) || !pci(s, n.pci)) return false;
                out_.nics.push_back(n);
            }
        }
        for (const statement& s : statements_)
            if (s.what == kind::port && !add_port(s)) return false;
        for (const statement& s : statements_)
            if (s.what == kind::gpu && !add_gpu(s)) return false;
        return true;
    }

    bool add_port(const statement& s) {
        topology::port p{s.name, nic_id{statements_[s.parent].index}, 0, {}, 0};
        if (!known(s, {"nic", "number", "rail", "rate"})) return false;
        std::uint64_t v = out_.port_count(p.nic) + 1;
        if (const attribute* a = value_of(s, "number"); a && (!number(a->value, v) || v == 0))
            return fail(s.line, cause::bad_value, a->key);
        if (v > 255) return fail(s.line, cause::bad_value, "number");
        p.number = static_cast<std::uint8_t>(v);
        for (const topology::port& q : out_.ports)
            if (q.nic == p.nic && q.number == p.number) return fail(s.line, cause::contradiction, s.name);
        v = 0;
        if (const attribute* a = value_of(s, "rail"); a && (!number(a->value, v) || v > 0xffff))
            return fail(s.line, cause::bad_value, a->key);
        p.rail = rail_id{static_cast<std::uint16_t>(v)};
        if (const attribute* a = value_of(s, "rate"); a && !rate(a->value, p.bytes_per_second))
            return fail(s.line, cause::bad_value, a->key);
        out_.ports.push_back(p);
        return true;
    }

    bool add_gpu(const statement& s) {
        topology::gpu g{s.name, host_id{statements_[s.parent].index}, -1, {}, {}};
        if (!known(s, {"host", "numa", "pci", "near", "to"}) || !numa(s, g.numa) || !pci(s, g.pci)) return false;
        for (const topology::nic& n : out_.nics) g.to_nic.push_back(path_distance({g.numa, {}}, {n.numa, {}}));
        const attribute* near = value_of(s, "near");
        const attribute* to = value_of(s, "to");
        if (near && to) return fail(s.line, cause::contradiction, "to");
        if (to && to->value == "unknown") {
            g.to_nic.clear();
        } else if (near || to) {
            std::vector<bool> said(out_.nics.size());
            for (std::string_view list = (near ? near : to)->value; !list.empty();) {
                const std::size_t comma = std::min(list.find(','), list.size());
                if (!add_distance(s, g, list.substr(0, comma), to != nullptr, said)) return false;
                list.remove_prefix(std::min(comma + 1, list.size()));
            }
        }
        out_.gpus.push_back(std::move(g));
        return true;
    }

    /// One entry of `near=` or `to=`.
    bool add_distance(const statement& s, topology::gpu& g, std::string_view entry, bool with_number, std::vector<bool>& said) {
        std::uint64_t d = path::nearest;
        if (with_number) {
            const std::size_t colon = entry.rfind(':');  // the name of a NIC may have one, too
            if (colon == std::string_view::npos || !number(entry.substr(colon + 1), d) || d > 0xffff'ffff)
                return fail(s.line, cause::bad_value, "to");
            entry = entry.substr(0, colon);
        }
        const std::size_t at = find(entry);
        if (at == none) return fail(s.line, cause::undeclared, entry);
        if (statements_[at].what != kind::nic) return fail(s.line, cause::wrong_kind, entry);
        const std::uint16_t n = statements_[at].index;
        if (out_.nics[n].host != g.host || said[n]) return fail(s.line, cause::contradiction, entry);
        said[n] = true;
        g.to_nic[n] = static_cast<distance>(d);
        return true;
    }

    bool known(const statement& s, std::initializer_list<std::string_view> keys) {
        for (const attribute& a : s.attributes) {
            bool found = false;
            for (std::string_view k : keys) found = found || k == a.key;
            if (!found) return fail(s.line, cause::unknown_attribute, a.key);
        }
        return true;
    }
    bool numa(const statement& s, std::int16_t& out) {
        std::uint64_t v = 0;
        const attribute* a = value_of(s, "numa");
        if (!a || a->value == "-1") return true;
        if (!number(a->value, v) || v > 0x7fff) return fail(s.line, cause::bad_value, a->key);
        out = static_cast<std::int16_t>(v);
        return true;
    }
    bool pci(const statement& s, fixed_name<48>& out) {
        const attribute* a = value_of(s, "pci");
        if (a && a->value.size() > 47) return fail(s.line, cause::bad_value, a->key);
        if (a) out = a->value;
        return true;
    }
    /// "25GB/s", "200Gb/s", "500MB/s", "1000B/s"; b counts bits, B bytes.
    static bool rate(std::string_view v, std::uint64_t& out) {
        if (v.size() < 4 || v.substr(v.size() - 2) != "/s") return false;
        const bool bits = v[v.size() - 3] == 'b';
        if (!bits && v[v.size() - 3] != 'B') return false;
        v.remove_suffix(3);
        std::uint64_t unit = 1;
        if (constexpr std::string_view prefixes = "kMGT"; prefixes.find(v.back()) != std::string_view::npos) {
            for (std::size_t i = 0; i <= prefixes.find(v.back()); ++i) unit *= 1000;
            v.remove_suffix(1);
        }
        std::uint64_t n = 0;
        if (!number(v, n) || n > UINT64_MAX / unit) return false;
        out = n * unit / (bits ? 8 : 1);
        return true;
    }
    static bool number(std::string_view v, std::uint64_t& out) {
        if (v.empty() || v.size() > 18) return false;
        out = 0;
        for (char c : v) {
            if (c < '0' || c > '9') return false;
            out = out * 10 + static_cast<std::uint64_t>(c - '0');
        }
        return true;
    }
    static std::string_view word(std::string_view& row) {
        constexpr std::string_view blank = " \t\r";
        row.remove_prefix(std::min(row.find_first_not_of(blank), row.size()));
        const std::string_view w = row.substr(0, row.find_first_of(blank));
        row.remove_prefix(w.size());
        return w;
    }
    static const attribute* value_of(const statement& s, std::string_view key) {
        for (const attribute& a : s.attributes)
            if (a.key == key) return &a;
        return nullptr;
    }
    std::size_t find(std::string_view name) const {
        for (std::size_t i = 0; i < statements_.size(); ++i)
            if (statements_[i].name == name) return i;
        return none;
    }

    std::string_view text_;
    std::vector<statement> statements_;
    std::size_t count_[4]{};
    topology out_;
    topology_fault fault_;
};

}  // namespace detail

/// Returns: the topology, or `parse_error` with the line in `detail` and the topology_cause in `extra`.
/// Effects: on error describes the fault in `*fault`, if given.
inline result<topology> parse_topology(std::string_view text, topology_fault* fault = nullptr) {
    detail::topology_parser parser(text);
    if (parser.run()) return parser.take();
    status s{errc::parse_error, parser.fault().line};
    s.extra = static_cast<std::uint32_t>(parser.fault().cause);
    if (fault) *fault = parser.fault();
    return s;
}

}  // namespace vccl::inline v0
