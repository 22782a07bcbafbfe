// The limiters of the Redis documentation's INCR page, step by step as it has them, holes included
// (limiter.hpp names them). A store gives the steps. The holes are between the steps: other callers
// come between two of them, and a caller may die before the next one.
#include <algorithm>
#include <hotcount/detail/base/check.hpp>

#include "hotcount_embedded/unsafe/lua.hpp"
#include "limiter/backends.hpp"

namespace hotcount {
namespace {

constexpr std::int64_t kSecond = 1'000'000;

// Those that a list has admitted, in order.
using Callers = std::vector<std::string>;

// The commands that these algorithms are made of. Each is one step: nothing holds two together.
class UnsafeLimiterSteps {
  public:
    virtual ~UnsafeLimiterSteps() = default;

    virtual std::string_view store_prefix() const = 0;
    // An error if the steps below wait.
    virtual Result<void> check_async() const { return {}; }
    // The CALLER's clock, in seconds since the epoch.
    virtual std::int64_t client_seconds() const = 0;
    virtual Result<std::int64_t> get(const std::string& key, Timeout timeout) = 0;
    // The value after it; none if the store has no room for the key and admits it all the same.
    using Counted = std::optional<std::int64_t>;
    virtual Result<Counted> incr(const std::string& key, Timeout timeout) = 0;
    virtual Result<void> expire(const std::string& key, std::int64_t seconds, Timeout timeout) = 0;
    virtual Result<std::int64_t> llen(const std::string& key, Timeout timeout) = 0;
    virtual Result<bool> exists(const std::string& key, Timeout timeout) = 0;
    // MULTI, RPUSH, EXPIRE, EXEC. False if there is no room.
    virtual Result<bool> rpush_and_expire(const std::string& key, std::string_view who,
                                          std::int64_t seconds, Timeout timeout) = 0;
    // Nothing if the key is absent.
    virtual Result<void> rpushx(const std::string& key, std::string_view who, Timeout timeout) = 0;
    virtual Result<Callers> lrange(const std::string& key, Timeout timeout) = 0;
    // MULTI, INCR, EXPIRE 10, EXEC. False if there is no room.
    virtual Result<bool> incr_and_expire_10(const std::string& key, Timeout timeout) = 0;
    // The page's script. False if there is no room.
    virtual Result<bool> incr_expire_script(const std::string& key, std::int64_t seconds,
                                            Timeout timeout) = 0;
    // Microseconds until the key expires; negative when it is absent or never does.
    virtual Result<std::int64_t> ttl_us(const std::string& key, Timeout timeout) = 0;
    virtual Result<void> remove(const std::string& key, Timeout timeout) = 0;
};

class UnsafeLimiterBackend final : public LimiterBackend {
  public:
    UnsafeLimiterBackend(std::unique_ptr<UnsafeLimiterSteps> steps, const LimiterOptions& options)
        : steps_(std::move(steps)), algorithm_(options.algorithm), rate_(options.rates.front()) {}

    std::string_view store_prefix() const override { return steps_->store_prefix(); }

    Result<Outcome> decide(const std::string& key, std::int64_t, Take take, std::string_view who,
                           Timeout timeout) override {
        const std::string name = counter_name(key);
        HOTCOUNT_TRY_ASSIGN(std::int64_t current, algorithm_ == Algorithm::racy_list
                                                      ? steps_->llen(name, timeout)
                                                      : steps_->get(name, timeout));
        // As the page has it: it admits one more than the limit.
        const bool allowed = current <= rate_.limit;
        if (take != Take::nothing && allowed) {
            HOTCOUNT_TRY_ASSIGN(const bool counted, count(name, who, timeout));
            if (!counted) return Outcome{true, rate_.limit - 1, 0, 0, true};
            ++current;
        }
        // The page asks nothing about waiting, so a hit says the most that it can be: a step more
        // would make these ways slower than they are. test() and peek() ask.
        std::int64_t ttl = rate_.period.count();
        if (take == Take::nothing) {
            HOTCOUNT_TRY_ASSIGN(ttl, steps_->ttl_us(name, timeout));
        }
        // A key without an expiry is never admitted again.
        std::optional<std::int64_t> retry_after;
        if (ttl >= 0) retry_after = std::max<std::int64_t>(ttl, 1);
        if (algorithm_ == Algorithm::per_second_key) retry_after = kSecond;
        if (allowed) retry_after = 0;
        return Outcome{allowed, std::max<std::int64_t>(rate_.limit - current, 0), retry_after,
                       std::max<std::int64_t>(ttl, 0)};
    }

