#pragma once
/// \file
/// `bootstrap_stream`: one TCP connection that never blocks: bytes of fixed-size messages before both ends are known to each
/// other, frames with a code afterwards. A frame that is too large, out of order or not of the peer ends the connection.
/// One thread.

#include <vccl/base/time.hpp>
#include <vccl/bootstrap/address.hpp>
#include <vccl/bootstrap/secret.hpp>
#include <vccl/host/tcp_oob.hpp>

#include <cerrno>
#include <optional>
#include <vector>

namespace vccl::inline v0 {

class bootstrap_stream {
public:
    /// A frame: length (32 bits, little endian), code, payload. The code covers direction, number and length, too.
    static constexpr std::size_t head_bytes = 4 + sizeof(message_code);

    bootstrap_stream() = default;
    explicit bootstrap_stream(detail::socket_fd fd) noexcept : fd_(std::move(fd)) {
        const int on = 1;
        ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }

    int fd() const noexcept { return fd_.get(); }
    bool open() const noexcept { return static_cast<bool>(fd_); }
    void close() noexcept { fd_.reset(); }
    bool has_output() const noexcept { return sent_ != out_.size(); }

    /// From now on: frames under this key. `root`: this end is the root's.
    void secure(const message_code& key, bool root, std::uint32_t most_bytes) noexcept {
        key_ = key;
        own_ = root ? 1 : 2;
        most_ = most_bytes;
    }

    template <class Message>
    void put(const Message& m) {
        const auto* const p = reinterpret_cast<const unsigned char*>(&m);
        out_.insert(out_.end(), p, p + sizeof m);
    }
    /// Returns: a message of that size, if all of it is there.
    template <class Message>
    std::optional<Message> take() {
        if (in_.size() < sizeof(Message)) return std::nullopt;
        Message m;
        std::memcpy(static_cast<void*>(&m), in_.data(), sizeof m);
        in_.erase(in_.begin(), in_.begin() + sizeof m);
        return m;
    }

    void put_frame(std::span<const std::byte> payload) {
        const auto length = static_cast<std::uint32_t>(payload.size());
        put(length);
        put(code_of(own_, put_count_++, payload));
        const auto* const p = reinterpret_cast<const unsigned char*>(payload.data());
        out_.insert(out_.end(), p, p + payload.size());
    }
    /// Returns: the next frame's payload, nothing while it is not whole; too_large (detail: its bytes), wrong_peer (not the
    /// peer's, or not the next one): the connection must be closed.
    result<std::optional<std::vector<std::byte>>> take_frame() {
        using frame = std::optional<std::vector<std::byte>>;
        if (in_.size() < head_bytes) return frame{};
        std::uint32_t length = 0;
        message_code code;
        std::memcpy(&length, in_.data(), sizeof length);
        std::memcpy(&code, in_.data() + sizeof length, sizeof code);
        if (length > most_) return status{errc::too_large, length};
        if (in_.size() - head_bytes < length) return frame{};
        const auto* const p = reinterpret_cast<const std::byte*>(in_.data()) + head_bytes;
        std::vector<std::byte> payload(p, p + length);
        if (!(code == code_of(own_ == 1 ? 2 : 1, take_count_++, payload))) return errc::wrong_peer;
        in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(head_bytes + length));
        return frame{std::move(payload)};
    }

    /// Effects: sends and receives what the socket takes and has, at most `most` unread bytes. Returns: peer_lost when it is
    /// closed or broken (`subject::system_error` with the reason); what came before can still be taken.
    status pump(std::size_t most) noexcept {
        while (has_output()) {
            const ssize_t n = ::send(fd_.get(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
            if (n < 0) {
                if (errno == EAGAIN || errno == EWOULDBLOCK) break;
                if (errno == EINTR) continue;
                return detail::with_errno(errc::peer_lost);
            }
            sent_ += static_cast<std::size_t>(n);
        }
        if (!has_output()) {
            out_.clear();
            sent_ = 0;
        }
        while (in_.size() < most) {
            unsigned char buffer[65536];
            const std::size_t room = most - in_.size() < sizeof buffer ? most - in_.size() : sizeof buffer;
            const ssize_t n = ::recv(fd_.get(), buffer, room, 0);
            if (n < 0) {
                if (errno == EINTR) continue;
                return errno == EAGAIN || errno == EWOULDBLOCK ? status{} : detail::with_errno(errc::peer_lost);
            }
            if (n == 0) return errc::peer_lost;
            in_.insert(in_.end(), buffer, buffer + n);
        }
        return {};
    }

private:
    message_code code_of(unsigned char direction, std::uint64_t number, std::span<const std::byte> payload) const {
        std::vector<unsigned char> text(9 + payload.size());
        text[0] = direction;
        std::memcpy(text.data() + 1, &number, 8);
        if (!payload.empty()) std::memcpy(text.data() + 9, payload.data(), payload.size());
        return hmac_sha256(key_.bytes, text);
    }

    detail::socket_fd fd_;
    std::vector<unsigned char> in_, out_;
    std::size_t sent_{};
    message_code key_;
    unsigned char own_{};
    std::uint32_t most_{};
    std::uint64_t put_count_{}, take_count_{};
};

}  // namespace vccl::inline v0
