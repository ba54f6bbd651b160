#pragma once
// The network over one verbs backend, and how two ranks become connected: the sender calls the listener, both introduce
// themselves, then the library connects. No step blocks; each has a deadline. Compiled once for each backend.
#include "channel.hpp"
#include "network.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <cstdlib>
#include <list>

namespace nccl_net {

template <class B, template <class, unsigned> class Channel, class Base>
std::unique_ptr<Base> make_channel(vccl::host_context<B>& context, const making& m) {
    std::unique_ptr<Base> made;
    switch (m.chosen.qps) {
        case 1: made = std::make_unique<Channel<B, 1>>(context, m); break;
        case 2: made = std::make_unique<Channel<B, 2>>(context, m); break;
        default: made = std::make_unique<Channel<B, 4>>(context, m); break;
    }
    made->share = m.share;
    return made;
}

/// What goes wrong while two ranks become connected: said once, and what NCCL is told.
inline code cannot_connect(const std::string& peer, const std::string& why) {
    warn("cannot connect " + peer + ": " + why);
    return code::remote_error;
}

inline vccl::nanoseconds now() noexcept { return vccl::steady_clock{}.now(); }

/// The sender's half of a connection in the making.
template <class B>
class dialling {
public:
    dialling(vccl::host_context<B>& context, const settings& s, const making& m, const handle& to, std::string_view host)
        : to_(to), settings_(s), deadline_(now() + s.connect_timeout), ours_(introduction::make(s, host)) {
        ours_.secret = to.secret;
        comm_ = make_channel<B, send_channel, send_comm>(context, m);
    }

    const handle& to() const noexcept { return to_; }

