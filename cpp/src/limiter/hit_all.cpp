// hit_all: hits of several limiters of one store, all or none.
#include <algorithm>
#include <array>
#include <atomic>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/event.hpp>
#include <hotcount/detail/base/interrupt.hpp>
#include <hotcount/op_id.hpp>
#include <map>

#include "limiter/backends.hpp"

namespace hotcount {
namespace {

constexpr std::size_t kMostHits = 100;

// The lease of reserved hits: it releases them if this process dies before it commits.
constexpr std::chrono::seconds kHold{10};

// Ranks the policies. If two limiters hit one key, the stricter policy decides.
int strictness(OutagePolicy policy) {
    constexpr std::array kOfPolicies{3, 0, 2, 1};  // raise, open, closed, local
    return kOfPolicies[static_cast<std::size_t>(policy)];
}

// A cluster refuses a script whose keys are in several slots, and applies nothing.
bool is_of_several_slots(const Error& error) { return error.server_code == "CROSSSLOT"; }

}  // namespace

/// The hits of one call.
class JointCall {
  public:
    using Done = Completion<JointDecision>;

    static Result<JointCall> make(std::span<const LimitedHit> hits);

    AsyncCall waiting(Timeout timeout) const { return backend().waiting(timeout); }
    void start(const AsyncCall& call, Done done) const;

  private:
    class InSlots;
    void start_in_slots(const AsyncCall& call, const Done& done) const;

    static Error refuse(const std::string& what) {
        return make_error(ErrorCode::config, "hit_all " + what);
    }
    static std::string describe(const Limiter& limiter) {
        return printable(limiter.options_.name) + " (" + limiter.backend_->place().name + ")";
    }
    // Outage policies apply only if each of the limiters has one.
    LimiterBackend& backend() const {
        for (const JointHit& hit : hits_) {
            if (hit.backend->stand_in() == nullptr) return hit.backend->innermost();
        }
        return *hits_.front().backend;
    }
    // The only key of a store that cannot take hits of several keys in one step.
    bool is_plain_hit() const { return backend().place().joins == nullptr; }
    JointDecision decide(const std::vector<Outcome>& outcomes) const;

    std::vector<JointHit> hits_{};  // One for each key.
    std::vector<std::shared_ptr<Limiter>> limiters_{};
    std::vector<std::size_t> places_{};  // For each hit of the caller, its index in hits_.
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
        HOTCOUNT_TRY(limiter.check(hit.cost));
        HOTCOUNT_TRY_ASSIGN(std::string name, limiter.full(hit.key));
        const auto [place, is_new] = places.try_emplace(name, joint.hits_.size());
        joint.places_.push_back(place->second);
        if (limiter.joins() != first.joins() ||
            (is_new && !joint.hits_.empty() && limiter.backend_->place().joins == nullptr)) {
            return refuse(
                "takes several keys in one step on one Memory or one Redis, there without "
                "sliding_log; it got " +
                describe(first) + " and " + describe(limiter) +
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
        // If one of the limiters is no shadow, both hits of the key must fit.
        same.is_shadow = same.is_shadow && limiter.options_.shadow;
        std::shared_ptr<Limiter>& strictest = joint.limiters_[place->second];
        if (strictness(limiter.options_.on_error) > strictness(strictest->options_.on_error)) {
            strictest = hit.limiter;
            same.backend = limiter.backend_.get();
        }
    }
    return joint;
}

JointDecision JointCall::decide(const std::vector<Outcome>& outcomes) const {
    const auto refuses = [&](std::size_t i) { return !outcomes[i].allowed && !hits_[i].is_shadow; };
    bool refused = false;
    std::size_t most = 0;
    std::int64_t remaining = outcomes.front().remaining;
    JointDecision joint{};
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
        remaining = std::min(remaining, outcomes[i].remaining);
        if (!outcomes[i].allowed) joint.violated.push_back(limiters_[i]->options().name);
        // A shadow limiter gives the decision only if no other limiter refuses.
        if (refuses(i) != refused ? refuses(i) : says_more(outcomes[i], outcomes[most])) most = i;
        refused = refused || refuses(i);
    }
    Outcome outcome = outcomes[most];
    outcome.remaining = remaining;
    joint.limiter = limiters_[most];
    for (const std::size_t place : places_) {
        joint.answered_by.push_back(outcomes[place].instead);
    }
    joint.decision = to_decision(outcome, joint.limiter->options().rates, hits_[most].is_shadow);
    return joint;
}

// -- keys in several slots of a cluster -----------------------------------------------------------

// Reserves each hit in its slot, then commits all reservations, or releases them if one hit was not
// reserved. Other hits count reserved units as taken. If the process dies before the commits,
// nothing is taken and the units are free after hold_. If it dies between commits, a part is taken.
//
// All reserves are sent at once, each with the whole timeout. So are all commits. A slow slot takes
// no time from the others.
class JointCall::InSlots : public std::enable_shared_from_this<InSlots> {
  public:
    InSlots(JointCall joint, const AsyncCall& call, Done done)
        : joint_(std::move(joint)),
          call_(call),
          done_(std::move(done)),
          answers_(joint_.hits_.size(), Result<Outcome>{Outcome{}}) {
        // The prefix hides the UUIDv7: the store would check its age.
        for (std::size_t i = 0; i < answers_.size(); ++i) ids_.push_back("all-" + new_op_id());
    }

