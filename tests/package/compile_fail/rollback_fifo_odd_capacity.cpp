// EXPECT: vccl: the capacity of a rollback_fifo must be a power of two between 1 and 1024
#include <vccl/policy/replay.hpp>

template class vccl::rollback_fifo<48>;
