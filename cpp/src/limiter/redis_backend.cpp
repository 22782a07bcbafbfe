#include <algorithm>
#include <array>
#include <hotcount/detail/base/codec.hpp>
#include <mutex>

#include "backend.hpp"
#include "hotcount_embedded/limiter/lua.hpp"
#include "hotcount_embedded/unsafe/lua.hpp"
#include "redis/scripts.hpp"
#include "unsafe/limiter_ways.hpp"

namespace hotcount {
namespace {

Error about(const std::string& key, const Error& error) {
    if (error.code == ErrorCode::wrong_type) return no_limit_state(key);
    return make_error(error.code, error.message + " (key " + printable(key) + ")",
                      error.server_code)
        .about(&ErrorFacts::key, key);
}

constexpr redis::Script::Fits is_verdict = redis::is_tuple<4, redis::is_integer>;

class RedisBackend : public LimiterBackend {
  public:
    RedisBackend(std::shared_ptr<redis::Client> client, const Plan& plan)
        : client_(std::move(client)), plan_(plan) {}

    std::string_view store_prefix() const override { return client_->options().prefix; }

    // What waits is what does not wait, over the channel of those who wait: it has ended when it
    // returns.
    Result<Verdict> decide(const std::string& key, std::int64_t cost, bool take,
                           std::string_view who, Timeout timeout) override {
        std::optional<Result<Verdict>> verdict;
        decide_async(key, cost, take, who, waiting(timeout),
                     [&](Result<Verdict> found) { verdict.emplace(std::move(found)); });
        return std::move(*verdict);
    }

    Result<void> reset(const std::string& key, Timeout timeout) override {
        Result<void> outcome;
        reset_async(key, waiting(timeout), [&](Result<void> done) { outcome = std::move(done); });
        return outcome;
    }
    void reset_async(const std::string& key, const AsyncCall& call,
                     Completion<void> done) override {
        const std::string_view command[] = {"DEL", key};
        submit(redis::Request::command(command), call,
               [key, done = std::move(done)](const Result<redis::Reply>& reply) {
                   done(reply ? Result<void>{} : about(key, reply.error()));
               });
    }

    Result<std::vector<std::string>> entries(const std::string& key, Timeout timeout) override {
        Result<std::vector<std::string>> outcome{std::vector<std::string>{}};
        entries_async(key, waiting(timeout),
                      [&](Result<std::vector<std::string>> found) { outcome = std::move(found); });
        return outcome;
    }
    void entries_async(const std::string&, const AsyncCall&,
                       Completion<std::vector<std::string>> done) override {
        done(std::vector<std::string>{});
    }

  protected:
    // What outlives a call must not point back here: a limiter may go before its calls end.
    std::string server() const { return client_->options().address(); }

    static Error strange_reply(const std::string& server) {
        return make_error(ErrorCode::reply,
                          server + ": a limiter's script got a reply of another shape");
    }

    // {allowed, remaining, retry_after or -1, reset_after}.
    static Result<Verdict> to_verdict(const std::string& server, const Result<redis::Reply>& reply,
                                      const std::string& key) {
        if (!reply) return about(key, reply.error());
        const auto* const parts = std::get_if<redis::ReplyArray>(&reply->value);
        if (parts == nullptr || parts->size() != 4) return strange_reply(server);
        std::array<std::int64_t, 4> numbers{};
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            const auto number = redis::to_integer((*parts)[i]);
            if (!number) return strange_reply(server);
            numbers[i] = *number;
        }
        const auto [allowed, remaining, retry_after, reset_after] = numbers;
        Verdict verdict{allowed == 1, remaining, std::nullopt, reset_after};
        if (retry_after >= 0) verdict.retry_after_us = retry_after;
        return verdict;
    }

    AsyncCall waiting(Timeout timeout) const { return {&client_->waiting(), timeout, nullptr}; }
    redis::Channel& channel(const AsyncCall& call) const {
        return call.channel != nullptr ? *call.channel : client_->without_waiting();
    }
    void submit(redis::Request request, const AsyncCall& call,
                Completion<redis::Reply> done) const {
        channel(call).submit(std::move(request), client_->deadline(call.timeout), std::move(done),
                             call.cancelled);
    }
    // What no limit admits may be cut: Lua would round a larger number.
    std::string to_price(std::int64_t cost) const {
        return std::to_string(std::min(cost, plan_.limit + 1));
    }

    std::shared_ptr<redis::Client> client_;
    Plan plan_;
};

// A combinable script: hits that wait together travel as one call of it.
class ScriptBackend final : public RedisBackend {
  public:
    ScriptBackend(std::shared_ptr<redis::Client> client, const Plan& plan,
                  const redis::Script& script, std::array<std::int64_t, 3> numbers)
        : RedisBackend(std::move(client), plan), script_(script) {
        // The server's clock; to take or to look; whether denied hits are charged.
        shared_ = {"", "1", plan.charge_denied ? "1" : "0"};
        for (const std::int64_t number : numbers) shared_.push_back(std::to_string(number));
        client_->prepare(script_);
    }

