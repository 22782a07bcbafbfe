#include <algorithm>
#include <atomic>

#include "limiter/wrapped_backend.hpp"

namespace hotcount {

class DenyCache {
  public:
    explicit DenyCache(std::size_t size)
        : denials_([size] { return std::make_unique<Denials>(size); }) {}

    std::optional<Outcome> find(const std::string& key, std::int64_t cost) {
        Denials& denials = denials_.get();
        const std::lock_guard lock(denials.mutex);
        const Denial* const denial = denials.find(key);
        if (denial == nullptr) return std::nullopt;
        const SteadyTime time = std::chrono::steady_clock::now();
        if (time >= denial->until) {
            denials.erase(key);
            return std::nullopt;
        }
        // A smaller cost may already fit. For a larger cost only the server has the retry_after.
        if (denial->cost != cost) return std::nullopt;
        using std::chrono::microseconds;
        Outcome outcome = denial->outcome;
        outcome.retry_after_us = std::chrono::ceil<microseconds>(denial->until - time).count();
        outcome.reset_after_us = std::chrono::ceil<microseconds>(denial->reset - time).count();
        return outcome;
    }

    /// The state when a hit is sent. Its denial is not kept if a key is forgotten before the
    /// answer.
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
        // The answer of an outage policy (`instead`) does not show the store's state.
        if (outcome.allowed || !outcome.retry_after_us || outcome.instead != Reason::allowed)
            return;
        using std::chrono::microseconds;
        const Denial denial{cost, outcome, sending.time + microseconds{*outcome.retry_after_us},
                            sending.time + microseconds{outcome.reset_after_us}};
        Denials& denials = denials_.get();
        const std::lock_guard lock(denials.mutex);
        if (denials.forgets != sending.forgets) return;
        *denials.find_or_make(key, sending.time) = denial;
    }

    void forget(const std::string& key) {
        Denials& denials = denials_.get();
        const std::lock_guard lock(denials.mutex);
        ++denials.forgets;
        denials.erase(key);
    }

  private:
    struct Denial {
        std::int64_t cost{0};
        Outcome outcome{};
        SteadyTime until{};  // Counted from the sending, before the server decided.
        SteadyTime reset{};

        SteadyTime removable_at() const { return until; }
    };
    // A full table may evict any denial: the next hit of its key asks the store.
    struct Denials : KeyTable<Denial> {
        explicit Denials(std::size_t size) : KeyTable(size, true) {}
        std::uint64_t forgets{0};
    };

    ForkLocal<Denials> denials_;
};

namespace {

// All caches of the process: a limiter that resets a key clears it in other limiters' caches.
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

class DenyCacheBackend final : public WrappedBackend {
  public:
    DenyCacheBackend(std::unique_ptr<LimiterBackend> backend, std::shared_ptr<DenyCache> cache)
        : WrappedBackend(std::move(backend)), cache_(std::move(cache)) {}

    // Hits of hit_all() skip the cache. Hits with an op_id skip it too, because the repeat of an
    // admitted hit is admitted whatever was denied since. The backend below forgets the denials of
    // a key when it sets the key's state.
    void run(const std::string& key, const LimitRequest& request, const AsyncCall& call,
             Completion<Outcome> done) override {
        const HitRequest* const hit = request.hit();
        if (hit == nullptr || hit->take != Take::all || hit->once != nullptr) {
            return backend_->run(key, request, call, std::move(done));
        }
        if (const auto known = cache_->find(key, hit->cost)) return done(*known);
        backend_->run(key, request, call,
                      [cache = cache_, sending = cache_->send(), key, cost = hit->cost,
                       done = std::move(done)](Result<Outcome> outcome) {
                          if (outcome) cache->keep(sending, key, cost, *outcome);
                          done(std::move(outcome));
                      });
    }

    void hit_many(std::vector<std::string> keys, std::vector<std::int64_t> costs,
                  const AsyncCall& call, Completion<std::vector<Result<Outcome>>> done) override {
        const auto sending = cache_->send();
        const auto asked = std::make_shared<AskedElements>(keys, costs, known());
        backend_->hit_many(asked->keys, asked->costs, call,
                           [asked, sending, cache = cache_,
                            done = std::move(done)](Result<std::vector<Result<Outcome>>> answers) {
                               if (answers) {
                                   keep_all(*cache, sending, *asked, *answers);
                                   *answers = asked->join(std::move(*answers));
                               }
                               done(std::move(answers));
                           });
    }

  private:
    AskedElements::Known known() const {
        return
            [this](const std::string& key, std::int64_t cost) { return cache_->find(key, cost); };
    }
    static void keep_all(DenyCache& cache, const DenyCache::Sending& sending,
                         const AskedElements& asked, const std::vector<Result<Outcome>>& answers) {
        for (std::size_t i = 0; i < answers.size(); ++i) {
            if (answers[i]) cache.keep(sending, asked.keys[i], asked.costs[i], *answers[i]);
        }
    }

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
