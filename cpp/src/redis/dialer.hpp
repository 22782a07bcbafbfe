// Opens all connections of a client, in threads of its own. A dial is one attempt to connect.
//
//   ask() --> waiting --(one thread until a dial has succeeded, then up to 16)--> arrived()
//
// While dials fail the dialer makes one at a time, each after a random pause between 0 and 0.2 s,
// then 0.4, 0.8, 1.6 and at most 2 s ("full jitter"). So the clients of one server do not come back
// together, and an unreachable server gets about one attempt a second. However short the pauses
// come out, at most 2n + 3 dials fail in any n seconds. With a credentials function, a dial may connect
// three times: see open_in_rotation(). Parallel dials that fail together count as one failure; a
// connection that ends after the handshake is no failure. The error of a failed dial goes to all
// waiting requests. After a successful dial, the waiting requests are dialed in parallel.
//
// With Sentinels a dial asks them for the primary first, and once more when the server has greeted: it may
// have been replaced meanwhile. Calls wait within their deadlines while there is no primary.
//
// A dial resolves the server's name anew and tries each address, each with its share of
// connect_timeout. No call owns it: a caller that leaves at its deadline does not end it.
//
// Thread-safe. Per process: a forked child makes its own dialer.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/log.hpp>
#include <hotcount/detail/base/worker_pool.hpp>
#include <hotcount/detail/redis/options.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/backoff.hpp"
#include "connection.hpp"
#include "sentinel.hpp"
#include "tls.hpp"

namespace hotcount::redis {

/// The scripts that a client's concepts use. Thread-safe, without a lock that a fork could leave held.
class KnownScripts {
  public:
    void add(const Script& script) {
        for (std::atomic<const Script*>& place : places_) {
            const Script* known = nullptr;
            if (place.compare_exchange_strong(known, &script) || known == &script) return;
        }
    }
    std::vector<const Script*> all() const {
        std::vector<const Script*> scripts;
        for (const std::atomic<const Script*>& place : places_) {
            const Script* const known = place.load();
            if (known == nullptr) break;
            scripts.push_back(known);
        }
        return scripts;
    }

  private:
    std::array<std::atomic<const Script*>, 64> places_{};  // More than there are.
};

/// The pauses after failed dials.
inline constexpr Backoff kDialBackoff{std::chrono::milliseconds{200}, std::chrono::seconds{2}};

/// Bounds failed tries, however short the random pauses come out: two a second, and three at once after
/// a quiet time.
class TryBudget {
  public:
    /// A try that began at this time failed: no other may begin before the time that is returned.
    SteadyTime spend(SteadyTime began) {
        paid_until_ = std::max(paid_until_, began) + kCost;
        return paid_until_ - kCredit;
    }

  private:
    static constexpr Duration kCost = std::chrono::milliseconds{500};
    static constexpr Duration kCredit = 2 * kCost;

    SteadyTime paid_until_{};
};

/// Calls a function that may hang, in a thread of its own, one call at a time. Each ask() waits
/// until its deadline. A result goes to every ask() that began before the call of the function.
template <class T>
class CallsApart : public std::enable_shared_from_this<CallsApart<T>> {
  public:
    /// `late`: the message of the deadline error.
    CallsApart(std::function<Result<T>()> source, std::string late)
        : source_(std::move(source)), late_(std::move(late)) {}

    Result<T> ask(Deadline deadline) {
        std::unique_lock lock(mutex_);
        const std::uint64_t wanted = asked_ + 1;
        const auto is_answered = [&] { return asked_ > wanted || (asked_ == wanted && !asking_); };
        while (!is_answered()) {
            if (!asking_) {
                HOTCOUNT_TRY(spawn_thread(
                    [self = this->shared_from_this()] { self->answer(self->source_()); }));
                ++asked_;
                asking_ = true;
            }
            const auto woken = answered_.wait_until(lock, deadline.time());
            if (woken == std::cv_status::timeout && !is_answered()) {
                return make_error(ErrorCode::deadline, late_);
            }
        }
        return last_;
    }

  private:
    void answer(Result<T> answer) {
        const std::lock_guard lock(mutex_);
        last_ = std::move(answer);
        asking_ = false;
        answered_.notify_all();
    }

    const std::function<Result<T>()> source_;
    const std::string late_;
    std::mutex mutex_;
    std::condition_variable answered_;
    std::uint64_t asked_{0};  // Calls that began.
    bool asking_{false};      // The last of them has not ended.
    Result<T> last_{T{}};
};

/// The logins of new connections (Options::credentials).
using Logins = CallsApart<Login>;
inline constexpr const char* kLateLogin = "credentials() did not return within connect_timeout";

/// Opens a connection to the server that the options name, without scripts. Each address of the name
/// has its share of the time. Of several failures the error is a refusal rather than a silence.
Result<std::unique_ptr<Connection>> open_by_name(const Options& options, const TlsContext& tls,
                                                 const Login& login, Deadline deadline);
/// open_by_name() with the addresses to which the name was resolved.
Result<std::unique_ptr<Connection>> open_any(const Options& options, const TlsContext& tls,
                                             const Login& login,
                                             const std::vector<Address>& addresses,
                                             Deadline deadline);

/// Whether the server closed the connection without an error reply, as CLIENT KILL does.
bool ended_without_a_word(const Error& error);
/// Calls open() up to three times, because a password that changes may fail it twice: the server refuses
/// the old password, and CLIENT KILL ends a connection that is logging in. After a refusal, unless
/// `asked` is set already, sets it and calls renew(), which asks for the login again and returns whether
/// the login has changed.
template <typename Open, typename Renew>
Result<std::unique_ptr<Connection>> open_in_rotation(const Open& open, const Renew& renew,
                                                     bool& asked) {
    auto opened = open();
    for (bool ended = false; !opened;) {
        if (ended_without_a_word(opened.error()) && !std::exchange(ended, true)) {
            opened = open();
        } else if (opened.error().code == ErrorCode::auth && !std::exchange(asked, true)) {
            HOTCOUNT_TRY_ASSIGN(const bool is_another, renew());
            if (!is_another) break;
            opened = open();
        } else {
            break;
        }
    }
    return opened;
}

class Dialer : public std::enable_shared_from_this<Dialer> {
  public:
    using Arrived = std::function<void(Result<std::unique_ptr<Connection>>)>;

