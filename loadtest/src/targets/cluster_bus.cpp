#include "cluster_bus.hpp"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace hotcount::loadtest {
namespace {

// How long it takes to see that a node was cut off or let back.
constexpr int kLookMs = 5;
// Where a message of the bus has the 40 digits of its sender's id.
constexpr std::size_t kSenderAt = 40;
constexpr std::size_t kSenderSize = 40;

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
}

int listen_at(std::uint16_t port) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    const sockaddr_in address = loopback(port);
    const auto* const plain = reinterpret_cast<const sockaddr*>(&address);
    if (bind(fd, plain, sizeof(address)) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

// On loopback the kernel answers at once, for a server that stands still too.
int dial(std::uint16_t port) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = loopback(port);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

}  // namespace

ClusterBus::~ClusterBus() {
    thread_ = {};
    for (const Link& link : links_) {
        for (const int fd : {link.dialler.fd, link.peer.fd}) {
            if (fd >= 0) close(fd);
        }
    }
    for (const int fd : listeners_) close(fd);
}

Result<void> ClusterBus::start(std::vector<std::string> ids,
                               const std::vector<std::uint16_t>& announced,
                               std::vector<std::uint16_t> own) {
    ids_ = std::move(ids);
    own_ = std::move(own);
    for (const std::uint16_t port : announced) {
        const int fd = listen_at(port);
        if (fd < 0) {
            return make_error(ErrorCode::unavailable,
                              fmt::format("127.0.0.1:{}: {}", port, std::strerror(errno)));
        }
        listeners_.push_back(fd);
    }
    thread_ = std::jthread([this](const std::stop_token& ended) { run(ended); });
    return {};
}

void ClusterBus::run(const std::stop_token& ended) {
    while (!ended.stop_requested()) {
        std::vector<pollfd> waiting;
        for (const int fd : listeners_) waiting.push_back({fd, POLLIN, 0});
        for (const Link& link : links_) {
            if (link.silent) continue;
            // A side that takes nothing holds up the other one.
            const auto events = [](const Side& own, const Side& other) {
                return static_cast<short>((other.pending.empty() ? POLLIN : 0) |
                                          (own.pending.empty() ? 0 : POLLOUT));
            };
            waiting.push_back({link.dialler.fd, events(link.dialler, link.peer), 0});
            if (link.peer.fd >= 0) {
                waiting.push_back({link.peer.fd, events(link.peer, link.dialler), 0});
            }
        }
        (void)poll(waiting.data(), waiting.size(), kLookMs);
        const std::size_t cut = cut_;
        for (Link& link : links_) {
            const bool is_cut = cut != kNone && (link.from == cut || link.to == cut);
            if (is_cut) {
                link.silent = true;
            } else if (link.silent) {
                link.ended = true;
            } else {
                take(link);
            }
        }
        links_.remove_if([](const Link& link) {
            if (!link.ended) return false;
            for (const int fd : {link.dialler.fd, link.peer.fd}) {
                if (fd >= 0) close(fd);
            }
            return true;
        });
        for (std::size_t node = 0; node < listeners_.size(); ++node) accept_from(node);
    }
}

void ClusterBus::accept_from(std::size_t node) {
    while (true) {
        const int fd = accept4(listeners_[node], nullptr, nullptr, SOCK_CLOEXEC);
        if (fd < 0) return;
        Link& link = links_.emplace_back();
        link.dialler.fd = fd;
        link.to = node;
    }
}

void ClusterBus::take(Link& link) {
    if (link.peer.fd < 0) {
        link.ended = !name(link);
        return;
    }
    link.ended = !(flush(link.dialler) && flush(link.peer) && relay(link.dialler.fd, link.peer) &&
                   relay(link.peer.fd, link.dialler));
}

// False if it hangs up. Its first message goes on if its peer may hear it.
bool ClusterBus::name(Link& link) {
    Side first;
    if (!relay(link.dialler.fd, first)) return false;
    link.first += first.pending;
    if (link.first.size() < kSenderAt + kSenderSize) return true;
    const auto known =
        std::find(ids_.begin(), ids_.end(), link.first.substr(kSenderAt, kSenderSize));
    if (known == ids_.end()) return false;
    link.from = static_cast<std::size_t>(known - ids_.begin());
    const std::size_t cut = cut_;
    if (cut != kNone && (link.from == cut || link.to == cut)) return true;
    link.peer.fd = dial(own_[link.to]);
    link.peer.pending.swap(link.first);
    return link.peer.fd >= 0 && flush(link.peer);
}

// Relays the available bytes, unless earlier ones are still pending for the other side. False at
// the end of the connection.
bool ClusterBus::relay(int from, Side& to) {
    char bytes[16384];
    while (to.pending.empty()) {
        const ssize_t size = recv(from, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (size == 0) return false;
        if (size < 0) return errno == EAGAIN || errno == EINTR;
        to.pending.assign(bytes, static_cast<std::size_t>(size));
        if (to.fd < 0) return true;
        if (!flush(to)) return false;
    }
    return true;
}

bool ClusterBus::flush(Side& side) {
    while (!side.pending.empty()) {
        const ssize_t size =
            send(side.fd, side.pending.data(), side.pending.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (size < 0) return errno == EAGAIN || errno == EINTR;
        side.pending.erase(0, static_cast<std::size_t>(size));
    }
    return true;
}

}  // namespace hotcount::loadtest
