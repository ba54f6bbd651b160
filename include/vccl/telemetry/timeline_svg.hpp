#pragma once
/// \file
/// A timeline as a picture: throughput against time, one colour a lane, failovers and fail-backs as labelled lines.
/// Scalable Vector Graphics 1.1, no script, no outside font. Called after the transfer, by any thread.

#include <vccl/telemetry/timeline.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

namespace vccl::inline v0 {

/// How the picture is labelled and how large it is.
struct svg_options {
    std::string title{"Throughput"};  ///< above the picture
    std::string subtitle;  ///< below the title; left out when empty
    /// In pixels, of the whole picture and of the curve's field.
    /// @{
    unsigned width{960};
    unsigned plot_height{260};
    /// @}
    unsigned columns{150};  ///< of the curve, at most
};

namespace detail {

inline std::string xml_escape(std::string_view s) {
    std::string out;
    for (char c : s) {
        switch (c) {
            case '&': out += "&amp;"; break;
            case '<': out += "&lt;"; break;
            case '>': out += "&gt;"; break;
            case '"': out += "&quot;"; break;
            default: out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
        }
    }
    return out;
}

/// "12.5" whatever the locale; trailing zeros go.
inline std::string short_number(double v, int decimals) {
    const bool negative = v < 0;
    double scale = 1;
    for (int i = 0; i < decimals; ++i) scale *= 10;
    const auto all = static_cast<std::uint64_t>(std::llround(std::fabs(v) * scale));
    std::string digits = std::to_string(all);
    if (digits.size() <= static_cast<std::size_t>(decimals))
        digits.insert(0, static_cast<std::size_t>(decimals) + 1 - digits.size(), '0');
    std::string out = digits.substr(0, digits.size() - static_cast<std::size_t>(decimals));
    std::string fraction = digits.substr(out.size());
    while (!fraction.empty() && fraction.back() == '0') fraction.pop_back();
    if (!fraction.empty()) out += "." + fraction;
    return (negative && all != 0 ? "-" : "") + out;
}

/// The step between axis ticks: 1, 2 or 5 times a power of ten, so that about `wanted` ticks fit into `range`.
inline double tick_step(double range, unsigned wanted) {
    if (!(range > 0)) return 1;
    const double power = std::pow(10, std::floor(std::log10(range / wanted)));
    const double rough = range / wanted / power;
    return power * (rough <= 1 ? 1 : rough <= 2 ? 2 : rough <= 5 ? 5 : 10);
}

struct axis_unit {
    double scale;
    const char* name;
};
inline axis_unit rate_unit(double bytes_per_second) {
    if (bytes_per_second >= 1e9) return {1e9, "GB/s"};
    if (bytes_per_second >= 1e6) return {1e6, "MB/s"};
    if (bytes_per_second >= 1e3) return {1e3, "kB/s"};
    return {1, "B/s"};
}
inline axis_unit time_unit(double seconds) {
    if (seconds >= 2) return {1, "s"};
    if (seconds >= 2e-3) return {1e-3, "ms"};
    return {1e-6, "µs"};
}

/// Places what is drawn. Colours are the Okabe-Ito set: told apart by colour-blind people, too; from lane 8 on the
/// same in another lightness.
class svg_writer {
public:
    svg_writer(const timeline& t, const svg_options& o) : t_(t), o_(o) {
        seconds_ = std::max(1e-9, static_cast<double>((t.end() - t.origin()).count) * 1e-9);
        const double bins = seconds_ * 1e9 / static_cast<double>(t.bin_width().count);
        per_column_ = std::max<std::size_t>(1, static_cast<std::size_t>(std::ceil(bins / std::max(1U, o.columns))));
        for (std::uint8_t l = 0; l < max_lanes; ++l)
            for (std::size_t c = 0; c < columns(); ++c) peak_ = std::max(peak_, rate(c, lane_id{l}));
        y_unit_ = rate_unit(peak_);
        x_unit_ = time_unit(seconds_);
        y_step_ = tick_step(peak_ / y_unit_.scale, 5);
        y_top_ = std::max(1.0, std::ceil(peak_ * 1.05 / y_unit_.scale / y_step_)) * y_step_;
        place_labels();
        top_ = 66 + row_height * rows_;
        bottom_ = top_ + static_cast<double>(o.plot_height);
        right_ = static_cast<double>(o.width) - 24;
    }