    code step(std::unique_ptr<send_comm>& out) {
        const std::string peer = "to " + std::string(to_.where.view());
        if (!meeting_) {
            if (vccl::status s = comm_->introduce(ours_); !s) return cannot_connect(peer, vccl::describe(s));
            auto called = meeting::call(to_.where.view());
            if (!called) return cannot_connect(peer, vccl::describe(called.error()));
            meeting_ = std::move(*called);
        }
        if (!joined_) {
            const transfer said = meeting_.say(ours_), heard = said == transfer::done ? meeting_.hear(theirs_) : said;
            if (heard == transfer::broken) return cannot_connect(peer, "nobody listens there any more");
            if (heard == transfer::done) {
                if (const std::string why = objection(theirs_, settings_); !why.empty()) {
                    (void)cannot_connect(peer, why);
                    return code::invalid_usage;
                }
                if (vccl::status s = comm_->join(theirs_); !s) return cannot_connect(peer, vccl::describe(s));
                joined_ = true;
            }
        }
        if (joined_) {
            comm_->pass();
            if (vccl::status s = comm_->health(); !s) return cannot_connect(comm_->label().peer, vccl::describe(s));
            if (comm_->connected()) {
                out = std::move(comm_);
                return code::success;
            }
        }
        if (now() >= deadline_)
            return cannot_connect(peer,
                                  joined_ ? "no lane came up; lanes: " + comm_->label().all() : "the other rank does not answer");
        return code::success;
    }

private:
    handle to_;
    const settings& settings_;
    vccl::nanoseconds deadline_;
    std::unique_ptr<send_comm> comm_;
    introduction ours_, theirs_{};
    meeting meeting_;
    bool joined_{};
};

/// The receiver's half. Callers that do not know the secret are turned away and disturb nobody.
template <class B>
class listening final : public listener {
public:
    /// `count`: of listeners that there are.
    listening(vccl::host_context<B>& context, const settings& s, const making& m, std::string_view host,
              std::atomic<unsigned>& count, handle& out)
        : context_(context), settings_(s), address_(m.address), making_(m), ours_(introduction::make(s, host)), count_(count) {
        making_.address = address_;
        vccl::detail::socket_address a;
        if (!vccl::detail::parse_address(address_ + ":0", a))
            throw network_error("VCCL_NET_ADDRESS=" + address_ + " is no IP address");
        fd_ = vccl::detail::socket_fd{::socket(a.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
        auto* at = reinterpret_cast<sockaddr*>(&a.storage);
        if (!fd_ || ::bind(fd_.get(), at, a.length) != 0 || ::listen(fd_.get(), 8) != 0)
            throw network_error("cannot listen at " + address_ + ": " + std::strerror(errno));
        a.length = sizeof a.storage;
        if (::getsockname(fd_.get(), at, &a.length) != 0)
            throw network_error(std::string("cannot listen: ") + std::strerror(errno));
        out.where = vccl::detail::format_address(a.storage);
        secret_ = out.secret;
        ++count_;
    }
    ~listening() override { --count_; }

    code accept(std::unique_ptr<recv_comm>& out) override {
        if (!comm_) {
            if (code c = look_for_caller(); c != code::success || !comm_) return c;
        }
        if (!answered_ && partner_.say(ours_) == transfer::done) answered_ = true;
        comm_->pass();
        if (vccl::status s = comm_->health(); !s) return cannot_connect(comm_->label().peer, vccl::describe(s));
        if (answered_ && comm_->connected()) {
            out = std::move(comm_);
            return code::success;
        }
        if (now() >= deadline_) return cannot_connect(comm_->label().peer, "no lane came up; lanes: " + comm_->label().all());
        return code::success;
    }

private:
    struct caller {
        meeting line;
        vccl::nanoseconds until;
        introduction said{};
    };

    code look_for_caller() {
        for (;;) {
            vccl::detail::socket_fd fd{::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
            if (!fd) break;
            callers_.push_back({meeting(std::move(fd)), now() + settings_.connect_timeout});
        }
        for (auto c = callers_.begin(); c != callers_.end();) {
            const transfer heard = c->line.hear(c->said);
            if (heard == transfer::done) return meet(*c);
            if (heard == transfer::broken || now() >= c->until)
                c = callers_.erase(c);
            else
                ++c;
        }
        return code::success;
    }

    /// One has said all that it has to say.
    code meet(caller& c) {
        if (c.said.magic != introduction::magic_value) {
            c.line.hang_up();
            return code::success;
        }
        std::string why = objection(c.said, settings_);
        if (why.empty() && !vccl::detail::same_secret(c.said.secret, secret_)) {
            c.line.hang_up();
            return code::success;
        }
        std::unique_ptr<recv_comm> comm = make_channel<B, recv_channel, recv_comm>(context_, making_);
        if (why.empty())
            if (vccl::status s = comm->introduce(ours_); !s) why = vccl::describe(s);
        if (why.empty())
            if (vccl::status s = comm->join(c.said); !s) why = vccl::describe(s);
        if (!why.empty()) {
            introduction no = introduction::make(settings_, ours_.host.view());
            no.refusal = std::string_view(why);
            (void)c.line.say(no);
            (void)cannot_connect("from " + std::string(c.said.host.view()), why);
            return code::invalid_usage;
        }
        comm_ = std::move(comm);
        partner_ = std::move(c.line);
        callers_.clear();
        deadline_ = now() + settings_.connect_timeout;
        return code::success;
    }

    vccl::host_context<B>& context_;
    const settings& settings_;
    std::string address_;
    making making_;
    introduction ours_;
    std::atomic<unsigned>& count_;
    vccl::oob_secret secret_;
    vccl::detail::socket_fd fd_;
    std::list<caller> callers_;
    meeting partner_;
    std::unique_ptr<recv_comm> comm_;
    vccl::nanoseconds deadline_{};
    bool answered_{};
};

/// Returns: the address for the connections beside the lanes: of the first interface that is up, no loopback and not in
/// `avoid` (it would go down with a lane), else the loopback address.
inline std::string find_address(const std::vector<std::string>& avoid) {
    std::string found = "127.0.0.1";
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) return found;
    for (const ifaddrs* i = list; i; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || (i->ifa_flags & IFF_UP) == 0 ||
            (i->ifa_flags & IFF_LOOPBACK) != 0)
            continue;
        bool of_a_lane = false;
        for (const std::string& name : avoid) of_a_lane |= name == i->ifa_name;
        if (of_a_lane) continue;
        char text[INET_ADDRSTRLEN]{};
        if (::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr, text, sizeof text)) found = text;
        break;
    }
    ::freeifaddrs(list);
    return found;
}

/// Connections are shared out in turn: each share has a backend handle, a keeper and memory keys of its own, so that threads that
/// drive different shares meet nowhere. There is one share where NCCL's threads drive.
template <class B>
class network_of : public network {
public:
    /// `backends`: as many as `shares_of(s)`.
    network_of(const settings& s, std::vector<B> backends, const vccl::topology& shape, vccl::host_id host)
        : settings_(s), host_(host), registered_(static_cast<unsigned>(backends.size())) {
        for (B& b : backends) {
            contexts_.push_back(std::make_unique<vccl::host_context<B>>(std::move(b), shape));
            keepers_.push_back(std::make_unique<keeper>(s.threads != 0));
        }
        const vccl::topology& t = contexts_[0]->shape();
        for (std::uint16_t p = 0; p < t.ports.size(); ++p) {
            if (t.host_of(vccl::port_id{p}) != host) continue;
            const auto& port = t.ports[p];
            const auto& nic = t.nics[port.nic.value];
            device d;
            d.name = port.name.view();
            d.nic = port.nic.value;
            d.port = port.number;
            d.rail = port.rail.value;
            // A rate that nobody knows is taken for 100 Gb/s: NCCL needs one to compare paths.
            d.mbit_per_second = port.bytes_per_second == 0 ? 100'000 : static_cast<unsigned>(port.bytes_per_second / 125'000);
            if (const std::string pci(nic.pci.view()); !pci.empty())
                if (char* path = ::realpath(("/sys/bus/pci/devices/" + pci).c_str(), nullptr)) {
                    d.pci_path = path;
                    ::free(path);
                }
            devices_.push_back(d);
            ports_.push_back(vccl::port_id{p});
        }
        if (devices_.empty()) throw network_error("host " + host_name() + " has no port");
        // All of them at once: memory is then registered everywhere when NCCL registers it, not while a rank waits.
        for (const auto& context : contexts_)
            for (const vccl::port_id p : ports_)
                if (auto slot = context->open(p); !slot)
                    throw network_error("cannot open port " + std::string(t.ports[p.value].name.view()) + ": " +
                                        vccl::describe(slot.error()));
    }

