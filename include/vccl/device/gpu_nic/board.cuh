#pragma once
/// \file
/// The host's side of the NIC in a kernel: starts and stops it, fills in its tables, and waits until it has seen a change. Any
/// thread; a lock inside. Needs the CUDA runtime.

#include <vccl/base/clock.hpp>
#include <vccl/base/mutex.hpp>
#include <vccl/device/gpu_nic/kernel.cuh>
#include <vccl/device/gpu_space.cuh>

#include <sched.h>

namespace vccl::inline v0::device::gpu_nic_detail {

class board {
public:
    /// Returns: no_device, no_memory, invalid_argument (blocks).
    VCCL_COLD static result<owned<board>> open(int device, unsigned blocks) noexcept {
        if (blocks == 0 || blocks > max_blocks) return errc::invalid_argument;
        owned<board> made(new (std::nothrow) board);
        if (!made) return errc::no_memory;
        auto link = gpu_link::open(device);
        if (!link) return link.error();
        made->link_ = std::move(*link);
        made->device_ = device;
        made->grid_ = blocks;
        return made->prepare() ? result<owned<board>>(std::move(made)) : result<owned<board>>(errc::no_memory);
    }
    board(const board&) = delete;
    VCCL_COLD ~board() {
        pause();
        if (runners_ != nullptr) (void)cudaFree(runners_);
        if (regions_ != nullptr) (void)cudaFree(regions_);
        if (port_free_ != nullptr) (void)cudaFree(port_free_);
        if (progress_ != nullptr) (void)cudaFree(progress_);
        if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
        if (shared_ != nullptr) mapped_memory::free(shared_);
    }

    /// Effects: the kernel runs from now on. Returns: system, with the CUDA error in `detail`.
    VCCL_COLD status run() noexcept {
        const scoped_lock lock(mutex_);
        if (run_ != 0) return {};
        store<order::release, scope::system>(t_.stop, std::uint32_t{0});
        for (unsigned b = 0; b < grid_; ++b) store<order::release, scope::system>(&t_.blocks[b].passes, std::uint64_t{0});
        int before = 0;
        (void)cudaGetDevice(&before);
        (void)cudaSetDevice(device_);
        serve<threads><<<grid_, threads, 0, stream_>>>(t_, runners_);
        const cudaError_t e = cudaGetLastError();
        (void)cudaSetDevice(before);
        if (e != cudaSuccess) return status{errc::system, static_cast<std::uint32_t>(e)};
        run_ = ++runs_;
        return {};
    }
    /// Effects: the kernel has ended when it returns; its queues stand still, and go on where they were at the next run().
    VCCL_COLD void pause() noexcept {
        const scoped_lock lock(mutex_);
        if (run_ == 0) return;
        store<order::release, scope::system>(t_.stop, std::uint32_t{1});
        (void)cudaStreamSynchronize(stream_);
        run_ = 0;
    }
    bool running() const noexcept { return present_run() != 0; }