    Result<Callers> entries(const std::string& key, Timeout timeout) override {
        if (algorithm_ != Algorithm::racy_list) return Callers{};
        return steps_->lrange(key, timeout);
    }

    Result<void> check_async() const override { return steps_->check_async(); }

    Result<void> reset(const std::string& key, Timeout timeout) override {
        return steps_->remove(counter_name(key), timeout);
    }

  private:
    std::string counter_name(const std::string& key) const {
        if (algorithm_ != Algorithm::per_second_key) return key;
        return key + ":" + std::to_string(steps_->client_seconds());
    }

    Result<bool> count(const std::string& key, std::string_view who, Timeout timeout) {
        const std::int64_t seconds = rate_.period.count() / kSecond;
        if (algorithm_ == Algorithm::per_second_key) {
            return steps_->incr_and_expire_10(key, timeout);
        }
        if (algorithm_ == Algorithm::incr_expire) {
            return steps_->incr_expire_script(key, seconds, timeout);
        }
        if (algorithm_ == Algorithm::racy_list) {
            HOTCOUNT_TRY_ASSIGN(const bool there, steps_->exists(key, timeout));
            if (!there) return steps_->rpush_and_expire(key, who, seconds, timeout);
            HOTCOUNT_TRY(steps_->rpushx(key, who, timeout));
            return true;
        }
        HOTCOUNT_TRY_ASSIGN(const auto value, steps_->incr(key, timeout));
        if (value == 1) HOTCOUNT_TRY(steps_->expire(key, seconds, timeout));
        return value.has_value();
    }

    std::unique_ptr<UnsafeLimiterSteps> steps_;
    Algorithm algorithm_;
    Rate rate_;
};

// Each step by itself under the key's lock.
class MemoryLimiterSteps final : public UnsafeLimiterSteps {
  public:
    explicit MemoryLimiterSteps(std::shared_ptr<memory::Store> store) : store_(std::move(store)) {}

    std::string_view store_prefix() const override { return store_->options().prefix; }

    std::int64_t client_seconds() const override {
        const auto since_epoch = store_->options().clock->wall_now().time_since_epoch();
        return std::chrono::duration_cast<std::chrono::seconds>(since_epoch).count();
    }

    Result<std::int64_t> get(const std::string& key, Timeout) override {
        return store_->read(key, [&](const memory::Entry* entry) -> Result<std::int64_t> {
            if (entry == nullptr) return std::int64_t{0};
            const auto* const value = entry->as<std::int64_t>();
            if (value == nullptr) return no_limit_state(key);
            return *value;
        });
    }

    Result<Counted> incr(const std::string& key, Timeout) override {
        return add(key, [](memory::Entry&, std::int64_t) {});
    }

    Result<void> expire(const std::string& key, std::int64_t seconds, Timeout) override {
        const SteadyTime at = store_->now() + std::chrono::seconds{seconds};
        return store_->modify(key, [&](memory::Entry* entry) {
            if (entry != nullptr) entry->expires_at = at;
            return Result<void>{};
        });
    }

    Result<bool> incr_and_expire_10(const std::string& key, Timeout) override {
        const SteadyTime at = store_->now() + std::chrono::seconds{10};
        HOTCOUNT_TRY_ASSIGN(const Counted value, add(key, [&](memory::Entry& entry, std::int64_t) {
                                entry.expires_at = at;
                            }));
        return value.has_value();
    }

    Result<std::int64_t> llen(const std::string& key, Timeout timeout) override {
        HOTCOUNT_TRY_ASSIGN(const Callers callers, lrange(key, timeout));
        return static_cast<std::int64_t>(callers.size());
    }

    Result<bool> exists(const std::string& key, Timeout) override {
        return store_->read(
            key, [](const memory::Entry* entry) -> Result<bool> { return entry != nullptr; });
    }

    Result<bool> rpush_and_expire(const std::string& key, std::string_view who,
                                  std::int64_t seconds, Timeout) override {
        const SteadyTime at = store_->now() + std::chrono::seconds{seconds};
        const auto pushed =
            store_->upsert(key, [&](memory::Entry& entry, bool fresh) -> Result<void> {
                auto* const callers = entry.as<Callers>(fresh);
                if (callers == nullptr) return no_limit_state(key);
                callers->emplace_back(who);
                entry.expires_at = at;
                return {};
            });
        if (pushed.ok()) return true;
        if (!store_->admits_untracked(pushed.error())) return pushed.error();
        return false;
    }

