#pragma once
/// \file
/// The software NIC of one process: its QPs, memory and timers, and the packets on their way to it. Declared here; each
/// concern is defined in a header of its own:
///     setup.hpp      objects and QP states          requester.hpp  WQEs to packets, retransmission
///     wire.hpp       a packet from port to port     responder.hpp  requests that arrive
///     run.hpp        who runs the engine, when      completer.hpp  acknowledgements and completions
///
/// Everything below "engine state" is guarded by `lock_`. In real time whoever posts or polls runs the engine, and a
/// background thread does when nobody does; in manual time only `step` and `advance` do.

#include <vccl/base/clock.hpp>
#include <vccl/verbs/carry.hpp>
#include <vccl/verbs/memory_table.hpp>
#include <vccl/verbs/soft/arena.hpp>
#include <vccl/verbs/soft/command.hpp>
#include <vccl/verbs/soft/copy.hpp>
#include <vccl/verbs/soft/queue_pair.hpp>
#include <vccl/verbs/soft/random.hpp>
#include <vccl/verbs/soft/ring.hpp>
#include <vccl/verbs/soft/segment_map.hpp>
#include <vccl/verbs/soft/spin_lock.hpp>
#include <vccl/verbs/soft/time_queue.hpp>

#include <memory>
#include <span>

#include <pthread.h>

namespace vccl::inline v0::verbs::soft_detail {

/// An opened port: a protection domain, and the events that its owner has still to see.
struct port_domain {
    std::uint32_t id{};
    std::uint16_t port{};
    std::uint32_t events_seen{};
    static constexpr std::uint32_t room = 16;
    async_event local[room];             ///< engine lock; when full the oldest is lost
    std::uint32_t local_begin{}, local_end{};
    std::atomic<std::uint32_t> local_count{};
};

class engine {
public:
    engine(segment_map&& map, topology&& shape, bool manual);
    engine(const engine&) = delete;
    engine& operator=(const engine&) = delete;
    ~engine();

    // Any thread.
    const topology& shape() const noexcept { return shape_; }
    const segment& control() const noexcept { return map_.view; }
    bool manual() const noexcept { return manual_; }
    std::uint32_t mtu() const noexcept { return mtu_; }
    std::uint32_t identity() const noexcept { return identity_; }
    nanoseconds now() const noexcept { return manual_ ? manual_now_ : steady_clock{}.now(); }
    const nanoseconds* manual_now() const noexcept { return &manual_now_; }
    status command(std::string_view text);
    nanoseconds next_event_at() noexcept;
    void unlink() noexcept { map_.unlink(); }

    // setup.hpp: any thread; takes the lock.
    status claim_slot();
    result<std::unique_ptr<port_domain>> open(std::uint16_t port) noexcept;
    void close(const port_domain& d) noexcept;
    result<queue_pair*> create_qp(const port_domain& d, completion_queue& cq, const qp_limits& limits) noexcept;
    void destroy_qp(queue_pair& q) noexcept;
    void detach(completion_queue& cq) noexcept;
    result<std::uint32_t> add_memory(std::uint32_t domain, void* memory, std::size_t bytes) noexcept;
    void remove_memory(std::uint32_t local_key) noexcept;
    result<std::byte*> take_memory(std::size_t bytes) noexcept;
    void give_memory(const std::byte* p, std::size_t bytes) noexcept;
    status to_reset(queue_pair& q) noexcept;
    status to_init(queue_pair& q) noexcept;
    status to_ready_to_receive(queue_pair& q, const qp_peer& peer, const qp_timers& timers) noexcept;
    status to_ready_to_send(queue_pair& q, psn first, const qp_timers& timers) noexcept;
    status to_error(queue_pair& q) noexcept;
    async_event next_event(port_domain& d) noexcept;

    // run.hpp: the data path.
    status push_send(queue_pair& q, const work& w) noexcept;
    result<unsigned> push_receives(queue_pair& q, std::span<const recv_work> recvs) noexcept;
    void doorbell(queue_pair& q) noexcept;
    result<unsigned> poll(completion_queue& cq, completion* out, unsigned room) noexcept;

    // run.hpp: manual time, owner thread.
    bool step() noexcept;
    void advance(nanoseconds by) noexcept;
    std::uint64_t event_hash() const noexcept { return event_hash_; }

private:
    enum class turn : std::uint8_t { idle, again, blocked };
    enum class beginning : std::uint8_t { begun, completed, must_wait, failed };
    struct flap_job {
        std::uint32_t port{};
        std::uint64_t left{};
        std::int64_t down{}, up{};
        bool is_down{};
    };

    // run.hpp
    bool work_pending() const noexcept;
    bool progress() noexcept;
    bool pass() noexcept;
    void take_doorbells() noexcept;
    bool run_list() noexcept;
    bool run_due(unsigned limit) noexcept;
    void run_event(const timed_event& e) noexcept;
    void run_flap(std::uint32_t number) noexcept;
    void publish() noexcept;
    void notice_changes() noexcept;
    void enqueue(queue_pair& q) noexcept;
    void wake(queue_pair& q, std::int64_t at) noexcept;
    bool schedule(queue_pair& q, std::int64_t at, event_kind kind) noexcept;
    turn service(queue_pair& q) noexcept;
    void start_thread() noexcept;
    static void* background(void* self) noexcept;

