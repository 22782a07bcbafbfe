#include <algorithm>
#include <array>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/op_id.hpp>
#include <mutex>

#include "backend.hpp"
#include "hotcount_embedded/counter/lua.hpp"
#include "redis/scripts.hpp"

namespace hotcount {
namespace {

// The value of a counter; a key that does not exist counts 0.
Result<std::int64_t> to_value(const redis::Reply& reply, const std::string& key) {
    if (std::holds_alternative<std::monostate>(reply.value)) return std::int64_t{0};
    if (const auto number = redis::to_integer(reply)) return *number;
    return make_error(ErrorCode::wrong_type, "the counter " + printable(key) +
                                                 " holds something that is no 64-bit integer")
        .about(&ErrorFacts::key, key);
}

Error result_of_removed_format(const std::string& op_id) {
    return make_error(ErrorCode::config, "op_id " + printable(op_id) +
                                             " has a result of a removed format, an empty text; " +
                                             std::string{kLastReader} + ". Nothing was added")
        .about(&ErrorFacts::option, "op_id");
}

const redis::Script& add_with_ttl_script() {
    static const redis::Script kScript{lua::counter::kAddWithTtlLua,
                                       redis::Script::Kind::combinable, redis::is_number};
    return kScript;
}
const redis::Script& add_once_script() {
    static const redis::Script kScript{lua::counter::kAddOnceLua, redis::Script::Kind::combinable,
                                       redis::is_number};
    return kScript;
}
const redis::Script& try_add_script() {
    static const redis::Script kScript{lua::counter::kTryAddLua, redis::Script::Kind::combinable,
                                       redis::is_tuple<2, redis::is_number>};
    return kScript;
}

const redis::Script& add_in_period_script() {
    static const redis::Script kScript{lua::counter::kAddInPeriodLua,
                                       redis::Script::Kind::combinable,
                                       redis::is_tuple<3, redis::is_number>};
    return kScript;
}

const redis::Script& reset_script() {
    static const redis::Script kScript{lua::counter::kResetLua, redis::Script::Kind::single,
                                       redis::is_nil_or<redis::is_number>};
    return kScript;
}

// Commands of a large call that travel at a time.
constexpr std::size_t kKeysPerRead = 1000;

// Results that come one by one, in any thread, and are handed on when the last is there.
template <class T>
class Gather {
  public:
    Gather(std::size_t size, Completion<BatchResult<T>> done)
        : left_(size), done_(std::move(done)) {
        batch_.values.resize(size);
    }

    void put(std::size_t index, Result<T> value) {
        {
            const std::lock_guard lock(mutex_);
            if (value) {
                batch_.values[index] = *value;
            } else {
                batch_.errors.emplace(index, std::move(value).error());
            }
            if (--left_ > 0) return;
        }
        done_(std::move(batch_));
    }

  private:
    std::mutex mutex_;
    std::size_t left_;
    BatchResult<T> batch_;
    Completion<BatchResult<T>> done_;
};

class RedisBackend final : public CounterBackend {
  public:
    RedisBackend(std::shared_ptr<redis::Client> client, CounterOptions counter_options)
        : CounterBackend(std::move(counter_options)), client_(std::move(client)) {
        if (options().ttl) {
            ttl_ = redis::milliseconds(*options().ttl);
            client_->prepare(add_with_ttl_script());
        }
        keep_ = redis::milliseconds(options().op_keep);
    }

    std::string_view store_prefix() const override { return client_->options().prefix; }

    Route route(const AsyncCall& call) override {
        return {call.channel != nullptr ? call.channel : &client_->without_waiting(),
                client_->deadline(call.timeout), call.cancelled};
    }
    Route waiting(Timeout timeout) override {
        return {&client_->waiting(), client_->deadline(timeout), nullptr};
    }

