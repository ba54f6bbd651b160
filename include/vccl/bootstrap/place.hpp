#pragma once
/// \file
/// A process's place in its job, from what its launcher has put into the environment: torchrun, Open MPI's mpirun, Slurm's
/// srun, PMI (MPICH and its relatives), or one's own VCCL_RANK, VCCL_RANKS, VCCL_ROOT. Set-up thread. Needs no library.

#include <vccl/base/status.hpp>

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

namespace vccl::inline v0 {

/// A job has at most so many ranks: rank 0 keeps a connection to each.
inline constexpr std::uint32_t most_bootstrap_ranks = 65'536;

/// Who one is, and where rank 0 is found.
struct job_place {
    /// From 0; the same `ranks` and `root` at all of them.
    /// @{
    std::uint32_t rank{}, ranks{1};
    std::uint32_t local_rank{}, local_ranks{1};  ///< among those of this host
    /// @}
    std::string root;                            ///< "host:port"; names are resolved
};

/// Where rank 0 listens if nothing says another port: one above torchrun's own, or this one.
inline constexpr std::uint32_t default_bootstrap_port = 29555;

/// The first host of a Slurm node list: "node[03-07,9],other" is "node03".
inline std::string first_host(std::string_view list) {
    const std::size_t end = list.find_first_of("[,");
    std::string host(list.substr(0, end));
    if (end != std::string_view::npos && list[end] == '[') {
        const std::string_view numbers = list.substr(end + 1);
        host += numbers.substr(0, numbers.find_first_of("-,]"));
        const std::size_t close = numbers.find(']');
        const std::string_view rest = close == std::string_view::npos ? std::string_view{} : numbers.substr(close + 1);
        host += rest.substr(0, rest.find(','));
    }
    return host;
}

namespace detail {

/// What each launcher calls things. The first whose rank is there counts.
struct launcher_words {
    const char *name, *rank, *ranks, *local_rank, *local_ranks;
};
inline constexpr launcher_words launchers[] = {
    {"VCCL_RANK", "VCCL_RANK", "VCCL_RANKS", "VCCL_LOCAL_RANK", "VCCL_LOCAL_RANKS"},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr},
};

inline std::optional<std::uint32_t> to_number(const char* text) {
    if (!text || *text < '0' || *text > '9') return std::nullopt;
    char* end = nullptr;
    const unsigned long long n = std::strtoull(text, &end, 10);
    if (*end != '\0' || n > 0x7fffffff) return std::nullopt;
    return static_cast<std::uint32_t>(n);
}

/// What the environment says, until something in it makes no sense: `why` then names the variable and its value.
template <class Get>
class environment_reader {
public:
    environment_reader(Get& get, std::string& why) : get_(get), why_(why) { why_.clear(); }

    bool good() const noexcept { return why_.empty(); }
    const char* text(const char* name) const { return name ? get_(name) : nullptr; }
    /// The number in a variable, from `least` to `most`; `otherwise` if it is not set and need not be.
    std::uint32_t number(const char* name, std::uint32_t least, std::uint32_t most,
                         std::optional<std::uint32_t> otherwise = std::nullopt) {
        const char* const is = text(name);
        if (!is && otherwise) return *otherwise;
        const auto n = to_number(is);
        if (n && *n >= least && *n <= most) return *n;
        refuse(name, "must be a number, " + std::to_string(least) + " to " + std::to_string(most));
        return least;
    }
    /// Effects: says what the variable must be, and what it is; the first complaint stays.
    void refuse(const char* name, const std::string& must) {
        const char* const is = text(name);
        if (good()) why_ = std::string(name) + " " + must + (is ? "; it is \"" + std::string(is) + "\"" : "; it is not set");
    }

private:
    Get& get_;
    std::string& why_;
};

/// Where rank 0 listens, as the environment has it. `several`: the job is on more than one host.
template <class Get>
std::string read_root(environment_reader<Get>& from, const char* launcher, bool several) {
    if (const char* const root = from.text("VCCL_ROOT")) {
        const std::string_view text(root);
        const std::size_t colon = text.rfind(':');
        const auto port = colon == text.npos ? std::nullopt : to_number(root + colon + 1);
        if (colon == 0 || !port || *port == 0 || *port > 65535)
            from.refuse("VCCL_ROOT", "must be HOST:PORT, an address of rank 0's host and a port, 1 to 65535");
        return root;
    }
    constexpr std::uint32_t last_port = 65535;
    const char* slurm = "SLURM_STEP_NODELIST";
    if (!from.text(slurm)) slurm = "SLURM_JOB_NODELIST";
    std::string host;
    std::uint32_t port = default_bootstrap_port;
    const char* said_by = "MASTER_ADDR";
    if (const char* const master = from.text("MASTER_ADDR")) {
        host = master;
        if (!from.text("VCCL_PORT") && from.text("MASTER_PORT"))
            port = from.number("MASTER_PORT", 1, last_port - 1) + 1;  // torchrun itself listens at MASTER_PORT
    } else if (const char* const list = from.text(slurm)) {
        host = first_host(list);
        said_by = slurm;
    } else if (!several) {
        host = "127.0.0.1";
    } else {
        from.refuse("VCCL_ROOT", std::string("must be HOST:PORT, an address of rank 0's host, at all ranks, since ") + launcher +
                                     " has started them on several hosts");
    }
    if (host.empty()) from.refuse(said_by, "must name a host");
    return host + ":" + std::to_string(from.number("VCCL_PORT", 1, last_port, port));
}

}  // namespace detail

/// `get(name)`: the variable's text or null. Returns: the place; not_found when no launcher has left any (the process is
/// alone), parse_error when what there is makes no sense. `why` then says in a sentence what to do.
template <class Get>
result<job_place> read_job_place(Get&& get, std::string& why) {
    detail::environment_reader from(get, why);
    for (const detail::launcher_words& l : detail::launchers) {
        if (!from.text(l.rank)) continue;
        job_place p;
        p.ranks = from.number(l.ranks, 1, most_bootstrap_ranks);
        p.rank = from.number(l.rank, 0, p.ranks - 1);
        p.local_ranks = from.number(l.local_ranks, 1, p.ranks, 1);
        const bool counted = from.text(l.local_ranks);
        p.local_rank = from.number(l.local_rank, 0, (counted ? p.local_ranks : p.ranks) - 1, 0);
        if (p.local_rank >= p.local_ranks) p.local_ranks = p.local_rank + 1;
        p.root = detail::read_root(from, l.name, p.local_ranks != p.ranks);
        if (!from.good()) return errc::parse_error;
        return p;
    }
    if (from.text("VCCL_RANKS")) {
        from.refuse("VCCL_RANK", "must be this process's rank where VCCL_RANKS is set");
        return errc::parse_error;
    }
    why = "no launcher has set a rank; start it under torchrun, mpirun or srun, or set VCCL_RANK, VCCL_RANKS and VCCL_ROOT";
    return errc::not_found;
}

/// The real environment, as the `get` of these functions.
inline const char* process_environment(const char* name) noexcept { return std::getenv(name); }

}  // namespace vccl::inline v0
