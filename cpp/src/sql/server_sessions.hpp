// What the dialects with a server share about their sessions: sockets, TCP, which server is the
// primary, and options of URLs.
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/result.hpp>
#include <mutex>
#include <set>
#include <string>

namespace hotcount::sql {

/// The sockets that a forked child must close: its parent's sessions. If a child held a copy, the
/// server would not notice that the parent died, and would keep its locks.
///
/// Closed without a goodbye, which would end the parent's session. Thread-safe.
class InheritedSockets {
  public:
    void add(int socket) {
        // A program that is started instead of a child's code must not have it either. libmariadb
        // leaves that to its caller, so one that is started in this very moment still gets it.
        ::fcntl(socket, F_SETFD, FD_CLOEXEC);
        std::lock_guard lock(mutex_);
        sockets_.insert(socket);
    }
    /// Before the socket is closed: its number may be another's at once.
    void remove(int socket) {
        std::lock_guard lock(mutex_);
        sockets_.erase(socket);
    }

    void freeze() { mutex_.lock(); }
    void thaw(bool in_child) {
        if (in_child) {
            for (const int socket : sockets_) ::close(socket);
            sockets_.clear();
        }
        mutex_.unlock();
    }

  private:
    std::mutex mutex_;
    std::set<int> sockets_;
};

/// Whether the server behind a database's address still takes writes.
///
/// A primary that is demoted keeps its connections and refuses every write on them, while the name or
/// the balancer before it leads to another server already. So the first session that is refused for
/// that reason ends the term of all sessions: each is given up before its next transaction, and the
/// address is resolved again. Thread-safe.
class PrimaryWatch {
  public:
    /// A session remembers the term it was opened in, and is of no more use in a later one.
    std::uint64_t term() const { return term_.load(std::memory_order_acquire); }

    /// A session of that term was told that its server only reads.
    void refused_to_write(std::uint64_t term) {
        looking_.store(true, std::memory_order_release);
        // Sessions of an earlier term say nothing new.
        term_.compare_exchange_strong(term, term + 1, std::memory_order_acq_rel);
    }
    /// A session of that term has committed a write, or its server has said that it takes writes.
    void has_written(std::uint64_t term) {
        // One of an earlier term had begun before its server was demoted: the new one is not found.
        if (looking_.load(std::memory_order_relaxed) &&
            term == term_.load(std::memory_order_acquire)) {
            looking_.store(false, std::memory_order_release);
        }
    }
    /// From such a refusal until has_written(). An address that leads nowhere is
    /// worth another attempt then.
    bool is_looking() const { return looking_.load(std::memory_order_acquire); }

  private:
    std::atomic<std::uint64_t> term_{1};
    std::atomic<bool> looking_{false};
};

// When a TCP connection counts as dead whose other end says nothing any more.

/// Keepalives, in seconds: a silence of 15, then three unanswered probes 5 apart. Such a probe also
/// keeps most firewalls from forgetting a connection on which a statement waits.
struct TcpLimits {
    int idle;
    int interval;
    int count;
};
inline constexpr TcpLimits kTcpLimits{15, 5, 3};

/// Sets them, and how long what was sent may stay unacknowledged. Of no effect on a Unix socket.
inline void set_tcp_limits(int socket, Duration user_timeout) {
    const auto set = [socket](int level, int name, int value) {
        (void)::setsockopt(socket, level, name, &value, sizeof value);
    };
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, kTcpLimits.idle);
    set(IPPROTO_TCP, TCP_KEEPINTVL, kTcpLimits.interval);
    set(IPPROTO_TCP, TCP_KEEPCNT, kTcpLimits.count);
    set(IPPROTO_TCP, TCP_USER_TIMEOUT,
        static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(user_timeout).count()));
}

/// An option of a database's URL that is on or off.
inline Result<bool> url_flag(const std::string& option, const std::string& value) {
    if (value == "true" || value == "1") return true;
    if (value == "false" || value == "0") return false;
    return make_error(ErrorCode::config, "URL: option " + option + " is neither true nor false");
}

}  // namespace hotcount::sql
