// The plugin's two comms in one process and thread, so that each step of either end can be chosen: what a race between two
// processes shows once in a thousand runs.
#include "../../examples/nccl_net/channel.hpp"

#include <vccl/model/shapes.hpp>
#include <vccl/verbs/soft.hpp>

#include <doctest/doctest.h>

namespace {

using namespace nccl_net;
using soft = vccl::verbs::soft;

/// A sender at host A and a receiver at host B, connected.
struct two_comms {
    vccl::verbs::soft_fabric fabric = std::move(*vccl::verbs::soft_fabric::create(vccl::make_cluster(2, 1, 2, 1)));
    vccl::host_context<soft> a{*fabric.host("A"), fabric.shape()}, b{*fabric.host("B"), fabric.shape()};
    std::vector<std::byte> bytes = std::vector<std::byte>(1 << 20);
    settings chosen = read_settings();
    vccl::memory from, to;
    std::vector<std::byte> blob_of_sender;
    std::unique_ptr<send_channel<soft, 1>> sender;
    std::unique_ptr<recv_channel<soft, 1>> receiver;

    two_comms() {
        from = std::move(*a.register_memory(bytes.data(), bytes.size() / 2));
        to = std::move(*b.register_memory(bytes.data() + bytes.size() / 2, bytes.size() / 2));
        const auto first = [&](const char* port) { return *fabric.shape().find_port(port); };
        sender = std::make_unique<send_channel<soft, 1>>(a, making{chosen, first("A.nic0.p0"), 7, 99, "127.0.0.1"});
        receiver = std::make_unique<recv_channel<soft, 1>>(b, making{chosen, first("B.nic0.p0"), 7, 99, "127.0.0.1"});
        introduction of_a = introduction::make(chosen, "A"), of_b = introduction::make(chosen, "B");
        REQUIRE(sender->introduce(of_a));
        REQUIRE(receiver->introduce(of_b));
        CHECK(objection(of_a, chosen).empty());
        blob_of_sender.assign(of_a.blob().begin(), of_a.blob().end());
        REQUIRE(sender->join(of_b));
        REQUIRE(receiver->join(of_a));
        CHECK(until([&] { return sender->connected() && receiver->connected(); }));
    }

