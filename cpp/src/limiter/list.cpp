// list: a window that begins with its first hit and remembers the callers that it admitted.
#include <algorithm>
#include <mutex>

#include "backends.hpp"
#include "hotcount_embedded/limiter/lua.hpp"

namespace hotcount {
namespace {

using std::chrono::microseconds;

// A list holds an element for each hit, so it cannot be for millions.
constexpr std::int64_t kMaxLimit = 100'000;

// The callers that a window has admitted, in order.
using Callers = std::vector<std::string>;

std::int64_t ttl_us(const memory::Entry& entry, SteadyTime now) {
    // Rounded up: a caller that waits for it is admitted.
    return std::chrono::ceil<microseconds>(*entry.expires_at - now).count();
}

class ListInMemory final : public MemoryLimiterBackend {
  public:
    ListInMemory(std::shared_ptr<memory::Store> store, const Rate& rate)
        : MemoryLimiterBackend(std::move(store), rate.limit), period_(rate.period) {}

    Result<Outcome> decide(const std::string& key, std::int64_t cost, Take take,
                           std::string_view who, Timeout) override {
        if (take == Take::what_fits) cost = std::min(cost, limit_);
        if (take == Take::nothing || cost > limit_) {
            return store_->read(key, [&](const memory::Entry* entry) -> Result<Outcome> {
                if (entry == nullptr) return answer(0, cost, cost <= limit_, 0);
                const auto* const callers = entry->as<Callers>();
                if (callers == nullptr) return no_limit_state(key);
                return answer(size(*callers), cost, fits(*callers, cost), left(*entry));
            });
        }
        auto outcome =
            store_->upsert(key, [&](memory::Entry& entry, bool fresh) -> Result<Outcome> {
                auto* const callers = entry.as<Callers>(fresh);
                if (callers == nullptr) return no_limit_state(key);
                if (take == Take::what_fits) {
                    cost = std::clamp<std::int64_t>(limit_ - size(*callers), 1, cost);
                }
                const bool allowed = fits(*callers, cost);
                if (allowed) {
                    callers->insert(callers->end(), static_cast<std::size_t>(cost),
                                    std::string{who});
                }
                if (!entry.expires_at) {
                    entry.expires_at = store_->now() + period_;
                }
                Outcome found = answer(size(*callers), cost, allowed, left(entry));
                if (allowed) found.taken = cost;
                return found;
            });
        return or_untracked(std::move(outcome), cost);
    }

    Result<std::vector<std::string>> entries(const std::string& key, Timeout) override {
        return store_->read(key,
                            [&](const memory::Entry* entry) -> Result<std::vector<std::string>> {
                                if (entry == nullptr) return std::vector<std::string>{};
                                const auto* const callers = entry->as<Callers>();
                                if (callers == nullptr) return no_limit_state(key);
                                return *callers;
                            });
    }

  private:
    static std::int64_t size(const Callers& callers) {
        return static_cast<std::int64_t>(callers.size());
    }
    bool fits(const Callers& callers, std::int64_t cost) const {
        return cost <= limit_ - size(callers);
    }
    std::int64_t left(const memory::Entry& entry) const {
        return entry.expires_at ? ttl_us(entry, store_->now()) : period_.count();
    }
    Outcome answer(std::int64_t held, std::int64_t cost, bool allowed, std::int64_t left) const {
        std::optional<std::int64_t> retry_after;
        if (cost <= limit_) retry_after = allowed ? 0 : left;
        return {allowed, limit_ - held, retry_after, left};
    }

    microseconds period_;
};

// One script for one key.
class ListInRedis final : public RedisLimiterBackend {
  public:
    ListInRedis(std::shared_ptr<redis::Client> client, const Rate& rate)
        : RedisLimiterBackend(std::move(client), rate.limit),
          // Redis keeps times in milliseconds.
          period_ms_((rate.period.count() + 999) / 1000) {}

