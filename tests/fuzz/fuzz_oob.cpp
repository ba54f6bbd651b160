/// \file
/// What a caller writes into a receiver's out-of-band channel, before and after the secret, in pieces of any size.

#include <vccl/host/tcp_oob.hpp>

#include <cstdlib>
#include <cstring>
#include <string_view>

#include <arpa/inet.h>
#include <unistd.h>

using namespace vccl;

static std::uint16_t port_of(std::string_view where) {
    unsigned port = 0;
    for (const char c : where.substr(where.rfind(':') + 1)) port = port * 10 + static_cast<unsigned>(c - '0');
    return static_cast<std::uint16_t>(port);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) return 0;
    oob_secret secret{};
    std::memset(secret.bytes, 7, sizeof secret.bytes);
    tcp_oob listener;
    const auto where = listener.listen(oob_address{"127.0.0.1:0"}, secret);
    if (!where) std::abort();
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port_of(where->view()));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int s = ::socket(AF_INET, SOCK_STREAM, 0);
    if (s < 0 || ::connect(s, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) std::abort();
    if (data[0] % 4 != 0) (void)!::send(s, &secret, sizeof secret, MSG_NOSIGNAL);
    nanoseconds now{1};
    std::byte message[512];
    std::size_t piece = 1 + data[1] % 64;
    for (std::size_t at = 2; at < size; at += piece) {
        (void)!::send(s, data + at, at + piece < size ? piece : size - at, MSG_NOSIGNAL);
        for (int i = 0; i < 3; ++i) {
            (void)listener.advance(now = now + nanoseconds{100'000});
            if (listener.receive(message) > sizeof message) std::abort();
        }
    }
    ::close(s);
    for (int i = 0; i < 3; ++i) {
        (void)listener.advance(now = now + nanoseconds{100'000});
        (void)listener.receive(message);
    }
    return 0;
}
