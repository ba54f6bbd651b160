// A profiler sees a channel's events as marks and its failover as a range. The profiler is this file: NVTX calls an injected
// library's functions instead of nothing.
#include <vccl/telemetry/nvtx.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace {

std::vector<std::string> seen;  ///< "mark lane failed 0", "begin failover 0", "end 7", in order
std::string domain_name;

std::string said(const nvtxEventAttributes_t* a) {
    return std::string(a->message.ascii) + " " + std::to_string(a->payload.ullValue);
}
void on_mark(nvtxDomainHandle_t, const nvtxEventAttributes_t* a) { seen.push_back("mark " + said(a)); }
nvtxRangeId_t on_start(nvtxDomainHandle_t, const nvtxEventAttributes_t* a) {
    seen.push_back("begin " + said(a));
    return 7;
}
void on_end(nvtxDomainHandle_t, nvtxRangeId_t id) { seen.push_back("end " + std::to_string(id)); }
nvtxDomainHandle_t on_create(const char* name) {
    domain_name = name;
    return reinterpret_cast<nvtxDomainHandle_t>(&domain_name);
}

int attach(NvtxGetExportTableFunc_t get_table) {
    const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
    NvtxFunctionTable table{};
    unsigned size = 0;
    if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
    *table[NVTX_CBID_CORE2_DomainMarkEx] = reinterpret_cast<NvtxFunctionPointer>(on_mark);
    *table[NVTX_CBID_CORE2_DomainRangeStartEx] = reinterpret_cast<NvtxFunctionPointer>(on_start);
    *table[NVTX_CBID_CORE2_DomainRangeEnd] = reinterpret_cast<NvtxFunctionPointer>(on_end);
    *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(on_create);
    return 1;
}

}  // namespace

TEST_CASE("events are marks with their lane, a failover is a range; a backup's failure and a return are none") {
    using namespace vccl;
    using kind = channel_event::kind;
    InitializeInjectionNvtx2_fnptr = attach;  // where NVTX looks, at its first use, for an injection that is linked in
    nvtx_events h;
    auto tell = [&](kind what, unsigned lane, unsigned to = 0) {
        channel_event e{};
        e.what = what;
        e.lane = lane_id{static_cast<std::uint8_t>(lane)};
        e.to = lane_id{static_cast<std::uint8_t>(to)};
        h.on_event(e);
    };
    tell(kind::connected, 0, 0);
    tell(kind::lane_failed, 2);
    tell(kind::lane_failed, 0);
    tell(kind::suspended, 0);
    tell(kind::failed_over, 0, 1);
    tell(kind::resumed, 0, 1);
    tell(kind::lane_restored, 0);
    tell(kind::failed_back, 1, 0);
    tell(kind::lane_failed, 1);
    tell(kind::lane_failed, 0);
    tell(kind::failed, 0);
    CHECK_EQ(domain_name, "vccl");
    const std::vector<std::string> expected{"mark connected 0",
                                            "mark lane failed 2",
                                            "mark lane failed 0",
                                            "begin failover 0",
                                            "mark no lane left 0",
                                            "mark failed over 1",
                                            "end 7",
                                            "mark bytes arrive again 1",
                                            "mark lane restored 0",
                                            "mark failed back 0",
                                            "mark lane failed 1",
                                            "mark lane failed 0",
                                            "begin failover 0",
                                            "mark channel failed 0",
                                            "end 7"};
    CHECK((seen == expected));
}
