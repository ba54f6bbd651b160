// Writes the sample timeline as picture and trace into the folder named by the argument, for a real parser to judge.
#include "sample.hpp"

#include <vccl/telemetry/timeline_svg.hpp>
#include <vccl/telemetry/timeline_trace.hpp>

#include <fstream>

int main(int count, char** arguments) {
    if (count != 2) return 2;
    const std::string folder = arguments[1];
    const vccl::timeline t = sample::failover();
    std::ofstream(folder + "/sample.svg") << vccl::timeline_svg(
        t, {.title = "A to B <256 MiB>", .subtitle = "1 failover & 1 fail-back"});
    std::ofstream(folder + "/empty.svg") << vccl::timeline_svg(vccl::timeline(vccl::nanoseconds{7}));
    std::ofstream out(folder + "/sample.json");
    out << vccl::trace_document({vccl::trace_events(t, "A \"sender\"", 1), {}, vccl::trace_events(t, "B\\receiver", 2)});
    return out.flush() ? 0 : 1;
}
