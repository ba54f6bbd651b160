#pragma once
// Runs a collective over sizes as nccl-tests does: a line a size, time, algbw, busbw and wrong elements, out of and in place;
// meanwhile a fault script takes ports down and up; at the end a picture of rank 0's ring.
#include "../p2p/background_command.hpp"
#include "../p2p/files.hpp"
#include "job.hpp"
#include "numbers.hpp"
#include "pages.hpp"

#include <vccl/telemetry/event_text.hpp>
#include <vccl/telemetry/timeline_svg.hpp>

#include <sys/stat.h>
#include <fstream>

namespace coll_example {

/// What an example says about its collective. Sizes as nccl-tests has them: of the larger buffer.
struct collective {
    const char* name;
    const char* what;
    bool pairs;    ///< needs ends between all pairs
    bool reduces;  ///< combines elements
    bool split;    ///< the size is that of a block for each rank, together
    double bus_factor(std::uint32_t n) const noexcept {
        const double ranks = n;
        return split ? (ranks - 1) / ranks : 2 * (ranks - 1) / ranks;
    }
};

/// Where the picture goes.
inline std::string picture(const options& o, const char* name) { return o.results + "/" + name + ".svg"; }
/// Throws wrong_command if it could not be written; an earlier picture stays.
inline void check_picture(const options& o, const char* name) {
    const std::string path = picture(o, name);
    ::mkdir(o.results.c_str(), 0777);
    const bool is_new = ::access(path.c_str(), F_OK) != 0;
    const p2p::file_descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0666));
    if (!file) throw wrong_command(p2p::system_error("--results: cannot write " + path).what());
    if (is_new) ::unlink(path.c_str());
}

template <class Job, class Begin, class Fill, class Wrong>
class performance {
    using receiver = typename Job::receiver;
    using sender = typename Job::sender;

public:
    performance(const options& o, const collective& c, Job& j, Begin begin, Fill fill, Wrong wrong)
        : o_(o),
          c_(c),
          job_(j),
          begin_(begin),
          fill_(fill),
          wrong_(wrong),
          type_(type_of(o.type)),
          op_(op_of(o.op)),
          steps_(p2p::parse_script(o.script)),
          line_(j.line()),
          comm_(j.ends().make_communicator()),
          in_(j.memory(o.most + 64 * j.ranks())),
          out_(j.memory(o.most + 64 * j.ranks())) {
        job_.ends().each_receiver([&](const mesh_link& l, receiver& e) {
            e.handler().template get<witness>().events.reserve(256);
            if (watched_ || l.ring == (c_.pairs ? 0 : mesh_link::pairs)) return;
            watched_ = &e;
            e.handler().template get<record_timeline<>>().line = &line_;
            for (std::uint8_t n = 0; n < e.lanes(); ++n) line_.name_lane(lane_id{n}, e.lane_port(lane_id{n}).view());
        });
        for (std::uint64_t s = o.least;; s = s == 0 ? size_of(type_) : s * o.factor) {
            sizes_.push_back(s < o.most ? s : o.most);
            if (s >= o.most) break;
        }
        j.check(steps_);
        const unsigned runs = (o.warmup + o.iterations + 1) * (o.place == "both" ? 2 : 1);
        for (const std::uint64_t s : sizes_) expected_ += static_cast<double>(s) * c.bus_factor(j.ranks()) * runs;
    }