    void decide_async(const std::string& key, std::int64_t cost, Take take, std::string_view who,
                      const AsyncCall& call, Completion<Outcome> done) override {
        static const redis::Script kScript{lua::limiter::kListLua, redis::Script::Kind::single,
                                           is_outcome};
        const std::string limit = std::to_string(limit_);
        const std::string period = std::to_string(period_ms_);
        const std::string price = to_price(cost);
        const std::string_view keys[] = {key};
        const std::string_view arguments[] = {limit, period, price, to_word(take), who};
        submit(redis::Request::run(kScript, keys, {}, arguments), call,
               [server = server(), key, done = std::move(done)](Result<redis::Reply> reply) {
                   done(to_outcome(server, reply, key));
               });
    }

    // All at once; a connection keeps their order. Their replies may come in any thread.
    void take_many_async(std::vector<std::string> keys, std::vector<std::int64_t> costs,
                         std::span<const std::string_view> who, const AsyncCall& call,
                         Completion<std::vector<Result<Outcome>>> done) override {
        if (keys.empty()) return done(std::vector<Result<Outcome>>{});
        struct Gathered {
            std::mutex mutex{};
            std::size_t left;
            std::vector<Result<Outcome>> outcomes;
            Completion<std::vector<Result<Outcome>>> done;
        };
        const auto gathered = std::make_shared<Gathered>();
        gathered->left = keys.size();
        gathered->outcomes.assign(keys.size(), Outcome{});
        gathered->done = std::move(done);
        for (std::size_t i = 0; i < keys.size(); ++i) {
            decide_async(keys[i], costs[i], Take::all, who[i], call,
                         [gathered, i](Result<Outcome> outcome) {
                             {
                                 const std::lock_guard lock(gathered->mutex);
                                 gathered->outcomes[i] = std::move(outcome);
                                 if (--gathered->left > 0) return;
                             }
                             gathered->done(std::move(gathered->outcomes));
                         });
        }
    }

    Result<std::vector<std::string>> entries(const std::string& key, Timeout timeout) override {
        Result<std::vector<std::string>> outcome{std::vector<std::string>{}};
        entries_async(key, waiting(timeout),
                      [&](Result<std::vector<std::string>> found) { outcome = std::move(found); });
        return outcome;
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
        if (!reply) return about_limit(key, reply.error());
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

    std::int64_t period_ms_;
};

Result<std::unique_ptr<LimiterBackend>> over_memory(std::shared_ptr<memory::Store> store,
                                                    const LimiterOptions& options) {
    HOTCOUNT_TRY(check_list_rate(options.rates.front(), Algorithm::list));
    return std::unique_ptr<LimiterBackend>{
        std::make_unique<ListInMemory>(std::move(store), options.rates.front())};
}

Result<std::unique_ptr<LimiterBackend>> over_redis(std::shared_ptr<redis::Client> client,
                                                   const LimiterOptions& options) {
    HOTCOUNT_TRY(check_list_rate(options.rates.front(), Algorithm::list));
    return std::unique_ptr<LimiterBackend>{
        std::make_unique<ListInRedis>(std::move(client), options.rates.front())};
}

}  // namespace

Result<void> check_list_rate(const Rate& rate, Algorithm algorithm) {
    HOTCOUNT_TRY(check_window_rate(rate));
    if (rate.limit <= kMaxLimit) return {};
    return make_error(ErrorCode::config, std::string{to_string(algorithm)} +
                                             " remembers each hit and takes a limit of " +
                                             std::to_string(kMaxLimit) + " at most, not " +
                                             std::to_string(rate.limit));
}

constinit const LimiterAlgorithm kList{
    .info = {.algorithm = Algorithm::list,
             .name = "list",
             .promise = "at most the limit in each window from a first hit, and each caller is "
                        "remembered",
             .window = WindowKind::from_first_hit,
             .remembers_callers = true},
    .over_memory = over_memory,
    .over_redis = over_redis,
};

}  // namespace hotcount
