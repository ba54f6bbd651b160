#pragma once
/// \file
/// `timeline`: what a transfer did over time, kept for a picture (timeline_svg.hpp) and a trace (timeline_trace.hpp).
/// `record_timeline` is the completion handler that fills it. All memory is taken at construction: recording neither
/// allocates nor throws, and a transfer of any length fits, at a resolution that halves as it grows.
/// Written by the endpoint's owner thread; read when that has stopped.

#include <vccl/base/clock.hpp>
#include <vccl/model/event.hpp>
#include <vccl/model/topology.hpp>
#include <vccl/model/wr_id.hpp>
#include <vccl/policy/completion.hpp>
#include <vccl/policy/lane_list.hpp>

#include <vector>

namespace vccl::inline v0 {

/// How a mark is drawn.
enum class mark_kind : std::uint8_t {
    note,      ///< worth knowing
    fault,     ///< something broke: a lane failed, or a script broke it
    failover,  ///< traffic moved to another lane
    failback,  ///< traffic went back
};

/// A labelled moment.
struct timeline_mark {
    /// When, drawn how, about which lane, saying what.
    /// @{
    nanoseconds at{};
    mark_kind kind{};
    lane_id lane{};
    fixed_name<96> text;
    /// @}
};

/// A lane that could not be used; `end` is `nanoseconds::never()` while it cannot.
struct timeline_outage {
    /// From when to when, and which.
    /// @{
    nanoseconds begin{}, end{};
    lane_id lane{};
    /// @}
};

/// One chunk: it ended at `end`, and the one before it at `begin`.
struct timeline_slice {
    /// On the recorder's clock; what the trace shows as a span on the lane's track.
    /// @{
    nanoseconds begin{}, end{};
    vccl::sequence sequence{};
    std::uint64_t bytes{};
    lane_id lane{};
    /// @}
};

/// One for a transfer, made before it with all its memory.
class timeline {
public:
    /// Time bins of the throughput curve; each lane has its own.
    static constexpr std::size_t bin_count = 2048;
    static constexpr nanoseconds first_bin_width{10'000};  ///< of a bin at the start; doubled whenever the curve is full

    /// `origin`: time 0 of the picture. The capacities bound memory; what finds no room is counted, not kept.
    explicit timeline(nanoseconds origin, std::size_t slice_capacity = 16'384, std::size_t mark_capacity = 256)
        : origin_(origin), bins_(bin_count * max_lanes) {
        slices_.reserve(slice_capacity);
        marks_.reserve(mark_capacity);
        outages_.reserve(mark_capacity);
    }

    /// The name in the picture and on the track; otherwise "lane 0", ...
    void name_lane(lane_id lane, std::string_view name) noexcept {
        if (lane.value < max_lanes) names_[lane.value] = name;
    }

    /// Effects: counts `bytes` evenly over begin … end on the lane. What is of another lane than 0 … max_lanes - 1, or ends
    /// before the origin, is not counted.
    void add_bytes(nanoseconds begin, nanoseconds end, std::uint64_t bytes, lane_id lane) noexcept {
        if (lane.value >= max_lanes || end < origin_) return;
        used_[lane.value] = true;
        see(end);
        spread(begin < origin_ ? origin_ : begin, end, bytes, lane);
    }
    /// Effects: keeps the slice; when there is no room, only counts it.
    void add_slice(const timeline_slice& s) noexcept {
        if (s.lane.value >= max_lanes || s.end < origin_) return;
        used_[s.lane.value] = true;
        see(s.end);
        if (slices_.size() < slices_.capacity())
            slices_.push_back(s);
        else
            ++dropped_slices_;
    }
    /// Both at once: for who learns of whole chunks only.
    void add_chunk(const timeline_slice& s) noexcept {
        add_slice(s);
        add_bytes(s.begin, s.end, s.bytes, s.lane);
    }

    /// Effects: keeps the mark; when there is no room, only counts it.
    void add_mark(const timeline_mark& m) noexcept {
        see(m.at);
        if (marks_.size() < marks_.capacity())
            marks_.push_back(m);
        else
            ++dropped_marks_;
    }

    /// Effects: the lane is out of use from now on; when there is no room for that, nothing. And: it is usable again.
    void lose_lane(lane_id lane, nanoseconds at) noexcept {
        see(at);
        if (lane.value < max_lanes && !open_outage(lane) && outages_.size() < outages_.capacity())
            outages_.push_back({at, nanoseconds::never(), lane});
    }
    /// Effects: ends the outage that lose_lane began, if one is open.
    void regain_lane(lane_id lane, nanoseconds at) noexcept {
        see(at);
        if (timeline_outage* o = open_outage(lane)) o->end = at;
    }

    /// Time 0 of the picture.
    nanoseconds origin() const noexcept { return origin_; }
    /// The latest time that was seen.
    nanoseconds end() const noexcept { return end_; }
    /// Of a bin now; rates are bytes by this.
    nanoseconds bin_width() const noexcept { return width_; }
    /// Requires: bin < bin_count, a lane that exists.
    std::uint64_t bytes_in(std::size_t bin, lane_id lane) const noexcept { return bins_[bin * max_lanes + lane.value]; }
    /// Over all bins.
    std::uint64_t bytes(lane_id lane) const noexcept {
        std::uint64_t sum = 0;
        for (std::size_t b = 0; b < bin_count; ++b) sum += bytes_in(b, lane);
        return sum;
    }
    /// Has it ever carried anything?
    bool used(lane_id lane) const noexcept { return used_[lane.value]; }
    /// Empty where none was given.
    std::string_view name(lane_id lane) const noexcept { return names_[lane.value].view(); }
    /// In the order in which they were added.
    /// @{
    const std::vector<timeline_slice>& slices() const noexcept { return slices_; }
    const std::vector<timeline_mark>& marks() const noexcept { return marks_; }
    const std::vector<timeline_outage>& outages() const noexcept { return outages_; }
    /// @}
    /// What found no room: above 0, the trace or the picture lacks some.
    /// @{
    std::uint64_t dropped_slices() const noexcept { return dropped_slices_; }
    std::uint64_t dropped_marks() const noexcept { return dropped_marks_; }
    /// @}

private:
    timeline_outage* open_outage(lane_id lane) noexcept {
        for (timeline_outage& o : outages_)
            if (o.lane == lane && o.end == nanoseconds::never()) return &o;
        return nullptr;
    }

    void see(nanoseconds at) noexcept {
        if (at > end_) end_ = at;
        while ((at - origin_) / width_.count >= nanoseconds{bin_count}) halve();
    }

    void halve() noexcept {
        for (std::size_t b = 0; b < bin_count; ++b)
            for (std::size_t l = 0; l < max_lanes; ++l) {
                const std::uint64_t both = b < bin_count / 2 ? at(2 * b, l) + at(2 * b + 1, l) : 0;
                at(b, l) = both;
            }
        width_ = width_ * 2;
    }

    void spread(nanoseconds begin, nanoseconds end, std::uint64_t bytes, lane_id lane) noexcept {
        const auto bin_of = [&](nanoseconds t) { return static_cast<std::size_t>((t - origin_).count / width_.count); };
        const std::int64_t whole = end.count - begin.count;
        std::uint64_t left = bytes;
        for (std::size_t b = bin_of(begin); whole > 0 && b < bin_of(end); ++b) {
            const nanoseconds border = origin_ + width_ * static_cast<std::int64_t>(b + 1);
            const double part = static_cast<double>(border.count - begin.count) / static_cast<double>(whole);
            const auto by_now = static_cast<std::uint64_t>(part * static_cast<double>(bytes));
            const std::uint64_t here = by_now > bytes - left ? by_now - (bytes - left) : 0;
            at(b, lane.value) += here;
            left -= here;
        }
        at(bin_of(end), lane.value) += left;
    }

    std::uint64_t& at(std::size_t bin, std::size_t lane) noexcept { return bins_[bin * max_lanes + lane]; }

    nanoseconds origin_;
    nanoseconds end_{origin_};
    nanoseconds width_{first_bin_width};
    std::vector<std::uint64_t> bins_;
    std::vector<timeline_slice> slices_;
    std::vector<timeline_mark> marks_;
    std::vector<timeline_outage> outages_;
    fixed_name<48> names_[max_lanes]{};
    bool used_[max_lanes]{};
    std::uint64_t dropped_slices_{}, dropped_marks_{};
};

/// Fills a timeline from an endpoint: on_completion<record_timeline<>>. The endpoint must not outlive the timeline. At a
/// receiver bytes count when they arrive, at a sender when they are acknowledged; a chunk when it is delivered, in order.
template <clock_source Clock = steady_clock>
struct record_timeline {
    using policy_axis = axis::completion;

    timeline* line{};  ///< null: nothing is recorded
    Clock clock{};  ///< what times are read from; chunks bring none
    /// When those before, or the last change of lanes, were over
    nanoseconds last_bytes{}, last_chunk{};  ///< when those before, or the last change of lanes, were over
    bool sees_arrivals{};  ///< arrivals are polled here, so chunks' ends need not be spread

    /// At a receiver: an arrival's bytes.
    void on_polled(const completion& c) noexcept {
        if (!line || c.op != completion_op::recv_write_imm || c.status != wc_status::success) return;
        sees_arrivals = true;
        const nanoseconds now = clock.now();
        line->add_bytes(since(last_bytes), now, c.byte_len, lane_id{static_cast<std::uint8_t>(wr_id{c.wr_id}.lane())});
        last_bytes = now;
    }

    /// A slice; at a sender its bytes, too.
    void on_done(const chunk_report& r) noexcept {
        if (!line || !r.outcome) return;
        const nanoseconds now = clock.now();
        line->add_slice({since(last_chunk), now, r.sequence, r.bytes, r.lane});
        if (!sees_arrivals) line->add_bytes(since(last_chunk), now, r.bytes, r.lane);
        last_chunk = now;
    }

    /// A mark, and the beginning and end of outages.
    void on_event(const channel_event& e) noexcept {
        if (!line) return;
        using kind = channel_event::kind;
        const auto mark = [&](mark_kind k, lane_id lane, std::string_view what) {
            timeline_mark m{e.at, k, lane, what};
            append(m.text, line->name(lane));
            line->add_mark(m);
        };
        switch (e.what) {
            case kind::lane_failed:
                line->lose_lane(e.lane, e.at);
                mark(mark_kind::fault, e.lane, "fault on ");
                break;
            case kind::failed_over:
                last_bytes = last_chunk = e.at;
                mark(mark_kind::failover, e.to, "failed over to ");
                break;
            case kind::failed_back: mark(mark_kind::failback, e.to, "back on "); break;
            case kind::suspended: mark(mark_kind::fault, e.lane, "no lane left after "); break;
            case kind::lane_restored:
                line->regain_lane(e.lane, e.at);
                mark(mark_kind::note, e.lane, "again usable: ");
                break;
            default: break;
        }
    }

private:
    nanoseconds since(nanoseconds last) const noexcept { return last > line->origin() ? last : line->origin(); }

    template <std::size_t N>
    static void append(fixed_name<N>& to, std::string_view more) noexcept {
        std::size_t at = to.view().size();
        for (std::size_t i = 0; i < more.size() && at + 1 < N; ++i) to.text[at++] = more[i];
    }
};
static_assert(completion_handler<record_timeline<>>);

}  // namespace vccl::inline v0