    void decide_async(const std::string& key, std::int64_t cost, bool take, std::string_view,
                      const AsyncCall& call, Completion<Verdict> done) override {
        const std::string price = to_price(cost);
        std::vector<std::string_view> shared(shared_.begin(), shared_.end());
        if (!take) shared[1] = "0";
        const std::string_view keys[] = {key};
        const std::string_view arguments[] = {price};
        submit(redis::Request::run(script_, keys, shared, arguments,
                                   take ? redis::Repeat::never : redis::Repeat::reads),
               call, [server = server(), key, done = std::move(done)](Result<redis::Reply> reply) {
                   done(to_verdict(server, reply, key));
               });
    }

    std::vector<Result<Verdict>> take_many(std::span<const std::string> keys,
                                           std::span<const std::int64_t> costs,
                                           std::span<const std::string_view> who,
                                           Timeout timeout) override {
        std::vector<Result<Verdict>> verdicts;
        take_many_async(
            {keys.begin(), keys.end()}, {costs.begin(), costs.end()}, who, waiting(timeout),
            [&](Result<std::vector<Result<Verdict>>> found) { verdicts = std::move(*found); });
        return verdicts;
    }

    void take_many_async(std::vector<std::string> keys, std::vector<std::int64_t> costs,
                         std::span<const std::string_view>, const AsyncCall& call,
                         Completion<std::vector<Result<Verdict>>> done) override {
        if (keys.empty()) return done(std::vector<Result<Verdict>>{});
        struct Gathered {
            std::string server;
            std::vector<std::string> keys;
            std::vector<Result<Verdict>> verdicts;
        };
        const auto gathered = std::make_shared<Gathered>(
            Gathered{server(), keys, std::vector<Result<Verdict>>(keys.size(), Verdict{})});
        redis::ScriptBatch batch{script_, keys.size(), std::move(keys), shared_, {}};
        batch.arguments.reserve(costs.size());
        for (const std::int64_t cost : costs) batch.arguments.push_back(to_price(cost));
        redis::submit_script_batch(
            channel(call), server(), std::move(batch), client_->deadline(call.timeout),
            [gathered](std::size_t i, const Result<redis::Reply>& reply) {
                gathered->verdicts[i] = to_verdict(gathered->server, reply, gathered->keys[i]);
            },
            [gathered, done = std::move(done)] { done(std::move(gathered->verdicts)); },
            call.cancelled);
    }

  private:
    const redis::Script& script_;
    std::vector<std::string> shared_;
};

// list: one script for one key.
class ListBackend final : public RedisBackend {
  public:
    using RedisBackend::RedisBackend;

    void decide_async(const std::string& key, std::int64_t cost, bool take, std::string_view who,
                      const AsyncCall& call, Completion<Verdict> done) override {
        static const redis::Script kScript{lua::limiter::kListLua, redis::Script::Kind::single,
                                           is_verdict};
        const std::string limit = std::to_string(plan_.limit);
        const std::string period = std::to_string((plan_.period + 999) / 1000);
        const std::string price = to_price(cost);
        const std::string_view keys[] = {key};
        const std::string_view arguments[] = {limit, period, price, take ? "1" : "0", who};
        submit(redis::Request::run(kScript, keys, {}, arguments), call,
               [server = server(), key, done = std::move(done)](Result<redis::Reply> reply) {
                   done(to_verdict(server, reply, key));
               });
    }

    // All at once; a connection keeps their order. Their replies may come in any thread.
    void take_many_async(std::vector<std::string> keys, std::vector<std::int64_t> costs,
                         std::span<const std::string_view> who, const AsyncCall& call,
                         Completion<std::vector<Result<Verdict>>> done) override {
        if (keys.empty()) return done(std::vector<Result<Verdict>>{});
        struct Gathered {
            std::mutex mutex{};
            std::size_t left;
            std::vector<Result<Verdict>> verdicts;
            Completion<std::vector<Result<Verdict>>> done;
        };
        const auto gathered = std::make_shared<Gathered>();
        gathered->left = keys.size();
        gathered->verdicts.assign(keys.size(), Verdict{});
        gathered->done = std::move(done);
        for (std::size_t i = 0; i < keys.size(); ++i) {
            decide_async(keys[i], costs[i], true, who[i], call,
                         [gathered, i](Result<Verdict> verdict) {
                             {
                                 const std::lock_guard lock(gathered->mutex);
                                 gathered->verdicts[i] = std::move(verdict);
                                 if (--gathered->left > 0) return;
                             }
                             gathered->done(std::move(gathered->verdicts));
                         });
        }
    }

    void entries_async(const std::string& key, const AsyncCall& call,
                       Completion<std::vector<std::string>> done) override {
        const std::string_view command[] = {"LRANGE", key, "0", "-1"};
        submit(redis::Request::command(command), call,
               [server = server(), key, done = std::move(done)](const Result<redis::Reply>& reply) {
                   done(to_callers(server, reply, key));
               });
    }

