// A client of a Redis or Valkey server, or of a cluster of them: it sends a command and returns the reply, or an error that
// says what is known.
//
// A process has one connection. The client makes it when it is first needed, makes it anew after a
// failure, and shares it among all callers: their commands travel together. Concurrent adds to one
// key become one INCRBY, and concurrent calls of one combinable script one EVALSHA. An event loop has
// a connection of its own (make_loop_connection). Commands that are not known to answer exactly once
// use others, at most Options::exclusive_connections.
//
// Of a cluster (redis+cluster://) there is such a connection to each primary that calls need, and each
// call goes to the node that has its keys' slot, which is one slot for all of them. Commands that name no
// key, and those that nobody knows, are config errors there.
//
// Thread-safe. A forked child makes connections of its own.
// Failure: when a command never left as a whole its error is unavailable, and nothing was applied. When
// it was sent and not answered its error is outcome_unknown, and it is never sent again, unless its
// Repeat allows that. A reply that cannot be the reply of its call ends the connection.
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
    /// command that is not known to answer exactly once, such as a module's, goes over one of the
    /// exclusive_connections with an ECHO behind it. If it did not answer exactly once, the outcome
    /// is unknown and that connection is closed.
    virtual Result<Reply> execute(std::span<const std::string_view> command,
                                  Timeout timeout = {}) = 0;
    /// INCRBY, the value after this very add. Concurrent adds to one key may travel as one
    /// command; each caller still gets its own value.
    virtual Result<std::int64_t> add(std::string_view key, std::int64_t n,
                                     Timeout timeout = {}) = 0;
    /// Several commands in one go, results by index; each as execute().
    virtual std::vector<Result<Reply>> execute_many(
        std::span<const std::vector<std::string_view>> commands, Timeout timeout = {}) = 0;
    /// Runs a script by EVALSHA. When the server does not know it (NOSCRIPT, so nothing was run), it
    /// is sent with its text. `keys` names every key that the script touches.
    virtual Result<Reply> run(const Script& script, std::span<const std::string_view> keys,
                              std::span<const std::string_view> arguments,
                              Timeout timeout = {}) = 0;
    /// Whether the server answers, and takes the calls of concepts: a Sentinel and a node of a cluster
    /// without all slots are config errors, a read-only replica is unavailable (READONLY). Over RESP2
    /// only PING is sent (Options::protocol): then nobody looks at the server's role.
    virtual Result<void> ping(Timeout timeout = {}) = 0;
    /// The same without waiting.
    virtual void ping_async(Completion<void> done, const AsyncCall& call = {}) = 0;

    /// The shared connection as a channel that waits: submit() calls `done` before it returns.
    virtual Channel& waiting() = 0;
    /// The shared connection as a channel that does not wait. `done` is called by whoever calls
    /// run_once(), by a thread that waits for a call of its own and works for all, or by the client's
    /// background thread, which works when nobody has called run_once() for 50 ms. When
    /// Options::max_queue calls wait, one more ends with a capacity error at once.
    virtual Channel& without_waiting() = 0;
    /// Sends and receives for the calls that nobody waits for. Returns how many of them ended, when
    /// their completions were called or at the timeout. Several threads may call it.
    virtual std::size_t run_once(Timeout timeout = {}) = 0;
    /// A connection for one event loop. It ends with the client or before it.
    virtual std::unique_ptr<LoopConnection> make_loop_connection(LoopHost& host) = 0;
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
        /// From a command's encoding to its reply, in microseconds; at most 7 % above the truth.
        double latency_us_p50{0};
        double latency_us_p99{0};
        double latency_us_max{0};
    };
    virtual Stats stats() const = 0;
    virtual const Options& options() const = 0;
};

/// A config error if the client is one of a cluster, on which `what` is not built yet.
Result<void> check_one_server(const Client& client, std::string_view what);

}  // namespace hotcount::redis
