// Algorithms over memory: a base for all, and the one that runs a law (backends.hpp) under the key's
// lock.
#pragma once

#include <algorithm>
#include <chrono>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/hash.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "limiter/algorithm.hpp"

namespace hotcount {

class MemoryLimiterBackend : public LimiterBackend {
  public:
    MemoryLimiterBackend(std::shared_ptr<memory::Store> store, std::int64_t limit)
        : store_(std::move(store)), limit_(limit) {}

    std::string_view store_prefix() const override { return store_->options().prefix; }
    std::string store_name() const override { return "memory"; }

    Result<void> reset(const std::string& key, Timeout) override {
        return store_->remove(key, [](const memory::Entry*) { return Result<void>{}; });
    }

  protected:
    // The store's time, not the limiter's own: limiters of one name share their states.
    std::int64_t law_now() const { return law_time(store_->now()); }
    std::int64_t law_time(SteadyTime at) const {
        return to_us(at.time_since_epoch()) + to_us(store_->epoch());
    }
    static std::int64_t to_us(Duration duration) {
        return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
    }

    // A hit that a full store could not keep, as `when_full` says. An idle key would have admitted it:
    // a cost above the limit does not come here.
    Result<Outcome> or_untracked(Result<Outcome> outcome, std::int64_t cost) {
        if (outcome.ok() || !store_->admits_untracked(outcome.error())) return outcome;
        Outcome untracked{true, limit_ - cost, 0, 0, true};
        untracked.taken = cost;
        return untracked;
    }

    std::shared_ptr<memory::Store> store_;
    std::int64_t limit_;
};

/// The state of a key that was blocked, and until when, in microseconds since the epoch. Other keys
/// have the plain state, so that blocks cost them nothing.
template <class State>
struct MarkedState {
    std::optional<State> state{};
    std::int64_t blocked_until{0};
};

/// Where a hit of this op_id is remembered, beside a limiter's key.
Result<std::string> op_key(const std::string& key, std::string_view op_id);
/// What stands there in memory.
struct RememberedHit {
    Outcome outcome{};
};

/// What hit_all() and hit_once() need of a law in memory.
class JointInMemory : public MemoryLimiterBackend {
  public:
    using MemoryLimiterBackend::MemoryLimiterBackend;

    const void* joins() const override { return store_.get(); }
    void hit_together(std::vector<JointHit> hits, const AsyncCall& call,
                      Completion<std::vector<Outcome>> done) override;
    void hit_once(const std::string& key, std::int64_t cost, const OnceOnly& once, const AsyncCall&,
                  Completion<Outcome> done) override;

  protected:
    // Under the key's lock. Null: the key is absent.
    virtual Result<Outcome> look(const std::string& key, const memory::Entry* entry,
                                 std::int64_t cost) const = 0;
    virtual Result<Outcome> take_from(const std::string& key, memory::Entry& entry, bool fresh,
                                      std::int64_t cost, Take take) const = 0;

  private:
    template <class Places>
    Result<Outcome> take_once(Places& places, const std::string& key, std::int64_t cost);
};

/// Runs the law under the key's lock.
template <class Law>
class SteppedInMemory final : public JointInMemory {
    using State = typename Law::State;
    using Marked = MarkedState<State>;

  public:
    /// `prefix`: what the limiter's keys begin with, after the store's.
    SteppedInMemory(std::shared_ptr<memory::Store> store, const Law& law, std::string_view prefix)
        : JointInMemory(std::move(store), law.limit()),
          law_(law),
          hash_(full_key(store_->options().prefix, prefix, {})) {}

    Result<void> hit(std::string_view prefix, std::string_view key, std::int64_t cost,
                     Timeout timeout, Outcome& outcome) override {
        if (cost > limit_) return JointInMemory::hit(prefix, key, cost, timeout, outcome);
        const auto name = memory::Store::hashed(hash_, key);
        // Before the lock: it is short then, and a clock that went backwards stands still.
        const SteadyTime at = store_->recent_now();
        auto done = store_->upsert(name, at, [&](memory::Entry& entry, bool fresh) -> Result<void> {
            if (State* const state = entry.as<State>(fresh)) [[likely]] {
                take_plain(entry, *state, fresh, cost, law_time(at), outcome);
            } else {
                HOTCOUNT_TRY_ASSIGN(outcome,
                                    take(entry, false, cost, Take::all, law_time(at), name));
            }
            return {};
        });
        if (!done) [[unlikely]] {
            HOTCOUNT_TRY_ASSIGN(outcome, or_untracked(std::move(done).error(), cost));
            return {};
        }
        return done;
    }

