// THE SEAM to Redis: send a command, get its reply or an error that says what is known.
//
// One connection per process, made on first use and again after a failure, shared by all callers:
// their commands travel together, and concurrent adds to one key as one INCRBY. A command that was
// never fully sent is unavailable (nothing applied); one that was sent and got no answer is
// outcome_unknown and is never sent again. check_and_set() alone uses connections of its own, at most
// Options::exclusive_connections. Thread-safe; a forked child connects anew.
#pragma once

#include <cstdint>
#include <functional>
#include <hotcount/base/clock.hpp>
#include <hotcount/base/result.hpp>
#include <hotcount/redis/options.hpp>
#include <hotcount/redis/reply.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount::redis {

/// A Lua script of ours, and the name that servers know it by.
class Script {
  public:
    explicit Script(std::string_view text);
    std::string_view text() const { return text_; }
    const std::string& sha1() const { return sha1_; }

  private:
    std::string_view text_;  ///< Embedded in the program: lives as long as it.
    std::string sha1_;       ///< 40 hex digits.
};

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

    /// Sends one command and waits for its reply. Commands that change the connection's state
    /// (MULTI, SELECT, SUBSCRIBE, AUTH, blocking ones ...) are refused with a config error.
    virtual Result<Reply> execute(std::span<const std::string_view> command,
                                  Timeout timeout = {}) = 0;
    /// INCRBY, the value after this very add. Concurrent adds to one key may travel as one
    /// command; each caller still gets its own value.
    virtual Result<std::int64_t> add(std::string_view key, std::int64_t n,
                                     Timeout timeout = {}) = 0;
    /// The same for many keys, which may repeat, in one go; results by index, in order per key.
    virtual std::vector<Result<std::int64_t>> add_many(std::span<const std::string> keys,
                                                       std::span<const std::int64_t> amounts,
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
    virtual void close() = 0;

    struct Stats {
        std::uint64_t commands;  ///< Calls answered.
        std::uint64_t merged;    ///< Calls that travelled in another call's command.
        std::uint64_t sends;     ///< Times that bytes were handed to the kernel.
        std::uint64_t connects;  ///< Connections made.
    };
    virtual Stats stats() const = 0;
    virtual const Options& options() const = 0;
};

}  // namespace hotcount::redis