    void add(std::string key, std::int64_t n, const Route& route,
             Completion<std::int64_t> done) override {
        if (!options().ttl) {
            Request request = Request::add(key, n);
            return submit(std::move(request), route, integer_of(std::move(key), std::move(done)));
        }
        const std::string_view keys[] = {key};
        const std::string_view shared[] = {ttl_};
        const std::string amount = std::to_string(n);
        const std::string_view arguments[] = {amount};
        submit(Request::run(add_with_ttl_script(), keys, shared, arguments), route,
               integer_of(key, std::move(done)));
    }

    void add_once(const std::string& key, std::int64_t n, std::string_view op_id,
                  const Route& route, Completion<std::int64_t> done) override {
        const auto first = key_beside(key, "ops.0");
        if (!first) return done(first.error());
        const auto second = key_beside(key, "ops.1");
        const std::string_view keys[] = {key, *first, *second};
        const std::string_view shared[] = {keep_, ttl_};
        const std::string amount = std::to_string(n);
        const auto since_epoch = made_at(op_id);
        const std::string made = since_epoch ? std::to_string(since_epoch->count()) : "";
        const std::string_view arguments[] = {amount, op_id, made};
        submit(
            Request::run(add_once_script(), keys, shared, arguments, redis::Repeat::counted_once),
            route, [key, op_id = std::string{op_id}, done = std::move(done)](Result<Reply> reply) {
                if (!reply) return done(about(key, reply.error()));
                const auto* const text = std::get_if<std::string>(&reply->value);
                if (text != nullptr && *text == "old") return done(op_id_too_old(op_id));
                if (text != nullptr && *text == "ahead") return done(op_id_ahead(op_id));
                if (text != nullptr && text->empty()) return done(result_of_removed_format(op_id));
                done(to_value(*reply, key));
            });
    }

    void try_add(const std::string& key, std::int64_t n, Bounds bounds, const Route& route,
                 Completion<TryAdd> done) override {
        const std::string amount = std::to_string(n);
        const std::string least = bounds.min ? std::to_string(*bounds.min) : "";
        const std::string most = bounds.max ? std::to_string(*bounds.max) : "";
        const std::string_view keys[] = {key};
        const std::string_view shared[] = {ttl_};
        const std::string_view arguments[] = {amount, least, most};
        submit(Request::run(try_add_script(), keys, shared, arguments), route,
               [server = server(), key, done = std::move(done)](Result<Reply> reply) {
                   done(to_try_add(server, key, std::move(reply)));
               });
    }

    void add_many(std::vector<std::string> keys, std::vector<std::int64_t> amounts,
                  const Route& route, Completion<BatchResult<std::int64_t>> done) override {
        if (options().ttl) {
            if (keys.empty()) return done(BatchResult<std::int64_t>{});
            const auto names = std::make_shared<const std::vector<std::string>>(keys);
            redis::ScriptBatch batch{
                add_with_ttl_script(), keys.size(), std::move(keys), {ttl_}, {}};
            batch.arguments.reserve(amounts.size());
            for (const std::int64_t n : amounts) batch.arguments.push_back(std::to_string(n));
            const auto gather =
                std::make_shared<Gather<std::int64_t>>(names->size(), std::move(done));
            return redis::submit_script_batch(
                *route.channel, server(), std::move(batch), route.deadline,
                [names, gather](std::size_t i, Result<Reply> reply) {
                    gather->put(i, reply ? to_value(*reply, (*names)[i])
                                         : about_element((*names)[i], reply.error()));
                },
                [] {}, route.cancelled);
        }
        submit_incr_batch(*route.channel,
                          {server(), about_element, std::move(keys), std::move(amounts)},
                          route.deadline, std::move(done), route.cancelled);
    }

    void get(const std::string& key, const Route& route, Completion<std::int64_t> done) override {
        integer({"GET", key}, key, route, done);
    }

