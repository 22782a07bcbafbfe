#include "limiter/deny_cache.hpp"

#include <algorithm>
#include <atomic>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/hash.hpp>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

namespace hotcount {

class DenyCache {
  public:
    explicit DenyCache(std::size_t size)
        : size_(size), denials_([] { return std::make_unique<Denials>(); }) {}

    std::optional<Outcome> find(const std::string& key, std::int64_t cost) {
        Denials& denials = denials_.get();
        const std::lock_guard lock(denials.mutex);
        const auto found = denials.by_key.find(key);
        if (found == denials.by_key.end()) return std::nullopt;
        const Denial& denial = found->second;
        const SteadyTime time = std::chrono::steady_clock::now();
        if (time >= denial.until) {
            denials.by_key.erase(found);
            return std::nullopt;
        }
        // A smaller cost may fit already. A larger one fits later: the server knows when.
        if (denial.cost != cost) return std::nullopt;
        using std::chrono::microseconds;
        Outcome outcome = denial.outcome;
        outcome.retry_after_us = std::chrono::ceil<microseconds>(denial.until - time).count();
        outcome.reset_after_us = std::chrono::ceil<microseconds>(denial.reset - time).count();
        return outcome;
    }

    /// Taken before a hit is sent: what is forgotten meanwhile must not be kept afterwards.
    struct Sending {
        std::uint64_t forgets;
        SteadyTime time;
    };
    Sending send() {
        Denials& denials = denials_.get();
        const std::lock_guard lock(denials.mutex);
        return {denials.forgets, std::chrono::steady_clock::now()};
    }

    void keep(const Sending& sending, const std::string& key, std::int64_t cost,
              const Outcome& outcome) {
        // What the store did not decide is not its state.
        if (outcome.allowed || !outcome.retry_after_us || outcome.instead != Reason::allowed)
            return;
        using std::chrono::microseconds;
        const Denial denial{cost, outcome, sending.time + microseconds{*outcome.retry_after_us},
                            sending.time + microseconds{outcome.reset_after_us}};
        Denials& denials = denials_.get();
        const std::lock_guard lock(denials.mutex);
        if (denials.forgets != sending.forgets) return;
        if (denials.by_key.size() >= size_ && !denials.by_key.contains(key)) make_room(denials);
        denials.by_key.insert_or_assign(key, denial);
    }

    void forget(const std::string& key) {
        Denials& denials = denials_.get();
        const std::lock_guard lock(denials.mutex);
        ++denials.forgets;
        denials.by_key.erase(key);
    }

  private:
    struct Denial {
        std::int64_t cost;
        Outcome outcome;
        SteadyTime until;  // Of the call's sending: the server's decision was later.
        SteadyTime reset;
    };
    struct Denials {
        std::mutex mutex;
        std::uint64_t forgets{0};
        std::unordered_map<std::string, Denial, KeyedHash> by_key;
    };

    // Any denial may go: its key is then asked about. Better one that has passed, of the first few.
    static void make_room(Denials& denials) {
        constexpr int kLooksAt = 8;
        const SteadyTime time = std::chrono::steady_clock::now();
        auto oldest = denials.by_key.begin();
        auto one = oldest;
        for (int i = 0; i < kLooksAt && one != denials.by_key.end(); ++i, ++one) {
            if (one->second.until < oldest->second.until) oldest = one;
            if (oldest->second.until <= time) break;
        }
        denials.by_key.erase(oldest);
    }

    const std::size_t size_;
    ForkLocal<Denials> denials_;
};

namespace {

// All of the process: a key that one limiter resets another may remember.
class AllCaches final : ForkAware {
  public:
    AllCaches() { start_watching_forks(); }
    ~AllCaches() { stop_watching_forks(); }

    void add(const std::shared_ptr<DenyCache>& cache) {
        const std::lock_guard lock(mutex_);
        std::erase_if(caches_, [](const auto& one) { return one.expired(); });
        caches_.push_back(cache);
        any_.store(true, std::memory_order_release);
    }
    void forget(const std::string& key) {
        if (!any_.load(std::memory_order_acquire)) return;
        const std::lock_guard lock(mutex_);
        for (const auto& one : caches_) {
            if (const auto cache = one.lock()) cache->forget(key);
        }
    }

  private:
    void before_fork() override { mutex_.lock(); }
    void after_fork(bool) override { mutex_.unlock(); }

    std::atomic<bool> any_{false};
    std::mutex mutex_;
    std::vector<std::weak_ptr<DenyCache>> caches_;
};

AllCaches& all_caches() {
    static AllCaches caches;
    return caches;
}

class DenyCacheBackend final : public LimiterBackend {
  public:
    DenyCacheBackend(std::unique_ptr<LimiterBackend> backend, std::shared_ptr<DenyCache> cache)
        : backend_(std::move(backend)), cache_(std::move(cache)) {}

    std::string_view store_prefix() const override { return backend_->store_prefix(); }

    Result<Outcome> decide(const std::string& key, std::int64_t cost, Take take,
                           std::string_view who, Timeout timeout) override {
        if (!may_know(cost, take)) return backend_->decide(key, cost, take, who, timeout);
        if (const auto known = cache_->find(key, cost)) return *known;
        const auto sending = cache_->send();
        auto outcome = backend_->decide(key, cost, take, who, timeout);
        if (outcome) cache_->keep(sending, key, cost, *outcome);
        return outcome;
    }