    // setup.hpp
    queue_pair* find(std::uint32_t number) noexcept;
    void push_event(std::uint32_t domain, async_event e) noexcept;
    void revoke(const queue_pair& q) noexcept;
    void revoke(std::uint64_t addr, std::uint64_t bytes) noexcept;

    // wire.hpp
    std::int64_t clock() const noexcept { return now().count; }
    bool passes(const queue_pair& q) const noexcept;
    void refer(const queue_pair& q, packet_header& h, const std::byte* payload) const noexcept;
    std::int64_t paced_until(const queue_pair& q) const noexcept;
    bool transmit(queue_pair& q, packet_header& h, const std::byte* payload, std::uint32_t index) noexcept;
    void schedule_delivery(const packet_header& h, const std::byte* payload, std::int64_t due) noexcept;
    void launch(const packet_header& h, const std::byte* payload, std::uint32_t slot, std::int64_t due) noexcept;
    void deliver(const packet_header& h, const std::byte* payload) noexcept;
    bool receive_rings() noexcept;

    // requester.hpp
    turn send_some(queue_pair& q) noexcept;
    beginning begin(queue_pair& q, wqe& e) noexcept;
    bool direct(queue_pair& q, wqe& e) noexcept;
    bool send_train(queue_pair& q, wqe& e) noexcept;
    void go_back(queue_pair& q, std::uint32_t to) noexcept;
    void retry(queue_pair& q) noexcept;
    void arm_timer(queue_pair& q) noexcept;
    void push_timer(queue_pair& q) noexcept;
    void on_timer(queue_pair& q, std::int64_t at) noexcept;

    // responder.hpp
    void on_request(queue_pair& q, packet_header h, const std::byte* payload) noexcept;
    const std::byte* referred(const queue_pair& q, const packet_header& h) const noexcept;
    bool vouched(const queue_pair& q, const packet_header& h) const noexcept;
    void on_data(queue_pair& q, const packet_header& h, const std::byte* payload) noexcept;
    void on_read(queue_pair& q, const packet_header& h, bool duplicate) noexcept;
    void on_atomic(queue_pair& q, const packet_header& h, bool duplicate) noexcept;
    void refuse(queue_pair& q, nak_code why) noexcept;
    void not_ready(queue_pair& q) noexcept;
    turn pump(queue_pair& q) noexcept;

    // completer.hpp
    void on_response(queue_pair& q, const packet_header& h, const std::byte* payload) noexcept;
    bool acknowledge(queue_pair& q, std::uint32_t upto) noexcept;
    void on_nak(queue_pair& q, const packet_header& h) noexcept;
    void on_read_response(queue_pair& q, const packet_header& h, const std::byte* payload) noexcept;
    void on_atomic_response(queue_pair& q, const packet_header& h) noexcept;
    void finish(queue_pair& q, wqe& e) noexcept;
    void fail(queue_pair& q, wc_status why) noexcept;
    void enter_error(queue_pair& q) noexcept;
    void flush(queue_pair& q) noexcept;
    void push_cqe(queue_pair& q, const cqe& e) noexcept;
    void push_receive(queue_pair& q, wc_status s, completion_op op, std::uint32_t bytes, std::uint32_t immediate) noexcept;

    // Set at construction.
    segment_map map_;
    const topology shape_;
    const bool manual_;
    const std::uint32_t mtu_, identity_;
    const std::int64_t latency_;
    std::uint32_t slot_{max_slots};
    std::atomic<std::uint64_t> no_inbound_{};
    std::atomic<std::atomic<std::uint64_t>*> inbound_{&no_inbound_};  ///< the slot's bits, once there is a slot

    // Read without the lock.
    alignas(64) std::atomic<queue_pair*> doorbells_{};
    std::atomic<bool> busy_{};                 ///< the run list holds a QP, or a ring may hold more
    std::atomic<std::int64_t> next_due_{nanoseconds::never().count};
    std::atomic<std::uint32_t> changes_seen_{};
    std::atomic<std::uint32_t> drives_{};      ///< by post and poll; tells the background thread that it is not needed
    std::atomic<std::uint32_t> qp_count_{};
    std::atomic<std::uint64_t> credits_[table_size]{};  ///< life and number of freed WQEs of each QP

    spin_lock lock_;

    // Engine state.
    queue_pair* table_[table_size]{};
    std::uint8_t generations_[table_size]{};
    std::uint32_t cursor_{};
    std::vector<queue_pair*> run_, running_;
    time_queue queue_;
    packet_pool pool_;
    memory_table memory_;
    arena arena_;                              ///< of this process's slot
    random_source random_;
    std::vector<port_domain*> domains_;
    std::vector<std::uint32_t> downs_seen_;
    std::vector<flap_job> flaps_;
    std::uint64_t inbound_left_{};
    ring_producer out_[max_slots];
    ring_consumer in_[max_slots];
    nanoseconds manual_now_{};
    std::uint64_t event_hash_{0xcbf29ce484222325ull};

    // The background thread.
    pthread_t thread_{};
    bool thread_started_{};
    std::atomic<bool> stop_{};
};

}  // namespace vccl::inline v0::verbs::soft_detail