    void get_many(std::vector<std::string> keys, const Route& route,
                  Completion<BatchResult<std::int64_t>> done) override {
        if (keys.empty()) return done(BatchResult<std::int64_t>{});
        // The keys, and the gathered replies of the portions.
        const auto names = std::make_shared<const std::vector<std::string>>(std::move(keys));
        const auto gather = std::make_shared<Gather<std::int64_t>>(names->size(), std::move(done));
        std::vector<std::vector<std::string_view>> commands;
        for (std::size_t begin = 0; begin < names->size(); begin += kKeysPerRead) {
            const std::size_t size = std::min(kKeysPerRead, names->size() - begin);
            commands.clear();
            for (std::size_t i = 0; i < size; ++i) commands.push_back({"GET", (*names)[begin + i]});
            submit(Request::commands(commands), route,
                   [server = server(), names, gather, begin, size](Result<Reply> reply) {
                       for (std::size_t i = 0; i < size; ++i) {
                           gather->put(begin + i, element(server, reply, i, (*names)[begin + i]));
                       }
                   });
        }
    }

    void reset(const std::string& key, const Route& route, Completion<std::int64_t> done) override {
        const std::string_view keys[] = {key};
        submit(Request::run(reset_script(), keys, {}, {}), route, integer_of(key, std::move(done)));
    }

    void ttl(const std::string& key, const Route& route,
             Completion<std::optional<Duration>> done) override {
        integer({"PTTL", key}, key, route, [done = std::move(done)](Result<std::int64_t> left) {
            if (!left) return done(std::move(left).error());
            if (*left < 0) return done(std::optional<Duration>{});
            done(std::optional<Duration>{std::chrono::milliseconds{*left}});
        });
    }

    void in_period(const std::string& key, std::optional<std::int64_t> n,
                   const PeriodWindow& window, const Route& route,
                   Completion<PeriodAnswer> done) override {
        const std::string amount = n ? std::to_string(*n) : "";
        const std::vector<std::string> words = shared_words(window);
        const std::vector<std::string_view> shared(words.begin(), words.end());
        const std::string_view keys[] = {key};
        const std::string_view arguments[] = {amount};
        submit(Request::run(add_in_period_script(), keys, shared, arguments, repeat_of(!n)), route,
               [server = server(), key, done = std::move(done)](Result<Reply> reply) {
                   done(to_period_answer(server, key, std::move(reply)));
               });
    }

    void in_period_many(std::vector<std::string> keys, std::vector<std::int64_t> amounts,
                        const PeriodWindow& window, const Route& route,
                        Completion<BatchResult<PeriodAnswer>> done) override {
        if (keys.empty()) return done(BatchResult<PeriodAnswer>{});
        const auto names = std::make_shared<const std::vector<std::string>>(keys);
        redis::ScriptBatch batch{add_in_period_script(), keys.size(), std::move(keys),
                                 shared_words(window),   {},          repeat_of(amounts.empty())};
        batch.arguments.resize(names->size());
        std::transform(amounts.begin(), amounts.end(), batch.arguments.begin(),
                       [](std::int64_t n) { return std::to_string(n); });
        const auto gather = std::make_shared<Gather<PeriodAnswer>>(names->size(), std::move(done));
        redis::submit_script_batch(
            *route.channel, server(), std::move(batch), route.deadline,
            [server = server(), names, gather](std::size_t i, Result<Reply> reply) {
                gather->put(i, reply ? to_period_answer(server, (*names)[i], std::move(reply))
                                     : about_element((*names)[i], reply.error()));
            },
            [] {}, route.cancelled);
    }

    Instant guess_time() const override {
        return std::chrono::floor<std::chrono::seconds>(system_clock()->wall_now());
    }

    Duration limit(Timeout timeout) const override {
        return timeout.value_or(Duration{client_->options().timeout});
    }

  private:
    using Reply = redis::Reply;
    using Request = redis::Request;

    // A completion must not point to this object: a counter may be destroyed before its calls end.
    std::string server() const { return client_->options().address(); }

    // The arguments that the calls of one period have in common.
    static std::vector<std::string> shared_words(const PeriodWindow& window) {
        const auto unix_time = [](Instant at) {
            return std::to_string(at.time_since_epoch().count());
        };
        return {window.present ? "1" : "0", unix_time(window.begins), unix_time(window.ends),
                unix_time(window.gone), std::to_string(kMostAhead.count())};
    }
    // A call that only reads may be sent again, as GET is, and leaves nothing unknown.
    static redis::Repeat repeat_of(bool only_reads) {
        return only_reads ? redis::Repeat::reads : redis::Repeat::never;
    }

