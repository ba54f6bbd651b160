#pragma once
/// \file
/// What the GPU did, as CUPTI saw it: kernels and copies since the count began.

#include <cupti.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace vccl_test {

class gpu_activity {
public:
    static inline std::atomic<std::uint64_t> kernels{}, copies{};

    /// Requires: before the first CUDA call whose work is to be counted. False: CUPTI does not work here.
    static bool begin() noexcept {
        return cuptiActivityRegisterCallbacks(room, take) == CUPTI_SUCCESS &&
               cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == CUPTI_SUCCESS &&
               cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY) == CUPTI_SUCCESS;
    }
    static void flush() noexcept { (void)cuptiActivityFlushAll(1); }

private:
    static constexpr std::size_t buffer_bytes = 1 << 20, alignment = 8;

    static void CUPTIAPI room(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
        *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(alignment, buffer_bytes));
        *bytes = *buffer ? buffer_bytes : 0;
        *most_records = 0;
    }
    static void CUPTIAPI take(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
        CUpti_Activity* record = nullptr;
        while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
            kernels += record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
            copies += record->kind == CUPTI_ACTIVITY_KIND_MEMCPY;
        }
        std::free(buffer);
    }
};

}  // namespace vccl_test