    Result<Outcome> decide(const std::string& key, std::int64_t cost, Take take, std::string_view,
                           Timeout) override {
        if (take == Take::block) return block(key, cost);
        if (take == Take::what_fits) cost = std::min(cost, limit_);
        // What can only be denied must not leave an absent key behind.
        if (take == Take::nothing || cost > limit_) {
            return store_->read(key,
                                [&](const memory::Entry* entry) { return look(key, entry, cost); });
        }
        if (cost < 0) {
            return store_->modify(key, [&](memory::Entry* entry) -> Result<Outcome> {
                if (entry != nullptr) return take_from(key, *entry, false, cost, take);
                return step_of(law_, nullptr, law_now(), cost, false).outcome;
            });
        }
        return or_untracked(store_->upsert(key,
                                           [&](memory::Entry& entry, bool fresh) {
                                               return take_from(key, entry, fresh, cost, take);
                                           }),
                            cost);
    }

  private:
    // From the whole microsecond that was decided on, as the outcome says.
    void expire(memory::Entry& entry, std::int64_t at) const {
        entry.expires_at = SteadyTime{std::chrono::microseconds{at - to_us(store_->epoch())}};
    }

    Result<Outcome> look(const std::string& key, const memory::Entry* entry,
                         std::int64_t cost) const override {
        const State* state = entry ? entry->as<State>() : nullptr;
        std::int64_t left = 0;
        const std::int64_t now = law_now();
        if (entry != nullptr && state == nullptr) {
            const auto* const marked = entry->as<Marked>();
            if (marked == nullptr) return no_limit_state(key);
            state = marked->state ? &*marked->state : nullptr;
            left = marked->blocked_until - now;
        }
        const Outcome outcome = step_of(law_, state, now, cost, false).outcome;
        return left > 0 ? blocked(outcome, left) : outcome;
    }

    Result<Outcome> take_from(const std::string& key, memory::Entry& entry, bool fresh,
                              std::int64_t cost, Take take) const override {
        return this->take(entry, fresh, cost, take, law_now(), memory::Store::Hashed{{}, key, 0});
    }

    // What take() does for a key that is not blocked. Flat, so that the numbers stay in registers.
    [[gnu::flatten]] void take_plain(memory::Entry& entry, State& state, bool fresh,
                                     std::int64_t cost, std::int64_t now, Outcome& outcome) const {
        auto change = law_.step(fresh ? nullptr : &state, now, cost, true, outcome);
        if (outcome.allowed) outcome.taken = cost;
        const bool changed = change.has_value();
        if (changed) apply_change(law_, state, std::move(*change));
        if (changed || !entry.expires_at) expire(entry, now + outcome.reset_after_us);
    }

    Result<Outcome> take(memory::Entry& entry, bool fresh, std::int64_t cost, Take take,
                         std::int64_t now, const memory::Store::Hashed& key) const {
        auto* state = entry.as<State>(fresh);
        const State* known = fresh ? nullptr : state;
        if (state == nullptr) {
            auto* const marked = entry.as<Marked>(false);
            if (marked == nullptr) return no_limit_state(key.text());
            known = state = marked->state ? &*marked->state : nullptr;
            const std::int64_t left = marked->blocked_until - now;
            if (left > 0) {
                auto looked = step_of(law_, known, now, cost, cost < 0 && known != nullptr);
                if (looked.change) apply_change(law_, *state, std::move(*looked.change));
                const std::int64_t remaining = looked.outcome.remaining;
                looked.outcome = blocked(looked.outcome, left);
                if (cost < 0) looked.outcome.remaining = remaining;
                return looked.outcome;
            }
            // The block has passed: a plain state again.
            std::optional<State> kept = std::move(marked->state);
            state = &entry.value.emplace<State>();
            if (kept) *state = std::move(*kept);
            known = kept ? state : nullptr;
        }
        bool takes = true;
        if (take == Take::what_fits) {
            const std::int64_t room = step_of(law_, known, now, 1, false).outcome.remaining;
            takes = room > 0;
            cost = takes ? std::min(cost, room) : 1;
        }
        auto next = step_of(law_, known, now, cost, takes);
        if (takes && next.outcome.allowed) next.outcome.taken = cost;
        const bool changed = next.change.has_value();
        if (changed) apply_change(law_, *state, std::move(*next.change));
        if (changed || !entry.expires_at) expire(entry, now + next.outcome.reset_after_us);
        return next.outcome;
    }

    Result<Outcome> block(const std::string& key, std::int64_t duration) {
        return store_->upsert(key, [&](memory::Entry& entry, bool fresh) -> Result<Outcome> {
            const std::int64_t now = law_now();
            if (fresh) entry.value.emplace<Marked>();
            if (auto* const state = entry.as<State>(false)) {
                std::optional<State> kept = std::move(*state);
                entry.value.emplace<Marked>().state = std::move(kept);
            }
            auto* const marked = entry.as<Marked>(false);
            if (marked == nullptr) return no_limit_state(key);
            marked->blocked_until = now + duration;
            const State* const known = marked->state ? &*marked->state : nullptr;
            const Outcome outcome = blocked(step_of(law_, known, now, 1, false).outcome, duration);
            expire(entry, now + outcome.reset_after_us);
            return outcome;
        });
    }

    const Law law_;
    const KeyedHashAfter hash_;
};

}  // namespace hotcount