    Result<void> rpushx(const std::string& key, std::string_view who, Timeout) override {
        return store_->modify(key, [&](memory::Entry* entry) -> Result<void> {
            if (entry == nullptr) return {};
            auto* const callers = entry->as<Callers>(false);
            if (callers == nullptr) return no_limit_state(key);
            callers->emplace_back(who);
            return {};
        });
    }

    Result<Callers> lrange(const std::string& key, Timeout) override {
        return store_->read(key, [&](const memory::Entry* entry) -> Result<Callers> {
            if (entry == nullptr) return Callers{};
            const auto* const callers = entry->as<Callers>();
            if (callers == nullptr) return no_limit_state(key);
            return *callers;
        });
    }

    Result<bool> incr_expire_script(const std::string& key, std::int64_t seconds,
                                    Timeout) override {
        const SteadyTime at = store_->now() + std::chrono::seconds{seconds};
        HOTCOUNT_TRY_ASSIGN(const Counted counted,
                            add(key, [&](memory::Entry& entry, std::int64_t value) {
                                if (value == 1) entry.expires_at = at;
                            }));
        return counted.has_value();
    }

    Result<std::int64_t> ttl_us(const std::string& key, Timeout) override {
        return store_->read(key, [&](const memory::Entry* entry) -> Result<std::int64_t> {
            if (entry == nullptr || !entry->expires_at) return std::int64_t{-1};
            // Rounded up: a caller that waits for it is admitted.
            return std::chrono::ceil<std::chrono::microseconds>(*entry->expires_at - store_->now())
                .count();
        });
    }

    Result<void> remove(const std::string& key, Timeout) override {
        return store_->remove(key, [](const memory::Entry*) { return Result<void>{}; });
    }

  private:
    template <class Then>
    Result<Counted> add(const std::string& key, Then&& then) {
        auto counted =
            store_->upsert(key, [&](memory::Entry& entry, bool fresh) -> Result<Counted> {
                auto* const value = entry.as<std::int64_t>(fresh);
                if (value == nullptr) return no_limit_state(key);
                const auto sum = checked_add(*value, 1);
                if (!sum) return no_limit_state(key);  // As INCR refuses it: no count of hits.
                *value = *sum;
                then(entry, *sum);
                return Counted{*sum};
            });
        if (counted.ok() || !store_->admits_untracked(counted.error())) return counted;
        return Counted{};
    }

    std::shared_ptr<memory::Store> store_;
};

// Each step is a round trip of its own.
class RedisLimiterSteps final : public UnsafeLimiterSteps {
  public:
    explicit RedisLimiterSteps(std::shared_ptr<redis::Client> client)
        : client_(std::move(client)) {}

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
    Result<Counted> incr(const std::string& key, Timeout timeout) override {
        HOTCOUNT_TRY_ASSIGN(const std::int64_t value, integer({"INCR", key}, key, timeout));
        return Counted{value};
    }
    Result<void> expire(const std::string& key, std::int64_t seconds, Timeout timeout) override {
        HOTCOUNT_TRY(integer({"EXPIRE", key, std::to_string(seconds)}, key, timeout));
        return {};
    }
    Result<bool> incr_and_expire_10(const std::string& key, Timeout timeout) override {
        return transact({{"INCR", key}, {"EXPIRE", key, "10"}}, key, timeout);
    }
    Result<std::int64_t> llen(const std::string& key, Timeout timeout) override {
        return integer({"LLEN", key}, key, timeout);
    }
    Result<bool> exists(const std::string& key, Timeout timeout) override {
        HOTCOUNT_TRY_ASSIGN(const std::int64_t found, integer({"EXISTS", key}, key, timeout));
        return found > 0;
    }
    Result<bool> rpush_and_expire(const std::string& key, std::string_view who,
                                  std::int64_t seconds, Timeout timeout) override {
        const std::string period = std::to_string(seconds);
        return transact({{"RPUSH", key, who}, {"EXPIRE", key, period}}, key, timeout);
    }
    Result<void> rpushx(const std::string& key, std::string_view who, Timeout timeout) override {
        HOTCOUNT_TRY(integer({"RPUSHX", key, who}, key, timeout));
        return {};
    }
    Result<Callers> lrange(const std::string& key, Timeout timeout) override {
        const std::string_view command[] = {"LRANGE", key, "0", "-1"};
        const auto reply = client_->execute(command, timeout);
        if (!reply) return about_limit(key, reply.error());
        Callers callers;
        if (const auto* const elements = std::get_if<redis::ReplyArray>(&reply->value)) {
            for (const redis::Reply& element : *elements) {
                const auto* const caller = std::get_if<std::string>(&element.value);
                if (caller == nullptr) return no_limit_state(key);
                callers.push_back(*caller);
            }
        }
        return callers;
    }
    Result<bool> incr_expire_script(const std::string& key, std::int64_t seconds,
                                    Timeout timeout) override {
        static const redis::Script kScript{lua::unsafe::kIncrExpireLua};
        const std::string period = std::to_string(seconds);
        const std::string_view arguments[] = {period};
        return run(kScript, key, arguments, timeout);
    }
    Result<std::int64_t> ttl_us(const std::string& key, Timeout timeout) override {
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
        if (!reply) return about_limit(key, reply.error());
        if (std::holds_alternative<std::monostate>(reply->value)) return std::int64_t{0};
        if (const auto number = redis::to_integer(*reply)) return *number;
        return no_limit_state(key);
    }

