#include <hotcount/detail/base/check.hpp>

#include "backend.hpp"
#include "unsafe/limiter_ways.hpp"

namespace hotcount {
namespace {

using std::chrono::duration_cast;
using std::chrono::microseconds;

SteadyTime expiry(SteadyTime now, std::int64_t life_us) {
    // From the whole microsecond that was decided on, as the decision says.
    return SteadyTime{duration_cast<microseconds>(now.time_since_epoch()) + microseconds{life_us}};
}

// The memory store's part of what both kinds of algorithms need.
class MemoryBackend : public LimiterBackend {
  public:
    MemoryBackend(std::shared_ptr<memory::Store> store, const Plan& plan)
        : store_(std::move(store)), plan_(plan) {}

    std::string_view store_prefix() const override { return store_->options().prefix; }

    Result<void> reset(const std::string& key, Timeout) override {
        return store_->remove(key, [](const memory::Entry*) { return Result<void>{}; });
    }

    Result<std::vector<std::string>> entries(const std::string&, Timeout) override {
        return std::vector<std::string>{};
    }

  protected:
    // What a full store could not take in, as `when_full` says. An idle key would have admitted it:
    // a cost above the limit does not come here.
    Result<Verdict> or_untracked(Result<Verdict> verdict, std::int64_t cost) {
        if (verdict.ok() || !store_->admits_untracked(verdict.error())) return verdict;
        return Verdict{true, plan_.limit - cost, 0, 0, true};
    }

    std::shared_ptr<memory::Store> store_;
    Plan plan_;
};

using StepFunction = Step (*)(const Plan&, std::optional<LimitState>, std::int64_t, std::int64_t,
                              bool);

// fixed_window and gcra: the core's arithmetic under the key's lock.
class ArithmeticBackend final : public MemoryBackend {
  public:
    ArithmeticBackend(std::shared_ptr<memory::Store> store, const Plan& plan, StepFunction function)
        : MemoryBackend(std::move(store), plan), step_(function) {
        // Windows align to the wall clock's epoch as it stands now: a step of the wall clock later
        // moves no window.
        const auto& clock = *store_->options().clock;
        epoch_ = duration_cast<microseconds>(clock.wall_now().time_since_epoch() -
                                             clock.steady_now().time_since_epoch())
                     .count();
    }

    Result<Verdict> decide(const std::string& key, std::int64_t cost, bool take, std::string_view,
                           Timeout) override {
        // What can only be denied must not leave an absent key behind.
        if (!take || cost > plan_.limit) {
            return store_->read(key, [&](const memory::Entry* entry) -> Result<Verdict> {
                const LimitState* const state = entry ? entry->as<LimitState>() : nullptr;
                if (entry != nullptr && state == nullptr) return no_limit_state(key);
                return step(state, store_->now(), cost, take).verdict;
            });
        }
        auto verdict =
            store_->upsert(key, [&](memory::Entry& entry, bool fresh) -> Result<Verdict> {
                auto* const state = entry.as<LimitState>(fresh);
                if (state == nullptr) return no_limit_state(key);
                const SteadyTime now = store_->now();
                const Step next = step(fresh ? nullptr : state, now, cost, take);
                if (next.state) *state = *next.state;
                if (next.state || !entry.expires_at) {
                    entry.expires_at = expiry(now, next.verdict.reset_after_us);
                }
                return next.verdict;
            });
        return or_untracked(std::move(verdict), cost);
    }

  private:
    Step step(const LimitState* state, SteadyTime now, std::int64_t cost, bool take) const {
        const auto since_boot = duration_cast<microseconds>(now.time_since_epoch());
        return step_(plan_, state ? std::optional{*state} : std::nullopt,
                     since_boot.count() + epoch_, cost, take);
    }

    StepFunction step_;
    std::int64_t epoch_;
};

std::int64_t life_us(const memory::Entry& entry, SteadyTime now) {
    // Rounded up: a caller that waits for it is admitted.
    return std::chrono::ceil<microseconds>(*entry.expires_at - now).count();
}

// list: the callers of a window that begins with its first hit.
class ListBackend final : public MemoryBackend {
  public:
    using MemoryBackend::MemoryBackend;

    Result<Verdict> decide(const std::string& key, std::int64_t cost, bool take,
                           std::string_view who, Timeout) override {
        if (!take || cost > plan_.limit) {
            return store_->read(key, [&](const memory::Entry* entry) -> Result<Verdict> {
                if (entry == nullptr) return verdict(0, cost, cost <= plan_.limit, 0);
                const auto* const callers = entry->as<memory::Callers>();
                if (callers == nullptr) return no_limit_state(key);
                return verdict(size(*callers), cost, fits(*callers, cost), left(*entry));
            });
        }
        auto answer = store_->upsert(key, [&](memory::Entry& entry, bool fresh) -> Result<Verdict> {
            auto* const callers = entry.as<memory::Callers>(fresh);
            if (callers == nullptr) return no_limit_state(key);
            const bool allowed = fits(*callers, cost);
            if (allowed) {
                callers->insert(callers->end(), static_cast<std::size_t>(cost), std::string{who});
            }
            if (!entry.expires_at) {
                entry.expires_at = store_->now() + microseconds{plan_.period};
            }
            return verdict(size(*callers), cost, allowed, left(entry));
        });
        return or_untracked(std::move(answer), cost);
    }

