#pragma once
/// \file
/// Owns the mapping of a fabric's segment: anonymous memory in one process, or a file in /dev/shm that other processes
/// attach to. Set-up only; one thread.
///
/// A named segment is written under a temporary name and linked to its own when complete, so nobody can find half of
/// one. A segment whose creator is dead is replaced by the next creator of that name, under flock.

#include <vccl/base/clock.hpp>
#include <vccl/base/status.hpp>
#include <vccl/verbs/soft/process.hpp>
#include <vccl/verbs/soft/random.hpp>
#include <vccl/verbs/soft/segment.hpp>
#include <vccl/verbs/soft/topology_bytes.hpp>

#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dirent.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

namespace vccl::inline v0::verbs::soft_detail {

inline constexpr std::string_view shm_directory = "/dev/shm/";
inline constexpr std::string_view shm_prefix = "vccl-fabric.";

inline std::string path_of(std::string_view name) { return std::string(shm_directory).append(shm_prefix).append(name); }
inline bool valid_name(std::string_view name) noexcept {
    if (name.empty() || name.size() > 64) return false;
    for (const char c : name)
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_')) return false;
    return true;
}
constexpr bool valid_mtu(std::uint32_t mtu) noexcept { return mtu >= 256 && mtu <= 4096 && (mtu & (mtu - 1)) == 0; }
inline status system_error(int error) noexcept {
    const auto code = error == EACCES || error == EPERM    ? errc::permission
                      : error == ENOMEM || error == ENOSPC ? errc::no_memory
                      : error == ENOENT                    ? errc::not_found
                                                           : errc::system;
    return {code, code == errc::not_found ? subject::fabric : subject::system_error, static_cast<std::uint32_t>(error)};
}

/// Why a fabric's file could not be had: it is another user's, or else `other`.
inline status not_ours(const std::string& path, status other) noexcept {
    struct stat about {};
    if (::stat(path.c_str(), &about) != 0 || about.st_uid == ::geteuid()) return other;
    return {errc::permission, subject::owner, static_cast<std::uint32_t>(about.st_uid)};
}

/// A file descriptor that closes itself.
class unique_fd {
public:
    unique_fd() = default;
    explicit unique_fd(int fd) noexcept : fd_(fd) {}
    unique_fd(unique_fd&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
    unique_fd& operator=(unique_fd&& o) noexcept {
        std::swap(fd_, o.fd_);
        return *this;
    }
    ~unique_fd() {
        if (fd_ >= 0) ::close(fd_);
    }
    int get() const noexcept { return fd_; }
    explicit operator bool() const noexcept { return fd_ >= 0; }

private:
    int fd_{-1};
};

/// Does the name still mean this open file?
inline bool is_called(int file, const std::string& path) noexcept {
    struct stat here {
    }, named{};
    return ::fstat(file, &here) == 0 && ::stat(path.c_str(), &named) == 0 && here.st_ino == named.st_ino;
}

enum class liveness : std::uint8_t { alive, dead, unknown };

/// Removes a fabric's file when its creator is dead. Under flock, and only if the name still means the file that was
/// looked at, so that of two who do this at once neither removes what the other has just made.
inline liveness unlink_if_dead(const std::string& path) noexcept {
    const unique_fd file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));  // it may be a FIFO
    if (!file || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return liveness::unknown;
    segment_header h{};
    constexpr auto plain = static_cast<ssize_t>(offsetof(segment_header, changes));
    const bool whole = ::pread(file.get(), static_cast<void*>(&h), static_cast<std::size_t>(plain), 0) == plain;
    if (whole && h.magic == segment_magic && alive(h.creator)) return liveness::alive;
    if (is_called(file.get(), path)) ::unlink(path.c_str());
    return liveness::dead;
}

/// File names in the shared memory directory that start with `prefix`.
inline std::vector<std::string> shm_files(std::string_view prefix) {
    std::vector<std::string> names;
    DIR* directory = ::opendir(std::string(shm_directory).c_str());
    if (directory == nullptr) return names;
    while (const dirent* entry = ::readdir(directory))
        if (std::string_view(entry->d_name).starts_with(prefix)) names.emplace_back(entry->d_name);
    ::closedir(directory);
    return names;
}

class segment_map {
public:
    segment_map() = default;
    segment_map(segment_map&& o) noexcept
        : view(std::exchange(o.view, {})),
          bytes_(std::exchange(o.bytes_, 0)),
          file_(std::move(o.file_)),
          path_(std::move(o.path_)) {}
    segment_map& operator=(segment_map&& o) noexcept {
        std::swap(view, o.view);
        std::swap(bytes_, o.bytes_);
        std::swap(file_, o.file_);
        std::swap(path_, o.path_);
        return *this;
    }
    ~segment_map() {
        if (view.base != nullptr) ::munmap(view.base, bytes_);
    }

