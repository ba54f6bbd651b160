/// \file
/// Fault commands of the software fabric: refused, or carried out on a fabric that moves on.

#include <vccl/model/shapes.hpp>
#include <vccl/verbs/soft.hpp>

#include <cstdlib>
#include <string_view>

using namespace vccl;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static auto fabric = [] {
        verbs::soft_options o;
        o.manual_time = true;
        return verbs::soft_fabric::create(make_cluster(2, 2, 2, 2), o);
    }();
    if (!fabric) std::abort();
    std::string_view text(reinterpret_cast<const char*>(data), size < 256 ? size : 256);
    while (!text.empty()) {
        const auto line = text.substr(0, text.find('\n'));
        text.remove_prefix(line.size() < text.size() ? line.size() + 1 : line.size());
        if (line.find("flap") == std::string_view::npos)
            (void)fabric->command(line);
        else
            (void)verbs::soft_detail::parse(line, fabric->shape(), 4);
    }
    fabric->advance(nanoseconds{1000});
    return 0;
}
