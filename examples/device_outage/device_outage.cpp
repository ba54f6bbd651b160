// Device code keeps sending while its port dies and returns. Prints what happens, and verifies every byte, every signal and every
// addition at the receiver.
//
//     device_outage [SECONDS]
#include "../device_common/arguments.hpp"
#include "../device_common/launch.hpp"
#include "../device_common/pair.hpp"

namespace {

using tx_ref = example::sender<2>::ref_type;
constexpr unsigned blocks = 2, warps = 4, slots = 64;
constexpr std::uint64_t piece = 512;

/// Each warp counts up its own signal word and adds to its queue's sum, until told to stop.
struct keep_sending {
    tx_ref all;
    const std::uint64_t* stop;
    std::uint64_t* counts;
    std::uint64_t* results;

    VCCL_HOST_DEVICE void operator()(unsigned block, unsigned warp) const {
        namespace device = vccl::device;
        const vccl::warp_scope who{};
        const unsigned me = block * warps + warp;
        const auto tx = all.channel(me);
        device::device_result worst{};
        std::uint64_t i = 0;
        for (bool over = false; !over;) {
            ++i;
            const std::uint64_t at = (me * slots + i % slots) * piece;
            device::device_result r = tx.put_signal(who, at, at, piece, me, i);
            if (r) r = tx.fetch_add(who, 24 + me % 2, 1);
            if (r && i % 32 == 0) r = tx.flush(who);
            if (!r) worst = r;
            over = !r || (i >= slots && who.broadcast(device::load<device::order::relaxed, device::scope::system>(stop)) != 0);
        }
        if (worst) worst = tx.flush(who);
        if (who.rank() != 0) return;
        counts[me] = i;
        results[me] = pack(worst);
    }
};

}  // namespace

int main(int argc, char** argv) {
    example::arguments arguments(argc, argv, "device_outage [SECONDS 0.5-3600]");
    const double length = arguments.number(1.0, 0.5, 3600.0);
    if (arguments.done()) return arguments.status();
    constexpr unsigned senders = blocks * warps;
    example::pair<2> hosts(1, 2, senders * slots * piece, true);
    example::window page(4096);
    auto* const words = reinterpret_cast<std::uint64_t*>(page.bytes);
    for (std::size_t i = 0; i < hosts.out.size; ++i) hosts.out.bytes[i] = static_cast<unsigned char>(i * 131 + i / 509);

    const double begin = example::seconds();
    const auto say = [begin](const char* what) { std::printf("%8.3f s  *: %s\n", example::seconds() - begin, what); };
    const auto sleep = [](double s) { std::this_thread::sleep_for(std::chrono::duration<double>(s)); };
    example::launched running(blocks, warps, keep_sending{hosts.tx[0]->ref(), words, words + 16, words + 64});
    sleep(length * 0.3);
    say("the port in use, A.nic0.p0, goes down");
    example::need(hosts.fabric.command("down A.nic0.p0"), "down");
    sleep(length * 0.2);
    say("it comes back");
    example::need(hosts.fabric.command("up A.nic0.p0"), "up");
    sleep(length * 0.5);
    say("the kernel is told to stop");
    vccl::device::store<vccl::device::order::release, vccl::device::scope::system>(words, std::uint64_t{1});
    example::need(running.wait(), "the kernel failed");

    std::uint64_t rounds = 0, sums[2]{}, wrong = 0;
    for (unsigned i = 0; i < senders; ++i) {
        const auto r = vccl::device::unpack(words[64 + i]);
        example::need(static_cast<bool>(r), text(r.what));
        rounds += words[16 + i];
        sums[i % 2] += words[16 + i];
        wrong += hosts.rx[0]->ref().peek(i) != words[16 + i];
    }
    for (unsigned q = 0; q < 2; ++q) wrong += hosts.rx[0]->ref().peek(24 + q) != sums[q];
    std::uint64_t corrupted = 0;
    for (std::size_t i = 0; i < hosts.out.size; ++i) corrupted += hosts.in.bytes[i] != hosts.out.bytes[i];
    std::printf("RESULT %s rounds=%llu bytes=%llu signals_or_sums_wrong=%llu bytes_wrong=%llu\n",
                wrong + corrupted == 0 ? "ok" : "FAILED", static_cast<unsigned long long>(rounds),
                static_cast<unsigned long long>(rounds * piece), static_cast<unsigned long long>(wrong),
                static_cast<unsigned long long>(corrupted));
    return wrong + corrupted != 0;
}