    void decide_async(const std::string& key, std::int64_t cost, Take take, std::string_view who,
                      const AsyncCall& call, Completion<Outcome> done) override {
        if (!may_know(cost, take)) {
            return backend_->decide_async(key, cost, take, who, call, std::move(done));
        }
        if (const auto known = cache_->find(key, cost)) return done(*known);
        backend_->decide_async(key, cost, take, who, call,
                               [cache = cache_, sending = cache_->send(), key, cost,
                                done = std::move(done)](Result<Outcome> outcome) {
                                   if (outcome) cache->keep(sending, key, cost, *outcome);
                                   done(std::move(outcome));
                               });
    }

    std::vector<Result<Outcome>> take_many(std::span<const std::string> keys,
                                           std::span<const std::int64_t> costs,
                                           std::span<const std::string_view> who,
                                           Timeout timeout) override {
        Asked asked(*cache_, keys, costs, who);
        return asked.join(*cache_,
                          backend_->take_many(asked.keys, asked.costs, asked.who, timeout));
    }

    void take_many_async(std::vector<std::string> keys, std::vector<std::int64_t> costs,
                         std::span<const std::string_view> who, const AsyncCall& call,
                         Completion<std::vector<Result<Outcome>>> done) override {
        const auto asked = std::make_shared<Asked>(*cache_, keys, costs, who);
        backend_->take_many_async(asked->keys, asked->costs, asked->who, call,
                                  [asked, cache = cache_, done = std::move(done)](
                                      Result<std::vector<Result<Outcome>>> outcomes) {
                                      if (outcomes)
                                          *outcomes = asked->join(*cache, std::move(*outcomes));
                                      done(std::move(outcomes));
                                  });
    }

    Result<void> check_async() const override { return backend_->check_async(); }
    // The backend below forgets the denials of the keys whose states it sets.
    Result<void> reset(const std::string& key, Timeout timeout) override {
        return backend_->reset(key, timeout);
    }
    void reset_async(const std::string& key, const AsyncCall& call,
                     Completion<void> done) override {
        backend_->reset_async(key, call, std::move(done));
    }
    Result<std::vector<std::string>> entries(const std::string& key, Timeout timeout) override {
        return backend_->entries(key, timeout);
    }
    void entries_async(const std::string& key, const AsyncCall& call,
                       Completion<std::vector<std::string>> done) override {
        backend_->entries_async(key, call, std::move(done));
    }
    // The repeat of one that was admitted is admitted, whatever was denied since.
    void hit_once(const std::string& key, std::int64_t cost, const OnceOnly& once,
                  const AsyncCall& call, Completion<Outcome> done) override {
        backend_->hit_once(key, cost, once, call, std::move(done));
    }
    std::optional<OutageEvent> next_outage_event() override {
        return backend_->next_outage_event();
    }

    // Hits that are taken together are always asked about.
    std::string store_name() const override { return backend_->store_name(); }
    AsyncCall waiting(Timeout timeout) const override { return backend_->waiting(timeout); }
    const void* joins() const override { return backend_->joins(); }
    LimiterBackend& innermost() override { return backend_->innermost(); }
    const OutageAnswers* stand_in() const override { return backend_->stand_in(); }
    void hit_together(std::vector<JointHit> hits, const AsyncCall& call,
                      Completion<std::vector<Outcome>> done) override {
        backend_->hit_together(std::move(hits), call, std::move(done));
    }

  private:
    static bool may_know(std::int64_t cost, Take take) {
        return take == Take::all && is_decision(cost, take);
    }
    // The elements of a batch that the store is asked about, and the denials that are known.
    struct Asked {
        Asked(DenyCache& cache, std::span<const std::string> all,
              std::span<const std::int64_t> price, std::span<const std::string_view> callers)
            : sending(cache.send()), outcomes(all.size(), Outcome{}) {
            for (std::size_t i = 0; i < all.size(); ++i) {
                if (const auto known = cache.find(all[i], price[i])) {
                    outcomes[i] = *known;
                    continue;
                }
                keys.push_back(all[i]);
                costs.push_back(price[i]);
                who.push_back(callers[i]);
                places.push_back(i);
            }
        }
        std::vector<Result<Outcome>> join(DenyCache& cache, std::vector<Result<Outcome>> answers) {
            for (std::size_t i = 0; i < answers.size(); ++i) {
                if (answers[i]) cache.keep(sending, keys[i], costs[i], *answers[i]);
                outcomes[places[i]] = std::move(answers[i]);
            }
            return std::move(outcomes);
        }

        DenyCache::Sending sending;
        std::vector<Result<Outcome>> outcomes;
        std::vector<std::string> keys{};
        std::vector<std::int64_t> costs{};
        std::vector<std::string_view> who{};
        std::vector<std::size_t> places{};
    };

    const std::unique_ptr<LimiterBackend> backend_;
    const std::shared_ptr<DenyCache> cache_;
};

}  // namespace

std::shared_ptr<DenyCache> make_deny_cache(const LimiterOptions& options) {
    if (options.deny_cache == 0) return nullptr;
    auto cache = std::make_shared<DenyCache>(static_cast<std::size_t>(options.deny_cache));
    all_caches().add(cache);
    return cache;
}

std::unique_ptr<LimiterBackend> with_deny_cache(std::unique_ptr<LimiterBackend> backend,
                                                std::shared_ptr<DenyCache> cache) {
    if (cache == nullptr) return backend;
    return std::make_unique<DenyCacheBackend>(std::move(backend), std::move(cache));
}

void forget_denials(const std::string& key) { all_caches().forget(key); }

}  // namespace hotcount
