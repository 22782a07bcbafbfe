// Algorithms over memory: a base for all, and the one that runs a law (backends.hpp) under the
// key's lock.
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
#include <variant>
#include <vector>

#include "limiter/algorithm.hpp"
#include "limiter/reservations.hpp"

namespace hotcount {

/// Where a hit of this op_id is remembered, beside a limiter's key.
Result<std::string> op_key(const std::string& key, std::string_view op_id);
/// Where a commit of this op_id is remembered: a hit may have the same op_id.
Result<std::string> commit_op_key(const std::string& key, std::string_view op_id);
/// The value at these keys in memory.
struct RememberedHit {
    Outcome outcome{};
};

/// When a state was changed last, or its window began.
template <class State>
std::int64_t time_of(const State& state) {
    return state.time();
}
/// Of several rates: the latest.
template <class State>
std::int64_t time_of(const std::vector<State>& states) {
    std::int64_t latest = 0;
    for (const State& state : states) latest = std::max(latest, state.time());
    return latest;
}

/// The part that does not depend on the law.
class MemoryLimiterBackend : public LimiterBackend {
  public:
    MemoryLimiterBackend(std::shared_ptr<memory::Store> store, std::int64_t limit)
        : LimiterBackend({store->options().prefix, "memory", KeyRule::any_bytes, store.get()}),
          store_(std::move(store)),
          limit_(limit),
          epoch_us_(to_us(store_->epoch())) {}

    void hit_together(std::vector<JointHit> hits, const AsyncCall& call,
                      Completion<std::vector<Outcome>> done) override;

  protected:
    // Under the key's lock. Null: the key is absent.
    virtual Result<Outcome> look(const std::string& key, const memory::Entry* entry,
                                 std::int64_t cost) const = 0;
    virtual Result<Outcome> take_from(const std::string& key, memory::Entry& entry, bool fresh,
                                      std::int64_t cost, Take take) const = 0;
    /// Ends a reservation and takes the used units. Null: the key is absent and `used` is 0.
    virtual Result<Outcome> end_in(const std::string& key, memory::Entry* entry, bool fresh,
                                   std::string_view id, std::int64_t used) const = 0;

    Result<Outcome> hit_once(const std::string& key, std::int64_t cost, const OnceOnly& once);
    Result<Outcome> commit(const std::string& key, const CommitRequest& commit);

    // The store's time, not the limiter's own: limiters of one name share their states.
    std::int64_t law_now() const { return law_time(store_->now()); }
    std::int64_t law_time(SteadyTime at) const { return to_us(at.time_since_epoch()) + epoch_us_; }
    static std::int64_t to_us(Duration duration) {
        return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
    }

    // A hit that a full store could not keep, as `when_full` says. An idle key would have admitted
    // it: a cost above the limit does not come here.
    Result<Outcome> or_untracked(Result<Outcome> outcome, std::int64_t cost) {
        if (outcome.ok() || !store_->admits_untracked(outcome.error())) return outcome;
        Outcome untracked{true, limit_ - cost, 0, 0, true};
        untracked.taken = cost;
        return untracked;
    }

    std::shared_ptr<memory::Store> store_;
    std::int64_t limit_;
    const std::int64_t epoch_us_;

  private:
    // Applies once per op_id, which is remembered at `beside`; else repeats, with the key's entry.
    template <class Apply, class Repeat>
    Result<Outcome> remember(const std::string& key, const Result<std::string>& beside,
                             const OnceOnly& once, const Apply& apply, const Repeat& repeat);
    Result<Outcome> settle(const std::string& key, std::string_view id, std::int64_t used);
    template <class Places>
    Result<Outcome> settle_once(Places& places, const std::string& key, std::string_view id,
                                std::int64_t used);
    template <class Places>
    Result<Outcome> take_once(Places& places, const std::string& key, std::int64_t cost);
};

/// Runs the law under the key's lock.
template <class Law>
class SteppedInMemory final : public MemoryLimiterBackend {
    using State = typename Law::State;
    using Marked = MarkedState<State>;

  public:
    /// `prefix`: the limiter's prefix of keys, after the store's. `charging`: the law with
    /// charge_denied, for commits of reservations. `charges`: `law` has charge_denied too.
    SteppedInMemory(std::shared_ptr<memory::Store> store, const Law& law, std::string_view prefix,
                    Result<Law> charging, bool charges)
        : MemoryLimiterBackend(std::move(store), law.limit()),
          law_(law),
          hash_(full_key(store_->options().prefix, prefix, {})),
          charging_(std::move(charging)),
          charges_(charges) {}