    segment view;

    /// For this process alone: no name, no rings.
    static result<segment_map> anonymous(const topology& t, const soft_options& o) {
        segment_map m;
        const auto blob = to_bytes(t);
        const auto layout = layout_for(t, blob.size(), 1, 0, 0);
        if (auto s = m.map(-1, layout.bytes); !s) return s;
        m.fill(layout, t, blob, o);
        return result<segment_map>(std::move(m));
    }

    static result<segment_map> create(std::string_view name, const topology& t, const soft_options& o) {
        if (!valid_name(name)) return errc::invalid_argument;
        for (const std::string& file : shm_files(shm_prefix))  // killed creators leave theirs, with the memory
            unlink_if_dead(std::string(shm_directory) + file);
        const std::string path = path_of(name);
        const std::string draft =
            std::string(shm_directory) + ".vccl-draft." + std::string(name) + "." + std::to_string(::getpid());
        ::unlink(draft.c_str());
        segment_map m;
        m.file_ = unique_fd(::open(draft.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
        if (!m.file_) return system_error(errno);
        const auto blob = to_bytes(t);
        const auto layout = layout_for(t, blob.size(), o.processes, o.ring_bytes, o.memory_bytes);
        status s = ::ftruncate(m.file_.get(), static_cast<off_t>(layout.bytes)) == 0 ? status{} : system_error(errno);
        if (s) s = m.reserve(0, layout.rings);
        if (s) s = m.map(m.file_.get(), layout.bytes);
        if (s) {
            m.fill(layout, t, blob, o);
            s = publish(draft, path);
        }
        ::unlink(draft.c_str());
        if (!s) return s;
        m.path_ = path;
        return result<segment_map>(std::move(m));
    }

    static result<segment_map> attach(std::string_view name) {
        if (!valid_name(name)) return errc::invalid_argument;
        segment_map m;
        m.file_ = unique_fd(::open(path_of(name).c_str(), O_RDWR | O_CLOEXEC));
        if (!m.file_) return errno == EACCES ? not_ours(path_of(name), system_error(EACCES)) : system_error(errno);
        struct stat info {};
        if (::fstat(m.file_.get(), &info) != 0) return system_error(errno);
        if (info.st_size < static_cast<off_t>(sizeof(segment_header))) return errc::bad_blob;
        if (auto s = m.map(m.file_.get(), static_cast<std::size_t>(info.st_size)); !s) return s;
        if (auto s = m.check(static_cast<std::size_t>(info.st_size)); !s) return s;
        return result<segment_map>(std::move(m));
    }

    /// Makes sure that a range has memory behind it, so that writing to it cannot end in SIGBUS.
    status reserve(std::size_t offset, std::size_t bytes) const noexcept {
        if (!file_) return {};
        const int e = ::posix_fallocate(file_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes));
        return e == 0 ? status{} : e == ENOSPC ? no_room(bytes) : system_error(e);
    }
    status reserve_ring(std::uint32_t from, std::uint32_t to) const noexcept {
        return reserve(view.ring_offset(from, to), view.at.ring_bytes);
    }

    /// Takes the name away (creator only): nobody else can attach; who is attached stays so. If the file was removed and
    /// another creator has the name now, it keeps it.
    void unlink() noexcept {
        if (!path_.empty() && is_called(file_.get(), path_)) ::unlink(path_.c_str());
        path_.clear();
    }

private:
    status no_room(std::size_t bytes) const noexcept {
        constexpr std::uint64_t mebibyte = 1 << 20;
        struct statvfs room {};
        (void)::fstatvfs(file_.get(), &room);
        return {errc::no_memory, subject::shared_memory, static_cast<std::uint32_t>((bytes + mebibyte - 1) / mebibyte),
                static_cast<std::uint32_t>(std::uint64_t{room.f_bavail} * room.f_frsize / mebibyte)};
    }
    static std::uint32_t rails_of(const topology& t) noexcept {
        std::uint32_t rails = 1;
        for (const auto& p : t.ports)
            if (p.rail.value + 1u > rails) rails = p.rail.value + 1u;
        return rails;
    }
    static segment_layout layout_for(const topology& t, std::size_t blob, std::uint32_t slots, std::uint32_t ring,
                                     std::uint64_t memory) noexcept {
        return segment_layout::of(static_cast<std::uint32_t>(t.ports.size()), rails_of(t), slots,
                                  static_cast<std::uint32_t>(blob), ring, round_up(memory, page));
    }

    status map(int fd, std::size_t bytes) noexcept {
        void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
        if (at == MAP_FAILED) return system_error(errno);
        view.base = static_cast<std::byte*>(at);
        bytes_ = bytes;
        return {};
    }

    void fill(const segment_layout& layout, const topology& t, const std::vector<std::byte>& blob, const soft_options& o) {
        view.at = layout;
        auto* h = ::new (view.base) segment_header{};
        h->magic = segment_magic;
        h->version = segment_version;
        h->bytes_of_header = sizeof(segment_header);
        h->bytes = layout.bytes;
        h->creator = own_identity();
        h->identity = static_cast<std::uint32_t>(
            mix(o.manual_time ? o.seed : o.seed ^ h->creator ^ static_cast<std::uint64_t>(steady_clock{}.now().count)));
        h->ports = layout.port_count;
        h->rails = layout.rail_count;
        h->slots = layout.slot_count;
        h->ring_bytes = layout.ring_bytes;
        h->topology_bytes = static_cast<std::uint32_t>(blob.size());
        h->mtu = o.mtu;
        h->latency = o.latency.count;
        h->seed = o.seed;
        h->memory_bytes = layout.memory_bytes;
        for (std::uint32_t i = 0; i < layout.port_count; ++i) {
            auto* p = ::new (static_cast<void*>(&view.port(i))) port_control{};
            p->link = link_active;
            p->on_down = static_cast<std::uint32_t>(o.on_port_down);
            p->base_rate = o.bytes_per_second != 0 ? o.bytes_per_second : t.ports[i].bytes_per_second;
            p->rate = p->base_rate;
            if (p->base_rate != 0) p->faults = fault_rate;
        }
        for (std::uint32_t i = 0; i < layout.rail_count; ++i) ::new (static_cast<void*>(&view.rail(i))) rail_control{1};
        for (std::uint32_t i = 0; i < layout.slot_count; ++i) ::new (static_cast<void*>(&view.slot(i))) slot_control{};
        if (layout.ring_bytes != 0)
            for (std::uint32_t i = 0; i < layout.slot_count * layout.slot_count; ++i)
                ::new (static_cast<void*>(&view.ring(0, i))) ring_control{};
        std::memcpy(view.topology_bytes(), blob.data(), blob.size());
    }

    status check(std::size_t file_bytes) noexcept {
        struct {
            std::uint64_t magic;
            std::uint32_t version, bytes_of_header;
            std::uint64_t bytes, creator;
            std::uint32_t identity, ports, rails, slots, ring_bytes, topology_bytes, mtu;
            std::int64_t latency;
            std::uint64_t seed, memory_bytes;
        } h;
        static_assert(sizeof h <= offsetof(segment_header, changes));
        std::memcpy(&h, view.base, sizeof h);  // checked and used from one copy: others may write to the original
        if (h.magic != segment_magic) return errc::bad_blob;
        if (h.version != segment_version || h.bytes_of_header != sizeof(segment_header))
            return {errc::version_mismatch, h.version};
        if (h.ports == 0 || h.ports > max_ports || h.rails == 0 || h.rails > max_rails || h.slots == 0 || h.slots > max_slots ||
            h.topology_bytes > file_bytes || h.ring_bytes < 65536 || (h.ring_bytes & (h.ring_bytes - 1)) != 0 ||
            !valid_mtu(h.mtu) || h.latency < 0 || h.memory_bytes > max_memory || h.memory_bytes % page != 0)
            return errc::bad_blob;
        view.at = segment_layout::of(h.ports, h.rails, h.slots, h.topology_bytes, h.ring_bytes, h.memory_bytes);
        if (view.at.bytes != file_bytes || h.bytes != file_bytes) return errc::bad_blob;
        return {};
    }

    /// Gives the finished draft its name; takes the name from a segment whose creator is dead.
    static status publish(const std::string& draft, const std::string& path) noexcept {
        constexpr status taken{errc::already_exists, subject::fabric, 0};
        for (int attempt = 0; attempt < 8; ++attempt) {
            if (::link(draft.c_str(), path.c_str()) == 0) return {};
            if (errno != EEXIST) return system_error(errno);
            if (unlink_if_dead(path) == liveness::alive) return taken;
        }
        return not_ours(path, taken);
    }

    std::size_t bytes_{};
    unique_fd file_;
    std::string path_;
};

/// Names of the fabrics on this machine whose creator lives.
inline std::vector<std::string> running_fabrics() {
    std::vector<std::string> names;
    for (const std::string& file : shm_files(shm_prefix)) {
        const std::string name = file.substr(shm_prefix.size());
        const auto m = segment_map::attach(name);
        if (m && alive(m->view.head().creator)) names.push_back(name);
    }
    return names;
}

}  // namespace vccl::inline v0::verbs::soft_detail
