#pragma once
// The network as the plugin's tables see it: devices, connections being made, memory. One for the process; any thread.
#include "keeper.hpp"

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace nccl_net {

/// A port as NCCL is told of it.
struct device {
    std::string name;
    std::string pci_path;  // of its PCI function in /sys; empty if it has none
    std::uint64_t nic{};
    unsigned port{1};
    unsigned mbit_per_second{};
    std::uint16_t rail{};
};

/// Listens at one port for one sender.
class listener {
public:
    virtual ~listener() = default;
    /// Effects: one step. Puts the connection into `out` when there is one.
    virtual code accept(std::unique_ptr<recv_comm>& out) = 0;
};

/// What the network cannot do, in words for a person.
struct network_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class network {
public:
    virtual ~network() = default;

    virtual const std::vector<device>& devices() const noexcept = 0;
    /// nccl_abi::pointer_host, with pointer_cuda and pointer_dmabuf where NICs reach GPU memory.
    virtual int pointers() const noexcept = 0;

    virtual std::unique_ptr<listener> listen(int device, handle& out) = 0;
    /// Effects: one step of connecting to that handle. Puts the connection into `out` when there is one.
    virtual code connect(int device, const handle& to, std::unique_ptr<send_comm>& out) = 0;

    virtual vccl::result<registration*> register_memory(void* data, std::size_t bytes, bool device) = 0;
    virtual vccl::result<registration*> register_dmabuf(void* data, std::size_t bytes, std::uint64_t offset, int fd) = 0;
    virtual bool deregister(registration* r, comm& user) = 0;

    /// That drive connections.
    std::size_t threads() const noexcept { return keepers_.front()->drives() ? keepers_.size() : 0; }
    /// Effects: a connection that was made gets its keeper.
    void look_after(comm& c) { keepers_[c.share]->look_after(c); }
    /// Effects: gives closed connections `patience` to say goodbye. Returns: true if NCCL has nothing of it in its hands any more.
    bool wind_up(vccl::nanoseconds patience) {
        bool idle = listeners_.load() == 0;
        for (const auto& k : keepers_) {
            k->stop(patience);
            idle &= k->idle();
        }
        return idle;
    }

protected:
    std::atomic<unsigned> listeners_{};
    std::vector<std::unique_ptr<keeper>> keepers_;  // of each share
};

/// Errors: network_error.
std::unique_ptr<network> make_soft_network(const settings& s);
std::unique_ptr<network> make_ibv_network(const settings& s);

}  // namespace nccl_net
