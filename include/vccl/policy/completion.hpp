#pragma once
/// \file
/// Completion handlers: user code that an endpoint calls, inlined, on every chunk, completion and event. Called on the
/// endpoint's owner thread (the proxy thread, if it has one); must not call back into the endpoint.

#include <vccl/model/event.hpp>
#include <vccl/model/work.hpp>

#include <concepts>
#include <tuple>
#include <utility>

namespace vccl::inline v0 {

/// What is to happen after an error completion.
enum class verdict : std::uint8_t {
    fail_over,  ///< the lane is dead, the channel goes on
    abort,      ///< the channel ends with a typed error
};

/// The stock answer: errors that speak of the path fail over; those that would meet the same request on every lane
/// (bad address, key or length) end the channel.
constexpr verdict stock_verdict(wc_status s) noexcept {
    switch (s) {
        case wc_status::loc_len_err:
        case wc_status::loc_prot_err:
        case wc_status::loc_access_err:
        case wc_status::rem_inv_req_err:
        case wc_status::rem_access_err:
        case wc_status::rem_op_err:
        case wc_status::bad_resp_err:
        case wc_status::mw_bind_err: return verdict::abort;
        default: return verdict::fail_over;
    }
}

namespace detail {
template <class H>
concept hears_chunks = requires(H h, const chunk_report& r) {
    { h.on_done(r) } noexcept -> std::same_as<void>;
};
template <class H>
concept hears_completions = requires(H h, const completion& c) {
    { h.on_polled(c) } noexcept -> std::same_as<void>;
};
template <class H>
concept hears_events = requires(H h, const channel_event& e) {
    { h.on_event(e) } noexcept -> std::same_as<void>;
};
template <class H>
concept judges_errors = requires(H h, const completion& c) {
    { h.on_error(c) } noexcept -> std::same_as<verdict>;
};
// A member of the right name but the wrong form would be passed over in silence; the ladder catches it.
template <class H>
concept has_on_done = requires { &H::on_done; };
template <class H>
concept has_on_polled = requires { &H::on_polled; };
template <class H>
concept has_on_event = requires { &H::on_event; };
template <class H>
concept has_on_error = requires { &H::on_error; };
}  // namespace detail

/// A completion handler has one or more of:
///   void on_done(const chunk_report&) noexcept        a chunk ended
///   void on_polled(const completion&) noexcept        a completion was polled
///   void on_event(const channel_event&) noexcept      something happened to a lane
///   verdict on_error(const completion&) noexcept      what an error CQE means
template <class H>
// clang-format off
concept completion_handler = on_axis<H, axis::completion> && std::movable<H> &&
    (detail::hears_chunks<H> || detail::hears_completions<H> || detail::hears_events<H> || detail::judges_errors<H>) &&
    (detail::hears_chunks<H> || !detail::has_on_done<H>) && (detail::hears_completions<H> || !detail::has_on_polled<H>) &&
    (detail::hears_events<H> || !detail::has_on_event<H>) && (detail::judges_errors<H> || !detail::has_on_error<H>);
// clang-format on

/// Several handlers as one; each hears everything, in order. The first that judges errors decides.
template <class... Hs>
struct on_completion {
    static_assert((completion_handler<Hs> && ...),
                  "vccl: every handler of an on_completion needs on_done, on_polled, on_event or on_error, each noexcept and of "
                  "the form in policy/completion.hpp");
    using policy_axis = axis::completion;
    std::tuple<Hs...> handlers{};  ///< in the order in which they are called

    on_completion() = default;
    /// For handlers that have a state to begin with.
    explicit on_completion(Hs... hs)
        requires(sizeof...(Hs) > 0)
        : handlers(std::move(hs)...) {}

    /// The handler of this type. Requires: it is named once.
    /// @{
    template <class H>
    H& get() noexcept {
        return std::get<H>(handlers);
    }
    template <class H>
    const H& get() const noexcept {
        return std::get<H>(handlers);
    }
    /// @}

    /// Each handler that listens, in order.
    void on_done(const chunk_report& r) noexcept {
        std::apply(
            [&](auto&... h) {
                (
                    [&] {
                        if constexpr (detail::hears_chunks<std::remove_reference_t<decltype(h)>>) h.on_done(r);
                    }(),
                    ...);
            },
            handlers);
    }
    /// Each handler that listens, in order.
    void on_polled(const completion& c) noexcept {
        std::apply(
            [&](auto&... h) {
                (
                    [&] {
                        if constexpr (detail::hears_completions<std::remove_reference_t<decltype(h)>>) h.on_polled(c);
                    }(),
                    ...);
            },
            handlers);
    }
    /// Each handler that listens, in order.
    void on_event(const channel_event& e) noexcept {
        std::apply(
            [&](auto&... h) {
                (
                    [&] {
                        if constexpr (detail::hears_events<std::remove_reference_t<decltype(h)>>) h.on_event(e);
                    }(),
                    ...);
            },
            handlers);
    }
    /// The first handler that has an opinion decides; where none has one, the stock verdict.
    verdict on_error(const completion& c) noexcept {
        verdict v = stock_verdict(c.status);
        bool judged = false;
        std::apply(
            [&](auto&... h) {
                (
                    [&] {
                        if constexpr (detail::judges_errors<std::remove_reference_t<decltype(h)>>) {
                            if (!judged) {
                                v = h.on_error(c);
                                judged = true;
                            }
                        }
                    }(),
                    ...);
            },
            handlers);
        return v;
    }
};

/// Counts chunks, bytes and events.
struct counters {
    using policy_axis = axis::completion;
    /// Chunks that ended well and their bytes; moves of the channel and verdicts on lanes; chunks sent again, chunks found
    /// delivered by a failover; chunks that ended without their bytes.
    /// @{
    std::uint64_t chunks{}, bytes{}, failovers{}, failbacks{}, lane_faults{}, replayed{}, already_delivered{}, refused{};
    /// @}

    /// Counts; a chunk without its bytes is `refused`.
    void on_done(const chunk_report& r) noexcept {
        if (r.outcome) {
            ++chunks;
            bytes += r.bytes;
        } else {
            ++refused;
        }
    }
    /// Counts.
    void on_event(const channel_event& e) noexcept {
        using kind = channel_event::kind;
        failovers += e.what == kind::failed_over;
        failbacks += e.what == kind::failed_back;
        lane_faults += e.what == kind::lane_failed;
        replayed += e.replayed;
        already_delivered += e.already_delivered;
    }
};

/// Keeps the last `Capacity` events, oldest overwritten first.
template <std::size_t Capacity = 256>
struct trace {
    using policy_axis = axis::completion;
    channel_event events[Capacity]{};  ///< a ring; operator[] knows where it begins
    std::uint64_t seen{};  ///< events ever, kept or not

    /// Overwrites the oldest when it is full.
    void on_event(const channel_event& e) noexcept { events[seen++ % Capacity] = e; }
    /// How many are kept.
    std::size_t size() const noexcept { return seen < Capacity ? static_cast<std::size_t>(seen) : Capacity; }
    /// The i-th event still kept, oldest first.
    const channel_event& operator[](std::size_t i) const noexcept { return events[(seen - size() + i) % Capacity]; }
};

static_assert(completion_handler<counters> && completion_handler<trace<>>);

}  // namespace vccl::inline v0