  private:
    static Result<std::vector<std::string>> to_callers(const std::string& server,
                                                       const Result<redis::Reply>& reply,
                                                       const std::string& key) {
        if (!reply) return about(key, reply.error());
        const auto* const elements = std::get_if<redis::ReplyArray>(&reply->value);
        if (elements == nullptr) return strange_reply(server);
        std::vector<std::string> callers;
        callers.reserve(elements->size());
        for (const redis::Reply& element : *elements) {
            const auto* const caller = std::get_if<std::string>(&element.value);
            if (caller == nullptr) return strange_reply(server);
            callers.push_back(*caller);
        }
        return callers;
    }
};

// The commands of the seed's ways, each a round trip of its own.
class RedisSteps final : public SeedSteps {
  public:
    explicit RedisSteps(std::shared_ptr<redis::Client> client) : client_(std::move(client)) {}

    std::string_view store_prefix() const override { return client_->options().prefix; }

    Result<void> check_async() const override {
        return make_error(ErrorCode::config, "several round trips, each waited for");
    }

    std::int64_t client_seconds() const override {
        const auto since_epoch = system_clock()->wall_now().time_since_epoch();
        return std::chrono::duration_cast<std::chrono::seconds>(since_epoch).count();
    }

    Result<std::int64_t> get(const std::string& key, Timeout timeout) override {
        return integer({"GET", key}, key, timeout);
    }
    Result<std::int64_t> incr(const std::string& key, Timeout timeout) override {
        return integer({"INCR", key}, key, timeout);
    }
    Result<void> expire(const std::string& key, std::int64_t seconds, Timeout timeout) override {
        HOTCOUNT_TRY(integer({"EXPIRE", key, std::to_string(seconds)}, key, timeout));
        return {};
    }
    Result<void> incr_and_expire_10(const std::string& key, Timeout timeout) override {
        static const redis::Script kScript{lua::unsafe::kPerSecondKeyLua};
        return run(kScript, key, {}, timeout);
    }
    Result<void> incr_expire_script(const std::string& key, std::int64_t seconds,
                                    Timeout timeout) override {
        static const redis::Script kScript{lua::unsafe::kIncrExpireLua};
        const std::string period = std::to_string(seconds);
        const std::string_view arguments[] = {period};
        return run(kScript, key, arguments, timeout);
    }
    Result<std::int64_t> life(const std::string& key, Timeout timeout) override {
        HOTCOUNT_TRY_ASSIGN(const std::int64_t left, integer({"PTTL", key}, key, timeout));
        // A key stands through the millisecond in which it expires, so it is gone after one more.
        return left < 0 ? left : (left + 1) * 1000;
    }
    Result<void> remove(const std::string& key, Timeout timeout) override {
        HOTCOUNT_TRY(integer({"DEL", key}, key, timeout));
        return {};
    }

  private:
    Result<std::int64_t> integer(std::initializer_list<std::string_view> command,
                                 const std::string& key, Timeout timeout) {
        const auto reply = client_->execute(std::span{command.begin(), command.size()}, timeout);
        if (!reply) return about(key, reply.error());
        if (std::holds_alternative<std::monostate>(reply->value)) return std::int64_t{0};
        if (const auto number = redis::to_integer(*reply)) return *number;
        return no_limit_state(key);
    }

    Result<void> run(const redis::Script& script, const std::string& key,
                     std::span<const std::string_view> arguments, Timeout timeout) {
        const std::string_view keys[] = {key};
        const auto reply = client_->run(script, keys, arguments, timeout);
        if (!reply) return about(key, reply.error());
        return {};
    }

    std::shared_ptr<redis::Client> client_;
};

}  // namespace

std::unique_ptr<LimiterBackend> make_redis_backend(std::shared_ptr<redis::Client> client,
                                                   Algorithm algorithm, const Plan& plan) {
    constexpr auto kCombinable = redis::Script::Kind::combinable;
    static const redis::Script kGcra{lua::limiter::kGcraLua, kCombinable, is_verdict};
    static const redis::Script kFixedWindow{lua::limiter::kFixedWindowLua, kCombinable, is_verdict};
    switch (algorithm) {
        case Algorithm::fixed_window:
            return std::make_unique<ScriptBackend>(
                std::move(client), plan, kFixedWindow,
                std::array{plan.limit, plan.period, std::int64_t{plan.align == Align::first}});
        case Algorithm::gcra:
            return std::make_unique<ScriptBackend>(std::move(client), plan, kGcra,
                                                   std::array{plan.limit, plan.token, plan.refill});
        case Algorithm::list:
            return std::make_unique<ListBackend>(std::move(client), plan);
        case Algorithm::per_second_key:
        case Algorithm::racy_incr:
        case Algorithm::incr_expire:
            break;
    }
    return make_seed_backend(std::make_unique<RedisSteps>(std::move(client)), algorithm, plan);
}

}  // namespace hotcount