    void start() {
        for (std::size_t i = 0; i < ids_.size(); ++i) {
            auto fits = joint_.limiters_[i]->check_reservation(ids_[i], joint_.hits_[i].cost, 1);
            if (!fits) return done_(std::move(fits).error());
        }
        left_ = ids_.size();
        for (std::size_t i = 0; i < ids_.size(); ++i) {
            const JointHit& hit = joint_.hits_[i];
            const ReserveRequest held{hit.cost, ids_[i], std::chrono::microseconds{hold_}.count()};
            backend(i).run(hit.key, {held}, step(),
                           [self = shared_from_this(), i](Result<Outcome> answer) {
                               self->answers_[i] = std::move(answer);
                               if (--self->left_ == 0) self->settle();
                           });
        }
    }

  private:
    LimiterBackend& backend(std::size_t i) const {
        LimiterBackend& own = *joint_.hits_[i].backend;
        return joint_.backend().stand_in() != nullptr ? own : own.innermost();
    }
    bool is_held(std::size_t i) const {
        return answers_[i] && answers_[i]->allowed && answers_[i]->instead == Reason::allowed;
    }
    bool may_be_held(std::size_t i) const {
        return !answers_[i] && !nothing_applied(answers_[i].error().code);
    }
    // Cancelling the call withdraws none of its steps: settle() releases the reservations.
    AsyncCall step() const { return {call_.channel, call_.timeout, nullptr}; }

    // Every reserve has been answered.
    void settle() {
        const auto failed = std::ranges::find_if(answers_, [](const auto& one) { return !one; });
        bool refused = false;
        for (std::size_t i = 0; i < answers_.size(); ++i) {
            refused =
                refused || (answers_[i] && !answers_[i]->allowed && !joint_.hits_[i].is_shadow);
        }
        const bool cancelled = call_.cancelled != nullptr && *call_.cancelled;
        // If this process stalled, the leases have ended and other hits may have the units.
        const bool is_late = std::chrono::steady_clock::now() - started_ >= hold_;
        if (failed == answers_.end() && !refused && is_late) {
            answers_.front() = make_error(ErrorCode::deadline,
                                          "hit_all: the holds ended before the hits were taken, "
                                          "because this process stalled; nothing was taken");
            refused = true;
        }
        taken_ = failed == answers_.end() && !refused && !cancelled;
        std::vector<std::size_t> open;
        for (std::size_t i = 0; i < answers_.size(); ++i) {
            if (is_held(i) || may_be_held(i)) open.push_back(i);
        }
        if (open.empty()) return finish();
        // A failed call waits for the release of its confirmed reservations: its caller may close
        // the store next, and an unsent release would leave the units reserved until the lease
        // ends. The release after an unanswered reserve is not awaited: it may take a second
        // timeout.
        const bool has_failed = failed != answers_.end();
        const auto awaited = std::stable_partition(
            open.begin(), open.end(), [&](std::size_t i) { return has_failed && !is_held(i); });
        const auto unwaited = static_cast<std::size_t>(awaited - open.begin());
        const bool waits_for_none = unwaited == open.size();
        left_ = open.size() - unwaited;
        for (std::size_t at = 0; at < open.size(); ++at) {
            const std::size_t i = open[at];
            const bool waits = at >= unwaited;
            const OnceOnly once{ids_[i], hold_};
            const CommitRequest commit{ids_[i], taken_ ? joint_.hits_[i].cost : 0,
                                       taken_ ? &once : nullptr};
            backend(i).run(joint_.hits_[i].key, {commit}, step(),
                           [self = shared_from_this(), i, waits](Result<Outcome> ended) {
                               if (!waits) return;
                               self->keep(i, std::move(ended));
                               if (--self->left_ == 0) self->finish();
                           });
        }
        if (waits_for_none) finish();
    }

    void keep(std::size_t i, Result<Outcome> ended) {
        if (!taken_) {
            // Released units are free for other hits. If a release fails, the lease frees them.
            if (!answers_[i]) return;
            if (ended && answers_[i]->allowed) {
                answers_[i]->remaining = ended->remaining;
                answers_[i]->reset_after_us = ended->reset_after_us;
            } else {
                answers_[i]->remaining += joint_.hits_[i].cost;
            }
            return;
        }
        if (!ended) {
            answers_[i] = std::move(ended).error();
            return;
        }
        // A commit is charged even after the end of its lease.
        answers_[i] = *ended;
        answers_[i]->allowed = true;
        answers_[i]->violated = 0;
        answers_[i]->retry_after_us = 0;
    }

