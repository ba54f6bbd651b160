#pragma once
/// \file
/// A channel whose two ends proxies drive, the memory of its users, and the users: a thread each, which wait and check every byte.

#include <vccl/vccl.hpp>
#include <vccl/verbs/soft.hpp>

#include <vector>

namespace vccl_test {

using namespace vccl;

/// `Chunk` bytes, `Buffers` of them at each end.
template <class Sender, class Receiver, std::uint32_t Chunk, unsigned Buffers>
struct proxied_channel {
    unsigned number;
    nanoseconds patience;  ///< of each wait
    std::vector<std::byte> out, in;  // outlive the endpoints, which may still work on them
    memory out_memory, in_memory;
    Sender tx;
    Receiver rx;

    proxied_channel(unsigned n, proxy& pa, proxy& pb, host_context<verbs::soft>& a, host_context<verbs::soft>& b,
                    nanoseconds longest_wait = nanoseconds{60'000'000'000})
        : number(n),
          patience(longest_wait),
          out(std::size_t{Chunk} * Buffers),
          in(std::size_t{Chunk} * Buffers),
          out_memory(*a.register_memory(out.data(), out.size())),
          in_memory(*b.register_memory(in.data(), in.size())),
          tx(pa, a, gpu_id{static_cast<std::uint16_t>(n % 2)}, channel_id{n}),
          rx(pb, b, gpu_id{static_cast<std::uint16_t>(2 + n % 2)}, channel_id{n}) {}

    static std::byte byte_of(unsigned channel, std::uint64_t s, std::uint64_t i) {
        return static_cast<std::byte>(channel * 17 + s * 131 + i * 7);
    }
    bool connect() {
        auto t = tx.local_info();
        auto r = rx.local_info();
        return t && r && rx.begin_connect(*t) && tx.connect(*r, patience);
    }
    /// The sending user. Returns how many chunks went out.
    std::uint64_t send(std::uint64_t chunks) {
        for (std::uint64_t s = 0; s < chunks; ++s) {
            if (s >= Buffers && !tx.wait(sequence{s - Buffers}, patience)) return s;
            std::byte* p = out.data() + s % Buffers * Chunk;
            for (std::uint32_t i = 0; i < Chunk; ++i) p[i] = byte_of(number, s, i);
            if (!tx.send(out_memory.view(s % Buffers * Chunk, Chunk))) return s;
        }
        return tx.wait(sequence{chunks - 1}, patience) ? chunks : 0;
    }
    /// The receiving user. Returns how many chunks came in whole.
    std::uint64_t receive(std::uint64_t chunks) {
        std::uint64_t posted = 0, good = 0;
        for (std::uint64_t s = 0; s < chunks; ++s) {
            for (; posted < chunks && posted < s + Buffers; ++posted)
                if (!rx.recv(in_memory.view(posted % Buffers * Chunk, Chunk))) return good;
            if (!rx.wait(sequence{s}, patience)) return good;
            const std::byte* p = in.data() + s % Buffers * Chunk;
            bool same = true;
            for (std::uint32_t i = 0; i < Chunk; ++i) same &= p[i] == byte_of(number, s, i);
            good += same;
        }
        return good;
    }
};

}  // namespace vccl_test