    Result<void> hit(std::string_view prefix, std::string_view key, std::int64_t cost,
                     Timeout timeout, Outcome& outcome) override {
        if (cost > limit_) return MemoryLimiterBackend::hit(prefix, key, cost, timeout, outcome);
        const auto name = memory::Store::hashed(hash_, key);
        // Read before the lock, to hold it for less time. A thread that loses its processor in
        // between is late for the lock: the key may have a later state by then, which must not be
        // taken for one from before a clock step.
        const SteadyTime at = store_->recent_now();
        auto done = store_->upsert(name, at, [&](memory::Entry& entry, bool fresh) -> Result<void> {
            if (State* const state = entry.as<State>(fresh)) [[likely]] {
                std::int64_t now = law_time(at);
                if (!fresh && lies_ahead(time_of(*state), now)) [[unlikely]]
                    now = law_now();
                take_plain(entry, *state, fresh, cost, now, outcome);
            } else {
                HOTCOUNT_TRY_ASSIGN(outcome, take(entry, false, cost, Take::all, law_now(), name));
            }
            return {};
        });
        if (!done) [[unlikely]] {
            HOTCOUNT_TRY_ASSIGN(outcome, or_untracked(std::move(done).error(), cost));
            return {};
        }
        return done;
    }

    void run(const std::string& key, const LimitRequest& request, const AsyncCall&,
             Completion<Outcome> done) override {
        done(std::visit([&](const auto& call) { return answer(key, call); }, request.call));
    }

    void hit_many(std::vector<std::string> keys, std::vector<std::int64_t> costs, const AsyncCall&,
                  Completion<std::vector<Result<Outcome>>> done) override {
        std::vector<Result<Outcome>> outcomes;
        outcomes.reserve(keys.size());
        for (std::size_t i = 0; i < keys.size(); ++i) {
            outcomes.push_back(answer(keys[i], HitRequest{costs[i]}));
        }
        done(std::move(outcomes));
    }

  private:
    Result<Outcome> answer(const std::string& key, const HitRequest& hit) {
        if (hit.once != nullptr) return hit_once(key, hit.cost, *hit.once);
        const Take take = hit.take;
        const std::int64_t cost = take == Take::what_fits ? std::min(hit.cost, limit_) : hit.cost;
        // A hit that is always denied must not create the key.
        if (take == Take::nothing || cost > limit_) {
            return store_->read(key,
                                [&](const memory::Entry* entry) { return look(key, entry, cost); });
        }
        return or_untracked(store_->upsert(key,
                                           [&](memory::Entry& entry, bool fresh) {
                                               return take_from(key, entry, fresh, cost, take);
                                           }),
                            cost);
    }
    Result<Outcome> answer(const std::string& key, const RefundRequest& refund) {
        return store_->modify(key, [&](memory::Entry* entry) -> Result<Outcome> {
            if (entry != nullptr) return give_back_to(key, *entry, refund.n);
            return give_back(law_, nullptr, law_now(), refund.n).outcome;
        });
    }
    Result<Outcome> answer(const std::string& key, const BlockRequest& block) {
        const std::int64_t life = block.life.count();
        return store_->upsert(key, [&](memory::Entry& entry, bool fresh) -> Result<Outcome> {
            const std::int64_t now = law_now();
            Marked* const marked = mark(entry, fresh, now);
            if (marked == nullptr) return no_limit_state(key);
            marked->mark.blocked_until = now + life;
            const Outcome outcome = blocked(
                step_beside(law_, known(*marked), now, 1, Take::nothing, false, marked->mark)
                    .outcome,
                life);
            settle_expiry(entry, *marked, now, outcome);
            return outcome;
        });
    }
    Result<Outcome> answer(const std::string& key, const ReserveRequest& one) {
        if (one.n > limit_) return answer(key, HitRequest{one.n, Take::nothing});
        const auto held = [&](memory::Entry& entry, bool fresh) -> Result<Outcome> {
            const std::int64_t now = law_now();
            Marked* const marked = mark(entry, fresh, now);
            if (marked == nullptr) return no_limit_state(key);
            const Outcome outcome = hold(*marked, now, one.n, one.id, one.lease_us);
            settle_expiry(entry, *marked, now, outcome);
            return outcome;
        };
        return or_untracked(store_->upsert(key, held), one.n);
    }
    Result<Outcome> answer(const std::string& key, const CommitRequest& one) {
        return commit(key, one);
    }
    Result<Outcome> answer(const std::string& key, const ResetRequest&) {
        const auto nothing = [](const memory::Entry*) -> Result<Outcome> { return Outcome{}; };
        return store_->remove(key, nothing);
    }

