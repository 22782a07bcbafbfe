// Hits that may be sent again: hits that count once for each op_id, and hits that wait until they
// are admitted.
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/op_id.hpp>

#include "limiter/backends.hpp"
#include "limiter/waiting_line.hpp"

namespace hotcount {

Error hit_op_id_too_old(std::string_view op_id) {
    return bad_option(
        "op_id",
        printable(op_id) +
            " was made longer than op_keep ago: this hit took nothing, and the result of an "
            "earlier hit with it is no longer stored",
        std::string{op_id});
}

Error hit_op_id_ahead(std::string_view op_id) {
    return bad_option(
        "op_id",
        printable(op_id) +
            " was made further ahead of the store's clock than op_keep; this hit took "
            "nothing",
        std::string{op_id});
}

Result<Outcome> MemoryLimiterBackend::hit_once(const std::string& key, std::int64_t cost,
                                               const OnceOnly& once) {
    return remember(
        key, op_key(key, once.op_id), once,
        [&](auto& places) { return take_once(places, key, cost); }, [](const memory::Entry*) {});
}

Result<Outcome> MemoryLimiterBackend::commit(const std::string& key, const CommitRequest& commit) {
    const auto& [id, used, once] = commit;
    if (once == nullptr) return settle(key, id, used);
    return remember(
        key, commit_op_key(key, once->op_id), *once,
        [&](auto& places) { return settle_once(places, key, commit.id, commit.used); },
        [&](memory::Entry* entry) {
            // The repeated commit may name another reservation than the first one: it is released.
            if (entry != nullptr) (void)end_in(key, entry, false, commit.id, 0);
        });
}

template <class Apply, class Repeat>
Result<Outcome> MemoryLimiterBackend::remember(const std::string& key,
                                               const Result<std::string>& beside,
                                               const OnceOnly& once, const Apply& apply,
                                               const Repeat& repeat) {
    if (!beside) return beside.error();
    const std::string_view keys[] = {key, *beside};
    return store_->visit_all(keys, [&](auto& places) -> Result<Outcome> {
        if (memory::Entry* const known = places.find(1)) {
            const auto* const hit = known->template as<RememberedHit>(false);
            if (hit == nullptr) return no_limit_state(*beside);
            repeat(places.find(0));
            return hit->outcome;
        }
        const std::chrono::milliseconds now{law_now() / 1000};
        std::chrono::milliseconds keep = once.keep;
        if (const auto made = made_at(once.op_id)) {
            if (*made + keep <= now) return hit_op_id_too_old(once.op_id);
            if (*made - now > keep) return hit_op_id_ahead(once.op_id);
            keep += std::max(*made - now, std::chrono::milliseconds{0});
        }
        auto place = places.make(1);
        if (!place) {
            // A full store has no room for the op_id. The hit is decided without it.
            if (!store_->admits_untracked(place.error())) return std::move(place).error();
            return apply(places);
        }
        RememberedHit& hit = (*place)->value.template emplace<RememberedHit>();
        (*place)->expires_at = store_->now() + keep;
        auto outcome = apply(places);
        if (outcome && !outcome->untracked) {
            hit.outcome = *outcome;
        } else {
            places.take_back(1);
        }
        return outcome;
    });
}

Result<Outcome> MemoryLimiterBackend::settle(const std::string& key, std::string_view id,
                                             std::int64_t used) {
    if (used == 0) {
        return store_->modify(
            key, [&](memory::Entry* entry) { return end_in(key, entry, false, id, 0); });
    }
    return or_untracked(
        store_->upsert(key, [&](memory::Entry& entry,
                                bool fresh) { return end_in(key, &entry, fresh, id, used); }),
        std::min(used, limit_));
}

template <class Places>
Result<Outcome> MemoryLimiterBackend::settle_once(Places& places, const std::string& key,
                                                  std::string_view id, std::int64_t used) {
    memory::Entry* entry = places.find(0);
    if (entry != nullptr || used == 0) return end_in(key, entry, false, id, used);
    auto made = places.make(0);
    if (!made) return or_untracked(std::move(made).error(), std::min(used, limit_));
    return end_in(key, *made, true, id, used);
}

template <class Places>
Result<Outcome> MemoryLimiterBackend::take_once(Places& places, const std::string& key,
                                                std::int64_t cost) {
    memory::Entry* entry = places.find(0);
    if (entry != nullptr) return take_from(key, *entry, false, cost, Take::all);
    // A hit that is always denied must not create the key.
    if (cost > limit_) return look(key, nullptr, cost);
    auto made = places.make(0);
    if (!made) return or_untracked(std::move(made).error(), cost);
    return take_from(key, **made, true, cost, Take::all);
}

Result<std::string> op_key(const std::string& key, std::string_view op_id) {
    return key_beside(key, "op." + std::string{op_id});
}

Result<std::string> commit_op_key(const std::string& key, std::string_view op_id) {
    return key_beside(key, "commit." + std::string{op_id});
}

Result<void> Limiter::check_once(std::int64_t cost, std::string_view op_id) const {
    HOTCOUNT_TRY(check(cost));
    if (!op_id.empty() && op_id.size() <= kMaxKeyBytes) return {};
    return bad_option("op_id", "takes 1 to 1000 bytes");
}

OnceOnly Limiter::once(std::string_view op_id) const {
    return {op_id, std::chrono::ceil<std::chrono::milliseconds>(options_.op_keep)};
}

Result<Decision> Limiter::hit_once(std::string_view key, std::int64_t cost, std::string_view op_id,
                                   Timeout timeout) {
    return wait_for<Decision>([&](Completion<Decision> done) {
        hit_once_async(key, cost, op_id, std::move(done), backend_->waiting(timeout));
    });
}

void Limiter::hit_once_async(std::string_view key, std::int64_t cost, std::string_view op_id,
                             Completion<Decision> done, AsyncCall call) {
    const OnceOnly remembered = once(op_id);
    run(key, check_once(cost, op_id), {HitRequest{cost, Take::all, &remembered}}, call,
        decided(std::move(done)));
}

Duration detail::HitAhead::most(const Limiter& limiter, std::int64_t cost) {
    const LimiterOptions& options = limiter.options_;
    const Rate& rate = options.rates.front();
    // Lua must hold the debt of two bursts and one more hit exactly.
    const bool is_exact = rate.burst < kExact / 4 / rate.period.count();
    const bool is_bucket = limiter.info_.window == WindowKind::none;
    if (!is_bucket || !is_exact || options.rates.size() > 1 || cost != rate.burst ||
        options.charge_denied || options.shadow || options.lease > 1) {
        return {};
    }
    const std::int64_t whole = rate.burst * rate.period.count() / rate.limit;
    return std::chrono::microseconds{std::min(kMostAhead, whole / 2)};
}

Result<Decision> detail::HitAhead::now(Limiter& limiter, std::string_view key, std::int64_t cost,
                                       Timeout timeout) {
    return wait_for<Decision>([&](Completion<Decision> done) {
        later(limiter, key, cost, std::move(done), limiter.backend_->waiting(timeout));
    });
}

void detail::HitAhead::later(Limiter& limiter, std::string_view key, std::int64_t cost,
                             Completion<Decision> done, AsyncCall call) {
    const auto fits = limiter.check(cost);
    const bool early = fits && most(limiter, cost) > Duration{0};
    limiter.run(key, fits, {HitRequest{cost, early ? Take::ahead : Take::all}}, call,
                limiter.decided(std::move(done)));
}

Result<Decision> Limiter::acquire(std::string_view key, std::int64_t cost, Timeout patience) {
    using std::chrono::steady_clock;
    const Duration most_ahead = detail::HitAhead::most(*this, cost);
    Waiting waiting;
    waiting.cost = cost;
    if (patience) waiting.ends = steady_clock::now() + *patience;
    const auto may_be_ahead = [&](SteadyTime at) {
        return most_ahead > Duration{0} && (!waiting.ends || at + most_ahead < *waiting.ends);
    };
    waiting.ask = [&]() -> Result<Decision> {
        if (!may_be_ahead(steady_clock::now())) return hit(key, cost);
        return detail::HitAhead::now(*this, key, cost);
    };
    waiting.pause = [&](const Decision& decision, bool) -> std::optional<Duration> {
        const Duration wait = decision.retry_after.value_or(Duration{0});
        if (decision.allowed) {
            const bool is_ahead = wait > Duration{0} && decision.reason == Reason::allowed;
            return is_ahead ? std::optional{wait} : std::nullopt;
        }
        const auto now = steady_clock::now();
        if (waiting.ends && now + wait > *waiting.ends) return std::nullopt;
        if (!decision.retry_after) return std::nullopt;
        const Duration early = most_ahead * 19 / 20;  // No hit may come too early.
        return wait > early && may_be_ahead(now + wait - early) ? wait - early : wait;
    };
    return wait_in_line(this, key, waiting);
}

}  // namespace hotcount
