#include <array>
#include <charconv>
#include <hotcount/base/codec.hpp>

#include "backend.hpp"
#include "hotcount_embedded/redis/scripts.hpp"

namespace hotcount {
namespace {

// A counter's value arrives as an integer, or as digits from GET and scripts; absent is 0.
Result<std::int64_t> to_integer(const redis::Reply& reply, const std::string& key) {
    if (const auto* number = std::get_if<std::int64_t>(&reply.value)) return *number;
    if (std::holds_alternative<std::monostate>(reply.value)) return std::int64_t{0};
    if (const auto* text = std::get_if<std::string>(&reply.value)) {
        std::int64_t number = 0;
        const char* const end = text->data() + text->size();
        const auto [stop, error] = std::from_chars(text->data(), end, number);
        // As INCRBY reads it: neither "007" nor "-0" is one.
        if (error == std::errc{} && stop == end && std::to_string(number) == *text) return number;
    }
    return make_error(ErrorCode::wrong_type, "the counter " + printable(key) +
                                                 " holds something that is no 64-bit integer");
}

std::string milliseconds(Duration duration) {
    return std::to_string(std::chrono::ceil<std::chrono::milliseconds>(duration).count());
}

class RedisBackend final : public CounterBackend {
  public:
    RedisBackend(std::shared_ptr<redis::Client> client, CounterOptions counter_options)
        : CounterBackend(std::move(counter_options)), client_(std::move(client)) {}

    std::string_view store_prefix() const override { return client_->options().prefix; }

    Result<std::int64_t> add(const std::string& key, std::int64_t n, Timeout timeout) override {
        if (!options().ttl) return incr(key, n, timeout);
        static const redis::Script kScript{redis::scripts::kAddWithTtlLua};
        const std::string amount = std::to_string(n);
        const std::string life = milliseconds(*options().ttl);
        HOTCOUNT_TRY_ASSIGN(const redis::Reply reply, run(kScript, key, {amount, life}, timeout));
        return to_integer(reply, key);
    }

    Result<std::int64_t> add_once(const std::string&, std::int64_t, std::string_view,
                                  Timeout) override {
        return make_error(ErrorCode::config, "op_id is not supported over Redis by this version");
    }

    Result<TryAdd> try_add(const std::string& key, std::int64_t n, Bounds bounds,
                           Timeout timeout) override {
        const std::string amount = std::to_string(n);
        const std::string least = bounds.min ? std::to_string(*bounds.min) : "";
        const std::string most = bounds.max ? std::to_string(*bounds.max) : "";
        const std::string life = options().ttl ? milliseconds(*options().ttl) : "";
        static const redis::Script kScript{redis::scripts::kTryAddLua};
        HOTCOUNT_TRY_ASSIGN(const redis::Reply reply,
                            run(kScript, key, {amount, least, most, life}, timeout));
        const auto* parts = std::get_if<redis::ReplyArray>(&reply.value);
        if (parts == nullptr || parts->size() != 2) return strange_reply("try_add");
        HOTCOUNT_TRY_ASSIGN(const std::int64_t applied, to_integer((*parts)[0], key));
        HOTCOUNT_TRY_ASSIGN(const std::int64_t value, to_integer((*parts)[1], key));
        return TryAdd{applied == 1, value};
    }

    std::vector<Result<std::int64_t>> add_many(std::span<const std::string> keys,
                                               std::span<const std::int64_t> amounts,
                                               Timeout timeout) override {
        if (options().ttl) {
            const Deadline deadline = Deadline::after(limit(timeout));
            std::vector<Result<std::int64_t>> values;
            values.reserve(keys.size());
            for (std::size_t i = 0; i < keys.size(); ++i) {
                values.push_back(add(keys[i], amounts[i], deadline.remaining()));
            }
            return values;
        }
        auto values = client_->add_many(keys, amounts, timeout);
        for (std::size_t i = 0; i < keys.size(); ++i) {
            if (!values[i]) values[i] = about(keys[i], values[i].error());
        }
        return values;
    }

    std::vector<Result<std::int64_t>> get_many(std::span<const std::string> keys,
                                               Timeout timeout) override {
        std::vector<std::vector<std::string_view>> commands;
        commands.reserve(keys.size());
        for (const std::string& key : keys) commands.push_back({"GET", key});
        const auto replies = client_->execute_many(commands, timeout);
        std::vector<Result<std::int64_t>> values;
        values.reserve(keys.size());
        for (std::size_t i = 0; i < keys.size(); ++i) {
            values.push_back(replies[i] ? to_integer(*replies[i], keys[i])
                                        : Result<std::int64_t>{about(keys[i], replies[i].error())});
        }
        return values;
    }

    Result<std::int64_t> get(const std::string& key, Timeout timeout) override {
        return integer({"GET", key}, key, timeout);
    }

    Result<std::int64_t> reset(const std::string& key, Timeout timeout) override {
        return integer({"GETDEL", key}, key, timeout);
    }

