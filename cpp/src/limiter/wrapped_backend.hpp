// Backends that wrap another one and pass on the calls that they do not answer. Limiter::make()
// composes those that the options ask for, in this order:
//
//   hit --> DenyCacheBackend --> PolicyBackend -----> LeaseBackend --------> the store
//           deny_cache.cpp:      outage_policy.cpp:   leases.cpp:
//           a known denial       while Redis is away  units that this
//                                                     process has leased
//
// Over a database there are leases only, over Memory none of the three.
#pragma once

#include <functional>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/hash.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "limiter/algorithm.hpp"

namespace hotcount {

/// The elements of a batch that the backend behind is asked about, and the answers to the others.
struct AskedElements {
    /// The answer to a key and a cost, if it needs no asking.
    using Known = std::function<std::optional<Outcome>(const std::string&, std::int64_t)>;

    AskedElements(std::span<const std::string> all, std::span<const std::int64_t> price,
                  const Known& known)
        : outcomes(all.size(), Outcome{}) {
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (const auto outcome = known(all[i], price[i])) {
                outcomes[i] = *outcome;
                continue;
            }
            keys.push_back(all[i]);
            costs.push_back(price[i]);
            places.push_back(i);
        }
    }
    /// All answers in order.
    std::vector<Result<Outcome>> join(std::vector<Result<Outcome>> answers) {
        for (std::size_t i = 0; i < answers.size(); ++i) {
            outcomes[places[i]] = std::move(answers[i]);
        }
        return std::move(outcomes);
    }

    std::vector<Result<Outcome>> outcomes;
    std::vector<std::string> keys{};
    std::vector<std::int64_t> costs{};
    std::vector<std::size_t> places{};
};

class WrappedBackend : public LimiterBackend {
  public:
    explicit WrappedBackend(std::shared_ptr<LimiterBackend> backend)
        : LimiterBackend(backend->place()), backend_(std::move(backend)) {}

    AsyncCall waiting(Timeout timeout) const override { return backend_->waiting(timeout); }
    void hit_together(std::vector<JointHit> hits, const AsyncCall& call,
                      Completion<std::vector<Outcome>> done) override {
        backend_->hit_together(std::move(hits), call, std::move(done));
    }
    void create_table(const AsyncCall& call, Completion<void> done) override {
        backend_->create_table(call, std::move(done));
    }
    LimiterBackend& innermost() override { return backend_->innermost(); }
    const OutageAnswers* stand_in() const override { return backend_->stand_in(); }

  protected:
    // Shared, because calls may outlive the limiter.
    const std::shared_ptr<LimiterBackend> backend_;
};

/// A process's values of a bounded number of keys. Its user locks `mutex` for each call. When the
/// table is full, a new key evicts one of the next 16 or so: the first whose removable_at() has
/// passed, else, with `any_may_go`, the one with the earliest. SteadyTime::max() is never.
template <class Value>
class KeyTable {
  public:
    KeyTable(std::size_t most, bool any_may_go) : most_(most), any_may_go_(any_may_go) {}

    Value* find(const std::string& key) {
        const auto found = by_key_.find(key);
        return found == by_key_.end() ? nullptr : &found->second;
    }
    /// The key's value, or a new one. Null: there is no room.
    Value* find_or_make(const std::string& key, SteadyTime now) {
        if (Value* const known = find(key)) return known;
        if (by_key_.size() >= most_ && !make_room(now)) return nullptr;
        return &by_key_[key];
    }
    void erase(const std::string& key) { by_key_.erase(key); }

    std::mutex mutex{};

  private:
    bool make_room(SteadyTime now) {
        const std::size_t looks_at = std::min<std::size_t>(by_key_.size(), 16);
        const std::string* first = nullptr;
        SteadyTime first_at = SteadyTime::max();
        for (std::size_t looked = 0; looked < looks_at;) {
            bucket_ = (bucket_ + 1) % by_key_.bucket_count();
            for (auto one = by_key_.begin(bucket_); one != by_key_.end(bucket_); ++one) {
                ++looked;
                if (one->second.removable_at() >= first_at) continue;
                first = &one->first;
                first_at = one->second.removable_at();
            }
            if (first_at <= now) break;
        }
        if (first == nullptr || (first_at > now && !any_may_go_)) return false;
        by_key_.erase(by_key_.find(*first));
        return true;
    }

    const std::size_t most_;
    const bool any_may_go_;
    std::size_t bucket_{0};  // The bucket that make_room() looked at last.
    std::unordered_map<std::string, Value, KeyedHash> by_key_{};
};

// Where the options do not ask for a wrapper, make_...() returns null and with_...() returns the
// backend unchanged.

/// Denials that this process remembers (LimiterOptions::deny_cache): a key that is denied for a
/// minute is not asked about for a minute. Thread-safe. A forked child begins with an empty cache.
class DenyCache;
std::shared_ptr<DenyCache> make_deny_cache(const LimiterOptions& options);
/// A backend that answers a hit from the cache if the same hit was denied and its retry_after has
/// not passed since it was sent.
std::unique_ptr<LimiterBackend> with_deny_cache(std::unique_ptr<LimiterBackend> backend,
                                                std::shared_ptr<DenyCache> cache);
/// Removes a key's denial from all caches of this process, before and after a call that sets the
/// key's state, such as a reset. Costs one atomic load if there are no caches.
void forget_denials(const std::string& key);

/// Units of a limit that this process holds (LimiterOptions::lease): leases.cpp.
class Leases;
std::shared_ptr<Leases> make_leases(const LimiterOptions& options);
/// A backend that spends leased units first.
std::unique_ptr<LimiterBackend> with_leases(std::unique_ptr<LimiterBackend> backend,
                                            std::shared_ptr<Leases> leases,
                                            const LimiterOptions& options);

/// A backend that answers for the store while it is away (LimiterOptions::on_error).
Result<std::unique_ptr<LimiterBackend>> with_outage_policy(
    std::unique_ptr<LimiterBackend> backend, const std::shared_ptr<redis::Client>& client,
    const LimiterOptions& options);

}  // namespace hotcount