    template <class Done>
    bool until(const Done& done) {
        const vccl::nanoseconds limit = vccl::steady_clock{}.now() + vccl::nanoseconds{20'000'000'000};
        while (!done()) {
            sender->pass();
            receiver->pass();
            if (vccl::steady_clock{}.now() > limit) return false;
        }
        return true;
    }
    request* send(std::size_t place, int tag) {
        request* r = nullptr;
        CHECK(sender->isend(from.view(place * 4096, 100 + place), tag, &r) == code::success);
        return r;
    }
    request* receive(std::vector<int> tags) {
        std::vector<vccl::memory_view> rooms;
        for (std::size_t i = 0; i < tags.size(); ++i) rooms.push_back(to.view(i * 4096, 4096));
        request* r = nullptr;
        CHECK(receiver->irecv(static_cast<int>(tags.size()), rooms.data(), tags.data(), &r) == code::success);
        return r;
    }
    template <class Comm>
    static bool done(Comm& c, request* r, int* sizes = nullptr) {
        int is_done = 0;
        CHECK(c.test(*r, &is_done, sizes) == code::success);
        return is_done != 0;
    }
};

}  // namespace

TEST_CASE("A send is not begun before its tag is asked for, and goes to the place that asks") {
    two_comms l;
    CHECK(l.send(0, 11) == nullptr);
    request* const all = l.receive({13, 11, 12});
    REQUIRE(all);
    request *one = nullptr, *two = nullptr, *three = nullptr;
    CHECK(l.until([&] { return one || (one = l.send(1, 11)); }));
    CHECK(l.send(4, 14) == nullptr);
    CHECK(l.send(1, 11) == nullptr);  // its place is taken
    two = l.send(2, 12);
    REQUIRE(two);
    CHECK(!two_comms::done(*l.sender, one));  // they wait for the first of the group
    CHECK(!two_comms::done(*l.receiver, all));
    three = l.send(3, 13);
    REQUIRE(three);
    int sizes[8] = {};
    CHECK(l.until([&] { return two_comms::done(*l.receiver, all, sizes); }));
    CHECK(sizes[0] == 103);
    CHECK(sizes[1] == 101);
    CHECK(sizes[2] == 102);
    for (request* r : {one, two, three}) CHECK(l.until([&] { return two_comms::done(*l.sender, r); }));
    CHECK(l.sender->idle());
    CHECK(l.receiver->idle());
}

TEST_CASE("As many messages as NCCL may have on their way, and then no more") {
    two_comms l;
    std::vector<request*> receives, sends;
    std::vector<int> tags(max_group);
    for (unsigned i = 0; i < max_group; ++i) tags[i] = static_cast<int>(i);
    while (request* const r = l.receive(tags)) receives.push_back(r);
    CHECK(receives.size() == nccl_abi::requests_at_once);
    CHECK(l.until([&] {
        while (request* const r = l.send(sends.size() % max_group, static_cast<int>(sends.size() % max_group)))
            sends.push_back(r);
        return sends.size() == messages_at_once;
    }));
    for (request* r : receives) CHECK(l.until([&] { return two_comms::done(*l.receiver, r); }));
    for (request* r : sends) CHECK(l.until([&] { return two_comms::done(*l.sender, r); }));
}

TEST_CASE("A receiver that has everything and leaves is no error to a sender that does not know yet") {
    two_comms l;
    request* const received = l.receive({1});
    request* sent = nullptr;
    CHECK(l.until([&] { return sent || (sent = l.send(0, 1)); }));
    while (!two_comms::done(*l.receiver, received)) {}
    REQUIRE(l.fabric.command("down all"));  // the acknowledgement cannot travel, a goodbye out of band can
    const vccl::nanoseconds later = vccl::steady_clock{}.now() + vccl::nanoseconds{100'000'000};
    bool told = false;
    while (!told && vccl::steady_clock{}.now() < later) {
        told = two_comms::done(*l.sender, sent);
        (void)l.receiver->part();
    }
    REQUIRE(l.fabric.command("up all"));
    CHECK(l.until([&] {
        (void)l.receiver->part();
        return told || (told = two_comms::done(*l.sender, sent));
    }));
    CHECK(l.until([&] {
        const bool one = l.sender->part(), other = l.receiver->part();
        return one && other;
    }));
}

TEST_CASE("A note that no receiver of ours can have made ends the connection") {
    const place_note good{-5, 2, 3};
    CHECK(place_note::of(good.word()).usable());
    CHECK(place_note::of(good.word()).tag == -5);
    for (const place_note bad : {place_note{}, place_note{1, 3, 3}, place_note{1, 0, max_group + 1}, place_note{1, 0, 1, 7}})
        CHECK(!bad.usable());

    two_comms l;
    const place_note second_of_two{1, 1, 2};  // the first is missing
    vccl::connection_blob blob{};
    std::memcpy(static_cast<void*>(&blob), l.blob_of_sender.data(), l.blob_of_sender.size());
    auto* const slots = reinterpret_cast<vccl::cts_slot*>(blob.ring_addr + sizeof(vccl::ack_line));
    annotate(slots[0], 0, second_of_two.word());
    request* r = nullptr;
    CHECK(l.sender->isend(l.from.view(0, 100), 1, &r) == code::remote_error);
    CHECK(!r);
}

TEST_CASE("An introduction that is damaged or of another version is objected to") {
    const settings s = read_settings();
    introduction good = introduction::make(s, "A");
    good.blob_bytes = 340;
    CHECK(objection(good, s).empty());
    introduction other = good;
    other.version = 9;
    CHECK(objection(other, s).find("version 9") != std::string::npos);
    other = good;
    other.magic = 1;
    CHECK(objection(other, s).find("no vccl") != std::string::npos);
    other = good;
    other.blob_bytes = 60000;
    CHECK(objection(other, s).find("damaged") != std::string::npos);
    other = good;
    other.blob_bytes = 0;
    other.refusal = "of a reason";
    CHECK(objection(other, s) == "the other rank refused: of a reason");
    other = good;
    other.agreed.backup = static_cast<backup_ports>(200);
    CHECK(objection(other, s).find("VCCL_NET_BACKUP is nearest here and unknown") != std::string::npos);
}

TEST_CASE("Threads of the plugin where there are cores for them") {
    CHECK(helpful_threads(2, 2) == 0);
    CHECK(helpful_threads(7, 2) == 0);
    CHECK(helpful_threads(8, 2) == 2);
    CHECK(helpful_threads(16, 4) == 2);
    CHECK(helpful_threads(16, 2) == 4);
    CHECK(helpful_threads(128, 2) == 4);
    CHECK(helpful_threads(1, 2) == 0);
}

TEST_CASE("Memory is registered once for all who ask for a piece of it, and until the last is done") {
    two_comms l;
    registrations all(1);
    unsigned made = 0;
    const auto make = [&](unsigned) {
        ++made;
        return l.a.register_memory(l.bytes.data(), 8192);
    };
    auto whole = all.find_or_make(l.bytes.data(), 8192, false, make),
         piece = all.find_or_make(l.bytes.data() + 4096, 4096, false, make);
    REQUIRE(whole);
    REQUIRE(piece);
    CHECK(*whole == *piece);
    CHECK(made == 1);
    CHECK((*piece)->view(0, l.bytes.data() + 4096, 10).check());
    CHECK((*piece)->view(0, l.bytes.data() + 8192, 1).check().code == vccl::errc::out_of_range);
    auto beyond = all.find_or_make(l.bytes.data() + 4096, 8192, false,
                                   [&](unsigned) { return l.a.register_memory(l.bytes.data() + 4096, 8192); });
    REQUIRE(beyond);
    CHECK(*beyond != *whole);
    const auto nothing = [] { FAIL("no work was in flight"); };
    CHECK(all.drop(*whole, nothing));
    CHECK(all.count() == 2);
    CHECK(all.drop(*whole, nothing));
    CHECK(all.drop(*beyond, nothing));
    CHECK(all.count() == 0);
    CHECK(!all.drop(*whole, nothing));
}

TEST_CASE("Memory that is deregistered with a receive outstanding is not written afterwards") {
    two_comms l;
    request* const r = l.receive({1});
    REQUIRE(r);
    request* sent = nullptr;
    bool silenced = false;
    CHECK(l.to.release().code == vccl::errc::busy);
    l.receiver->abort();
    silenced = static_cast<bool>(l.to.release());
    CHECK(silenced);
    std::fill(l.bytes.begin(), l.bytes.end(), std::byte{0xab});
    for (int i = 0; i < 1000; ++i) {
        if (!sent) (void)l.sender->isend(l.from.view(0, 4096), 1, &sent);
        l.sender->pass();
        l.receiver->pass();
    }
    for (std::size_t i = l.bytes.size() / 2; i < l.bytes.size(); ++i) REQUIRE(l.bytes[i] == std::byte{0xab});
}