    Result<std::vector<std::string>> entries(const std::string& key, Timeout) override {
        return store_->read(key,
                            [&](const memory::Entry* entry) -> Result<std::vector<std::string>> {
                                if (entry == nullptr) return std::vector<std::string>{};
                                const auto* const callers = entry->as<memory::Callers>();
                                if (callers == nullptr) return no_limit_state(key);
                                return *callers;
                            });
    }

  private:
    static std::int64_t size(const memory::Callers& callers) {
        return static_cast<std::int64_t>(callers.size());
    }
    bool fits(const memory::Callers& callers, std::int64_t cost) const {
        return cost <= plan_.limit - size(callers);
    }
    std::int64_t left(const memory::Entry& entry) const {
        return entry.expires_at ? life_us(entry, store_->now()) : plan_.period;
    }
    Verdict verdict(std::int64_t held, std::int64_t cost, bool allowed, std::int64_t left) const {
        std::optional<std::int64_t> retry_after;
        if (cost <= plan_.limit) retry_after = allowed ? 0 : left;
        return {allowed, plan_.limit - held, retry_after, left};
    }
};

// The counters of the seed's ways, each step by itself under the key's lock.
class MemorySteps final : public SeedSteps {
  public:
    explicit MemorySteps(std::shared_ptr<memory::Store> store) : store_(std::move(store)) {}

    std::string_view store_prefix() const override { return store_->options().prefix; }

    std::int64_t client_seconds() const override {
        const auto since_epoch = store_->options().clock->wall_now().time_since_epoch();
        return duration_cast<std::chrono::seconds>(since_epoch).count();
    }

    Result<std::int64_t> get(const std::string& key, Timeout) override {
        return store_->read(key, [&](const memory::Entry* entry) -> Result<std::int64_t> {
            if (entry == nullptr) return std::int64_t{0};
            const auto* const value = entry->as<std::int64_t>();
            if (value == nullptr) return no_limit_state(key);
            return *value;
        });
    }

    Result<std::int64_t> incr(const std::string& key, Timeout) override {
        return add(key, [](memory::Entry&, std::int64_t) {});
    }

    Result<void> expire(const std::string& key, std::int64_t seconds, Timeout) override {
        const SteadyTime at = store_->now() + std::chrono::seconds{seconds};
        return store_->read(key, [&](memory::Entry* entry) {
            if (entry != nullptr) entry->expires_at = at;
            return Result<void>{};
        });
    }

    Result<void> incr_and_expire_10(const std::string& key, Timeout) override {
        const SteadyTime at = store_->now() + std::chrono::seconds{10};
        HOTCOUNT_TRY(add(key, [&](memory::Entry& entry, std::int64_t) { entry.expires_at = at; }));
        return {};
    }

    Result<void> incr_expire_script(const std::string& key, std::int64_t seconds,
                                    Timeout) override {
        const SteadyTime at = store_->now() + std::chrono::seconds{seconds};
        HOTCOUNT_TRY(add(key, [&](memory::Entry& entry, std::int64_t value) {
            if (value == 1) entry.expires_at = at;
        }));
        return {};
    }

    Result<std::int64_t> life(const std::string& key, Timeout) override {
        return store_->read(key, [&](const memory::Entry* entry) -> Result<std::int64_t> {
            if (entry == nullptr || !entry->expires_at) return std::int64_t{-1};
            return life_us(*entry, store_->now());
        });
    }

    Result<void> remove(const std::string& key, Timeout) override {
        return store_->remove(key, [](const memory::Entry*) { return Result<void>{}; });
    }

  private:
    template <class Then>
    Result<std::int64_t> add(const std::string& key, Then&& then) {
        auto counted =
            store_->upsert(key, [&](memory::Entry& entry, bool fresh) -> Result<std::int64_t> {
                auto* const value = entry.as<std::int64_t>(fresh);
                if (value == nullptr) return no_limit_state(key);
                const auto sum = checked_add(*value, 1);
                if (!sum) return no_limit_state(key);  // As INCR refuses it: no count of hits.
                *value = *sum;
                then(entry, *sum);
                return *sum;
            });
        if (counted.ok() || !store_->admits_untracked(counted.error())) return counted;
        return std::int64_t{1};  // The first of a key that nobody remembers.
    }

    std::shared_ptr<memory::Store> store_;
};

}  // namespace

std::unique_ptr<LimiterBackend> make_memory_backend(std::shared_ptr<memory::Store> store,
                                                    Algorithm algorithm, const Plan& plan) {
    switch (algorithm) {
        case Algorithm::fixed_window:
            return std::make_unique<ArithmeticBackend>(std::move(store), plan, step_fixed_window);
        case Algorithm::gcra:
            return std::make_unique<ArithmeticBackend>(std::move(store), plan, step_gcra);
        case Algorithm::list:
            return std::make_unique<ListBackend>(std::move(store), plan);
        case Algorithm::per_second_key:
        case Algorithm::racy_incr:
        case Algorithm::incr_expire:
            break;
    }
    return make_seed_backend(std::make_unique<MemorySteps>(std::move(store)), algorithm, plan);
}

}  // namespace hotcount
