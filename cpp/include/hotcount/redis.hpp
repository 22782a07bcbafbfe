// THE SEAM to Redis: send a command, get its reply or an error that says what is known.
//
// One connection per process, made on first use and again after a failure, shared by all callers:
// their commands travel together, concurrent adds to one key as one INCRBY, concurrent calls of one
// combinable script as one EVALSHA. A command that was never fully sent is unavailable (nothing
// applied); one that was sent and got no answer is outcome_unknown and is never sent again, unless
// Repeat says that it may be. A reply that cannot be that of its call ends the connection. Event loops have a connection each (make_loop_lane), check_and_set() uses
// connections of its own, at most Options::exclusive_connections.
// Thread-safe; a forked child connects anew.
#pragma once

#include <cstdint>
#include <functional>
#include <hotcount/clock.hpp>
#include <hotcount/detail/redis/channel.hpp>
#include <hotcount/detail/redis/loop_connection.hpp>
#include <hotcount/detail/redis/options.hpp>
#include <hotcount/detail/redis/reply.hpp>
#include <hotcount/detail/redis/request.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount::redis {

/// An optimistic transaction: WATCH keys, looks, MULTI, writes, EXEC.
struct CheckAndSet {
    /// What must not change between the looks and the writes, by anybody or by expiry.
    std::vector<std::string_view> keys;
    std::vector<std::vector<std::string_view>> looks;
    /// Whether the writes are to be done, by the replies of the looks. Not asked where one of them
    /// is an error: that ends the transaction.
    std::function<bool(std::span<const Reply>)> go;
    std::vector<std::vector<std::string_view>> writes;
};

class Client {
  public:
    static Result<std::shared_ptr<Client>> make(Options options);
    virtual ~Client() = default;

    /// Sends one command and waits for its reply. Commands that change the connection's state or
    /// hold it (MULTI, SELECT, SUBSCRIBE, CLIENT TRACKING, blocking ones ...) are refused with a
    /// config error. One that is not known to answer exactly once, such as a module's, goes over
    /// one of the exclusive_connections, with an ECHO behind it: two replies instead of one, and
    /// where it did not answer exactly once the outcome is unknown and that connection is closed.
    virtual Result<Reply> execute(std::span<const std::string_view> command,
                                  Timeout timeout = {}) = 0;
    /// INCRBY, the value after this very add. Concurrent adds to one key may travel as one
    /// command; each caller still gets its own value.
    virtual Result<std::int64_t> add(std::string_view key, std::int64_t n,
                                     Timeout timeout = {}) = 0;
    /// Several commands in one go, results by index; each as execute().
    virtual std::vector<Result<Reply>> execute_many(
        std::span<const std::vector<std::string_view>> commands, Timeout timeout = {}) = 0;
    /// EVALSHA; where the server does not know the script (NOSCRIPT, so nothing was run) it is
    /// sent with its text. Every key the script touches is in `keys`.
    virtual Result<Reply> run(const Script& script, std::span<const std::string_view> keys,
                              std::span<const std::string_view> arguments,
                              Timeout timeout = {}) = 0;
    /// Runs the transaction, from the start again while a watched key changes in between, until
    /// the deadline. The writes' replies, an error of one of them in its place; none where `go`
    /// said no. Two round trips an attempt, on a connection of its own. What breaks before EXEC is
    /// all sent has applied nothing; after it the outcome is unknown. Needs Redis 6.2.5: older
    /// servers run EXEC although a watched key has expired.
    virtual Result<std::optional<ReplyArray>> check_and_set(const CheckAndSet& steps,
                                                            Timeout timeout = {}) = 0;
    virtual Result<void> ping(Timeout timeout = {}) = 0;

    /// The shared connection as a channel that waits: `done` is called before submit() returns, by
    /// the calling thread.
    virtual Channel& waiting() = 0;
    /// The shared connection as one that does not wait. `done` is called by whoever calls
    /// run_once(), by a thread that waits for a call of its own and does the work for all, or by a
    /// thread of the library that begins where nobody has called run_once() for 50 ms.
    /// With Options::max_queue calls waiting a call ends with a capacity error at once.
    virtual Channel& without_waiting() = 0;
    /// Sends and receives for those who do not wait: returns once completions were called, or at
    /// the timeout. How many calls have ended. Several threads may call it.
    virtual std::size_t run_once(Timeout timeout = {}) = 0;
    /// A connection for one event loop. It ends with the client or before it.
    virtual std::unique_ptr<LoopLane> make_loop_lane(LoopHost& host) = 0;
    /// Makes every new connection load the script, so that its first call finds it there.
    virtual void prepare(const Script& script) = 0;
    Deadline deadline(Timeout timeout) const {
        return Deadline::after(timeout.value_or(Duration{options().timeout}));
    }
    virtual void close() = 0;

    struct Stats {
        std::uint64_t commands{0};  ///< Calls answered.
        std::uint64_t combined{0};  ///< Calls that travelled in another call's command.
        std::uint64_t sends{0};     ///< Times that bytes were handed to the kernel.
        std::uint64_t bytes_sent{0};
        std::uint64_t bytes_received{0};
        std::uint64_t connects{0};    ///< Connections made.
        std::uint64_t reconnects{0};  ///< Those made after one was lost.
        /// From a command's encoding to its reply, in microseconds; within 7 % above the truth.
        double latency_us_p50{0};
        double latency_us_p99{0};
        double latency_us_max{0};
    };
    virtual Stats stats() const = 0;
    virtual const Options& options() const = 0;
};

}  // namespace hotcount::redis