    std::string write() {
        const double height = bottom_ + 88;
        out_ = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + n(o_.width) + "\" height=\"" + n(height) +
               "\" viewBox=\"0 0 " + n(o_.width) + " " + n(height) +
               "\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\">\n";
        out_ += "<title>" + xml_escape(o_.title) + "</title>\n";
        out_ += "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
        text(left, 26, o_.title, "font-size=\"17\" font-weight=\"bold\" fill=\"#1a1a1a\"");
        text(left, 46, o_.subtitle, "fill=\"#555555\"");
        axes();
        for (std::uint8_t l = 0; l < max_lanes; ++l)
            if (t_.used(lane_id{l})) curve(lane_id{l});
        marks();
        legend();
        return std::move(out_) + "</svg>\n";
    }

private:
    static constexpr double left = 68;
    static constexpr double row_height = 16;
    static constexpr double char_width = 6.1;  // of 11-pixel Helvetica, on average
    static constexpr const char* lane_colours[] = {"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00",
                                                   "#8c8c00", "#555555", "#003f62", "#7e5700", "#00573f", "#70425c",
                                                   "#2f6380", "#753400", "#4d4d00", "#b0b0b0"};
    static_assert(std::size(lane_colours) == max_lanes);

    struct label {
        const timeline_mark* mark;
        double x;
        unsigned row;
        bool leftwards;
    };

    static std::string n(double v) { return short_number(v, 2); }
    double x_of(double seconds) const { return left + (static_cast<double>(o_.width) - 24 - left) * seconds / seconds_; }
    double y_of(double bytes_per_second) const { return bottom_ - (bottom_ - top_) * bytes_per_second / y_unit_.scale / y_top_; }
    double since_origin(nanoseconds at) const { return static_cast<double>((at - t_.origin()).count) * 1e-9; }
    double column_seconds() const { return static_cast<double>(per_column_) * static_cast<double>(t_.bin_width().count) * 1e-9; }
    /// The last column may be cut short by the end of the transfer; a tail of less than a quarter is not drawn.
    std::size_t columns() const { return std::max<std::size_t>(1, static_cast<std::size_t>(seconds_ / column_seconds() + 0.75)); }
    double rate(std::size_t column, lane_id lane) const {
        std::uint64_t bytes = 0;
        for (std::size_t b = column * per_column_; b < std::min(timeline::bin_count, (column + 1) * per_column_); ++b)
            bytes += t_.bytes_in(b, lane);
        return static_cast<double>(bytes) / std::min(column_seconds(), seconds_ - static_cast<double>(column) * column_seconds());
    }
    void text(double x, double y, std::string_view what, std::string_view style) {
        if (!what.empty())
            out_ += "<text x=\"" + n(x) + "\" y=\"" + n(y) + "\" " + std::string(style) + ">" + xml_escape(what) + "</text>\n";
    }
    void line(double x1, double y1, double x2, double y2, std::string_view style) {
        out_ += "<line x1=\"" + n(x1) + "\" y1=\"" + n(y1) + "\" x2=\"" + n(x2) + "\" y2=\"" + n(y2) + "\" " +
                std::string(style) + "/>\n";
    }

    /// Puts each label, from right to left, into the lowest row where it covers no other: so no line of a higher label
    /// runs through a lower one.
    void place_labels() {
        std::vector<double> row_begin;
        std::vector<const timeline_mark*> order;
        for (const timeline_mark& m : t_.marks()) order.push_back(&m);
        std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->at > b->at; });
        const double end = static_cast<double>(o_.width) - 8;
        for (const timeline_mark* m : order) {
            const double x = x_of(std::max(0.0, since_origin(m->at)));
            const double w = char_width * static_cast<double>(m->text.view().size()) + 12;
            const bool leftwards = x + w > end;
            unsigned row = 0;
            while (row < row_begin.size() && row_begin[row] < (leftwards ? x : x + w)) ++row;
            if (row == row_begin.size()) row_begin.push_back(end);
            row_begin[row] = leftwards ? x - w : x;
            labels_.push_back({m, x, row, leftwards});
        }
        rows_ = static_cast<unsigned>(row_begin.size());
    }

