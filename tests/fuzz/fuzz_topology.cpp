/// \file
/// Topology text: what is read without an error is consistent, and reads back from its own print.

#include <vccl/model/topology_print.hpp>
#include <vccl/model/topology_text.hpp>

#include <cstdlib>
#include <string_view>

using namespace vccl;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto t = parse_topology(std::string_view(reinterpret_cast<const char*>(data), size));
    if (t && !parse_topology(print_topology(*t))) std::abort();
    return 0;
}
