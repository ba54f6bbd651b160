#pragma once
/// \file
/// What lies between two protocol cores in the simulation: the queue pairs of each lane with what they have in flight, and the
/// out-of-band channel. Every packet moves only when a step of the schedule moves it. No bytes: a packet says which part
/// of which chunk it carries.

#include <vccl/channel/receiver_core.hpp>
#include <vccl/channel/sender_core.hpp>

#include <cstdint>
#include <deque>
#include <vector>

namespace vccl_sim {

using namespace vccl;

enum end_of : std::uint8_t { sender_end, receiver_end };
constexpr end_of other(end_of e) noexcept { return e == sender_end ? receiver_end : sender_end; }
inline constexpr unsigned most_lanes = 3, most_parts = 3, control_queue = most_parts, queues = most_parts + 1;

struct packet {
    enum class kind : std::uint8_t { data, grants, acknowledgement, control } what{};
    std::uint32_t token{};       ///< the sender's PSN life: a QP takes only packets of the life that it was connected to
    std::uint32_t message{};     ///< control: which of all messages
    std::uint64_t sequence{};    ///< data: of the chunk.  acknowledgement: the head.  grants: of the first
    std::uint32_t grant{};       ///< grants: where they begin among all grants
    std::uint32_t count{};       ///< grants: how many.  data: bytes
    std::uint8_t buffer{}, part{};
    immediate imm{};
};

struct arrived {
    enum class kind : std::uint8_t { part, control, error } what{};
    std::uint32_t generation{};
    std::uint32_t message{};
    immediate imm{};
    std::uint32_t bytes{};
};

/// One end's half of a lane: its QPs, one a queue. A QP that is `ready` sends, and takes what carries the token that the half
/// expects; in ERR it does neither.
struct half {
    bool ready[queues]{}, connected{}, hung{}, fencing{};
    bool port_up{true}, port_told{true}, fell{}, silent{};
    std::uint32_t generation{1}, token{}, expects{};
    std::deque<packet> out[queues], late[queues];   ///< late: of a QP that is dead, still on the way
    std::uint64_t posted[queues]{}, retired[queues]{};
    std::deque<arrived> cq;
    unsigned unheard{};

    /// One QP goes to ERR: it writes no more memory and sends nothing new; what is on the way is on the way.
    void kill(unsigned q) {
        ready[q] = false;
        late[q].insert(late[q].end(), out[q].begin(), out[q].end());
        out[q].clear();
    }
    void silence() {
        connected = false;
        for (unsigned q = 0; q < queues; ++q) kill(q);
    }
    void renew(std::uint32_t new_generation, std::uint32_t new_token) {
        silence();
        generation = new_generation;
        token = new_token;
        expects = 0;
        hung = fencing = false;
        unheard = 0;
        for (unsigned q = 0; q < queues; ++q) posted[q] = retired[q] = 0;
    }
    void connect(std::uint32_t peer_token) {
        expects = peer_token;
        connected = true;
        for (bool& r : ready) r = true;
    }
    void error() { cq.push_back({arrived::kind::error, generation, 0, {}, 0}); }
    bool room(unsigned q) const { return out[q].size() < (q == control_queue ? 8u : 32u); }
    void post(unsigned q, packet p) {
        p.token = token;
        ++posted[q];
        if (ready[q])
            out[q].push_back(p);
        else
            error();
    }
};

struct wires {
    half at[2][most_lanes];
    bool dark[most_lanes]{};                    ///< the path loses everything, which no port reports
    std::vector<std::uint32_t> oob[2];          ///< to each end, in any order
    bool oob_cut{};
    std::vector<control_message> messages;      ///< all that were ever sent
    std::vector<end_of> authors;
    std::vector<cts_words> grants;              ///< all that were ever given
    std::uint32_t tokens{};

    bool link(unsigned l) const { return !dark[l] && at[0][l].port_up && at[1][l].port_up; }
    bool takes(end_of to, unsigned l, unsigned q, const packet& p) const {
        const half& h = at[to][l];
        return link(l) && h.ready[q] && h.expects == p.token;
    }
    std::uint32_t keep(end_of by, const control_message& m) {
        messages.push_back(m);
        authors.push_back(by);
        return static_cast<std::uint32_t>(messages.size() - 1);
    }
};

}  // namespace vccl_sim