    ~network_of() override { (void)wind_up(vccl::nanoseconds{0}); }
    static unsigned shares_of(const settings& s) noexcept { return s.threads == 0 ? 1 : s.threads; }

    const std::vector<device>& devices() const noexcept override { return devices_; }
    int pointers() const noexcept override { return pointers_; }

    std::unique_ptr<listener> listen(int device, handle& out) override {
        const std::scoped_lock lock(mutex_);
        out = handle{};
        out.magic = handle::magic_value;
        out.version = introduction_version;
        out.rail = devices_[static_cast<std::size_t>(device)].rail;
        out.channel = ++channels_;
        out.session = vccl::detail::random_word(0);
        out.secret = vccl::detail::random_secret();
        const unsigned share = next_share();
        return std::make_unique<listening<B>>(*contexts_[share], settings_, plan(device, out, share), host_name(), listeners_,
                                              out);
    }

    code connect(int device, const handle& to, std::unique_ptr<send_comm>& out) override {
        const std::scoped_lock lock(mutex_);
        auto at = dialled_.begin();
        while (at != dialled_.end() && at->to().session != to.session) ++at;
        if (at == dialled_.end()) {
            const int on_rail = device_on(to.rail, device);
            if (on_rail < 0) {
                (void)cannot_connect("to " + std::string(to.where.view()),
                                     "its port is on rail " + std::to_string(to.rail) + ", where this host has no port");
                return code::invalid_usage;
            }
            const unsigned share = next_share();
            at = dialled_.emplace(dialled_.end(), *contexts_[share], settings_, plan(on_rail, to, share), to, host_name());
        }
        const code c = at->step(out);
        if (c != code::success || out) dialled_.erase(at);
        return c;
    }

    vccl::result<registration*> register_memory(void* data, std::size_t bytes, bool device) override {
        return registered_.find_or_make(data, bytes, device,
                                        [&](unsigned share) { return contexts_[share]->register_memory(data, bytes, device); });
    }
    vccl::result<registration*> register_dmabuf(void* data, std::size_t bytes, std::uint64_t offset, int fd) override {
        if constexpr (B::capabilities.dmabuf)
            return registered_.find_or_make(data, bytes, true, [&](unsigned share) {
                return contexts_[share]->register_dmabuf(fd, offset, reinterpret_cast<std::uint64_t>(data), bytes);
            });
        (void)offset, (void)fd;
        return vccl::errc::unsupported;
    }
    bool deregister(registration* r, comm& user) override {
        return registered_.drop(r, [&user] {
            const std::scoped_lock lock(user.turn);
            user.abort();
        });
    }

protected:
    std::string host_name() const { return std::string(contexts_[0]->shape().hosts[host_.value].name.view()); }

    settings settings_;
    vccl::host_id host_;
    std::vector<std::unique_ptr<vccl::host_context<B>>> contexts_;  // of each share
    registrations registered_;
    std::vector<device> devices_;
    std::vector<vccl::port_id> ports_;  // of each device
    int pointers_{nccl_abi::pointer_host};

private:
    making plan(int device, const handle& h, unsigned share) const {
        return {settings_, ports_[static_cast<std::size_t>(device)], h.channel, h.session, settings_.address, share};
    }
    unsigned next_share() noexcept { return connections_++ % static_cast<unsigned>(contexts_.size()); }

    /// The listener's rail decides, since lanes do not cross rails; NCCL may have thought of another port.
    int device_on(std::uint16_t rail, int preferred) const {
        if (devices_[static_cast<std::size_t>(preferred)].rail == rail) return preferred;
        for (std::size_t d = 0; d < devices_.size(); ++d)
            if (devices_[d].rail == rail) return static_cast<int>(d);
        return -1;
    }

    std::mutex mutex_;
    std::uint32_t channels_{};
    unsigned connections_{};
    std::list<dialling<B>> dialled_;
};

}  // namespace nccl_net
