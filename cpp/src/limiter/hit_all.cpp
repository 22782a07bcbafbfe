// hit_all: hits of several limiters of one store, all or none.
#include <algorithm>
#include <hotcount/detail/base/codec.hpp>
#include <map>

#include "limiter/backends.hpp"

namespace hotcount {
namespace {

constexpr std::size_t kMostHits = 100;

}  // namespace

/// What one call is to take.
class JointCall {
  public:
    using Done = Completion<JointDecision>;

    static Result<JointCall> make(std::span<const LimitedHit> hits);

    Result<JointDecision> run(Timeout timeout) const;
    void start(const AsyncCall& call, Done done) const;

  private:
    static Error refuse(const std::string& what) {
        return make_error(ErrorCode::config, "hit_all " + what);
    }
    static std::string told(const Limiter& limiter) {
        return printable(limiter.options_.name) + " (" + limiter.backend_->store_name() + ")";
    }
    // An outage is answered for when all of the limiters have a policy for it.
    LimiterBackend& backend() const {
        for (const JointHit& hit : hits_) {
            if (hit.backend->stand_in() == nullptr) return hit.backend->innermost();
        }
        return *hits_.front().backend;
    }
    // One key of a store on which nothing can be taken together.
    bool is_plain_hit() const { return backend().joins() == nullptr; }
    JointDecision decide(const std::vector<Outcome>& outcomes) const;

    std::vector<JointHit> hits_{};  // No two of one key.
    std::vector<std::shared_ptr<Limiter>> limiters_{};
};

Result<JointCall> JointCall::make(std::span<const LimitedHit> hits) {
    if (hits.empty() || hits.size() > kMostHits) {
        return refuse("got " + std::to_string(hits.size()) + " hits; it takes 1 to " +
                      std::to_string(kMostHits));
    }
    JointCall joint;
    std::map<std::string, std::size_t, std::less<>> places;
    const Limiter& first = *hits.front().limiter;
    for (const LimitedHit& hit : hits) {
        const Limiter& limiter = *hit.limiter;
        HOTCOUNT_TRY(limiter.check_refund("hit_all"));
        HOTCOUNT_TRY(limiter.check(hit.cost, {}));
        HOTCOUNT_TRY_ASSIGN(std::string name, limiter.full(hit.key));
        const auto [place, is_new] = places.try_emplace(name, joint.hits_.size());
        if (limiter.joins() != first.joins() ||
            (is_new && !joint.hits_.empty() && limiter.backend_->joins() == nullptr)) {
            return refuse(
                "takes several keys in one step on one Memory or one Redis, there without "
                "sliding_log; it got " +
                told(first) + " and " + told(limiter) +
                ": hit() them one after another, and refund() when one refuses");
        }
        if (is_new) {
            joint.hits_.push_back(
                {limiter.backend_.get(), std::move(name), hit.cost, limiter.options_.shadow});
            joint.limiters_.push_back(hit.limiter);
            continue;
        }
        JointHit& same = joint.hits_[place->second];
        if (__builtin_add_overflow(same.cost, hit.cost, &same.cost)) {
            return refuse("got costs of one key that do not fit in signed 64 bits together");
        }
        // One that must not be exceeded counts for both.
        same.looks_on = same.looks_on && limiter.options_.shadow;
    }
    return joint;
}

JointDecision JointCall::decide(const std::vector<Outcome>& outcomes) const {
    const auto refuses = [&](std::size_t i) { return !outcomes[i].allowed && !hits_[i].looks_on; };
    bool refused = false;
    std::size_t most = 0;
    std::int64_t remaining = outcomes.front().remaining;
    std::int64_t reset_after = 0;
    JointDecision joint{};
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
        remaining = std::min(remaining, outcomes[i].remaining);
        reset_after = std::max(reset_after, outcomes[i].reset_after_us);
        if (!outcomes[i].allowed) joint.violated.push_back(limiters_[i]->options().name);
        // A limiter that only looks on speaks when no other refuses.
        if (refuses(i) != refused ? refuses(i) : says_more(outcomes[i], outcomes[most])) most = i;
        refused = refused || refuses(i);
    }
    Outcome outcome = outcomes[most];
    outcome.remaining = remaining;
    outcome.reset_after_us = reset_after;
    joint.limiter = limiters_[most];
    joint.decision = to_decision(outcome, joint.limiter->options().rates, hits_[most].looks_on);
    return joint;
}

