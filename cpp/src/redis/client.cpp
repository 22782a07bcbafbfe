#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <hotcount/base/codec.hpp>
#include <hotcount/base/fork.hpp>
#include <hotcount/base/interrupt.hpp>
#include <hotcount/redis/client.hpp>
#include <string>
#include <vector>

#include "encode.hpp"
#include "exclusive.hpp"
#include "lane.hpp"
#include "tls.hpp"

namespace hotcount::redis {
namespace {

// Commands that change what the shared connection is, or hold it for as long as they like.
constexpr std::array kRefused{
    "MULTI",      "EXEC",        "DISCARD", "WATCH",   "UNWATCH",    "SUBSCRIBE", "PSUBSCRIBE",
    "SSUBSCRIBE", "UNSUBSCRIBE", "MONITOR", "SELECT",  "AUTH",       "HELLO",     "QUIT",
    "RESET",      "BLPOP",       "BRPOP",   "BLMOVE",  "BRPOPLPUSH", "BLMPOP",    "BZPOPMIN",
    "BZPOPMAX",   "BZMPOP",      "WAIT",    "WAITAOF", "SYNC",       "PSYNC",     "SHUTDOWN"};

bool equals_ignoring_case(std::string_view a, std::string_view b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
        const auto upper = [](char c) {
            return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
        };
        return upper(x) == upper(y);
    });
}

Result<void> check_command(std::span<const std::string_view> command) {
    if (command.empty()) return make_error(ErrorCode::config, "execute needs a command");
    const auto is = [&](std::string_view name) {
        return equals_ignoring_case(command.front(), name);
    };
    const bool refused =
        std::any_of(kRefused.begin(), kRefused.end(), is) ||
        (is("CLIENT") && command.size() > 1 && equals_ignoring_case(command[1], "REPLY")) ||
        ((is("XREAD") || is("XREADGROUP")) &&
         std::any_of(command.begin(), command.end(),
                     [](std::string_view word) { return equals_ignoring_case(word, "BLOCK"); }));
    if (!refused) return {};
    return make_error(ErrorCode::config, "command " + std::string{command.front()} +
                                             " is refused: it would change or hold a connection "
                                             "that others share");
}

// Where nothing can have been applied, a lost reply is no unknown outcome.
bool is_read_only(std::string_view name) {
    static constexpr std::array kReaders{
        "GET",    "MGET",   "PING",  "EXISTS", "TTL",   "PTTL",   "STRLEN",    "TYPE",
        "ZSCORE", "ZRANGE", "ZCARD", "TIME",   "INFO",  "HGET",   "HMGET",     "HGETALL",
        "SCAN",   "DBSIZE", "LLEN",  "LRANGE", "ZRANK", "OBJECT", "ZREVRANGE", "ZREVRANK"};
    return std::any_of(kReaders.begin(), kReaders.end(),
                       [&](std::string_view reader) { return equals_ignoring_case(name, reader); });
}

// The server will serve this soon: it is loading its data, or busy with somebody's script. Nothing
// was applied, so it is asked again inside the deadline.
bool passes_soon(const Error& error) {
    static constexpr std::array kSoon{"LOADING", "BUSY", "TRYAGAIN", "MASTERDOWN"};
    return std::find(kSoon.begin(), kSoon.end(), error.server_code) != kSoon.end();
}