    Result<Outcome> end_in(const std::string& key, memory::Entry* entry, bool fresh,
                           std::string_view id, std::int64_t used) const override {
        if (!charging_) return charging_.error();
        const std::int64_t now = law_now();
        if (entry == nullptr) return step_of(law_, nullptr, now, 1, false).outcome;
        Marked* const marked = mark(*entry, fresh, now);
        if (marked == nullptr) return no_limit_state(key);
        marked->mark.remove(id);
        const std::uint8_t misfits = charge_used(*charging_, marked->state, now, used);
        const Outcome outcome = at_each_rate(
            law_, known(*marked), [&](const auto& one, const auto* kept, std::size_t rate) {
                Outcome at_rate =
                    step_beside(one, kept, now, 1, Take::nothing, false, marked->mark).outcome;
                at_rate.allowed = (misfits >> rate & 1U) == 0;
                if (at_rate.allowed) at_rate.retry_after_us = 0;
                return at_rate;
            });
        settle_expiry(*entry, *marked, now, outcome);
        return outcome;
    }

    static const State* known(const Marked& marked) {
        return marked.state ? &*marked.state : nullptr;
    }
    // From the whole microsecond that was decided on, as the outcome says.
    void expire(memory::Entry& entry, std::int64_t at) const {
        entry.expires_at = SteadyTime{std::chrono::microseconds{at - epoch_us_}};
    }

    // The entry's state with a mark; a plain state gets one. Null if the entry has another type.
    Marked* mark(memory::Entry& entry, bool fresh, std::int64_t now) const {
        if (fresh) return &entry.value.emplace<Marked>();
        if (auto* const state = entry.as<State>(false)) {
            std::optional<State> kept = std::move(*state);
            auto& marked = entry.value.emplace<Marked>();
            marked.state = std::move(kept);
            return &marked;
        }
        auto* const marked = entry.as<Marked>(false);
        if (marked != nullptr) marked->mark.drop_ended(now);
        return marked;
    }
    // Sets the entry's expiry, and makes the state plain again if its mark has ended.
    void settle_expiry(memory::Entry& entry, Marked& marked, std::int64_t now,
                       const Outcome& outcome) const {
        const std::int64_t until = std::max(marked.mark.blocked_until, marked.mark.lasts());
        expire(entry, std::max(now + outcome.forget_after_us(), until));
        if (marked.mark.counts(now) || !marked.state) return;
        std::optional<State> kept = std::move(marked.state);
        entry.value.emplace<State>() = std::move(*kept);
    }

    Outcome hold(Marked& marked, std::int64_t now, std::int64_t n, std::string_view id,
                 std::int64_t lease) const {
        KeyMark& mark = marked.mark;
        const std::int64_t left = mark.blocked_until - now;
        const auto look = [&](std::int64_t cost) {
            return step_beside(law_, known(marked), now, cost, Take::nothing, false, mark).outcome;
        };
        if (mark.has(id)) {  // It comes once more.
            return at_each_rate(
                law_, known(marked), [&](const auto& one, const auto* kept, std::size_t) {
                    Outcome outcome =
                        step_beside(one, kept, now, 1, Take::nothing, false, mark).outcome;
                    outcome.allowed = true;
                    outcome.retry_after_us = 0;
                    return outcome;
                });
        }
        Outcome outcome = look(n);
        if (left > 0) return blocked(outcome, left);
        if (outcome.allowed && mark.live.size() == KeyMark::kMost) {
            outcome.allowed = false;
            outcome.rate = 0;
            outcome.violated = 1;
            outcome.retry_after_us = std::ranges::min(mark.live, {}, &Reservation::ends).ends - now;
        }
        if (!outcome.allowed) return outcome;
        mark.live.push_back({std::string{id}, n, now + lease});
        outcome.remaining -= n;
        outcome.reset_after_us = std::max(outcome.reset_after_us, lease);
        return outcome;
    }