Result<JointDecision> JointCall::run(Timeout timeout) const {
    if (is_plain_hit()) {
        const JointHit& hit = hits_.front();
        HOTCOUNT_TRY_ASSIGN(const Outcome outcome,
                            hit.backend->decide(hit.key, hit.cost, Take::all_free, {}, timeout));
        return decide({outcome});
    }
    // Stores on which hits join call back before they return.
    std::optional<Result<JointDecision>> decided;
    start(backend().waiting(timeout),
          [&](Result<JointDecision> found) { decided.emplace(std::move(found)); });
    return std::move(*decided);
}

void JointCall::start(const AsyncCall& call, Done done) const {
    if (is_plain_hit()) {
        const JointHit& hit = hits_.front();
        hit.backend->decide_async(
            hit.key, hit.cost, Take::all_free, {}, call,
            [joint = *this, done = std::move(done)](const Result<Outcome>& outcome) {
                if (!outcome) return done(outcome.error());
                done(joint.decide({*outcome}));
            });
        return;
    }
    backend().hit_together(
        hits_, call,
        [joint = *this, done = std::move(done)](const Result<std::vector<Outcome>>& outcomes) {
            if (!outcomes) return done(outcomes.error());
            done(joint.decide(*outcomes));
        });
}

const void* Limiter::joins() const {
    const void* const store = backend_->joins();
    return store != nullptr ? store : this;
}

void hit_all_async(std::span<const LimitedHit> hits, Completion<JointDecision> done,
                   AsyncCall call) {
    const auto joint = JointCall::make(hits);
    if (!joint) return done(joint.error());
    joint->start(call, std::move(done));
}

Result<JointDecision> hit_all(std::span<const LimitedHit> hits, Timeout timeout) {
    HOTCOUNT_TRY_ASSIGN(const JointCall joint, JointCall::make(hits));
    return joint.run(timeout);
}

void JointInMemory::hit_together(std::vector<JointHit> hits, const AsyncCall&,
                                 Completion<std::vector<Outcome>> done) {
    std::vector<std::string_view> keys;
    keys.reserve(hits.size());
    for (const JointHit& hit : hits) keys.push_back(hit.key);
    const auto of = [](const JointHit& hit) -> JointInMemory& {
        return static_cast<JointInMemory&>(*hit.backend);
    };
    done(store_->visit_all(keys, [&](auto& places) -> Result<std::vector<Outcome>> {
        std::vector<Outcome> outcomes;
        bool refused = false;
        for (std::size_t i = 0; i < hits.size(); ++i) {
            auto looked = of(hits[i]).look(hits[i].key, places.find(i), hits[i].cost);
            if (!looked) return std::move(looked).error();
            refused = refused || !(looked->allowed || hits[i].looks_on);
            outcomes.push_back(*looked);
        }
        if (refused) return outcomes;
        // All room first, because what has been taken is not to be given back. An entry may expire in
        // between; it stays where it is while the locks are held.
        std::vector<memory::Entry*> entries(hits.size(), nullptr);
        std::vector<bool> fresh(hits.size(), false);
        for (std::size_t i = 0; i < hits.size(); ++i) {
            if (!outcomes[i].allowed) continue;
            entries[i] = places.find(i);
            if (entries[i] != nullptr) continue;
            if (auto made = places.make(i)) {
                entries[i] = *made;
                fresh[i] = true;
            } else {
                auto untracked = of(hits[i]).or_untracked(std::move(made).error(), hits[i].cost);
                if (!untracked) {
                    for (std::size_t k = 0; k < i; ++k) {
                        if (fresh[k]) places.take_back(k);
                    }
                    return untracked.error();
                }
                outcomes[i] = *untracked;
            }
        }
        for (std::size_t i = 0; i < hits.size(); ++i) {
            if (entries[i] == nullptr) continue;
            auto taken =
                of(hits[i]).take_from(hits[i].key, *entries[i], fresh[i], hits[i].cost, Take::all);
            if (!taken) return std::move(taken).error();
            outcomes[i] = *taken;
        }
        return outcomes;
    }));
}

}  // namespace hotcount