    Dialer(Options options, std::shared_ptr<KnownScripts> scripts);

    enum class Scripts : std::uint8_t { none, all };
    /// Asks for a connection, with the client's scripts loaded or not. A thread of the dialer calls
    /// `arrived` once, with the connection or the error. If ask() fails (closed, or no thread can be
    /// started), `arrived` is never called. May be called under a lock that `arrived` takes.
    Result<void> ask(Scripts scripts, Arrived arrived);
    /// Whether calls that wait for a connection keep waiting for the next dial: after a timeout, or
    /// if the server's refusal is temporary. Any other error ends them.
    static bool worth_waiting(const Error& error);
    /// Whether the server answered HELLO in the last dial that succeeded.
    bool knows_hello() const { return knows_hello_.load(std::memory_order_relaxed); }
    /// The error of the last dial, until one succeeds: for callers that begin to wait during a pause.
    std::optional<Error> last_failure();
    /// The connection ended before the server answered anything, which counts as a dial that failed.
    void came_to_nothing();
    /// A connection ended, and not because it was closed: the next dial that succeeds logs that.
    void lost(std::string_view why);
    /// Whether calls are refused because as many wait as may: of all connections of the client.
    Trouble& full_queue() { return full_queue_; }
    /// The server at this address is a replica: try the name's other addresses first.
    void put_last(const Address& address);
    /// There is a reason to dial now instead of after a pause.
    void hurry();
    /// Calls that wait end with a closed error. A dial under way ends by itself.
    void close();

  private:
    struct Asked {
        Scripts scripts;
        Arrived arrived;
    };
    using Lock = std::unique_lock<std::mutex>;

    Result<void> start_threads();
    void work();
    void wait_for_turn(Lock& lock);
    bool note_failure(SteadyTime began);
    void tell_reached();
    Result<std::unique_ptr<Connection>> dial(Scripts scripts);
    Result<std::unique_ptr<Connection>> dial_primary(Scripts scripts, const TlsContext& context);
    Result<std::unique_ptr<Connection>> dial_any(std::vector<Address> addresses, Scripts scripts,
                                                 const TlsContext& context,
                                                 std::shared_ptr<Lease> lease = {});
    Result<Login> login(Deadline deadline);
    std::shared_ptr<Sentinels> sentinels();
    Result<TlsContext> tls();
    bool is_closed();
    Error closed_error() const;

    const Options options_;
    const std::shared_ptr<KnownScripts> scripts_;
    const std::shared_ptr<Logins> logins_;  // Null: the options have the login.
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Asked> waiting_;
    std::size_t threads_{0};
    std::size_t dialing_{0};  // Threads that dial now.
    bool reached_{false};     // The last dial succeeded.
    unsigned failures_{0};
    unsigned failures_before_{0};  // When the last dial succeeded.
    std::optional<Error> why_;     // The error of the last dial, if it failed.
    SteadyTime failed_at_{};
    SteadyTime next_at_{};  // No dial begins before.
    TryBudget budget_;
    std::vector<Address> last_;
    TlsContext tls_;
    std::shared_ptr<Sentinels> sentinels_;  // Null before the first dial.
    bool closed_{false};
    Trouble outage_{options_.address(), kUnavailable, kAvailable};
    Trouble full_queue_{options_.address(), kFull, kHasRoom};
    std::string lost_why_;    // Why connections ended that no dial has replaced yet.
    SteadyTime told_lost_{};  // When that was last logged.
    std::atomic<bool> knows_hello_{false};
};

/// Decides when to leave a connection to a server that turned out to be a replica: at once the first
/// time, then after pauses as between failed dials, at most 2n + 3 times in any n seconds. Until then
/// the connection serves reads.
class Moves {
  public:
    bool due(SteadyTime now) {
        if (now < next_at_) return false;
        if (now - last_at_ > kForgotten) moves_ = 0;
        last_at_ = now;
        next_at_ = std::max(now + kDialBackoff.draw(++moves_), budget_.spend(now));
        return true;
    }

  private:
    static constexpr Duration kForgotten = std::chrono::seconds{5};

    SteadyTime last_at_{};
    SteadyTime next_at_{};
    TryBudget budget_;
    unsigned moves_{0};
};

}  // namespace hotcount::redis