    Result<Outcome> look(const std::string& key, const memory::Entry* entry,
                         std::int64_t cost) const override {
        const std::int64_t now = law_now();
        if (entry == nullptr) return step_of(law_, nullptr, now, cost, false).outcome;
        if (const State* const state = entry->as<State>()) {
            return step_of(law_, state, now, cost, false).outcome;
        }
        const auto* const marked = entry->as<Marked>();
        if (marked == nullptr) return no_limit_state(key);
        KeyMark mark = marked->mark;
        mark.drop_ended(now);
        const Outcome outcome =
            step_beside(law_, known(*marked), now, cost, Take::nothing, false, mark).outcome;
        const std::int64_t left = mark.blocked_until - now;
        return left > 0 ? blocked(outcome, left) : outcome;
    }

    Result<Outcome> take_from(const std::string& key, memory::Entry& entry, bool fresh,
                              std::int64_t cost, Take take) const override {
        return this->take(entry, fresh, cost, take, law_now(), memory::Store::Hashed{{}, key, 0});
    }

    // take() for a key that is not blocked. Flattened, so that the numbers stay in registers.
    [[gnu::flatten]] void take_plain(memory::Entry& entry, State& state, bool fresh,
                                     std::int64_t cost, std::int64_t now, Outcome& outcome) const {
        auto change = law_.step(fresh ? nullptr : &state, now, cost, true, outcome);
        if (outcome.allowed) outcome.taken = cost;
        const bool changed = change.has_value();
        if (changed) apply_change(law_, state, std::move(*change));
        if (changed || !entry.expires_at) expire(entry, now + outcome.forget_after_us());
    }

    Result<Outcome> take(memory::Entry& entry, bool fresh, std::int64_t cost, Take take,
                         std::int64_t now, const memory::Store::Hashed& key) const {
        auto* const state = entry.as<State>(fresh);
        if (state == nullptr) {
            Marked* const marked = mark(entry, false, now);
            if (marked == nullptr) return no_limit_state(key.text());
            return take_beside(entry, *marked, now, cost, take);
        }
        const State* const known = fresh ? nullptr : state;
        bool takes = true;
        if (take == Take::what_fits) {
            const std::int64_t room = step_of(law_, known, now, 1, false).outcome.remaining;
            takes = room > 0;
            cost = takes ? std::min(cost, room) : 1;
        }
        auto next = step_of(law_, known, now, cost, takes, take == Take::ahead);
        if (takes && next.outcome.allowed) next.outcome.taken = cost;
        const bool changed = next.change.has_value();
        if (changed) apply_change(law_, *state, std::move(*next.change));
        if (changed || !entry.expires_at) expire(entry, now + next.outcome.forget_after_us());
        return next.outcome;
    }

    Result<Outcome> take_beside(memory::Entry& entry, Marked& marked, std::int64_t now,
                                std::int64_t cost, Take take) const {
        const std::int64_t left = marked.mark.blocked_until - now;
        if (left > 0) take = Take::nothing;
        auto next = step_beside(law_, known(marked), now, cost, take, charges_, marked.mark);
        if (next.change) {
            if (!marked.state) marked.state.emplace();
            apply_change(law_, *marked.state, std::move(*next.change));
        }
        const Outcome outcome = left > 0 ? blocked(next.outcome, left) : next.outcome;
        settle_expiry(entry, marked, now, outcome);
        return outcome;
    }

    // Although the key may be blocked.
    Result<Outcome> give_back_to(const std::string& key, memory::Entry& entry,
                                 std::int64_t n) const {
        const std::int64_t now = law_now();
        Marked* const marked = mark(entry, false, now);
        if (marked == nullptr) return no_limit_state(key);
        auto next = give_back(law_, known(*marked), now, n);
        if (next.change) apply_change(law_, *marked->state, std::move(*next.change));
        const Outcome beside = beside_held(next.outcome, marked->mark, now);
        const std::int64_t left = marked->mark.blocked_until - now;
        Outcome outcome = left > 0 ? blocked(beside, left) : beside;
        outcome.remaining = beside.remaining;
        settle_expiry(entry, *marked, now, outcome);
        return outcome;
    }

    const Law law_;
    const KeyedHashAfter hash_;
    const Result<Law> charging_;
    const bool charges_;
};

}  // namespace hotcount
