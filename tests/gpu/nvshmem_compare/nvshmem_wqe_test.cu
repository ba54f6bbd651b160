// The WQEs that NVSHMEM's public device header writes for put, p, get, put_signal and fetching atomics, byte for byte against
// ours: both run on the GPU. NVSHMEM's functions get a made-up state: one RC queue pair whose queue, doorbell record, doorbell
// and completion queue are plain device memory. No NIC, no NVSHMEM library, no second process.
// Seen to compile with the headers of NVSHMEM 3.4.5 and 3.8.0; tests/gpu/run builds it where they and rdma-core's are.

#if __has_include(<non_abi/device/pt-to-pt/ibgda_device.cuh>) && __has_include(<infiniband/mlx5dv.h>)

#include <device/nvshmem_device_macros.h>
#include <device_host/nvshmem_types.h>
#include <non_abi/device/pt-to-pt/ibgda_device.cuh>

#include <vccl/device/doorbell.hpp>
#include <vccl/device/wqe.hpp>

#include <check.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

// The library that defines these is not linked.
__constant__ nvshmemi_ibgda_device_state_t nvshmemi_ibgda_device_state_d;
__constant__ nvshmemi_device_host_state_t nvshmemi_device_state_d;

namespace {

using namespace vccl::device;

constexpr std::uint32_t qpn = 0x123456, lkey = 0x11223344, rkey = 0x55667788, scratch_lkey = 0x0badcafe;
constexpr std::uint64_t far_heap = 0x7f0012340000;
constexpr unsigned slots = 128;
constexpr std::size_t heap_bytes = 1 << 20;

/// What NVSHMEM finds in its two constants, and the memory behind it.
struct machine {
    char* heap{};
    wqe_block* wq{};
    std::uint32_t* record{};
    std::uint64_t* doorbell{};
    char* scratch{};
};

void must(cudaError_t e, const char* what) {
    if (e == cudaSuccess) return;
    std::fprintf(stderr, "nvshmem_compare: %s: %s\n", what, cudaGetErrorString(e));
    std::exit(1);
}
template <class T>
T* zeroed(std::size_t count) {
    T* p = nullptr;
    must(cudaMalloc(&p, count * sizeof(T)), "cudaMalloc");
    must(cudaMemset(p, 0, count * sizeof(T)), "cudaMemset");
    return p;
}
template <class T>
T* on_device(const T& value) {
    T* const p = zeroed<T>(1);
    must(cudaMemcpy(p, &value, sizeof value, cudaMemcpyHostToDevice), "cudaMemcpy");
    return p;
}

/// Effects: a fresh queue whose next index is `index`; a completion queue that says that everything up to `done` is complete.
machine prepare(std::uint64_t index, std::uint64_t done) {
    machine m;
    m.heap = zeroed<char>(heap_bytes);
    m.wq = zeroed<wqe_block>(slots);
    m.record = zeroed<std::uint32_t>(2);
    m.doorbell = zeroed<std::uint64_t>(1);
    m.scratch = zeroed<char>(NVSHMEMI_IBGDA_IBUF_SLOT_SIZE * 33);

    mlx5_cqe64 cqe{};
    cqe.wqe_counter = htobe16(static_cast<std::uint16_t>(done - 1));
    nvshmemi_ibgda_device_qp_t qp{};
    nvshmemi_init_ibgda_device_qp(qp);
    qp.qp_type = NVSHMEMI_IBGDA_DEVICE_QP_TYPE_RC;
    qp.qpn = qpn;
    qp.dev_idx = 0;
    qp.ibuf.nslots = 32;
    qp.ibuf.buf = m.scratch;
    qp.ibuf.lkey = htobe32(scratch_lkey);
    qp.tx_wq.nwqes = slots;
    qp.tx_wq.wqe = m.wq;
    qp.tx_wq.dbrec = m.record + 1;
    qp.tx_wq.bf = m.doorbell;
    qp.mvars.post_send_lock = 0;
    qp.mvars.tx_wq.resv_head = qp.mvars.tx_wq.ready_head = qp.mvars.tx_wq.prod_idx = qp.mvars.tx_wq.cons_idx = index;
    qp.mvars.tx_wq.get_head = qp.mvars.tx_wq.get_tail = 0;
    qp.mvars.ibuf.head = qp.mvars.ibuf.tail = 0;
    // peer 0 is this one and has none; peer 1 is the far end
    auto* const rcs = zeroed<nvshmemi_ibgda_device_qp_t>(2);
    nvshmemi_ibgda_device_cq_t cq{};
    nvshmemi_init_ibgda_device_cq(cq);
    cq.qp_type = qp.qp_type;
    cq.cqe = on_device(cqe);
    cq.prod_idx = &rcs[1].mvars.tx_wq.prod_idx;
    cq.cons_idx = &rcs[1].mvars.tx_wq.cons_idx;
    cq.resv_head = &rcs[1].mvars.tx_wq.resv_head;
    cq.ready_head = &rcs[1].mvars.tx_wq.ready_head;
    cq.ncqes = slots;
    cq.qpn = qpn;
    cq.dbrec = reinterpret_cast<__be32*>(zeroed<std::uint32_t>(2));
    qp.tx_wq.cq = on_device(cq);
    if constexpr (requires { qp.tx_wq.prod_idx; }) qp.tx_wq.prod_idx = &rcs[1].mvars.tx_wq.prod_idx;
    must(cudaMemcpy(&rcs[1], &qp, sizeof qp, cudaMemcpyHostToDevice), "cudaMemcpy");

    static nvshmemi_ibgda_device_state_t state{};
    state = {};
    state.num_rc_per_pe = 1;
    state.rc_map_type = NVSHMEMI_IBGDA_DEVICE_QP_MAP_TYPE_CTA;
    state.ndcts_per_pe = 1;
    state.num_qp_groups = 1;
    state.num_dct_groups = 1;
    state.num_requests_in_batch = 1;
    state.log2_cumem_granularity = 29;
    state.num_devices_initialized = 1;
    state.nic_buf_on_gpumem = true;
    state.support_half_av_seg = false;
    state.may_skip_cst = true;
    [](auto& s) {
        if constexpr (requires { s.num_default_rc_per_pe; }) s.num_default_rc_per_pe = 1;
    }(state);
    state.constmem.lkeys[0] = {htobe32(lkey), reinterpret_cast<std::uint64_t>(m.heap) + heap_bytes};
    state.constmem.rkeys[0] = state.constmem.rkeys[1] = {htobe32(rkey), heap_bytes};
    state.globalmem.qp_group_switches = zeroed<std::remove_pointer_t<decltype(state.globalmem.qp_group_switches)>>(2);
    state.globalmem.rcs = rcs;
    must(cudaMemcpyToSymbol(nvshmemi_ibgda_device_state_d, &state, sizeof state), "the state of IBGDA");

    static nvshmemi_device_host_state_t common{};
    common.mype = 0;
    common.npes = 2;
    common.node_mype = 0;
    common.node_npes = 1;
    common.heap_base = m.heap;
    common.heap_size = heap_bytes;
    void* const bases[2] = {m.heap, reinterpret_cast<void*>(far_heap)};
    void** const there = zeroed<void*>(2);
    must(cudaMemcpy(there, bases, sizeof bases, cudaMemcpyHostToDevice), "cudaMemcpy");
    common.peer_heap_base_remote = there;
    must(cudaMemcpyToSymbol(nvshmemi_device_state_d, &common, sizeof common), "the common state");
    return m;
}

// ---- the same calls, theirs and ours ------------------------------------------------------------------------------

enum class call { put, get, p, put_signal_add, put_signal_set, fetch_add, compare_swap, fetch_add_32, swap_32, warp_put_signal };
constexpr const char* name[] = {"put",
                                "get",
                                "p",
                                "put_signal add",
                                "put_signal set",
                                "fetch_add",
                                "compare_swap",
                                "fetch_add of 4 bytes",
                                "swap of 4 bytes",
                                "put_signal of a warp"};

struct arguments {
    std::size_t there, here, bytes;
    std::uint64_t value, compare;
};

template <call C>
__global__ void theirs(char* heap, arguments a) {
#if defined(__CUDA_ARCH__)  // NVSHMEM's functions are there for device code only
    void *const to = heap + a.there, *const from = heap + a.here, *const signal = heap + 512;
    if constexpr (C == call::put)
        ibgda_rma_thread<NVSHMEMI_OP_PUT, true, false>((std::uint64_t)to, (std::uint64_t)from, a.bytes, 1, 1);
    if constexpr (C == call::get)
        ibgda_rma_thread<NVSHMEMI_OP_GET, true, false>((std::uint64_t)to, (std::uint64_t)from, a.bytes, 1, 1);
    if constexpr (C == call::p) nvshmemi_ibgda_rma_p<std::uint64_t>(to, a.value, 1);
    if constexpr (C == call::put_signal_add)
        nvshmemi_ibgda_put_signal<NVSHMEMI_THREADGROUP_THREAD>(to, from, a.bytes, signal, a.value, NVSHMEMI_AMO_SIGNAL_ADD, 1,
                                                               true);
    if constexpr (C == call::put_signal_set)
        nvshmemi_ibgda_put_signal<NVSHMEMI_THREADGROUP_THREAD>(to, from, a.bytes, signal, a.value, NVSHMEMI_AMO_SIGNAL_SET, 1,
                                                               true);
    if constexpr (C == call::warp_put_signal)
        nvshmemi_ibgda_put_signal<NVSHMEMI_THREADGROUP_WARP>(to, from, a.bytes, signal, a.value, NVSHMEMI_AMO_SIGNAL_ADD, 1,
                                                             true);
    if constexpr (C == call::fetch_add)
        (void)nvshmemi_ibgda_amo_fetch_impl<std::uint64_t, false>(to, a.value, 0, 1, NVSHMEMI_AMO_FETCH_ADD);
    if constexpr (C == call::compare_swap)
        (void)nvshmemi_ibgda_amo_fetch_impl<std::uint64_t, false>(to, a.value, a.compare, 1, NVSHMEMI_AMO_COMPARE_SWAP);
    if constexpr (C == call::fetch_add_32)
        (void)nvshmemi_ibgda_amo_fetch_impl<std::uint32_t, false>(to, (std::uint32_t)a.value, 0, 1, NVSHMEMI_AMO_FETCH_ADD);
    if constexpr (C == call::swap_32)
        (void)nvshmemi_ibgda_amo_fetch_impl<std::uint32_t, false>(to, (std::uint32_t)a.value, 0, 1, NVSHMEMI_AMO_SWAP);
#endif
}

/// Writes into `wq` from `index`; how many slots, in `used`, and what the doorbell gets.
template <call C>
__global__ void ours(wqe_block* wq, std::uint64_t index, std::uint64_t heap, std::uint64_t scratch, arguments a, unsigned* used,
                     std::uint32_t* record, std::uint64_t* doorbell) {
    std::uint64_t next = index;
    const auto head = [&](bool asks) {
        return wqe_head{qpn, static_cast<std::uint16_t>(next), asks ? wqe_flag::completion : std::uint8_t{0}};
    };
    const auto put = [&](const wqe_block& b) { wq[next++ % slots] = b; };
    const wqe_remote to{far_heap + a.there, rkey}, signal{far_heap + 512, rkey};
    const wqe_local from{heap + a.here, lkey, static_cast<std::uint32_t>(a.bytes)};
    // NVSHMEM lets plain atomics write their results into the first slot of its scratch buffer, fetching ones into the next.
    const wqe_local dropped{scratch, scratch_lkey, 8};
    const wqe_local result{scratch + NVSHMEMI_IBGDA_IBUF_SLOT_SIZE, scratch_lkey, 8};
    const wqe_local half{scratch + NVSHMEMI_IBGDA_IBUF_SLOT_SIZE, scratch_lkey, 4};
    if constexpr (C == call::put) put(write(head(true), to, from));
    if constexpr (C == call::get) put(read(head(true), to, from));
    if constexpr (C == call::p) put(inline_write(head(true), to, a.value));
    if constexpr (C == call::put_signal_add || C == call::warp_put_signal) {
        put(write(head(false), to, from));
        put(masked_fetch_add_64(head(true), signal, dropped, a.value, 0));
    }
    if constexpr (C == call::put_signal_set) {
        put(write(head(false), to, from));
        const wqe_pair p = masked_compare_swap_64(head(false), signal, dropped, {a.value, 0, ~0ull, 0});
        put(p.block[0]);
        put(p.block[1]);
        put(nop(head(true)));
    }
    if constexpr (C == call::fetch_add) put(fetch_add(head(true), to, result, a.value));
    if constexpr (C == call::compare_swap) put(compare_swap(head(true), to, result, a.value, a.compare));
    if constexpr (C == call::fetch_add_32) put(masked_fetch_add_32(head(true), to, half, (std::uint32_t)a.value, 0));
    if constexpr (C == call::swap_32) put(masked_compare_swap_32(head(true), to, half, {(std::uint32_t)a.value, 0, ~0u, 0}));
    *used = static_cast<unsigned>(next - index);
    record[send_record] = encode_record(next);
    *doorbell = encode_doorbell(next, qpn);
}

// ---- what may differ ------------------------------------------------------------------------------------------------

/// Bytes that the NIC does not read and NVSHMEM leaves as they happened to be: the compare word of a plain FETCH_ADD and the
/// second half of a 4-byte masked one. And `ds` of a NOP: 2 there, 1 here and in NVSHMEM's other NOPs; nothing follows either.
bool may_differ(const unsigned char* wqe, unsigned at) {
    const unsigned opcode = wqe[3], opmod = wqe[0];
    if (at >= 40 && at < 48) return opcode == 0x12 || (opcode == 0x15 && opmod == 8);
    return at == 7 && opcode == 0x00;
}

template <class T>
std::vector<T> fetched(const T* p, std::size_t count) {
    std::vector<T> v(count);
    must(cudaMemcpy(v.data(), p, count * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return v;
}

unsigned compared_wqes, compared_bytes, skipped_bytes, failures;

template <call C>
void compare(std::uint64_t index, const arguments& a) {
    constexpr unsigned most = 4;
    constexpr unsigned long long done = C == call::put_signal_set                                 ? 4
                                        : C == call::put_signal_add || C == call::warp_put_signal ? 2
                                                                                                  : 1;
    const machine m = prepare(index, index + done);
    theirs<C><<<1, C == call::warp_put_signal ? 32 : 1>>>(m.heap, a);
    must(cudaDeviceSynchronize(), name[static_cast<int>(C)]);
    auto* const wq = zeroed<wqe_block>(slots);
    auto* const used = zeroed<unsigned>(1);
    auto* const record = zeroed<std::uint32_t>(2);
    auto* const doorbell = zeroed<std::uint64_t>(1);
    ours<C><<<1, 1>>>(wq, index, reinterpret_cast<std::uint64_t>(m.heap), reinterpret_cast<std::uint64_t>(m.scratch), a, used,
                      record, doorbell);
    must(cudaDeviceSynchronize(), "ours");

    const auto theirs_wq = fetched(m.wq, slots), ours_wq = fetched(wq, slots);
    const unsigned n = fetched(used, 1)[0];
    const unsigned before = failures;
    const unsigned char* wqe = nullptr;
    unsigned left_of_it = 0;
    for (unsigned i = 0; i < slots; ++i) {
        const std::size_t slot = (index + i) % slots;
        const auto* const t = reinterpret_cast<const unsigned char*>(&theirs_wq[slot]);
        const auto* const o = reinterpret_cast<const unsigned char*>(&ours_wq[slot]);
        if (left_of_it == 0 && i < n) {
            wqe = o;
            left_of_it = ((o[7] & 0x3f) + 3) / 4;
            ++compared_wqes;
        }
        for (unsigned b = 0; b < 64; ++b) {
            if (i < n && wqe == o && may_differ(wqe, b)) {
                ++skipped_bytes;
                continue;
            }
            ++compared_bytes;
            if (t[b] == o[b]) continue;
            if (failures++ - before < most)
                std::printf("FAIL %s at index %#llx: slot %u byte %u: NVSHMEM %02x, ours %02x\n", name[static_cast<int>(C)],
                            static_cast<unsigned long long>(index), i, b, t[b], o[b]);
        }
        if (left_of_it != 0) --left_of_it;
    }
    if (fetched(m.record, 2) != fetched(record, 2) || fetched(m.doorbell, 1) != fetched(doorbell, 1)) {
        ++failures;
        std::printf("FAIL %s at index %#llx: doorbell record or doorbell\n", name[static_cast<int>(C)],
                    static_cast<unsigned long long>(index));
    }
}

template <call C>
void compare_all() {
    for (const std::uint64_t index : {0ull, 5ull, 127ull, 0xffffull - 1, 0x10000ull + 2, 0xffffffffull}) {
        // NVSHMEM looks at its completion queue before it reuses a slot; `prepare` has it up to date for any index.
        for (const std::size_t bytes : {1ul, 8ul, 4096ul, 65537ul})
            compare<C>(index, {64, 131072, bytes, 0x0123456789abcdef ^ index, 0xfedcba9876543210 + index});
    }
    std::printf("%-22s %s\n", name[static_cast<int>(C)], failures == 0 ? "equal" : "DIFFERENT (so far)");
}

}  // namespace

int main() {
    vccl_gpu_test::need_gpu();
    compare_all<call::put>();
    compare_all<call::get>();
    compare_all<call::p>();
    compare_all<call::put_signal_add>();
    compare_all<call::put_signal_set>();
    compare_all<call::warp_put_signal>();
    compare_all<call::fetch_add>();
    compare_all<call::compare_swap>();
    compare_all<call::fetch_add_32>();
    compare_all<call::swap_32>();
    std::printf("%u WQEs, %u bytes compared, %u bytes that NICs do not read left out, %u differences\n", compared_wqes,
                compared_bytes, skipped_bytes, failures);
    return failures == 0 ? 0 : 1;
}

#else

#include <cstdio>

int main() {
    std::puts("SKIP: built without the headers of NVSHMEM (nvidia-nvshmem-cu13) and rdma-core (libibverbs-dev)");
    return 77;
}

#endif