    Result<bool> transact(std::vector<std::vector<std::string_view>> writes, const std::string& key,
                          Timeout timeout) {
        redis::CheckAndSet steps;
        steps.writes = std::move(writes);
        const auto done = client_->check_and_set(steps, timeout);
        if (!done) return about_limit(key, done.error());
        for (const redis::Reply& reply : **done) {
            if (const auto* const error = std::get_if<redis::ReplyError>(&reply.value)) {
                return about_limit(
                    key, redis::to_error(*error, client_->options().address() + ": transaction"));
            }
        }
        return true;
    }

    Result<bool> run(const redis::Script& script, const std::string& key,
                     std::span<const std::string_view> arguments, Timeout timeout) {
        const std::string_view keys[] = {key};
        const auto reply = client_->run(script, keys, arguments, timeout);
        if (!reply) return about_limit(key, reply.error());
        return true;
    }

    std::shared_ptr<redis::Client> client_;
};

Result<void> check_rate_of(const LimiterOptions& options) {
    const Rate& rate = options.rates.front();
    HOTCOUNT_TRY(options.algorithm == Algorithm::racy_list
                     ? check_list_rate(rate, options.algorithm)
                     : check_window_rate(rate));
    if (rate.period.count() % kSecond != 0) {
        return make_error(ErrorCode::config, std::string{to_string(options.algorithm)} +
                                                 " takes a period of whole seconds");
    }
    if (options.algorithm == Algorithm::per_second_key && rate.period.count() != kSecond) {
        return make_error(ErrorCode::config,
                          "per_second_key takes a rate per second, not " + rate.str());
    }
    return {};
}

template <class Steps, class Store>
Result<std::unique_ptr<LimiterBackend>> make_backend(std::shared_ptr<Store> store,
                                                     const LimiterOptions& options) {
    HOTCOUNT_TRY(check_rate_of(options));
    return std::unique_ptr<LimiterBackend>{
        std::make_unique<UnsafeLimiterBackend>(std::make_unique<Steps>(std::move(store)), options)};
}

constexpr LimiterAlgorithm registration(Algorithm algorithm, std::string_view name,
                                        std::string_view promise, WindowKind window,
                                        bool remembers_callers = false) {
    return {.info = {.algorithm = algorithm,
                     .name = name,
                     .promise = promise,
                     .window = window,
                     .remembers_callers = remembers_callers,
                     .is_unsafe = true},
            .over_memory = make_backend<MemoryLimiterSteps, memory::Store>,
            .over_redis = make_backend<RedisLimiterSteps, redis::Client>};
}

constexpr std::string_view kNeverExpires =
    "may over-admit, by one and by one more for each caller racing; a key may be left without a "
    "TTL, and is then denied for ever";

}  // namespace

constinit const LimiterAlgorithm kPerSecondKey = registration(
    Algorithm::per_second_key, "per_second_key",
    "may over-admit, by one and by one more for each caller racing, in a second of the "
    "caller's clock",
    WindowKind::caller_clock);
constinit const LimiterAlgorithm kRacyIncr =
    registration(Algorithm::racy_incr, "racy_incr", kNeverExpires, WindowKind::from_first_hit);
constinit const LimiterAlgorithm kIncrExpire =
    registration(Algorithm::incr_expire, "incr_expire", kNeverExpires, WindowKind::from_first_hit);
constinit const LimiterAlgorithm kRacyList = registration(
    Algorithm::racy_list, "racy_list",
    "may over-admit, by one and by one more for each caller racing; any number pass uncounted when "
    "the list expires between EXISTS and RPUSHX",
    WindowKind::from_first_hit, true);

}  // namespace hotcount
