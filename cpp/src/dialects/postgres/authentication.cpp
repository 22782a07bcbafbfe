#include "authentication.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace hotcount::sql {
namespace {

constexpr std::size_t kHeader = 5;  // A letter, and a length that includes itself.
constexpr std::uint32_t kCleartextPassword = 3;

std::uint32_t big_endian(std::string_view bytes) {
    std::uint32_t value = 0;
    for (const char c : bytes.substr(0, 4)) value = value << 8U | static_cast<unsigned char>(c);
    return value;
}

}  // namespace

AuthenticationReader::Finding AuthenticationReader::see(std::string_view bytes) {
    seen_ += bytes.size();
    if (seen_ > kMost) return Finding::excessive;
    unread_ += bytes;
    while (unread_.size() >= kHeader) {
        const std::uint32_t length = big_endian(std::string_view{unread_}.substr(1));
        if (length > kMost) return Finding::excessive;
        // libpq reads the kind of an authentication request before the whole message has arrived.
        const bool asks = unread_[0] == 'R';
        if (asks && unread_.size() >= kHeader + 4 &&
            big_endian(std::string_view{unread_}.substr(kHeader)) == kCleartextPassword) {
            return Finding::clear_text;
        }
        const std::size_t whole = 1 + std::size_t{length};
        // libpq refuses an impossible length, and reads nothing after it.
        if (length < 4 || unread_.size() < whole) break;
        unread_.erase(0, whole);
    }
    return Finding::harmless;
}

Interposed::Interposed(int descriptor) : descriptor_(descriptor) {
    std::array<int, 2> pair{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()) != 0) {
        return;
    }
    server_ = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (server_ >= 0 && ::dup3(pair[1], descriptor, O_CLOEXEC) >= 0) {
        ours_ = pair[0];
    } else {
        ::close(pair[0]);
    }
    ::close(pair[1]);
}

Interposed::~Interposed() {
    if (server_ >= 0) ::close(server_);
    if (ours_ >= 0) ::close(ours_);
}

Interposed::Read Interposed::read_message(std::string& message) {
    while (true) {
        std::size_t wanted = kHeader;
        if (partial_.size() >= kHeader) {
            const std::uint32_t length = big_endian(std::string_view{partial_}.substr(1));
            if (length > AuthenticationReader::kMost) return Read::excessive;
            wanted = std::max(kHeader, 1 + std::size_t{length});
        }
        if (partial_.size() >= kHeader && partial_.size() >= wanted) {
            message = std::move(partial_);
            partial_.clear();
            return Read::message;
        }
        std::array<char, AuthenticationReader::kMost + 1> bytes{};
        const ssize_t got = ::recv(server_, bytes.data(), wanted - partial_.size(), MSG_DONTWAIT);
        if (got > 0) {
            partial_.append(bytes.data(), static_cast<std::size_t>(got));
            continue;
        }
        if (got < 0 && errno == EINTR) continue;
        const bool later = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
        return later ? Read::nothing_yet : Read::end;
    }
}

bool Interposed::give_to_libpq(std::string_view bytes) {
    return ::send(ours_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
}

std::string Interposed::take_from_libpq() {
    std::string taken;
    std::array<char, 4096> bytes{};
    while (true) {
        const ssize_t got = ::recv(ours_, bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return taken;
        taken.append(bytes.data(), static_cast<std::size_t>(got));
    }
}

void Interposed::end() { (void)::shutdown(ours_, SHUT_RDWR); }

void Interposed::give_back() { (void)::dup3(server_, descriptor_, O_CLOEXEC); }

}  // namespace hotcount::sql