    void axes() {
        for (double v = 0; v <= y_top_ * 1.0001; v += y_step_) {
            const double y = y_of(v * y_unit_.scale);
            line(left, y, right_, y, v == 0 ? "stroke=\"#444444\"" : "stroke=\"#e4e4e4\"");
            text(left - 8, y + 4, short_number(v, 3), "text-anchor=\"end\" fill=\"#444444\"");
        }
        const double step = tick_step(seconds_ / x_unit_.scale, 8);
        for (double v = 0; v * x_unit_.scale <= seconds_ * 1.0001; v += step) {
            const double x = x_of(v * x_unit_.scale);
            line(x, bottom_, x, bottom_ + 5, "stroke=\"#444444\"");
            text(x, bottom_ + 19, short_number(v, 3), "text-anchor=\"middle\" fill=\"#444444\"");
        }
        text((left + right_) / 2, bottom_ + 40, std::string("time (") + x_unit_.name + ")",
             "text-anchor=\"middle\" fill=\"#222222\"");
        const double middle = (top_ + bottom_) / 2;
        text(18, middle, std::string("throughput (") + y_unit_.name + ")",
             "text-anchor=\"middle\" fill=\"#222222\" transform=\"rotate(-90 18 " + n(middle) + ")\"");
    }

    /// One closed step curve for each run of columns in which the lane carried something.
    void curve(lane_id lane) {
        std::string outline;
        const std::size_t count = columns();
        for (std::size_t c = 0; c < count; ++c) {
            const double r = rate(c, lane);
            const bool first = c == 0 || rate(c - 1, lane) <= 0;
            if (r <= 0) continue;
            const double from = x_of(static_cast<double>(c) * column_seconds());
            const double to = std::min(right_, x_of(static_cast<double>(c + 1) * column_seconds()));
            const auto point = [&](char how, double x, double y) {
                outline += how;
                outline += n(x) + " " + n(y);
            };
            if (first) point('M', from, bottom_);
            point('L', from, y_of(r));
            point('L', to, y_of(r));
            if (c + 1 == count || rate(c + 1, lane) <= 0) point('L', to, bottom_);
        }
        const std::string colour = lane_colours[lane.value];
        out_ += "<path d=\"" + outline + "\" fill=\"" + colour + "\" fill-opacity=\"0.22\" stroke=\"" + colour +
                "\" stroke-width=\"1.6\" stroke-linejoin=\"round\"/>\n";
    }

    static const char* mark_colour(mark_kind k) {
        switch (k) {
            case mark_kind::fault: return "#b00020";
            case mark_kind::failover: return "#d55e00";
            case mark_kind::failback: return "#00734f";
            case mark_kind::note: break;
        }
        return "#666666";
    }

    void marks() {
        const auto y_of_row = [&](unsigned row) { return top_ - 8 - row_height * row; };
        for (const label& l : labels_) {
            const bool moves = l.mark->kind == mark_kind::failover || l.mark->kind == mark_kind::failback;
            line(l.x, y_of_row(l.row) - 9, l.x, bottom_,
                 std::string("stroke=\"") + mark_colour(l.mark->kind) +
                     (moves ? "\" stroke-width=\"1.6\" stroke-dasharray=\"6 3\"" : "\" stroke-dasharray=\"2 3\""));
        }
        for (const label& l : labels_)
            text(l.leftwards ? l.x - 5 : l.x + 5, y_of_row(l.row), l.mark->text.view(),
                 std::string("font-size=\"11\" stroke=\"#ffffff\" stroke-width=\"3\" paint-order=\"stroke\" fill=\"") +
                     mark_colour(l.mark->kind) + (l.leftwards ? "\" text-anchor=\"end\"" : "\""));
    }

    void legend() {
        double x = left;
        const double y = bottom_ + 66;
        for (std::uint8_t l = 0; l < max_lanes; ++l) {
            const lane_id lane{l};
            if (!t_.used(lane)) continue;
            const std::string name = t_.name(lane).empty() ? "lane " + std::to_string(l) : std::string(t_.name(lane));
            const std::string words = name + (l == 0 ? " (primary)" : " (backup)");
            out_ += "<rect x=\"" + n(x) + "\" y=\"" + n(y - 10) + "\" width=\"12\" height=\"12\" rx=\"2\" fill=\"" +
                    lane_colours[l] + "\"/>\n";
            text(x + 18, y, words, "fill=\"#222222\"");
            x += 18 + 7.0 * static_cast<double>(words.size()) + 22;
        }
    }

    const timeline& t_;
    const svg_options& o_;
    double seconds_{};
    std::size_t per_column_{};
    double peak_{};
    axis_unit y_unit_{}, x_unit_{};
    double y_step_{}, y_top_{};
    std::vector<label> labels_;
    unsigned rows_{};
    double top_{}, bottom_{}, right_{};
    std::string out_;
};

}  // namespace detail

/// Returns: the whole file. Allocates.
inline std::string timeline_svg(const timeline& t, const svg_options& options = {}) {
    return detail::svg_writer(t, options).write();
}

}  // namespace vccl::inline v0
