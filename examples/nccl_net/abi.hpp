#pragma once
// What NCCL and a net plugin agree on, versions 8 to 12, in our own words. Source of names, order and values: NCCL's
// documentation of its net plugins (plugins/net/README.md) and the versioned headers that it asks plugins to restate.
// NCCL looks for a table called ncclNetPlugin_vN, newest first, and calls it from its proxy threads.

#include <cstddef>
#include <cstdint>

namespace nccl_abi {

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

template <int Devices>
struct fused_devices {
    int count;
    int devices[Devices];
};

struct properties_v8 {
    char* name;
    char* pci_path;
    std::uint64_t guid;  // equal for the ports of one NIC
    int pointers;
    int registration_is_global;
    int mbit_per_second;
    int port;
    float latency;  // microseconds
    int max_comms;
    int max_recvs;
    int device_offload;
    int device_offload_version;
};

/// Versions 9 and 10.
struct properties_v9 {
    char* name;
    char* pci_path;
    std::uint64_t guid;
    int pointers;
    int registration_is_global;
    int force_flush;
    int mbit_per_second;
    int port;
    float latency;
    int max_comms;
    int max_recvs;
    int device_offload;
    int device_offload_version;
    fused_devices<4> fused;
    std::size_t max_p2p_bytes;
    std::size_t max_collective_bytes;
};

struct properties_v11 {
    char* name;
    char* pci_path;
    std::uint64_t guid;
    int pointers;
    int registration_is_global;
    int force_flush;
    int mbit_per_second;
    int port;
    float latency;
    int max_comms;
    int max_recvs;
    int device_offload;
    int device_offload_version;
    fused_devices<4> fused;
    std::size_t max_p2p_bytes;
    std::size_t max_collective_bytes;
    int max_multi_request;
};

struct properties_v12 {
    char* name;
    char* pci_path;
    std::uint64_t guid;
    int pointers;
    int registration_is_global;
    int force_flush;
    int mbit_per_second;
    int port;
    float latency;
    int max_comms;
    int max_recvs;
    int device_offload;
    int device_offload_version;
    fused_devices<8> fused;
    std::size_t max_p2p_bytes;
    std::size_t max_collective_bytes;
    int max_multi_request;
    std::int16_t rail;
    std::int16_t plane;
};

static_assert(sizeof(properties_v8) == 64 && offsetof(properties_v8, mbit_per_second) == 32);
static_assert(sizeof(properties_v9) == 104 && offsetof(properties_v9, fused) == 64 &&
              offsetof(properties_v9, max_p2p_bytes) == 88);
static_assert(sizeof(properties_v11) == 112 && offsetof(properties_v11, max_multi_request) == 104);
static_assert(sizeof(properties_v12) == 128 && offsetof(properties_v12, max_p2p_bytes) == 104 &&
              offsetof(properties_v12, rail) == 124);

struct comm_config {
    int traffic_class;
};

// The tables. What changed: 9 sizes in size_t, fused NICs; 10 a configuration and the profiler's handles; 11 a context for
// each communicator, an end of it, attributes; 12 rails in the properties.

struct net_v8 {
    const char* name;
    code (*init)(logger);
    code (*devices)(int* count);
    code (*get_properties)(int device, properties_v8*);
    code (*listen)(int device, void* handle, void** listener);
    code (*connect)(int device, void* handle, void** sender, void** offload);
    code (*accept)(void* listener, void** receiver, void** offload);
    code (*register_memory)(void* comm, void* data, std::size_t, int pointer, void** memory);
    code (*register_dmabuf)(void* comm, void* data, std::size_t, int pointer, std::uint64_t offset, int fd, void** memory);
    code (*deregister)(void* comm, void* memory);
    code (*isend)(void* sender, void* data, int size, int tag, void* memory, void** request);
    code (*irecv)(void* receiver, int n, void** data, int* sizes, int* tags, void** memory, void** request);
    code (*iflush)(void* receiver, int n, void** data, int* sizes, void** memory, void** request);
    code (*test)(void* request, int* done, int* sizes);
    code (*close_send)(void* sender);
    code (*close_recv)(void* receiver);
    code (*close_listen)(void* listener);
    code (*device_memory)(void* comm, void* memory, void** out);
    code (*consumed)(void* receiver, int n, void* request);
};

struct net_v9 {
    const char* name;
    code (*init)(logger);
    code (*devices)(int* count);
    code (*get_properties)(int device, properties_v9*);
    code (*listen)(int device, void* handle, void** listener);
    code (*connect)(int device, void* handle, void** sender, void** offload);
    code (*accept)(void* listener, void** receiver, void** offload);
    code (*register_memory)(void* comm, void* data, std::size_t, int pointer, void** memory);
    code (*register_dmabuf)(void* comm, void* data, std::size_t, int pointer, std::uint64_t offset, int fd, void** memory);
    code (*deregister)(void* comm, void* memory);
    code (*isend)(void* sender, void* data, std::size_t size, int tag, void* memory, void** request);
    code (*irecv)(void* receiver, int n, void** data, std::size_t* sizes, int* tags, void** memory, void** request);
    code (*iflush)(void* receiver, int n, void** data, int* sizes, void** memory, void** request);
    code (*test)(void* request, int* done, int* sizes);
    code (*close_send)(void* sender);
    code (*close_recv)(void* receiver);
    code (*close_listen)(void* listener);
    code (*device_memory)(void* comm, void* memory, void** out);
    code (*consumed)(void* receiver, int n, void* request);
    code (*fuse)(int* device, void* which);
};

struct net_v10 {
    const char* name;
    code (*init)(logger, profiler);
    code (*devices)(int* count);
    code (*get_properties)(int device, properties_v9*);
    code (*listen)(int device, void* handle, void** listener);
    code (*connect)(int device, comm_config*, void* handle, void** sender, void** offload);
    code (*accept)(void* listener, void** receiver, void** offload);
    code (*register_memory)(void* comm, void* data, std::size_t, int pointer, void** memory);
    code (*register_dmabuf)(void* comm, void* data, std::size_t, int pointer, std::uint64_t offset, int fd, void** memory);
    code (*deregister)(void* comm, void* memory);
    code (*isend)(void* sender, void* data, std::size_t size, int tag, void* memory, void* event, void** request);
    code (*irecv)(void* receiver, int n, void** data, std::size_t* sizes, int* tags, void** memory, void** events,
                  void** request);
    code (*iflush)(void* receiver, int n, void** data, int* sizes, void** memory, void** request);
    code (*test)(void* request, int* done, int* sizes);
    code (*close_send)(void* sender);
    code (*close_recv)(void* receiver);
    code (*close_listen)(void* listener);
    code (*device_memory)(void* comm, void* memory, void** out);
    code (*consumed)(void* receiver, int n, void* request);
    code (*fuse)(int* device, void* which);
};

/// Versions 11 and 12, which differ in the properties alone.
template <class Properties>
struct net_with_context {
    const char* name;
    code (*init)(void** context, std::uint64_t comm, comm_config*, logger, profiler);
    code (*devices)(int* count);
    code (*get_properties)(int device, Properties*);
    code (*listen)(void* context, int device, void* handle, void** listener);
    code (*connect)(void* context, int device, void* handle, void** sender, void** offload);
    code (*accept)(void* listener, void** receiver, void** offload);
    code (*register_memory)(void* comm, void* data, std::size_t, int pointer, void** memory);
    code (*register_dmabuf)(void* comm, void* data, std::size_t, int pointer, std::uint64_t offset, int fd, void** memory);
    code (*deregister)(void* comm, void* memory);
    code (*isend)(void* sender, void* data, std::size_t size, int tag, void* memory, void* event, void** request);
    code (*irecv)(void* receiver, int n, void** data, std::size_t* sizes, int* tags, void** memory, void** events,
                  void** request);
    code (*iflush)(void* receiver, int n, void** data, int* sizes, void** memory, void** request);
    code (*test)(void* request, int* done, int* sizes);
    code (*close_send)(void* sender);
    code (*close_recv)(void* receiver);
    code (*close_listen)(void* listener);
    code (*device_memory)(void* comm, void* memory, void** out);
    code (*consumed)(void* receiver, int n, void* request);
    code (*fuse)(int* device, void* which);
    code (*finalize)(void* context);
    code (*set_attributes)(void* context, void* attributes);
};
using net_v11 = net_with_context<properties_v11>;
using net_v12 = net_with_context<properties_v12>;

}  // namespace nccl_abi
