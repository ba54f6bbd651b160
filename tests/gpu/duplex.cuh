#pragma once
/// \file
/// Two hosts whose kernels post to each other: queues and payload of A on GPU 0, those of B on GPU `far` (which may be 0, too),
/// and the NIC that is a kernel between them.

#include "check.hpp"
#include "nic_policies.hpp"

#include <vccl/device.cuh>
#include <vccl/device/gpu_nic.cuh>
#include <vccl/model/shapes.hpp>
#include <vccl/verbs/soft.hpp>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

namespace vccl_gpu_test {

using namespace vccl;
using namespace vccl::literals;

/// One host's end of the duplex: a sender, a receiver, and what they send from and into.
struct duplex_end {
    using nic_type = device::gpu_nic<verbs::soft>;
    using backend = nic_type::backend;
    using rings = kernel_rings<nic_type>;
    using sender = device_sender<backend, sibling_port, qp_group<2>, rollback_fifo<64>, happenings, device::gpu_space, rings>;
    using receiver = device_receiver<backend, sibling_port, qp_group<2>, happenings, hold_down<5>, device::gpu_space>;

    int gpu;
    host_context<backend> context;
    owned<device::gpu_link> link;
    unsigned char *out{}, *in{};
    memory out_memory, in_memory;
    std::unique_ptr<sender> tx;
    std::unique_ptr<receiver> rx;
    cudaStream_t stream{};

    duplex_end(int on, nic_type& nic, backend over, const topology& shape, gpu_id at, channel_id sends, channel_id receives,
               std::size_t bytes, std::atomic<unsigned>& moves)
        : gpu(on), context(std::move(over), shape), link(std::move(*device::gpu_link::open(on))) {
        (void)cudaSetDevice(gpu);
        if (cudaMalloc(&out, bytes) != cudaSuccess || cudaMalloc(&in, bytes) != cudaSuccess) std::abort();
        (void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        (void)cudaSetDevice(0);
        out_memory = std::move(*context.register_memory(out, bytes));
        in_memory = std::move(*context.register_memory(in, bytes));
        device_options o;
        o.timeout = 20_s;
        tx = std::make_unique<sender>(context, nic, at, sends, out_memory.view(), o, sibling_port{}, happenings{&moves}, detect{},
                                      steady_clock{}, device::gpu_space{link.get()});
        rx = std::make_unique<receiver>(context, at, receives, in_memory.view(), o);
    }
    ~duplex_end() {  // with the NIC's kernel at rest
        tx.reset();
        rx.reset();
        out_memory = {};
        in_memory = {};
        (void)cudaFree(out);
        (void)cudaFree(in);
        (void)cudaStreamDestroy(stream);
    }
    duplex_end(const duplex_end&) = delete;
};

struct duplex {
    verbs::soft_fabric fabric;
    owned<duplex_end::nic_type> nic;
    std::atomic<unsigned> moves{};
    std::unique_ptr<duplex_end> a, b;
    std::atomic<bool> stop{};
    std::thread service;

    static verbs::soft_fabric make() {
        verbs::soft_options f;
        f.latency = 2_us;
        return std::move(*verbs::soft_fabric::create(make_cluster(2, 1, 2, 2), f));
    }
    duplex(int far, std::size_t bytes) : fabric(make()), nic(std::move(*duplex_end::nic_type::open(0))) {
        a = std::make_unique<duplex_end>(0, *nic, duplex_end::backend(*nic, *fabric.host("A")), fabric.shape(), gpu_id{0},
                                         channel_id{1}, channel_id{2}, bytes, moves);
        b = std::make_unique<duplex_end>(far, *nic, duplex_end::backend(*nic, *fabric.host("B")), fabric.shape(), gpu_id{2},
                                         channel_id{2}, channel_id{1}, bytes, moves);
    }
    void progress() {
        a->tx->progress();
        a->rx->progress();
        b->tx->progress();
        b->rx->progress();
    }
    bool connected() { return a->tx->connected() && a->rx->connected() && b->tx->connected() && b->rx->connected(); }
    bool start() {
        const auto at = a->tx->local_info(), ar = a->rx->local_info(), bt = b->tx->local_info(), br = b->rx->local_info();
        if (!at || !ar || !bt || !br) return false;
        if (!a->tx->begin_connect(*br) || !b->rx->begin_connect(*at) || !b->tx->begin_connect(*ar) || !a->rx->begin_connect(*bt))
            return false;
        for (int i = 0; i < 2'000'000 && !connected(); ++i) progress();
        if (!connected() || !nic->run()) return false;
        service = std::thread([this] {
            while (!stop) {
                nic->progress();
                progress();
            }
        });
        return true;
    }
    ~duplex() {
        (void)cudaStreamSynchronize(a->stream);
        (void)cudaStreamSynchronize(b->stream);
        stop = true;
        if (service.joinable()) service.join();
        nic->pause();  // from here on memory may be freed
    }
};

}  // namespace vccl_gpu_test
