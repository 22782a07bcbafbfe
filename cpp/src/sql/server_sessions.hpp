// Shared by the dialects with a server: sockets across forks, TCP limits, the watch over the primary,
// and options of URLs.
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

/// The sockets of the parent's sessions, which a forked child must close. If a child held a copy, the
/// server would not notice that the parent died, and would keep its locks.
///
/// The child closes them without ending the sessions, which are the parent's. Thread-safe.
class InheritedSockets {
  public:
    void add(int socket) {
        // A program started by exec must not inherit the socket either. libmariadb does not set
        // FD_CLOEXEC itself, so a program that is started before this line inherits it.
        ::fcntl(socket, F_SETFD, FD_CLOEXEC);
        std::lock_guard lock(mutex_);
        sockets_.insert(socket);
    }
    /// Call it before the socket is closed: its number may be reused at once.
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

/// Notices that the server behind a database's address no longer takes writes.
///
/// A demoted primary keeps its connections and refuses every write on them, while its name or the
/// balancer before it already leads to another server. The first such refusal therefore ends the term
/// of all sessions: each is closed before its next transaction, and the address is resolved again.
/// Thread-safe.
class PrimaryWatch {
  public:
    /// The current term. A session is unusable after the term in which it was opened.
    std::uint64_t term() const { return term_.load(std::memory_order_acquire); }

    /// Reports that a session of that term was refused because its server is read-only.
    void refused_to_write(std::uint64_t term) {
        looking_.store(true, std::memory_order_release);
        // Sessions of an earlier term report nothing new.
        term_.compare_exchange_strong(term, term + 1, std::memory_order_acq_rel);
    }
    /// Reports that a session of that term has committed a write, or that its server takes writes.
    void has_written(std::uint64_t term) {
        // A session of an earlier term may have committed before its server was demoted.
        if (looking_.load(std::memory_order_relaxed) &&
            term == term_.load(std::memory_order_acquire)) {
            looking_.store(false, std::memory_order_release);
        }
    }
    /// True from refused_to_write() until has_written(). If the address cannot be reached meanwhile,
    /// another attempt is worthwhile.
    bool is_looking() const { return looking_.load(std::memory_order_acquire); }

  private:
    std::atomic<std::uint64_t> term_{1};
    std::atomic<bool> looking_{false};
};

/// TCP keepalives, in seconds: after a silence of 15, three unanswered probes 5 apart end the
/// connection. The probes also keep most firewalls from dropping a connection on which a statement
/// waits.
struct TcpLimits {
    int idle;
    int interval;
    int count;
};
inline constexpr TcpLimits kTcpLimits{15, 5, 3};

/// Sets kTcpLimits, and how long sent data may stay unacknowledged. No effect on a Unix socket.
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

/// Parses a boolean option of a database's URL.
inline Result<bool> url_flag(const std::string& option, const std::string& value) {
    if (value == "true" || value == "1") return true;
    if (value == "false" || value == "0") return false;
    return make_error(ErrorCode::config, "URL: option " + option + " is neither true nor false");
}

}  // namespace hotcount::sql