    static Error about(const std::string& key, const Error& error) {
        if (error.code == ErrorCode::overflow) return counter_overflow(key);
        return redis::of_key(key, error);
    }
    static Error about_element(const std::string& key, const Error& error) {
        return redis::concerns_all_keys(error) ? error : about(key, error);
    }

    static Result<PeriodAnswer> to_period_answer(const std::string& server, const std::string& key,
                                                 Result<Reply> reply) {
        using Kind = PeriodAnswer::Kind;
        if (!reply) return about(key, reply.error());
        const auto* parts = std::get_if<redis::ReplyArray>(&reply->value);
        if (parts == nullptr || parts->size() != 3) {
            return redis::strange_reply(server, "a period's script");
        }
        HOTCOUNT_TRY_ASSIGN(const std::int64_t kind, to_value((*parts)[0], key));
        HOTCOUNT_TRY_ASSIGN(const std::int64_t value, to_value((*parts)[1], key));
        HOTCOUNT_TRY_ASSIGN(const std::int64_t time, to_value((*parts)[2], key));
        if (kind < 0 || kind > static_cast<std::int64_t>(Kind::ahead)) {
            return redis::strange_reply(server, "a period's script");
        }
        return PeriodAnswer{static_cast<Kind>(kind), value, Instant{std::chrono::seconds{time}}};
    }

    static Result<TryAdd> to_try_add(const std::string& server, const std::string& key,
                                     Result<Reply> reply) {
        if (!reply) return about(key, reply.error());
        const auto* parts = std::get_if<redis::ReplyArray>(&reply->value);
        if (parts == nullptr || parts->size() != 2) return redis::strange_reply(server, "try_add");
        HOTCOUNT_TRY_ASSIGN(const std::int64_t applied, to_value((*parts)[0], key));
        HOTCOUNT_TRY_ASSIGN(const std::int64_t value, to_value((*parts)[1], key));
        return TryAdd{applied == 1, value};
    }

    // One reply of a batch as a counter's value.
    static Result<std::int64_t> element(const std::string& server, const Result<Reply>& batch,
                                        std::size_t index, const std::string& key) {
        if (!batch) return about_element(key, batch.error());
        const Reply& reply = std::get<redis::ReplyArray>(batch->value)[index];
        const auto* error = std::get_if<redis::ReplyError>(&reply.value);
        if (error == nullptr) return to_value(reply, key);
        return about_element(key, redis::to_error(*error, server + ": GET"));
    }

    static void submit(Request request, const Route& route, Completion<Reply> done) {
        route.channel->submit(std::move(request), route.deadline, std::move(done), route.cancelled);
    }

    static Completion<Reply> integer_of(std::string key, Completion<std::int64_t> done) {
        return [key = std::move(key), done = std::move(done)](Result<Reply> reply) {
            done(value_of(key, reply));
        };
    }

    static Result<std::int64_t> value_of(const std::string& key, const Result<Reply>& reply) {
        return reply ? to_value(*reply, key) : Result<std::int64_t>{about(key, reply.error())};
    }

    static void integer(std::initializer_list<std::string_view> command, const std::string& key,
                        const Route& route, Completion<std::int64_t> done) {
        submit(Request::command(std::span{command.begin(), command.size()}), route,
               integer_of(key, std::move(done)));
    }

    std::shared_ptr<redis::Client> client_;
    std::string ttl_;  // In milliseconds; empty if there is none.
    std::string keep_;
};

}  // namespace

std::unique_ptr<CounterBackend> make_redis_backend(std::shared_ptr<redis::Client> client,
                                                   CounterOptions options) {
    return std::make_unique<RedisBackend>(std::move(client), std::move(options));
}

}  // namespace hotcount