    /// Effects: when it returns ok, the kernel has seen everything that was written before, and moves no byte that it had begun
    /// to move before. Returns: fence_failed if it makes no progress for ten seconds.
    VCCL_COLD status grace() const noexcept {
        const nanoseconds give_up = steady_clock{}.now() + nanoseconds{10'000'000'000};
        const std::uint64_t run = present_run();  // when it has ended, so has what it was doing
        std::uint64_t from[max_blocks];
        for (unsigned b = 0; b < grid_; ++b) from[b] = passes(b);
        for (unsigned b = 0; run != 0 && b < grid_; ++b) {
            while (present_run() == run && passes(b) < from[b] + 2) {
                if (steady_clock{}.now() >= give_up) return errc::fence_failed;
                ::sched_yield();
            }
        }
        return {};
    }

    /// Memory of the NIC's GPU, zeroed; freed with cudaFree, while the kernel is paused.
    VCCL_COLD void* allocate(std::size_t bytes) noexcept {
        const scoped_lock lock(mutex_);
        return link_->allocate(bytes);
    }
    /// Into such memory; passes a running kernel.
    VCCL_COLD void copy_in(void* to, const void* from, std::size_t bytes) noexcept {
        const scoped_lock lock(mutex_);
        link_->copy_in(to, from, bytes);
    }

    VCCL_COLD result<unsigned> add_port() noexcept {
        const scoped_lock lock(mutex_);
        if (ports_ == max_ports) return errc::no_memory;
        return ports_++;
    }
    void set_port(unsigned port, bool up) noexcept { write(&t_.port_up[port], up ? 1u : 0u); }

    /// 0: as fast as it goes.
    void set_rate(std::uint64_t bytes_per_second) noexcept {
        write(&shared_->pace, bytes_per_second == 0 ? 0u : static_cast<std::uint32_t>(1'000'000'000'000 / bytes_per_second));
    }

    VCCL_COLD result<unsigned> add_region(const region& r) noexcept {
        const scoped_lock lock(mutex_);
        for (unsigned i = 0; i < max_regions; ++i) {
            if (region_used_[i]) continue;
            region_used_[i] = true;
            link_->copy_in(&regions_[i], &r, sizeof r);
            set_live(i, 1);
            if (i >= *t_.region_count) write(t_.region_count, i + 1);
            return i;
        }
        return errc::no_memory;
    }
    VCCL_COLD void remove_region(unsigned i) noexcept {
        {
            const scoped_lock lock(mutex_);
            set_live(i, 0);
        }
        (void)grace();
        const scoped_lock lock(mutex_);
        region_used_[i] = false;
    }

    VCCL_COLD result<unsigned> add_end(std::uint32_t qpn, unsigned port) noexcept {
        const scoped_lock lock(mutex_);
        for (unsigned i = 0; i < max_ends; ++i) {
            if (t_.ends[i].qpn != 0) continue;
            write(&t_.ends[i].qpn, qpn);
            t_.ends[i].port = port;
            t_.ends[i].receives = {};
            return i;
        }
        return errc::no_memory;
    }
    VCCL_COLD void remove_end(unsigned i) noexcept {
        const scoped_lock lock(mutex_);
        write(&t_.ends[i].qpn, 0);
    }
    /// `not_found`: no QP of this number is on this NIC.
    VCCL_COLD result<unsigned> find_end(std::uint32_t qpn) const noexcept {
        const scoped_lock lock(mutex_);
        for (unsigned i = 0; i < max_ends; ++i)
            if (qpn != 0 && t_.ends[i].qpn == qpn) return i;
        return errc::not_found;
    }
    /// Requires: nobody accepts on it yet. Effects: nothing of what had the place before is used any more.
    void set_receives(unsigned i, const ring& r) noexcept {
        t_.ends[i].receives = r;
        ++t_.ends[i].generation;
    }
    /// Effects: what the QP `from` sends to the end is taken from now on; its receive queue as new. `rnr_wait` in nanoseconds.
    void accept(unsigned i, std::uint32_t from, std::uint64_t rnr_wait) noexcept {
        t_.ends[i].rnr_wait = rnr_wait;
        ++t_.ends[i].generation;
        write(&t_.ends[i].accepts, from);
    }
    /// Effects: no longer; wait for grace() before anything of it is used otherwise.
    void refuse(unsigned i) noexcept { write(&t_.ends[i].accepts, 0); }

    VCCL_COLD result<unsigned> add_queue() noexcept {
        const scoped_lock lock(mutex_);
        for (unsigned i = 0; i < max_queues; ++i) {
            if (queue_used_[i]) continue;
            queue_used_[i] = true;
            if (i >= *t_.queue_count) write(t_.queue_count, i + 1);
            return i;
        }
        return errc::no_memory;
    }
    VCCL_COLD void remove_queue(unsigned i) noexcept {
        const scoped_lock lock(mutex_);
        queue_used_[i] = false;
    }
    queue_entry& queue(unsigned i) noexcept { return t_.queues[i]; }
    const queue_report& report(unsigned i) const noexcept { return t_.reports[i]; }
    void set_state(unsigned i, queue_state s) noexcept {
        write(reinterpret_cast<std::uint32_t*>(&t_.queues[i].state), static_cast<std::uint32_t>(s));
    }
    void next_generation(unsigned i) noexcept { write(&t_.queues[i].generation, t_.queues[i].generation + 1); }

private:
    static constexpr unsigned threads = 128;

    board() = default;
    std::uint64_t present_run() const noexcept {
        const scoped_lock lock(mutex_);
        return run_;
    }
    static void write(std::uint32_t* word, std::uint32_t value) noexcept { store<order::release, scope::system>(word, value); }
    std::uint64_t passes(unsigned b) const noexcept { return load<order::acquire, scope::system>(&t_.blocks[b].passes); }
    void set_live(unsigned i, std::uint32_t live) noexcept { link_->copy_in(&regions_[i].live, &live, sizeof live); }

    VCCL_COLD bool prepare() noexcept {
        int before = 0;
        (void)cudaGetDevice(&before);
        (void)cudaSetDevice(device_);
        const bool stream = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess;
        (void)cudaSetDevice(before);
        shared_ = static_cast<shared*>(mapped_memory::allocate(sizeof(shared)));
        runners_ = static_cast<runner*>(link_->allocate(sizeof(runner) * max_queues));
        regions_ = static_cast<region*>(link_->allocate(sizeof(region) * max_regions));
        port_free_ = static_cast<std::uint64_t*>(link_->allocate(sizeof(std::uint64_t) * max_ports));
        progress_ = static_cast<end_progress*>(link_->allocate(sizeof(end_progress) * max_ends));
        if (!stream || shared_ == nullptr || runners_ == nullptr || regions_ == nullptr) return false;
        if (port_free_ == nullptr || progress_ == nullptr) return false;
        t_.queues = shared_->queues;
        t_.ends = shared_->ends;
        t_.reports = shared_->reports;
        t_.port_up = shared_->port_up;
        t_.blocks = shared_->blocks;
        t_.queue_count = &shared_->queue_count;
        t_.stop = &shared_->stop;
        t_.region_count = &shared_->region_count;
        t_.regions = regions_;
        t_.pace = &shared_->pace;
        t_.port_free = port_free_;
        t_.progress = progress_;
        return true;
    }

    struct shared {
        queue_entry queues[max_queues];
        queue_report reports[max_queues];
        pass_count blocks[max_blocks];
        end_entry ends[max_ends];
        std::uint32_t port_up[max_ports];
        std::uint32_t queue_count, region_count, stop, pace;
    };

    mutable mutex mutex_;
    owned<gpu_link> link_;
    cudaStream_t stream_{};
    shared* shared_{};
    runner* runners_{};
    region* regions_{};
    std::uint64_t* port_free_{};
    end_progress* progress_{};
    tables t_{};
    bool region_used_[max_regions]{}, queue_used_[max_queues]{};
    unsigned ports_{};
    unsigned grid_{};
    int device_{};
    std::uint64_t runs_{}, run_{};  ///< how often the kernel was started; which time the present one is, 0: it stands still
};

}  // namespace vccl::inline v0::device::gpu_nic_detail
