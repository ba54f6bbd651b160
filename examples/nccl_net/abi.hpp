#pragma once
// What NCCL and a net plugin agree on, versions 7 to 12, in our own words. Source of names, order and values: NCCL's
// documentation of its net plugins (plugins/net/README.md) and the versioned headers that it asks plugins to restate.
// NCCL looks for a table called ncclNetPlugin_vN, newest first, and calls it from its proxy threads. There is one description of
// all versions; a member says since which it is there, a function's type which arguments it has in which.

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace nccl_abi {

inline constexpr int oldest_version = 7, newest_version = 12;   // NCCL 2.19; 2.30

enum class code : int {
    success = 0,
    system_error = 2,
    internal_error = 3,
    invalid_argument = 4,
    invalid_usage = 5,
    remote_error = 6,
};

enum class log_level : int { warn = 2, info = 3 };
inline constexpr unsigned long subsystem_init = 1, subsystem_net = 16, subsystem_all = ~0ul;
using logger = void (*)(log_level, unsigned long subsystems, const char* where, int line, const char* format, ...);
using profiler = code (*)(void** event, int type, void* parent, std::int64_t plugin, void* more);

inline constexpr std::size_t handle_bytes = 128;   // that NCCL carries from listen() to connect()
inline constexpr int requests_at_once = 32;        // per connection, to be multiplied by max_recvs at the sender
inline constexpr int pointer_host = 1, pointer_cuda = 2, pointer_dmabuf = 4;
inline constexpr int no_rail = -1;

namespace detail {

template <class>
struct absent {};

}  // namespace detail

/// A member that there is since version `First`, of which a structure has one of each type: without it, it takes no room.
template <int Version, int First, class T>
using since = std::conditional_t<(Version >= First), T, detail::absent<T>>;

// --- a device's properties --------------------------------------------------------------------------------------------

template <int Devices>
struct fused_devices {
    int count;
    int devices[Devices];
};
struct largest_messages {
    std::size_t p2p, collective;
};
struct rails {
    std::int16_t rail, plane;
};
/// Types of their own, so that the members differ.
enum class is_global : int { no, yes };
enum class force_flush : int { no, yes };
enum class multi_request : int { one = 1 };

template <int Version>
struct properties {
    static constexpr int version = Version;

    char* name;
    char* pci_path;
    std::uint64_t guid;  // equal for the ports of one NIC
    int pointers;
    [[no_unique_address]] since<Version, 8, is_global> registration;
    [[no_unique_address]] since<Version, 9, force_flush> flush;
    int mbit_per_second;
    int port;
    float latency;  // microseconds
    int max_comms;
    int max_recvs;
    int device_offload;
    int device_offload_version;
    [[no_unique_address]] since<Version, 9, fused_devices<Version >= 12 ? 8 : 4>> fused;
    [[no_unique_address]] since<Version, 9, largest_messages> largest;
    [[no_unique_address]] since<Version, 11, multi_request> requests;
    [[no_unique_address]] since<Version, 12, rails> where;
};

static_assert(sizeof(properties<7>) == 56 && offsetof(properties<7>, mbit_per_second) == 28);
static_assert(sizeof(properties<8>) == 64 && offsetof(properties<8>, mbit_per_second) == 32);
static_assert(sizeof(properties<9>) == 104 && offsetof(properties<9>, fused) == 64 && offsetof(properties<9>, largest) == 88);
static_assert(sizeof(properties<10>) == sizeof(properties<9>));
static_assert(sizeof(properties<11>) == 112 && offsetof(properties<11>, requests) == 104);
static_assert(sizeof(properties<12>) == 128 && offsetof(properties<12>, largest) == 104 &&
              offsetof(properties<12>, requests) == 120 && offsetof(properties<12>, where) == 124);

// --- the table --------------------------------------------------------------------------------------------------------

struct comm_config {
    int traffic_class;
};

template <class... Arguments>
using call = code (*)(Arguments...);

namespace detail {

template <int Version, int First, class Earlier, class Later>
using until = std::conditional_t<(Version < First), Earlier, Later>;

template <int Version>
using size = until<Version, 9, int, std::size_t>;
template <int Version>
using region_size = until<Version, 8, int, std::size_t>;

template <int V>
using init =
    until<V, 10, call<logger>,
          until<V, 11, call<logger, profiler>, call<void** /*context*/, std::uint64_t /*comm*/, comm_config*, logger, profiler>>>;
template <int V>
using listen =
    until<V, 11, call<int /*device*/, void* /*handle*/, void** /*listener*/>, call<void* /*context*/, int, void*, void**>>;
template <int V>
using connect =
    until<V, 10, call<int /*device*/, void* /*handle*/, void** /*sender*/, void** /*offload*/>,
          until<V, 11, call<int, comm_config*, void*, void**, void**>, call<void* /*context*/, int, void*, void**, void**>>>;
template <int V>
using isend = until<V, 10, call<void* /*sender*/, void* /*data*/, size<V>, int /*tag*/, void* /*memory*/, void** /*request*/>,
                    call<void*, void*, size<V>, int, void*, void* /*event*/, void**>>;
template <int V>
using irecv = until<V, 10, call<void* /*receiver*/, int /*n*/, void**, size<V>*, int* /*tags*/, void** /*memory*/, void**>,
                    call<void*, int, void**, size<V>*, int*, void**, void** /*events*/, void**>>;

/// Functions that this plugin has not: a table holds zeros there.
struct offload_calls {
    call<void* /*comm*/, void* /*memory*/, void** /*out*/> device_memory;
    call<void* /*receiver*/, int /*n*/, void* /*request*/> consumed;
};
using fuse_call = call<int* /*device*/, void* /*which*/>;
struct context_calls {
    call<void* /*context*/> finalize;
    call<void* /*context*/, void* /*attributes*/> set_attributes;
};

}  // namespace detail

template <int Version>
struct net {
    static constexpr int version = Version;

    const char* name;
    detail::init<Version> init;
    call<int*> devices;
    call<int /*device*/, properties<Version>*> get_properties;
    detail::listen<Version> listen;
    detail::connect<Version> connect;
    call<void* /*listener*/, void** /*receiver*/, void** /*offload*/> accept;
    call<void* /*comm*/, void* /*data*/, detail::region_size<Version>, int /*pointer*/, void** /*memory*/> register_memory;
    call<void*, void*, std::size_t, int, std::uint64_t /*offset*/, int /*fd*/, void**> register_dmabuf;
    call<void* /*comm*/, void* /*memory*/> deregister;
    detail::isend<Version> isend;
    detail::irecv<Version> irecv;
    call<void* /*receiver*/, int /*n*/, void**, int* /*sizes*/, void** /*memory*/, void** /*request*/> iflush;
    call<void* /*request*/, int* /*done*/, int* /*sizes*/> test;
    call<void*> close_send;
    call<void*> close_recv;
    call<void*> close_listen;
    detail::offload_calls offload;
    [[no_unique_address]] since<Version, 9, detail::fuse_call> fuse;
    [[no_unique_address]] since<Version, 11, detail::context_calls> context;
};

static_assert(sizeof(net<7>) == 19 * sizeof(void*) && sizeof(net<8>) == sizeof(net<7>));
static_assert(sizeof(net<9>) == 20 * sizeof(void*) && sizeof(net<10>) == sizeof(net<9>));
static_assert(sizeof(net<11>) == 22 * sizeof(void*) && sizeof(net<12>) == sizeof(net<11>));

}  // namespace nccl_abi