    Result<std::optional<Duration>> ttl(const std::string& key, Timeout timeout) override {
        HOTCOUNT_TRY_ASSIGN(const std::int64_t left, integer({"PTTL", key}, key, timeout));
        if (left < 0) return std::optional<Duration>{};
        return std::optional<Duration>{std::chrono::milliseconds{left}};
    }

    Result<TermAnswer> in_term(const std::string& key, std::optional<std::int64_t> n,
                               const Term& term, Timeout timeout) override {
        using Kind = TermAnswer::Kind;
        static const redis::Script kScript{redis::scripts::kAddInPeriodLua};
        const auto unix_time = [](Instant at) {
            return std::to_string(at.time_since_epoch().count());
        };
        const std::string amount = n ? std::to_string(*n) : "";
        const std::string begins = unix_time(term.begins);
        const std::string ends = unix_time(term.ends);
        const std::string gone = unix_time(term.gone);
        const std::string most_ahead = std::to_string(kMostAhead.count());
        const Deadline deadline = Deadline::after(limit(timeout));
        const auto ask = [&] {
            return run(kScript, key,
                       {amount, term.present ? "1" : "0", begins, ends, gone, most_ahead},
                       deadline.remaining());
        };
        auto asked = ask();
        const auto unknown = [&] {
            return !asked && asked.error().code == ErrorCode::outcome_unknown;
        };
        // A script that only reads may be sent again, as GET is, and leaves nothing unknown.
        if (!n && unknown() && !deadline.passed()) asked = ask();
        if (!n && unknown()) {
            return make_error(deadline.passed() ? ErrorCode::deadline : ErrorCode::unavailable,
                              asked.error().message);
        }
        HOTCOUNT_TRY_ASSIGN(const redis::Reply reply, std::move(asked));
        const auto* parts = std::get_if<redis::ReplyArray>(&reply.value);
        if (parts == nullptr || parts->size() != 3) return strange_reply("a period's script");
        HOTCOUNT_TRY_ASSIGN(const std::int64_t kind, to_integer((*parts)[0], key));
        HOTCOUNT_TRY_ASSIGN(const std::int64_t value, to_integer((*parts)[1], key));
        HOTCOUNT_TRY_ASSIGN(const std::int64_t time, to_integer((*parts)[2], key));
        if (kind < 0 || kind > static_cast<std::int64_t>(Kind::ahead)) {
            return strange_reply("a period's script");
        }
        return TermAnswer{static_cast<Kind>(kind), value, Instant{std::chrono::seconds{time}}};
    }

    Instant guess_time() const override {
        return std::chrono::floor<std::chrono::seconds>(system_clock()->wall_now());
    }

    Duration limit(Timeout timeout) const override {
        return timeout.value_or(Duration{client_->options().timeout});
    }

    Result<std::int64_t> incr(const std::string& key, std::int64_t n, Timeout timeout) override {
        auto value = client_->add(key, n, timeout);
        return value ? std::move(value) : Result<std::int64_t>{about(key, value.error())};
    }

    Result<void> set_nx(const std::string& key, Duration life, Timeout timeout) override {
        const std::string milli = milliseconds(life);
        const std::string_view command[] = {"SET", key, "0", "NX", "PX", milli};
        const auto reply = client_->execute(command, timeout);
        if (!reply) return about(key, reply.error());
        return {};
    }

    Result<void> expire(const std::string& key, Duration life, Timeout timeout) override {
        HOTCOUNT_TRY(integer({"PEXPIRE", key, milliseconds(life)}, key, timeout));
        return {};
    }

  private:
    Error strange_reply(std::string_view who) const {
        return make_error(ErrorCode::reply, client_->options().address() + ": " + std::string{who} +
                                                " got a reply of another shape");
    }

    static Error about(const std::string& key, const Error& error) {
        if (error.code == ErrorCode::overflow) return counter_overflow(key);
        return make_error(error.code, error.message + " (key " + printable(key) + ")",
                          error.server_code);
    }

    Result<redis::Reply> run(const redis::Script& script, const std::string& key,
                             std::initializer_list<std::string_view> arguments, Timeout timeout) {
        const std::string_view keys[] = {key};
        auto reply =
            client_->run(script, keys, std::span{arguments.begin(), arguments.size()}, timeout);
        if (!reply) return about(key, reply.error());
        return reply;
    }

    Result<std::int64_t> integer(std::initializer_list<std::string_view> command,
                                 const std::string& key, Timeout timeout) {
        auto reply = client_->execute(std::span{command.begin(), command.size()}, timeout);
        if (!reply) return about(key, reply.error());
        return to_integer(*reply, key);
    }

    std::shared_ptr<redis::Client> client_;
};

}  // namespace

std::unique_ptr<CounterBackend> make_redis_backend(std::shared_ptr<redis::Client> client,
                                                   CounterOptions options) {
    return std::make_unique<RedisBackend>(std::move(client), std::move(options));
}

}  // namespace hotcount
