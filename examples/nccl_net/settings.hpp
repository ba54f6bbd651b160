#pragma once
// What environment variables decide, and what of it all ranks must agree on. Read once, when NCCL first calls init().
#include <vccl/host/options.hpp>
#include <vccl/policy/timing.hpp>

#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace nccl_net {

/// A variable with a value that means nothing; says which and what would.
struct settings_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

enum class backup_ports : std::uint8_t { nearest, sibling, adjacent, all, none };
inline constexpr std::array<std::string_view, 5> backup_words{"nearest", "sibling", "adjacent", "all", "none"};
inline constexpr std::array<std::string_view, 2> backend_words{"ibv", "soft"};

inline constexpr unsigned as_many_as_help = ~0u;

/// How many threads help a rank where processors move the bytes, if `ranks` share `cores`. NCCL's and the program's own threads need
/// half of a rank's; with fewer than four cores a rank they would only be in each other's way. More than four have nothing to do: a
/// rank has few connections that are busy at once.
constexpr unsigned helpful_threads(unsigned cores, unsigned ranks) noexcept {
    const unsigned share = ranks == 0 ? 0 : cores / ranks;
    return share < 4 ? 0 : share < 8 ? share / 2 : 4;
}

struct settings {
    std::string backend;  // "ibv" or "soft"
    std::string devices;  // ibv: only devices whose name begins so
    std::string fabric, host;  // soft
    std::string address;  // of this host, for the connections beside the lanes; empty: the plugin looks for one
    backup_ports backup{};
    unsigned qps{}, lanes{};
    unsigned threads{};  // that drive connections; 0: NCCL's own do; `as_many_as_help`
    vccl::nanoseconds failback{};  // how long a restored lane must stay well; never() without fail-back
    vccl::detection_times times{};
    vccl::qp_timers timers{};
    vccl::nanoseconds give_up_after{}, peer_grace{}, connect_timeout{};
    vccl::flush_mode flush{};
    bool gpu_direct{};
};

/// One environment variable. docs/nccl.md has the same table with explanations; a test compares them.
struct variable {
    const char* name;
    const char* standard;
    const char* values;
    void (*set)(settings&, const variable&, std::string_view);
};