std::string upper(std::string_view text) {
    std::string result{text};
    std::transform(result.begin(), result.end(), result.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
    return result;
}

class LaneClient final : public Client {
  public:
    explicit LaneClient(Options options)
        : options_(std::move(options)),
          lane_([this] { return std::make_unique<Lane>(options_); }),
          exclusive_([this] { return std::make_unique<Exclusive>(options_); }) {}

    Result<Reply> execute(std::span<const std::string_view> command, Timeout timeout) override {
        HOTCOUNT_TRY(check_command(command));
        return send(command, deadline(timeout));
    }

    Result<std::int64_t> add(std::string_view key, std::int64_t n, Timeout timeout) override {
        const Deadline until = deadline(timeout);
        HOTCOUNT_TRY_ASSIGN(const Reply reply, patiently(until, [&] {
                                return lane_.get().execute(
                                    std::make_shared<Operation>(std::string{key}, n), until);
                            }));
        return std::get<std::int64_t>(reply.value);
    }

    std::vector<Result<std::int64_t>> add_many(std::span<const std::string> keys,
                                               std::span<const std::int64_t> amounts,
                                               Timeout timeout) override {
        std::vector<std::shared_ptr<Operation>> operations;
        operations.reserve(keys.size());
        for (std::size_t i = 0; i < keys.size(); ++i) {
            operations.push_back(std::make_shared<Operation>(keys[i], amounts[i]));
        }
        std::vector<Result<std::int64_t>> values;
        values.reserve(keys.size());
        for (Result<Reply>& reply : lane_.get().execute_all(operations, deadline(timeout))) {
            if (reply) {
                values.emplace_back(std::get<std::int64_t>(reply->value));
            } else {
                values.emplace_back(std::move(reply).error());
            }
        }
        return values;
    }

    std::vector<Result<Reply>> execute_many(std::span<const std::vector<std::string_view>> commands,
                                            Timeout timeout) override {
        std::vector<std::shared_ptr<Operation>> operations;
        operations.reserve(commands.size());
        for (const auto& command : commands) {
            if (auto checked = check_command(command); !checked) {
                return {commands.size(), checked.error()};
            }
            std::string bytes;
            encode_command(bytes, command);
            operations.push_back(std::make_shared<Operation>(
                std::move(bytes), upper(command.front()), is_read_only(command.front())));
        }
        return lane_.get().execute_all(operations, deadline(timeout));
    }

    Result<Reply> run(const Script& script, std::span<const std::string_view> keys,
                      std::span<const std::string_view> arguments, Timeout timeout) override {
        const Deadline until = deadline(timeout);
        const std::string count = std::to_string(keys.size());
        std::vector<std::string_view> command{"EVALSHA", script.sha1(), count};
        command.insert(command.end(), keys.begin(), keys.end());
        command.insert(command.end(), arguments.begin(), arguments.end());
        auto reply = send(command, until);
        if (reply.ok() || reply.error().server_code != "NOSCRIPT") return reply;
        command[0] = "EVAL";
        command[1] = script.text();
        return send(command, until);
    }

    Result<std::optional<ReplyArray>> check_and_set(const CheckAndSet& steps,
                                                    Timeout timeout) override {
        const Deadline until = deadline(timeout);
        Duration pause = std::chrono::milliseconds{5};
        bool resent = false;
        while (true) {
            auto done = exclusive_.get().attempt(steps, until);
            if (done.ok()) {
                if (!*done) return std::optional<ReplyArray>{};
                if (auto* const replies = std::get_if<ReplyArray>(&(*done)->value)) {
                    return std::optional{std::move(*replies)};
                }
                // A nil: a watched key has changed. Somebody else got on, so this ends.
                if (until.passed()) return changed_too_often(steps);
                continue;
            }
            const Error& error = done.error();
            if (passes_soon(error) && until.remaining() > pause) {
                sleep_or_interrupt(pause);
                pause = std::min<Duration>(2 * pause, std::chrono::milliseconds{100});
                continue;
            }
            // As on the shared connection: what never left goes once more, over a new one.
            if (error.code != ErrorCode::unavailable || !error.server_code.empty() || resent) {
                return error;
            }
            resent = true;
        }
    }

    Result<void> ping(Timeout timeout) override {
        constexpr std::array<std::string_view, 1> kPing{"PING"};
        HOTCOUNT_TRY(execute(kPing, timeout));
        return {};
    }

    void close() override {
        lane_.get().close();
        exclusive_.get().close();
    }

    Stats stats() const override {
        const Lane::Stats stats = lane_.get().stats();
        return Stats{stats.commands, stats.merged, stats.sends,
                     stats.connects + exclusive_.get().connects()};
    }
    const Options& options() const override { return options_; }

  private:
    Deadline deadline(Timeout timeout) const {
        return Deadline::after(timeout.value_or(options_.timeout));
    }

    Result<Reply> send(std::span<const std::string_view> command, Deadline until) {
        std::string bytes;
        encode_command(bytes, command);
        const bool read_only = is_read_only(command.front());
        return patiently(until, [&] {
            return lane_.get().execute(
                std::make_shared<Operation>(bytes, upper(command.front()), read_only), until);
        });
    }

    template <class Call>
    static Result<Reply> patiently(Deadline until, Call&& call) {
        Duration pause = std::chrono::milliseconds{5};
        while (true) {
            Result<Reply> reply = call();
            if (reply.ok() || !passes_soon(reply.error()) || until.remaining() <= pause) {
                return reply;
            }
            sleep_or_interrupt(pause);
            pause = std::min<Duration>(2 * pause, std::chrono::milliseconds{100});
        }
    }

    Error changed_too_often(const CheckAndSet& steps) const {
        const std::string_view key = steps.keys.empty() ? "" : steps.keys.front();
        return make_error(ErrorCode::deadline, options_.address() + ": the key " + printable(key) +
                                                   " changed in every attempt until the deadline "
                                                   "passed; nothing was applied");
    }

    const Options options_;
    mutable ForkLocal<Lane> lane_;
    mutable ForkLocal<Exclusive> exclusive_;
};

}  // namespace

Script::Script(std::string_view text) : text_(text) {
    unsigned char digest[SHA_DIGEST_LENGTH];
    SHA1(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
    constexpr char kHexDigits[] = "0123456789abcdef";
    for (const unsigned char byte : digest) {
        sha1_ += kHexDigits[byte >> 4];
        sha1_ += kHexDigits[byte & 15];
    }
}

Result<std::shared_ptr<Client>> Client::make(Options options) {
    if (options.timeout <= Duration{0}) {
        return make_error(ErrorCode::config, "timeout must be more than 0 seconds");
    }
    if (options.max_queue == 0) return make_error(ErrorCode::config, "max_queue is 0; at least 1");
    if (options.exclusive_connections == 0) {
        return make_error(ErrorCode::config, "exclusive_connections is 0; at least 1");
    }
    // Loaded once here too, so that a file that is none fails where it is named.
    HOTCOUNT_TRY(make_tls_context(options));
    return std::shared_ptr<Client>{std::make_shared<LaneClient>(std::move(options))};
}

}  // namespace hotcount::redis