    int run() {
        if (job_.rank() == 0) {
            std::printf("# %s, %u ranks, %u ring%s, %s\n#\n", c_.name, job_.ranks(), o_.rings, o_.rings == 1 ? "" : "s",
                        job_.network().text().c_str());
            std::printf("#%11s %11s %9s %6s  %31s  %31s\n", "", "", "", "", "out-of-place", "in-place");
            std::printf("#%11s %11s %9s %6s  %9s %7s %7s %5s  %9s %7s %7s %5s\n", "size", "count", "type", "redop", "time",
                        "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong");
            std::printf("#%11s %11s %9s %6s  %9s %7s %7s %5s  %9s %7s %7s %5s\n", "(B)", "(elements)", "", "", "(us)", "(GB/s)",
                        "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
            std::fflush(stdout);
        }
        for (const std::uint64_t s : sizes_) one_size(s);
        return finish();
    }

private:
    struct outcome {
        double microseconds{};
        std::uint64_t wrong{};
    };

    void one_size(std::uint64_t size) {
        const std::uint64_t blocks = c_.split ? job_.ranks() : 1, count = size / size_of(type_) / blocks;
        const std::uint64_t actual = count * size_of(type_) * blocks;
        std::string row;
        char text[128];
        std::snprintf(text, sizeof text, "%12llu %11llu %9s %6s", static_cast<unsigned long long>(actual),
                      static_cast<unsigned long long>(count * blocks), o_.type.c_str(), c_.reduces ? o_.op.c_str() : "none");
        row = text;
        for (const bool in_place : {false, true}) {
            if (o_.place == (in_place ? "out" : "in")) {
                std::snprintf(text, sizeof text, "  %9s %7s %7s %5s", "-", "-", "-", "-");
                row += text;
                continue;
            }
            const outcome r = measure(count, in_place);
            const double algbw = r.microseconds > 0 ? static_cast<double>(actual) / r.microseconds / 1e3 : 0,
                         busbw = algbw * c_.bus_factor(job_.ranks());
            std::snprintf(text, sizeof text, "  %9.1f %7.3f %7.3f %5llu", r.microseconds, algbw, busbw,
                          static_cast<unsigned long long>(r.wrong));
            row += text;
            busbw_ += busbw;
            ++cells_;
            wrong_elements_ += r.wrong;
        }
        if (job_.rank() == 0) {
            std::printf("%s\n", row.c_str());
            std::fflush(stdout);
        }
    }

    /// Time: the slowest rank's, for one iteration. Wrong: of all ranks.
    outcome measure(std::uint64_t count, bool in_place) {
        outcome own;
        const auto once = [&] {
            if (const status s = begin_(comm_, in_, out_, count, type_, op_, in_place, job_); !s)
                throw failure(std::string("cannot begin ") + c_.name, s);
            finish_operation();
        };
        const auto checked = [&] {
            fill_(in_, out_, count, type_, in_place, job_);
            job_.barrier();
            once();
            own.wrong += wrong_(in_, out_, count, type_, op_, in_place, job_);
        };
        fill_(in_, out_, count, type_, in_place, job_);
        job_.barrier();
        for (unsigned i = 0; i < o_.warmup; ++i) once();
        job_.barrier();
        nanoseconds spent{};
        if (o_.every) {
            for (unsigned i = 0; i < o_.iterations; ++i) {
                const nanoseconds before = in_operations_;
                checked();
                spent += in_operations_ - before;
            }
        } else {
            const nanoseconds before = steady_clock{}.now();
            for (unsigned i = 0; i < o_.iterations; ++i) once();
            spent = steady_clock{}.now() - before;
            checked();
        }
        own.microseconds = static_cast<double>(spent.count) / 1e3 / o_.iterations;
        outcome all;
        for (const outcome& r : job_.gather(own)) {
            if (r.microseconds > all.microseconds) all.microseconds = r.microseconds;
            all.wrong += r.wrong;
        }
        return all;
    }

    void finish_operation() {
        const nanoseconds begin = steady_clock{}.now(), deadline = begin + seconds(o_.patience);
        for (unsigned idle = 0; !comm_.done();) {
            const bool moved = comm_.progress();
            if (!comm_.health()) throw failure(std::string(c_.name) + " failed", comm_.health());
            idle = moved ? 0 : idle + 1;
            if (idle > 64) ::sched_yield();
            if (job_.rank() == 0 && idle % 16 == 0) attend();
            if (idle > 64 && steady_clock{}.now() > deadline) throw failure(std::string(c_.name) + " did not end", errc::timeout);
        }
        in_operations_ += steady_clock{}.now() - begin;
    }

    /// Rank 0: what the script says, and what happened.
    void attend() {
        beside_.attend();
        if (!watched_) return;
        while (next_step_ < steps_.size()) {
            std::uint64_t bytes = 0;
            job_.ends().each_receiver(
                [&](const mesh_link&, receiver& e) { bytes += e.handler().template get<counters>().bytes; });
            if (static_cast<double>(bytes) < steps_[next_step_].share * expected_) break;
            const std::string& command = steps_[next_step_++].command;
            std::printf("# *  %s\n", command.c_str());
            beside_.start(job_.network().command(command));
            line_.add_mark({steady_clock{}.now(), mark_kind::note, lane_id{0}, std::string_view(command)});
        }
        const auto& events = watched_->handler().template get<witness>().events;
        lane_names names{};
        for (std::uint8_t n = 0; n < watched_->lanes(); ++n) names.names[n] = line_.name(lane_id{n});
        for (; shown_ < events.size(); ++shown_) std::printf("#    rank 0: %s\n", describe(events[shown_], names).c_str());
    }

    struct totals {
        std::uint64_t failovers{}, failbacks{}, replayed{};
    };
    int finish() {
        totals own;
        job_.ends().each_receiver([&](const mesh_link&, receiver& e) {
            own.failovers += e.handler().template get<counters>().failovers;
            own.failbacks += e.handler().template get<counters>().failbacks;
        });
        job_.ends().each_sender(
            [&](const mesh_link&, sender& e) { own.replayed += e.handler().template get<counters>().replayed; });
        totals all;
        for (const totals& t : job_.gather(own)) {
            all.failovers += t.failovers;
            all.failbacks += t.failbacks;
            all.replayed += t.replayed;
        }
        if (const status s = job_.ends().close(seconds(o_.patience)); !s) throw failure("cannot close in order", s);
        job_.barrier();
        if (job_.rank() != 0) return 0;
        attend();
        if (watched_) draw();
        std::printf("RESULT %s op=%s ranks=%u wrong=%llu failovers=%llu failbacks=%llu replayed=%llu avg_busbw=%.3f\n",
                    wrong_elements_ == 0 ? "ok" : "wrong", c_.name, job_.ranks(),
                    static_cast<unsigned long long>(wrong_elements_), static_cast<unsigned long long>(all.failovers),
                    static_cast<unsigned long long>(all.failbacks), static_cast<unsigned long long>(all.replayed),
                    cells_ == 0 ? 0 : busbw_ / cells_);
        return wrong_elements_ == 0 ? 0 : 1;
    }
    void draw() {
        const std::string name = picture(o_, c_.name);
        std::ofstream file(name);
        file << timeline_svg(line_, {.title = c_.name, .subtitle = "what rank 0 receives from the rank before it, by port"});
        if (!file.flush()) throw p2p::system_error("cannot write " + name);
        std::printf("# picture: %s\n", name.c_str());
    }

    const options& o_;
    const collective& c_;
    Job& job_;
    Begin begin_;
    Fill fill_;
    Wrong wrong_;
    element_type type_;
    reduce_op op_;
    std::vector<p2p::script_step> steps_;
    p2p::background_command beside_;
    timeline& line_;
    typename Job::mesh::communicator_type comm_;
    pages &in_, &out_;
    receiver* watched_{};
    std::vector<std::uint64_t> sizes_;
    double expected_{}, busbw_{};
    unsigned cells_{};
    std::uint64_t wrong_elements_{};
    std::size_t next_step_{}, shown_{};
    nanoseconds in_operations_{};
};

/// `begin(comm, in, out, count, type, op, in_place, job)` begins the operation, `fill` and `wrong` take the same without the
/// communicator. Returns: the exit status.
template <class Begin, class Fill, class Wrong>
int play(int count, char** arguments, const collective& c, Begin begin, Fill fill, Wrong wrong) {
    options o;
    if (const int status =
            parse_options(count, arguments, o, c.name, c.what, {.sizes = true, .operation = c.reduces, .rings = !c.pairs});
        status >= 0)
        return status;
    try {
        return run_job(
            o,
            [&](const job_place& place, tcp_bootstrap exchange) {
                return with_network(o, [&]<class Network>() {
                    job<Network> j(o, place, std::move(exchange), c.pairs);
                    j.connect();
                    return performance(o, c, j, begin, fill, wrong).run();
                });
            },
            [&] { check_picture(o, c.name); });
    } catch (const std::exception& e) { return complain(c.name, e); }
}

}  // namespace coll_example
