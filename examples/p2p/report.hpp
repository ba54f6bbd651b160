#pragma once
// What a person sees: one line an event, a progress bar, the last line. A program started by another one writes the same
// as records into its standard output, and the starter shows them.
#include <vccl/base/clock.hpp>

#include <unistd.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace p2p {

inline std::string size_text(double bytes) {
    constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    unsigned u = 0;
    for (; bytes >= 1024 && u < 4; ++u) bytes /= 1024;
    char out[32];
    std::snprintf(out, sizeof out, bytes == static_cast<double>(static_cast<std::uint64_t>(bytes)) ? "%.0f %s" : "%.1f %s", bytes,
                  units[u]);
    return out;
}
inline std::string rate_text(double bytes_per_second) {
    char out[32];
    std::snprintf(out, sizeof out, bytes_per_second >= 1e9 ? "%.2f GB/s" : "%.0f MB/s",
                  bytes_per_second / (bytes_per_second >= 1e9 ? 1e9 : 1e6));
    return out;
}

enum class report_to : std::uint8_t { person, starter };

class reporter {
public:
    explicit reporter(report_to where)
        : where_(where), terminal_(where == report_to::person && ::isatty(STDOUT_FILENO) == 1), start_(now()) {}
    reporter(const reporter&) = delete;
    ~reporter() { clear_bar(); }

    static vccl::nanoseconds now() { return vccl::steady_clock{}.now(); }

    void event(char who, vccl::nanoseconds at, std::string_view text) {
        if (where_ == report_to::starter) {
            std::printf("E %c %lld %.*s\n", who, static_cast<long long>(at.count), static_cast<int>(text.size()), text.data());
        } else {
            clear_bar();
            std::printf("%8.3f s  %c  %.*s\n", static_cast<double>(std::max<std::int64_t>(0, (at - start_).count)) * 1e-9, who,
                        static_cast<int>(text.size()), text.data());
            draw_bar();
        }
        std::fflush(stdout);
    }
    void event(char who, std::string_view text) { event(who, now(), text); }

    /// Effects: shows it, at most some times a second; not on a terminal, every quarter of the way.
    void progress(std::uint64_t done, std::uint64_t total, double bytes_per_second) {
        if (where_ == report_to::starter) {
            std::printf("P %llu %llu %.0f\n", static_cast<unsigned long long>(done), static_cast<unsigned long long>(total),
                        bytes_per_second);
            std::fflush(stdout);
            return;
        }
        done_ = done;
        total_ = total;
        rate_ = bytes_per_second;
        if (terminal_) {
            draw_bar();
            std::fflush(stdout);
        } else if (const unsigned quarter = total == 0 ? 0 : static_cast<unsigned>(4 * done / total); quarter > quarters_) {
            quarters_ = quarter;
            event(' ', std::to_string(25 * quarter) + " % (" + size_text(static_cast<double>(done)) + ") at " +
                           rate_text(bytes_per_second));
        }
    }
    /// The last line. Returns: it went out, as did all before it.
    bool result(std::string_view line) {
        total_ = 0;
        clear_bar();
        std::printf("%s%.*s\n", where_ == report_to::starter ? "R " : "", static_cast<int>(line.size()), line.data());
        if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return true;
        std::fprintf(stderr, "p2p: cannot write to standard output\n%.*s\n", static_cast<int>(line.size()), line.data());
        return false;
    }

private:
    void clear_bar() {
        if (drawn_) std::printf("\r\033[K");
        drawn_ = false;
    }
    void draw_bar() {
        if (!terminal_ || total_ == 0) return;
        constexpr unsigned width = 40;
        const auto full = static_cast<unsigned>(width * done_ / total_);
        std::string bar;
        for (unsigned i = 0; i < width; ++i) bar += i < full ? "█" : "░";
        std::printf("\r%s %3u %%  %s of %s  %s\033[K", bar.c_str(), static_cast<unsigned>(100 * done_ / total_),
                    size_text(static_cast<double>(done_)).c_str(), size_text(static_cast<double>(total_)).c_str(),
                    rate_text(rate_).c_str());
        drawn_ = true;
    }

    report_to where_;
    bool terminal_;
    bool drawn_{};
    vccl::nanoseconds start_;
    std::uint64_t done_{}, total_{};
    double rate_{};
    unsigned quarters_{};
};

}  // namespace p2p
