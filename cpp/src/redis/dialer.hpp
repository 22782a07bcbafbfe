// Opens the connections to one server, for all lanes of a client, in threads of its own.
//
//   lane --ask()--> waiting --(one thread while nothing is known of the server)--> arrived()
//
// While dials fail one is made at a time, with a pause before it: drawn between 0 and 0.2 s, then
// 0.4, 0.8, 1.6 and at most 2 s ("full jitter"), so that clients of one server do not come back
// together, and about one attempt a second is made to a server that is away. However short the drawn
// pauses are, at most 2n + 3 dials fail in any n seconds; dials side by side that fail together are
// one, and a connection that ends after its greeting is none. What a dial met is told to all who wait
// for one. Once one has succeeded those who wait dial side by side.
//
// A dial resolves the server's name anew and tries each of its addresses, each with its share of
// connect_timeout. It belongs to no call: a caller that leaves at its deadline does not end it.
//
// Thread-safe. Per process: a forked child has one of its own.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <hotcount/clock.hpp>
#include <hotcount/detail/redis/options.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "connection.hpp"
#include "tls.hpp"

namespace hotcount::redis {

/// The scripts that a client's concepts use. Thread-safe, without a lock that a fork could catch.
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

/// How long to pause after so many failures in a row: drawn, "full jitter".
Duration draw_pause(unsigned failures);

/// Bounds how often what came to nothing is tried again, however short the drawn pauses are: two
/// tries a second, with three at once after a quiet time.
class TryBudget {
  public:
    /// A try that began then came to nothing: no other shall begin before the time returned.
    SteadyTime spend(SteadyTime began) {
        paid_until_ = std::max(paid_until_, began) + kCost;
        return paid_until_ - kCredit;
    }

  private:
    static constexpr Duration kCost = std::chrono::milliseconds{500};
    static constexpr Duration kCredit = 2 * kCost;

    SteadyTime paid_until_{};
};

class Dialer : public std::enable_shared_from_this<Dialer> {
  public:
    using Arrived = std::function<void(Result<std::unique_ptr<Connection>>)>;

    Dialer(Options options, std::shared_ptr<KnownScripts> scripts);

    enum class Scripts : std::uint8_t { none, all };
    /// Asks for a connection, with the client's scripts loaded or not. `arrived` is called once, by
    /// a thread of the dialer, with the connection or with why there is none; never where this
    /// fails (closed, or no thread can be started). May be called under a lock that `arrived` takes.
    Result<void> ask(Scripts scripts, Arrived arrived);
    /// Whether calls that wait for a connection shall wait for the next dial too: nobody answered in
    /// time, or the server says that it will soon have a place. Any other failure is told to them.
    static bool worth_waiting(const Error& error);
    /// What the last dial met, until one succeeds: for those who wait while there is a pause.
    std::optional<Error> last_failure();
    /// The connection ended before the server had answered anything: as good as a dial that failed.
    void came_to_nothing();
    /// The server there is not what its name shall stand for: its other addresses come first.
    void put_last(const Address& address);
    /// Whoever waits is told closed. A dial under way ends by itself.
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
    Result<std::unique_ptr<Connection>> dial(Scripts scripts);
    Result<TlsContext> tls();
    Error closed_error() const;

    const Options options_;
    const std::shared_ptr<KnownScripts> scripts_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Asked> waiting_;
    std::size_t threads_{0};
    std::size_t dialing_{0};  // Of them.
    bool reached_{false};  // The last thing that is known of the server is that a dial succeeded.
    unsigned failures_{0};
    unsigned failures_before_{0};  // When the last dial succeeded.
    std::optional<Error> why_;     // The last dial failed.
    SteadyTime failed_at_{};
    SteadyTime next_at_{};  // No dial begins before.
    TryBudget budget_;
    std::vector<Address> last_;
    TlsContext tls_;
    bool closed_{false};
};

/// How often a connection to a server that turned out to be a replica is left for a new one: at
/// once, and then after pauses as between dials that fail, at most 2n + 3 times in any n seconds.
/// Until then it serves those who read.
class Moves {
  public:
    bool due(SteadyTime now) {
        if (now < next_at_) return false;
        if (now - last_at_ > kForgotten) moves_ = 0;
        last_at_ = now;
        next_at_ = std::max(now + draw_pause(++moves_), budget_.spend(now));
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
