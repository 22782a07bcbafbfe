// Hits that are repeated: those that count once for each op_id, and those that wait until they are
// admitted.
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/op_id.hpp>
#include <thread>

#include "limiter/backends.hpp"

namespace hotcount {

Error hit_op_id_too_old(std::string_view op_id) {
    return bad_option(
        "op_id",
        printable(op_id) +
            " was made longer than op_keep ago: this hit took nothing, and whether an "
            "earlier one with it did is no longer known",
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

void LimiterBackend::hit_once(const std::string&, std::int64_t, const OnceOnly&, const AsyncCall&,
                              Completion<Outcome> done) {
    done(make_error(ErrorCode::config,
                    "op_id is for Memory and Redis: a limiter over a database remembers none"));
}

void JointInMemory::hit_once(const std::string& key, std::int64_t cost, const OnceOnly& once,
                             const AsyncCall&, Completion<Outcome> done) {
    const auto beside = op_key(key, once.op_id);
    if (!beside) return done(beside.error());
    const std::string_view keys[] = {key, *beside};
    done(store_->visit_all(keys, [&](auto& places) -> Result<Outcome> {
        if (memory::Entry* const known = places.find(1)) {
            const auto* const hit = known->template as<RememberedHit>(false);
            if (hit == nullptr) return no_limit_state(*beside);
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
        if (!place) return or_untracked(std::move(place).error(), cost);
        RememberedHit& hit = (*place)->value.template emplace<RememberedHit>();
        (*place)->expires_at = store_->now() + keep;
        auto outcome = take_once(places, key, cost);
        if (outcome && !outcome->untracked) {
            hit.outcome = *outcome;
        } else {
            places.take_back(1);
        }
        return outcome;
    }));
}

template <class Places>
Result<Outcome> JointInMemory::take_once(Places& places, const std::string& key,
                                         std::int64_t cost) {
    memory::Entry* entry = places.find(0);
    if (entry != nullptr) return take_from(key, *entry, false, cost, Take::all);
    // What can only be denied must not leave an absent key behind.
    if (cost > limit_) return look(key, nullptr, cost);
    auto made = places.make(0);
    if (!made) return or_untracked(std::move(made).error(), cost);
    return take_from(key, **made, true, cost, Take::all);
}

Result<std::string> op_key(const std::string& key, std::string_view op_id) {
    return key_beside(key, "op." + std::string{op_id});
}

Result<void> Limiter::check_once(std::int64_t cost, std::string_view op_id) const {
    HOTCOUNT_TRY(check(cost, {}));
    HOTCOUNT_TRY(check_refund("op_id"));
    if (!op_id.empty() && op_id.size() <= kMaxKeyBytes) return {};
    return bad_option("op_id", "takes 1 to 1000 bytes");
}

Result<Decision> Limiter::hit_once(std::string_view key, std::int64_t cost, std::string_view op_id,
                                   Timeout timeout) {
    // Over Memory, and over Redis' waiting channel, it has ended when it returns.
    std::optional<Result<Decision>> decided;
    hit_once_async(
        key, cost, op_id, [&](Result<Decision> decision) { decided.emplace(std::move(decision)); },
        backend_->waiting(timeout));
    return std::move(*decided);
}

void Limiter::hit_once_async(std::string_view key, std::int64_t cost, std::string_view op_id,
                             Completion<Decision> done, AsyncCall call) {
    if (auto fits = check_once(cost, op_id); !fits) return done(fits.error());
    const auto name = full(key);
    if (!name) return done(name.error());
    const OnceOnly once{op_id, std::chrono::ceil<std::chrono::milliseconds>(options_.op_keep)};
    backend_->hit_once(
        *name, cost, once, call,
        [rates = rates_, shadow = options_.shadow, done = std::move(done)](Result<Outcome> found) {
            if (!found) return done(std::move(found).error());
            done(to_decision(*found, *rates, shadow));
        });
}

Result<Decision> Limiter::acquire(std::string_view key, std::int64_t cost, Timeout patience) {
    const auto start = std::chrono::steady_clock::now();
    while (true) {
        HOTCOUNT_TRY_ASSIGN(const Decision decision, hit(key, cost));
        if (decision.allowed || !decision.retry_after) return decision;
        const Duration waited = std::chrono::steady_clock::now() - start;
        if (patience && waited + *decision.retry_after > *patience) return decision;
        std::this_thread::sleep_for(*decision.retry_after);
    }
}

}  // namespace hotcount
