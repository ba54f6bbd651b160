/// \file
/// Send-queue and completion-queue entries from memory that anybody may have written: decoded and judged, never followed further.

#include <vccl/device/cqe.hpp>
#include <vccl/device/wqe_decode.hpp>
#include <vccl/device/wqe_judge.hpp>

#include <cstdlib>
#include <cstring>

using namespace vccl;
using namespace vccl::device;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    wqe_block first{}, second{};
    std::memcpy(&first, data, size < sizeof first ? size : sizeof first);
    if (size > sizeof first)
        std::memcpy(&second, data + sizeof first, size - sizeof first < sizeof second ? size - sizeof first : sizeof second);
    wqe_fields f = decode(first, second);
    const judgement j = judge(f, f.head.index, f.head.qpn);
    if (j == judgement{} && f.local.length > max_message) std::abort();
    (void)make_plain(f);
    cqe64 c{};
    std::memcpy(&c, data, size < sizeof c ? size : sizeof c);
    (void)decode(c);
    return 0;
}