namespace detail {

[[noreturn]] inline void reject(const variable& v, std::string_view text) {
    throw settings_error(std::string(v.name) + "=" + std::string(text) + " means nothing; it takes " + v.values);
}

template <std::size_t N>
std::size_t word(const variable& v, std::string_view text, const std::array<std::string_view, N>& words) {
    for (std::size_t i = 0; i < N; ++i)
        if (words[i] == text) return i;
    reject(v, text);
}

/// Returns: the whole number that `text` begins with, and leaves the rest in it.
inline std::uint64_t digits(const variable& v, std::string_view& text) {
    const std::string_view whole = text;
    std::uint64_t n = 0;
    std::size_t used = 0;
    for (; used < text.size() && text[used] >= '0' && text[used] <= '9' && used < 10; ++used)
        n = n * 10 + static_cast<std::uint64_t>(text[used] - '0');
    text.remove_prefix(used);
    if (used == 0) reject(v, whole);
    return n;
}

inline unsigned number(const variable& v, std::string_view text, unsigned least, unsigned most) {
    std::string_view rest = text;
    const std::uint64_t n = digits(v, rest);
    if (!rest.empty() || n < least || n > most) reject(v, text);
    return static_cast<unsigned>(n);
}

inline vccl::nanoseconds time(const variable& v, std::string_view text) {
    std::string_view unit = text;
    const auto n = static_cast<std::int64_t>(digits(v, unit));
    if (unit == "us") return {n * 1'000};
    if (unit == "ms") return {n * 1'000'000};
    if (unit == "s") return {n * 1'000'000'000};
    if (unit.empty() && n == 0) return {0};
    reject(v, text);
}

inline vccl::nanoseconds positive_time(const variable& v, std::string_view text) {
    const vccl::nanoseconds t = time(v, text);
    if (t.count == 0) reject(v, text);
    return t;
}

}  // namespace detail

inline constexpr const char* a_time = "a time such as 100ms, 5s or 500us";

// clang-format off
inline const variable variables[] = {
    {"VCCL_NET_BACKEND", "ibv", "ibv or soft", [](settings& s, const variable& v, std::string_view t) {
        s.backend = backend_words[detail::word(v, t, backend_words)];
    }},
    {"VCCL_NET_DEVICES", "", "the beginning of device names, such as mlx5_", [](settings& s, const variable&, std::string_view t) { s.devices = t; }},
    {"VCCL_NET_FABRIC", "", "the name of a running software fabric", [](settings& s, const variable&, std::string_view t) { s.fabric = t; }},
    {"VCCL_NET_HOST", "", "the host of the software fabric that this rank is", [](settings& s, const variable&, std::string_view t) { s.host = t; }},
    {"VCCL_NET_ADDRESS", "", "an IP address of this host", [](settings& s, const variable&, std::string_view t) { s.address = t; }},
    {"VCCL_NET_BACKUP", "nearest", "nearest, sibling, adjacent, all or none", [](settings& s, const variable& v, std::string_view t) {
        s.backup = static_cast<backup_ports>(detail::word(v, t, backup_words));
    }},
    {"VCCL_NET_QPS", "1", "1, 2 or 4", [](settings& s, const variable& v, std::string_view t) {
        s.qps = detail::number(v, t, 1, 4);
        if (s.qps == 3) detail::reject(v, t);
    }},
    {"VCCL_NET_LANES", "8", "a number from 1 to 16", [](settings& s, const variable& v, std::string_view t) { s.lanes = detail::number(v, t, 1, vccl::max_lanes); }},
    {"VCCL_NET_THREADS", "auto", "auto or a number from 0 to 8", [](settings& s, const variable& v, std::string_view t) {
        s.threads = t == "auto" ? as_many_as_help : detail::number(v, t, 0, 8);
    }},
    {"VCCL_NET_FAILBACK", "100ms", "a time such as 100ms, or never", [](settings& s, const variable& v, std::string_view t) {
        s.failback = t == "never" ? vccl::nanoseconds::never() : detail::time(v, t);
    }},
    {"VCCL_NET_PROGRESS_TIMEOUT", "100ms", a_time, [](settings& s, const variable& v, std::string_view t) { s.times.progress_timeout = detail::positive_time(v, t); }},
    {"VCCL_NET_PROBE_INTERVAL", "500ms", a_time, [](settings& s, const variable& v, std::string_view t) { s.times.probe_interval = detail::positive_time(v, t); }},
    {"VCCL_NET_PROBE_TIMEOUT", "100ms", a_time, [](settings& s, const variable& v, std::string_view t) { s.times.probe_timeout = detail::positive_time(v, t); }},
    {"VCCL_NET_HUNG_TIMEOUT", "1s", a_time, [](settings& s, const variable& v, std::string_view t) { s.times.hung_timeout = detail::positive_time(v, t); }},
    {"VCCL_NET_IB_TIMEOUT", "14", "a number from 1 to 31", [](settings& s, const variable& v, std::string_view t) { s.timers.timeout = static_cast<std::uint8_t>(detail::number(v, t, 1, 31)); }},
    {"VCCL_NET_IB_RETRY", "2", "a number from 0 to 7", [](settings& s, const variable& v, std::string_view t) { s.timers.retry_count = static_cast<std::uint8_t>(detail::number(v, t, 0, 7)); }},
    {"VCCL_NET_GIVE_UP_AFTER", "30s", a_time, [](settings& s, const variable& v, std::string_view t) { s.give_up_after = detail::time(v, t); }},
    {"VCCL_NET_PEER_GRACE", "5s", a_time, [](settings& s, const variable& v, std::string_view t) { s.peer_grace = detail::time(v, t); }},
    {"VCCL_NET_CONNECT_TIMEOUT", "30s", a_time, [](settings& s, const variable& v, std::string_view t) { s.connect_timeout = detail::positive_time(v, t); }},
    {"VCCL_NET_FLUSH", "device", "none, device or always", [](settings& s, const variable& v, std::string_view t) {
        constexpr std::array<std::string_view, 3> words{"none", "device", "always"};
        s.flush = static_cast<vccl::flush_mode>(detail::word(v, t, words));
    }},
    {"VCCL_NET_GPU_DIRECT", "1", "0 or 1", [](settings& s, const variable& v, std::string_view t) { s.gpu_direct = detail::number(v, t, 0, 1) == 1; }},
};
// clang-format on

/// Returns: what the environment says. Errors: settings_error.
inline settings read_settings() {
    settings s;
    for (const variable& v : variables) {
        const char* text = std::getenv(v.name);
        v.set(s, v, text && *text ? text : v.standard);
    }
    return s;
}

/// What both ranks of a connection must have alike. Travels between them.
struct agreement {
    std::uint8_t backend{};  // 0 ibv, 1 soft
    backup_ports backup{};
    std::uint8_t qps{}, lanes{};
};

inline agreement agreement_of(const settings& s) {
    return {static_cast<std::uint8_t>(s.backend == "soft"), s.backup, static_cast<std::uint8_t>(s.qps),
            static_cast<std::uint8_t>(s.lanes)};
}

/// Returns: in what the other rank differs, or nothing.
inline std::string difference(const agreement& ours, const agreement& theirs) {
    const auto differ = [](const char* name, std::string_view a, std::string_view b) {
        return std::string(name) + " is " + std::string(a) + " here and " + std::string(b) +
               " at the other rank; give all ranks the same value";
    };
    const auto word = [](const auto& words, auto i) {
        const auto at = static_cast<std::size_t>(i);
        return at < words.size() ? words[at] : std::string_view("unknown");
    };
    if (ours.backend != theirs.backend)
        return differ("VCCL_NET_BACKEND", word(backend_words, ours.backend), word(backend_words, theirs.backend));
    if (ours.qps != theirs.qps) return differ("VCCL_NET_QPS", std::to_string(ours.qps), std::to_string(theirs.qps));
    if (ours.lanes != theirs.lanes) return differ("VCCL_NET_LANES", std::to_string(ours.lanes), std::to_string(theirs.lanes));
    if (ours.backup != theirs.backup)
        return differ("VCCL_NET_BACKUP", word(backup_words, ours.backup), word(backup_words, theirs.backup));
    return {};
}

}  // namespace nccl_net
