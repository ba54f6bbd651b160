#pragma once
/// \file
/// The ends of a mesh as ends for GPU memory: each goes through a ring in host memory (staging/), and a communicator made of
/// them works on GPU memory that no NIC knows. A piece of the collective is a message of one slice. Owner thread only.

#include <vccl/coll/communicator.hpp>
#include <vccl/staging/receiver.hpp>
#include <vccl/staging/sender.hpp>

#include <algorithm>
#include <memory>

namespace vccl::inline v0 {

/// GPU memory as views, for staged ends. No NIC has keys of it: an end that is not staged answers not_registered. It must outlive
/// its views.
class staged_memory {
public:
    /// `bytes` at `p`, which a kernel or a copy engine reaches.
    staged_memory(void* p, std::uint64_t bytes) noexcept {
        region_.addr = reinterpret_cast<std::uint64_t>(p);
        region_.bytes = bytes;
        region_.device = true;
        region_.stamp.store(stamp, std::memory_order_relaxed);
    }
    staged_memory(const staged_memory&) = delete;
    /// A piece of it, or all; what reaches outside is refused by the end that is to use it.
    /// @{
    memory_view view(std::uint64_t offset, std::uint64_t bytes) noexcept {
        return memory_view{&region_, stamp, region_.addr + offset, bytes};
    }
    memory_view view() noexcept { return view(0, region_.bytes); }
    /// @}

private:
    static constexpr std::uint32_t stamp = 1;  // of no context: theirs begin at 2^32
    memory_region region_;
};

/// A staged sender or receiver as an end of a collective.
template <class Staged>
class staged_end {
public:
    /// `args`: what the staged sender or receiver is made from.
    template <class... Args>
    explicit staged_end(Args&&... args) : staged_(std::forward<Args>(args)...) {}
    /// Allocates and registers its ring; errors as the staged end's.
    status open() { return staged_.open(); }
    /// As `chunk_sender` or `chunk_receiver` asks, on whole messages of any length.
    /// @{
    result<sequence> send(const memory_view& bytes) noexcept
        requires requires(Staged s) { s.send(nullptr, 0); }
    {
        return staged_.send(bytes.data(), bytes.bytes());
    }
    result<sequence> recv(const memory_view& room) noexcept
        requires requires(Staged s) { s.recv(nullptr, 0); }
    {
        return staged_.recv(room.data(), room.bytes());
    }
    result<std::uint64_t> outcome(sequence s) const noexcept
        requires requires(const Staged x) { x.outcome(s); }
    {
        return staged_.outcome(s);
    }
    bool ended(sequence s) const noexcept { return staged_.ended(s); }
    status health() const noexcept { return staged_.health(); }
    bool progress() noexcept { return staged_.progress(); }
    void abort() noexcept { staged_.abort(); }
    /// @}

private:
    Staged staged_;
};

/// All ends of one rank. The context and the mesh must outlive it, and it its communicators.
template <class Tx, class Rx, copy_engine Engine>
class staged_ends {
public:
    /// The ends that the communicator is made of.
    /// @{
    using sender = staged_end<staged_sender<Tx, Engine>>;
    using receiver = staged_end<staged_receiver<Rx, Engine>>;
    /// @}
    static_assert(chunk_sender<sender> && chunk_receiver<receiver>);

    /// `make_engine()`: a result<Engine>, for each end. `slots`: slices of each end's ring; `piece_bytes`: the communicator's.
    /// Effects: allocates and registers the rings. Errors: as `make_engine`, as staged ends' open(); no_memory.
    template <class MakeEngine>
    static result<std::unique_ptr<staged_ends>> make(host_context<typename Tx::backend>& context,
                                                     const communicator_links<Tx, Rx>& ends, std::uint32_t piece_bytes,
                                                     unsigned slots, MakeEngine&& make_engine) {
        // A slice takes a whole piece, and in any case what the two ends say first.
        const staging_options options{.slice_bytes = std::max<std::uint32_t>(piece_bytes, sizeof(staging_greeting)),
                                      .slots = slots};
        auto made = std::unique_ptr<staged_ends>(new (std::nothrow) staged_ends);
        if (!made) return errc::no_memory;
        const auto stage = [&](auto& list,
                               auto* end) -> result<typename std::remove_cvref_t<decltype(list)>::value_type::pointer> {
            if (!end) return nullptr;
            auto engine = make_engine();
            if (!engine) return engine.error();
            using staged_type = typename std::remove_cvref_t<decltype(list)>::value_type::element_type;
            list.push_back(std::make_unique<staged_type>(context, *end, std::move(*engine), options));
            if (const status s = list.back()->open(); !s) return s;
            return list.back().get();
        };
        for (const auto& r : ends.rings) {
            const auto next = stage(made->senders_, r.next);
            const auto previous = stage(made->receivers_, r.previous);
            if (!next || !previous) return next ? previous.error() : next.error();
            made->links_.rings.push_back({r.order, *next, *previous});
        }
        for (Tx* const end : ends.to) {
            const auto staged = stage(made->senders_, end);
            if (!staged) return staged.error();
            made->links_.to.push_back(*staged);
        }
        for (Rx* const end : ends.from) {
            const auto staged = stage(made->receivers_, end);
            if (!staged) return staged.error();
            made->links_.from.push_back(*staged);
        }
        return made;
    }

    /// What a communicator is made from; valid as long as this.
    const communicator_links<sender, receiver>& links() const noexcept { return links_; }

private:
    staged_ends() = default;
    std::vector<std::unique_ptr<sender>> senders_;
    std::vector<std::unique_ptr<receiver>> receivers_;
    communicator_links<sender, receiver> links_;
};

}  // namespace vccl::inline v0
