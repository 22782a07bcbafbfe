// A client of a Redis or Valkey server, or of a cluster: it sends a command and returns the reply, or
// an error that says whether the command was applied.
//
// A client has one shared connection in each process. It connects at the first call and after a
// failure. Commands of all callers are sent over it together. Concurrent adds to one key become
// one INCRBY, and concurrent calls of one combinable script one EVALSHA. An event loop has a
// connection of its own (make_loop_connection). A command that may not return exactly one reply
// uses an exclusive connection, of which there are at most Options::exclusive_connections.
//
// For a cluster (redis+cluster://) there is such a connection to each primary that calls need. A call
// goes to the node that has the slot of its keys, which must all have the same slot. A command without
// keys, or one that the client does not know, is a config error there.
//
// Thread-safe. A forked child makes connections of its own.
// Failure: a command that was not sent completely fails with unavailable, and nothing was applied. A
// command that was sent and not answered fails with outcome_unknown, and is sent again only if its
// Repeat allows that. A reply that does not fit its call closes the connection.
//
// Example, the body of a function that returns Result<void>:
//
//   @code
//   HOTCOUNT_TRY_ASSIGN(const auto options, redis::parse_options("redis://localhost"));
//   HOTCOUNT_TRY_ASSIGN(const auto client, redis::Client::make(options));
//   HOTCOUNT_TRY_ASSIGN(const std::int64_t value, client->add("page:home", 2));
//   std::cout << value << '\n';  // 2
//   const std::string_view command[] = {"GET", "page:home"};
//   HOTCOUNT_TRY_ASSIGN(const redis::Reply reply, client->execute(command));
//   std::cout << std::get<std::string>(reply.value) << '\n';  // 2
//   HOTCOUNT_TRY_ASSIGN(const auto counter, Counter::make(client));
//   HOTCOUNT_TRY_ASSIGN(const std::int64_t counted, counter->add("page:home"));
//   std::cout << counted << '\n';  // 1
//   @endcode
#pragma once

#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/detail/redis/channel.hpp>
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

class Client {
  public:
    static Result<std::shared_ptr<Client>> make(Options options);
    virtual ~Client() = default;

    /// Sends one command and waits for its reply. A command that changes the connection's state or
    /// holds it (MULTI, SELECT, SUBSCRIBE, CLIENT TRACKING, blocking ones ...) is a config error. A
    /// command that may not return exactly one reply, such as a module's, uses an exclusive
    /// connection and is followed by an ECHO. If it did not return exactly one reply, the outcome is
    /// unknown and that connection is closed.
    virtual Result<Reply> execute(std::span<const std::string_view> command,
                                  Timeout timeout = {}) = 0;
    /// INCRBY; returns the value after this very add. Concurrent adds to one key may be sent as one
    /// command; each caller still gets its own value.
    virtual Result<std::int64_t> add(std::string_view key, std::int64_t n,
                                     Timeout timeout = {}) = 0;
    /// Sends several commands together, each as execute() does. Returns their results by index.
    virtual std::vector<Result<Reply>> execute_many(
        std::span<const std::vector<std::string_view>> commands, Timeout timeout = {}) = 0;
    /// Runs a script by EVALSHA. If the server does not know it (NOSCRIPT, so nothing was run), the
    /// client sends its text. `keys` names every key that the script touches.
    virtual Result<Reply> run(const Script& script, std::span<const std::string_view> keys,
                              std::span<const std::string_view> arguments,
                              Timeout timeout = {}) = 0;
    /// Succeeds if the server answers and accepts writes. ping() fails with a config error on a
    /// Sentinel or on a cluster node that lacks some slots, and with unavailable (READONLY) on a
    /// read-only replica. Over RESP2 (Options::protocol) it sends only PING and does not check the
    /// server's role.
    virtual Result<void> ping(Timeout timeout = {}) = 0;
    /// ping() without waiting.
    virtual void ping_async(Completion<void> done, const AsyncCall& call = {}) = 0;

    /// The shared connection as a channel that waits: submit() returns after it has called `done`.
    virtual Channel& waiting() = 0;
    /// The shared connection as a channel that does not wait. `done` is called by a thread in
    /// run_once(), by a thread blocked on its own command, or, after 50 ms without run_once(), by
    /// the background thread. If Options::max_queue calls wait, the next one fails with a capacity
    /// error at once.
    virtual Channel& without_waiting() = 0;
    /// Sends and receives for the calls of without_waiting(). Returns after completions were called,
    /// or at the timeout, with the number of calls that ended. Several threads may call it.
    virtual std::size_t run_once(Timeout timeout = {}) = 0;
    /// A connection for one event loop. It ends when the client is closed, if not before.
    virtual std::unique_ptr<LoopConnection> make_loop_connection(LoopHost& host) = 0;
    /// Makes every new connection load the script, so that its first call succeeds by EVALSHA.
    virtual void prepare(const Script& script) = 0;
    Deadline deadline(Timeout timeout) const {
        return Deadline::after(timeout.value_or(Duration{options().timeout}));
    }
    /// Ends the calls under way, with a closed error if nothing was applied, else outcome_unknown,
    /// and refuses later ones.
    virtual void close() = 0;

    struct Stats {
        std::uint64_t commands{0};  ///< Calls answered.
        std::uint64_t combined{0};  ///< Calls that were sent in another call's command.
        std::uint64_t sends{0};     ///< Times that bytes were handed to the kernel.
        std::uint64_t bytes_sent{0};
        std::uint64_t bytes_received{0};
        std::uint64_t connects{0};    ///< Connections made.
        std::uint64_t reconnects{0};  ///< Connections made after one was lost.
        /// From a command's encoding to its reply, in microseconds; at most 7 % above the true value.
        double latency_us_p50{0};
        double latency_us_p99{0};
        double latency_us_max{0};
    };
    virtual Stats stats() const = 0;
    virtual const Options& options() const = 0;
};

}  // namespace hotcount::redis