    // Refunds hits that a `local` policy took: they are in this process, not reserved at the store.
    void give_back_local() {
        for (std::size_t i = 0; i < answers_.size(); ++i) {
            if (!answers_[i] || !answers_[i]->allowed) continue;
            if (answers_[i]->instead != Reason::local) continue;
            const JointHit& hit = joint_.hits_[i];
            // Cannot fail: the hit was just taken in memory.
            (void)refund_local(*hit.backend, hit.key, hit.cost);
            answers_[i]->remaining += hit.cost;
        }
    }

    void finish() {
        if (!taken_) give_back_local();
        const auto failed = std::ranges::find_if(answers_, [](const auto& one) { return !one; });
        if (failed == answers_.end()) {
            std::vector<Outcome> outcomes;
            for (const auto& one : answers_) outcomes.push_back(*one);
            return done_(joint_.decide(outcomes));
        }
        if (!taken_) return done_(failed->error());
        return done_(make_error(ErrorCode::outcome_unknown,
                                "hit_all: each hit was held, and not all could be taken: a part of "
                                "them may have been. " +
                                    failed->error().message));
    }

    const JointCall joint_;
    const AsyncCall call_;
    const Done done_;
    std::vector<std::string> ids_{};
    std::vector<Result<Outcome>> answers_;
    std::atomic<std::size_t> left_{0};
    const SteadyTime started_{std::chrono::steady_clock::now()};
    // The lease covers the timeouts of the reserve and the commit; the store's timeout is the
    // default. A commit may be sent again, so it is remembered as long.
    const std::chrono::milliseconds hold_{std::chrono::ceil<std::chrono::milliseconds>(
        kHold + 2 * joint_.waiting(call_.timeout).timeout.value_or(Duration{0}))};
    bool taken_{false};
};

void JointCall::start(const AsyncCall& call, Done done) const {
    if (is_plain_hit()) {
        const JointHit& hit = hits_.front();
        hit.backend->run(hit.key, {HitRequest{hit.cost, Take::all_free}}, call,
                         [joint = *this, done = std::move(done)](const Result<Outcome>& outcome) {
                             if (!outcome) return done(outcome.error());
                             done(joint.decide({*outcome}));
                         });
        return;
    }
    backend().hit_together(hits_, call,
                           [joint = *this, call,
                            done = std::move(done)](const Result<std::vector<Outcome>>& outcomes) {
                               if (outcomes) return done(joint.decide(*outcomes));
                               if (!is_of_several_slots(outcomes.error()))
                                   return done(outcomes.error());
                               joint.start_in_slots(call, done);
                           });
}

// The library's threads send to all slots at once and answer a waiting caller. After an interrupt,
// a call that has taken nothing takes nothing.
void JointCall::start_in_slots(const AsyncCall& call, const Done& done) const {
    if (!call.waits) return std::make_shared<InSlots>(*this, call, done)->start();
    struct Open {
        redis::Cancelled interrupted{false};
        std::optional<Result<JointDecision>> answer{};
        Event ended{};
    };
    const auto open = std::make_shared<Open>();
    const AsyncCall unwaited{nullptr, call.timeout, &open->interrupted};
    std::make_shared<InSlots>(*this, unwaited, [open](Result<JointDecision> answer) {
        open->answer.emplace(std::move(answer));
        open->ended.set();
    })->start();
    // Each step ends at its own deadline. If this process stalled, the deadline of the wait may
    // have passed before the library's threads ran again, so the wait is repeated once.
    const Duration longest = kHold + 2 * call.timeout.value_or(kHold);
    bool ended = open->ended.wait(Deadline::after(longest));
    if (!ended && !interrupted()) ended = open->ended.wait(Deadline::after(longest));
    if (ended) return done(std::move(*open->answer));
    open->interrupted = true;
    done(make_error(ErrorCode::outcome_unknown,
                    "hit_all: the caller was interrupted before its hits were taken or released: "
                    "all of them, a part or none may have been taken"));
}

const void* Limiter::joins() const {
    const void* const store = backend_->place().joins;
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
    return wait_for<JointDecision>(
        [&](JointCall::Done done) { joint.start(joint.waiting(timeout), std::move(done)); });
}

void MemoryLimiterBackend::hit_together(std::vector<JointHit> hits, const AsyncCall&,
                                        Completion<std::vector<Outcome>> done) {
    std::vector<std::string_view> keys;
    keys.reserve(hits.size());
    for (const JointHit& hit : hits) keys.push_back(hit.key);
    const auto of = [](const JointHit& hit) -> MemoryLimiterBackend& {
        return static_cast<MemoryLimiterBackend&>(*hit.backend);
    };
    done(store_->visit_all(keys, [&](auto& places) -> Result<std::vector<Outcome>> {
        std::vector<Outcome> outcomes;
        bool refused = false;
        for (std::size_t i = 0; i < hits.size(); ++i) {
            auto looked = of(hits[i]).look(hits[i].key, places.find(i), hits[i].cost);
            if (!looked) return std::move(looked).error();
            refused = refused || !(looked->allowed || hits[i].is_shadow);
            outcomes.push_back(*looked);
        }
        if (refused) return outcomes;
        // All entries are made first, so that want of room never requires a refund. An entry may
        // expire in between; it stays in place while the locks are held.
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
