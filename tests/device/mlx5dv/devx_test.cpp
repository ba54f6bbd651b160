// DevX: the bytes of every command, read by rdma-core's own accessors; and the set-up of a QP over a device that records what it
// is asked, refuses what the test wants refused, and counts what was not given back.

#include <vccl/device/devx_rings.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

namespace {

using namespace vccl;
using namespace vccl::device;
using namespace vccl::device::mlx5dv_detail;

std::uint32_t bits(const void* command, std::size_t at, std::size_t width) { return _devx_get(command, at, width); }
std::uint64_t wide(const void* command, std::size_t at) { return _devx_get64(command, at); }

/// Is every bit of `m` 0 that is not in one of `fields`?
template <class Message>
bool is_nothing_but(Message m, std::initializer_list<prm::field> fields) {
    for (const prm::field f : fields) m.set(f, 0);
    const auto* const at = static_cast<const unsigned char*>(m.data());
    for (std::size_t i = 0; i < m.size(); ++i)
        if (at[i] != 0) return false;
    return true;
}

TEST_CASE("A field is written where rdma-core reads it, and nothing beside it") {
    for (std::uint32_t width : {1u, 3u, 5u, 8u, 16u, 24u, 32u})
        for (std::uint32_t at = 0; at < 64; ++at) {
            if (at % 32 + width > 32) continue;
            prm::message<16> m;
            const auto value = static_cast<std::uint32_t>(0xa5c396d1u & ((std::uint64_t{1} << width) - 1));
            for (std::uint32_t i = 0; i < 16; ++i) m.set({8 * i, 8}, 0xff);
            m.set({at, width}, value);
            REQUIRE(bits(m.data(), at, width) == value);
            REQUIRE(m.get({at, width}) == value);
            m.set({at, width}, ~std::uint64_t{0});
            for (std::uint32_t i = 0; i < 16; ++i) REQUIRE(static_cast<const unsigned char*>(m.data())[i] == 0xff);
        }
    prm::message<16> m;
    m.set({64, 64}, 0x0123456789abcdef);
    CHECK(wide(m.data(), 64) == 0x0123456789abcdef);
}

TEST_CASE("create_cq: memory, record, size, doorbell page and event queue, as the PRM has them") {
    const auto m = prm::create_cq({{7, 0x12345678000}, {7, 0x9abcd80}, 11, 0xabcde, 5});
    CHECK(m.size() == 272);
    CHECK(bits(m.data(), 0, 16) == 0x400);
    const std::size_t context = 0x80;
    CHECK(bits(m.data(), context + 0x06, 1) == 1);       // dbr_umem_valid
    CHECK(bits(m.data(), context + 0x20, 32) == 7);      // dbr_umem_id
    CHECK(bits(m.data(), context + 0x63, 5) == 11);      // log_cq_size
    CHECK(bits(m.data(), context + 0x68, 24) == 0xabcde);  // uar_page
    CHECK(bits(m.data(), context + 0xb8, 8) == 5);       // c_eqn
    CHECK(wide(m.data(), context + 0x1c0) == 0x9abcd80);   // dbr_addr
    CHECK(wide(m.data(), 0x280) == 0x12345678000);         // cq_umem_offset
    CHECK(bits(m.data(), 0x2c0, 32) == 7);               // cq_umem_id
    CHECK(bits(m.data(), 0x2e0, 1) == 1);                // cq_umem_valid
    CHECK(is_nothing_but(
        m,
        {{0, 16}, {0x86, 1}, {0xa0, 32}, {0xe3, 5}, {0xe8, 24}, {0x138, 8}, {0x240, 64}, {0x280, 64}, {0x2c0, 32}, {0x2e0, 1}}));
}

TEST_CASE("create_qp: an RC QP without receive queue, its memory, record, domain and CQ") {
    const auto m = prm::create_qp({{9, 0x4000}, {9, 0x7f00}, 7, 0x54321, 0x13579, 0x24680});
    CHECK(m.size() == 272);
    CHECK(bits(m.data(), 0, 16) == 0x500);
    const std::size_t context = 0xc0;
    CHECK(bits(m.data(), context + 0x08, 8) == 0);          // st: RC
    CHECK(bits(m.data(), context + 0x13, 2) == 3);          // pm_state: migrated
    CHECK(bits(m.data(), context + 0x28, 24) == 0x13579);   // pd
    CHECK(bits(m.data(), context + 0x51, 4) == 7);          // log_sq_size
    CHECK(bits(m.data(), context + 0x68, 24) == 0x54321);   // uar_page
    CHECK(bits(m.data(), context + 0x88, 24) == 0xffffff);  // user_index
    CHECK(bits(m.data(), context + 0x3e8, 24) == 0x24680);  // cqn_snd
    CHECK(bits(m.data(), context + 0x4e8, 24) == 0x24680);  // cqn_rcv
    CHECK(wide(m.data(), context + 0x500) == 0x7f00);       // dbr_addr
    CHECK(bits(m.data(), context + 0x565, 3) == 3);         // rq_type: none
    CHECK(bits(m.data(), context + 0x683, 1) == 1);         // dbr_umem_valid
    CHECK(bits(m.data(), context + 0x720, 32) == 9);        // dbr_umem_id
    CHECK(wide(m.data(), 0x800) == 0x4000);                 // wq_umem_offset
    CHECK(bits(m.data(), 0x840, 32) == 9);                  // wq_umem_id
    CHECK(bits(m.data(), 0x860, 1) == 1);                   // wq_umem_valid
}

constexpr prm::origin local{0xabc123, 2, 0x11, true, 4};
prm::route ethernet() {
    prm::route r{.ethernet = true,
                 .global = true,
                 .gid_index = 3,
                 .hop_limit = 64,
                 .traffic_class = 0x6a,
                 .service_level = 5,
                 .mtu_code = 5};
    for (unsigned i = 0; i < 16; ++i) r.remote.raw[i] = static_cast<std::uint8_t>(i + 1);
    for (unsigned i = 0; i < 6; ++i) r.mac[i] = static_cast<std::uint8_t>(0xa0 + i);
    return r;
}

TEST_CASE("Each step of the ladder: opcode, QP number, and what the state needs") {
    const std::size_t context = 0xc0, path = context + 0xc0;
    const qp_peer peer{qpn{0x777777}, psn{0x123456}, {}, 0x42, 4096};
    const qp_timers timers{.timeout = 17, .retry_count = 6, .rnr_retry = 5, .min_rnr_timer = 21};

    auto m = prm::to_init(local);
    CHECK(bits(m.data(), 0, 16) == 0x502);
    CHECK(bits(m.data(), 0x48, 24) == 0xabc123);
    CHECK(bits(m.data(), path + 0x128, 8) == 2);        // vhca_port_num
    CHECK(bits(m.data(), path + 0x10, 16) == 0x11);     // pkey_index
    CHECK(bits(m.data(), context + 0x490, 3) == 7);     // rre, rwe, rae
    CHECK(bits(m.data(), context + 0x48c, 4) == 1);     // atomic_mode
    CHECK(bits(prm::to_init({1, 1, 0, false, 0}).data(), context + 0x48c, 7) == 0b0000110);

    m = prm::to_ready_to_receive(local, ethernet(), peer, timers);
    CHECK(bits(m.data(), 0, 16) == 0x503);
    CHECK(bits(m.data(), context + 0x40, 3) == 5);           // mtu
    CHECK(bits(m.data(), context + 0x43, 5) == 30);          // log_msg_max
    CHECK(bits(m.data(), context + 0xa8, 24) == 0x777777);   // remote_qpn
    CHECK(bits(m.data(), context + 0x4a8, 24) == 0x123456);  // next_rcv_psn
    CHECK(bits(m.data(), context + 0x488, 3) == 4);          // log_rra_max
    CHECK(bits(m.data(), context + 0x4a3, 5) == 21);         // min_rnr_nak
    CHECK(bits(m.data(), path + 0x48, 8) == 3);              // src_addr_index
    CHECK(bits(m.data(), path + 0x58, 8) == 64);             // hop_limit
    CHECK(bits(m.data(), path + 0x64, 8) == 0x6a);           // tclass
    for (unsigned i = 0; i < 16; ++i) CHECK(bits(m.data(), path + 0x80 + 8 * i, 8) == i + 1);  // rgid
    CHECK(bits(m.data(), path + 0x108, 2) == 2);             // ecn
    CHECK(bits(m.data(), path + 0x10a, 6) == 0x1a);          // dscp
    CHECK(bits(m.data(), path + 0x110, 16) == prm::udp_port_of(0xabc123, 0x777777));
    CHECK(bits(m.data(), path + 0x121, 3) == 5);             // eth_prio
    CHECK(bits(m.data(), path + 0x130, 16) == 0xa0a1);       // rmac_47_32
    CHECK(bits(m.data(), path + 0x140, 32) == 0xa2a3a4a5);   // rmac_31_0
    CHECK(bits(m.data(), path + 0x30, 16) == 0);             // rlid

    const prm::route infiniband{.lid = 0x42, .service_level = 6, .mtu_code = 4};
    m = prm::to_ready_to_receive(local, infiniband, peer, timers);
    CHECK(bits(m.data(), path + 0x30, 16) == 0x42);
    CHECK(bits(m.data(), path + 0x124, 4) == 6);  // sl
    CHECK(bits(m.data(), path + 0x28, 1) == 0);   // grh
    CHECK(bits(m.data(), path + 0x110, 16) == 0);
    m = prm::to_ready_to_receive(local, {.global = true, .hop_limit = 9}, peer, timers);
    CHECK(bits(m.data(), path + 0x28, 1) == 1);
    CHECK(bits(m.data(), path + 0x58, 8) == 9);

    m = prm::to_ready_to_send(local, psn{0xfedcba}, timers);
    CHECK(bits(m.data(), 0, 16) == 0x504);
    CHECK(bits(m.data(), context + 0x3c8, 24) == 0xfedcba);  // next_send_psn
    CHECK(bits(m.data(), path + 0x40, 5) == 17);             // ack_timeout
    CHECK(bits(m.data(), context + 0x38d, 3) == 6);          // retry_count
    CHECK(bits(m.data(), context + 0x390, 3) == 5);          // rnr_retry
    CHECK(bits(m.data(), context + 0x388, 3) == 4);          // log_sra_max
    CHECK(bits(m.data(), context + 0x380, 4) == 8);          // log_ack_req_freq

    const auto error = prm::to_error(0xabc123);
    CHECK(error.size() == 16);
    CHECK(bits(error.data(), 0, 16) == 0x507);
    CHECK(bits(error.data(), 0x48, 24) == 0xabc123);
}

TEST_CASE("Source ports of two QPs to one peer differ, and all are dynamic ones") {
    for (std::uint32_t q = 0; q < 1000; ++q) {
        CHECK(prm::udp_port_of(q, 5) >= 0xc000);
        CHECK(prm::udp_port_of(q, 5) != prm::udp_port_of(q + 1, 5));
    }
}

/// What was made and not given back, what was asked, and which call fails.
struct record {
    int memories{}, pages{}, objects{}, mappings{}, buffers{};
    std::vector<std::vector<unsigned char>> commands;
    unsigned calls{}, fails{~0u};
    std::uint32_t state{};
    std::vector<unsigned char> filled;
    bool nothing_left() const { return memories + pages + objects + mappings + buffers == 0; }
    bool fail() { return ++calls == fails; }
};
record* now = nullptr;

struct fake_devx {
    struct port_type {};
    explicit fake_devx(port_type&) noexcept {}
    result<devx_port> describe() noexcept {
        if (now->fail()) return as_status(mlx5dv_problem::no_devx);
        return devx_port{0x13579, 5, 2, 0x11, true, 4};
    }
    result<devx_memory> register_memory(void*, std::size_t bytes, const dmabuf_range&) noexcept {
        CHECK(bytes % 4096 == 0);
        if (now->fail()) return as_status(mlx5dv_problem::no_gpu_memory);
        ++now->memories;
        return devx_memory{now, 9};
    }
    void release(const devx_memory&) noexcept {
        CHECK(now->objects == 0);
        --now->memories;
    }
    result<devx_page> allocate_page() noexcept {
        if (now->fail()) return as_status(mlx5dv_problem::no_doorbell_page);
        ++now->pages;
        return devx_page{now, 0x54321, &reg};
    }
    void release(const devx_page&) noexcept {
        CHECK(now->mappings == 0);
        --now->pages;
    }
    result<void*> create(const void* in, std::size_t bytes, void* out, std::size_t room) noexcept {
        keep(in, bytes);
        CHECK(room == 16);
        if (now->fail()) return as_status(mlx5dv_problem::command_refused, 0x1234);
        prm::short_message answer;
        answer.set(prm::object, 0x1000u + static_cast<std::uint32_t>(now->commands.size()));
        std::memcpy(out, answer.data(), room);
        ++now->objects;
        return static_cast<void*>(now);
    }
    status change(void*, const void* in, std::size_t bytes) noexcept {
        keep(in, bytes);
        return now->fail() ? as_status(mlx5dv_problem::command_refused, 0x1234) : status{};
    }
    status query(void*, const void* in, std::size_t bytes, void* out, std::size_t room) noexcept {
        keep(in, bytes);
        prm::query_answer answer;
        answer.set(prm::qpc::state, now->state);
        std::memcpy(out, answer.data(), room);
        return {};
    }
    void destroy(void*) noexcept { --now->objects; }
    result<prm::route> find_route(const qp_peer&) noexcept {
        if (now->fail()) return status{errc::port_down, 2};
        return ethernet();
    }
    static void keep(const void* in, std::size_t bytes) {
        const auto* const p = static_cast<const unsigned char*>(in);
        now->commands.emplace_back(p, p + bytes);
    }
    static inline std::uint64_t reg = 0;
};

struct fake_poster {
    static void* allocate(std::size_t bytes) noexcept {
        if (now->fail()) return nullptr;
        ++now->buffers;
        return heap_memory::allocate(bytes);
    }
    static void free(void* p) noexcept {
        CHECK(now->memories == 0);
        --now->buffers;
        heap_memory::free(p);
    }
    static result<std::uint64_t*> map_doorbell(void* reg) noexcept {
        if (now->fail()) return as_status(mlx5dv_problem::no_peer_mapping);
        ++now->mappings;
        return static_cast<std::uint64_t*>(reg);
    }
    static void unmap_doorbell(void*) noexcept { --now->mappings; }
    static dmabuf_range share(void*, std::size_t) noexcept { return {}; }
    static bool copy_in(void* to, const void* from, std::size_t bytes) noexcept {
        if (now->fail()) return false;
        std::memcpy(to, from, bytes);
        return true;
    }
};
using rings = devx_rings<fake_poster, fake_devx>;
static_assert(ring_source<rings>);

TEST_CASE(
    "A QP and its CQ lie in one piece of memory that the device knows, as the commands say; the ladder goes to the device") {
    record all;
    now = &all;
    fake_devx::port_type port;
    {
        auto q = rings{}.create_qp(port, {128, 200});
        REQUIRE(q);
        REQUIRE(all.commands.size() == 2);
        const ring r = q->memory();
        CHECK(r.depth() == 128);
        CHECK(r.cq_depth() == 256);
        CHECK(r.doorbell == &fake_devx::reg);
        CHECK(r.qpn == 0x1002);
        const auto offset = [&](const void* p) {
            return static_cast<std::uint64_t>(static_cast<const std::byte*>(p) - reinterpret_cast<const std::byte*>(r.wq));
        };
        const auto &cq = all.commands[0], &qp = all.commands[1];
        CHECK(bits(cq.data(), 0, 16) == 0x400);
        CHECK(wide(cq.data(), 0x280) == offset(r.cq));
        CHECK(wide(cq.data(), 0x280) % 4096 == 0);
        CHECK(wide(cq.data(), 0x240) == offset(r.cq_record));
        CHECK(bits(cq.data(), 0xe3, 5) == 8);
        CHECK(bits(cq.data(), 0x138, 8) == 5);
        CHECK(bits(qp.data(), 0, 16) == 0x500);
        CHECK(wide(qp.data(), 0x800) == 0);
        CHECK(wide(qp.data(), 0xc0 + 0x500) == offset(r.doorbell_record));
        CHECK(bits(qp.data(), 0xc0 + 0x3e8, 24) == 0x1001);  // the CQ of the answer
        CHECK(bits(qp.data(), 0xc0 + 0x51, 4) == 7);
        for (std::uint32_t i = 0; i < r.cq_depth(); ++i) CHECK(r.cq[i] == empty_cqe());

        const qp_peer peer{qpn{0x777777}, psn{0x123456}, {}, 0, 4096};
        CHECK(q->to_init());
        CHECK(q->to_ready_to_receive(peer, {}));
        CHECK(q->to_ready_to_send(psn{1}, {}));
        CHECK(q->to_error());
        REQUIRE(all.commands.size() == 6);
        const std::uint32_t opcodes[]{0x502, 0x503, 0x504, 0x507};
        for (unsigned i = 0; i < 4; ++i) {
            CHECK(bits(all.commands[2 + i].data(), 0, 16) == opcodes[i]);
            CHECK(bits(all.commands[2 + i].data(), 0x48, 24) == 0x1002);
        }
        for (const auto& [raw, state] : {std::pair{0u, qp_state::reset},
                                         {1u, qp_state::init},
                                         {2u, qp_state::ready_to_receive},
                                         {3u, qp_state::ready_to_send},
                                         {4u, qp_state::error},
                                         {6u, qp_state::error}}) {
            all.state = raw;
            const auto found = q->state();
            CHECK((found && *found == state));
        }
        r.cq[0].word[15] = 0;
        CHECK(q->to_reset());
        CHECK(q->memory().wq == r.wq);
        CHECK(q->memory().qpn != r.qpn);
        CHECK(r.cq[0] == empty_cqe());
        CHECK(all.objects == 2);
    }
    CHECK(all.nothing_left());
}

TEST_CASE("Whichever step of the set-up fails: its status comes back, and everything is given back") {
    const status expected[]{as_status(mlx5dv_problem::no_devx),
                            status{errc::no_memory},
                            as_status(mlx5dv_problem::no_gpu_memory),
                            as_status(mlx5dv_problem::no_doorbell_page),
                            as_status(mlx5dv_problem::no_peer_mapping),
                            status{errc::no_memory},
                            as_status(mlx5dv_problem::command_refused, 0x1234),
                            as_status(mlx5dv_problem::command_refused, 0x1234)};
    unsigned step = 0;
    for (const status& want : expected) {
        record all;
        now = &all;
        all.fails = ++step;
        fake_devx::port_type port;
        const auto q = rings{}.create_qp(port, {128, 0});
        REQUIRE_FALSE(q);
        CHECK(q.error() == want);
        CHECK(all.nothing_left());
    }
    record all;
    now = &all;
    all.fails = step + 1;
    fake_devx::port_type port;
    auto q = rings{}.create_qp(port, {128, 0});
    REQUIRE(q);
    CHECK(problem_of(q->to_init()) == mlx5dv_problem::command_refused);
    all.fails = all.calls + 1;
    CHECK(q->to_ready_to_receive({}, {}).code == errc::port_down);
    all.fails = all.calls + 3;  // the new QP; the CQ goes, too
    CHECK(problem_of(q->to_reset()) == mlx5dv_problem::command_refused);
    CHECK(q->to_init().code == errc::invalid_argument);
    CHECK(q->state().error().code == errc::invalid_argument);
    CHECK(q->destroy());
    CHECK(all.nothing_left());
}

TEST_CASE("Depths out of range and receive queues are refused before anything is asked of the device") {
    record all;
    now = &all;
    fake_devx::port_type port;
    CHECK(rings{}.create_qp(port, {3, 0}).error().code == errc::invalid_argument);
    CHECK(rings{}.create_qp(port, {(1u << 15) + 1, 0}).error().code == errc::invalid_argument);
    CHECK(rings{}.create_qp(port, {16, (1u << 22) + 1}).error().code == errc::invalid_argument);
    CHECK(rings{}.create_qp(port, {16, 0, 4}).error().code == errc::unsupported);
    CHECK(all.calls == 0);
    CHECK(rings{}.create_qp(port, {4, 4})->memory().depth() == 64);  // a page
}

}  // namespace
