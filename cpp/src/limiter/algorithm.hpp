// What a limiter algorithm is made of. To add one: a file with its arithmetic and its registration
// (gcra.cpp is the model), its script in lua/, an enumerator in limiter.hpp, and its name in the list
// below.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/redis/channel.hpp>
#include <hotcount/limiter.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hotcount {

/// What a hit takes.
enum class Take : std::uint8_t {
    nothing,    ///< It only looks.
    all,        ///< The cost or nothing.
    all_free,   ///< As all, and a denied hit is not charged, whatever the options say.
    what_fits,  ///< As much of the cost as there is room for.
    ahead,  ///< As all, and a hit for which there is room within kMostAhead is admitted: for then.
};

/// What a limiter answers to a hit, in whole microseconds.
struct Outcome {
    bool allowed{false};
    std::int64_t remaining{0};
    /// None: never. Of a hit that was admitted ahead: in how long it counts.
    std::optional<std::int64_t> retry_after_us{};
    /// Until the rate it is of is as if it had never been hit.
    std::int64_t reset_after_us{0};
    bool untracked{false};  ///< Admitted, but not counted: the store has no room.
    bool blocked{false};    ///< Not allowed, whatever the limits say.
    // As Decision has them.
    std::uint8_t rate{0};
    std::uint8_t violated{0};
    std::int64_t taken{0};             ///< With Take::what_fits.
    std::int64_t longest_reset_us{0};  ///< Of several rates.
    /// open, closed or local: what answered in the place of a store that is away.
    Reason instead{Reason::allowed};

    /// When the state can be forgotten, which all rates share.
    std::int64_t forget_after_us() const { return std::max(reset_after_us, longest_reset_us); }
};

/// What a hit of a blocked key is answered, from what its limits say. It is of no rate more than of
/// another: of the first one.
inline Outcome blocked(Outcome outcome, std::int64_t left) {
    outcome.allowed = false;
    outcome.blocked = true;
    outcome.remaining = 0;
    outcome.rate = 0;
    outcome.retry_after_us = left;
    outcome.reset_after_us = std::max(outcome.reset_after_us, left);
    return outcome;
}

/// By how much a store's clock may be set back, in microseconds, before states notice: up to that the
/// clock stands still for them. Servers that fail over to each other differ by less, as do the clocks
/// that two calls read before either has the key's lock.
inline constexpr std::int64_t kMostSkew = 100'000;

/// Whether the clock was set back since a state was written: it has a time that far ahead.
constexpr bool lies_ahead(std::int64_t at, std::int64_t now) { return at - now > kMostSkew; }

/// How long before its time Take::ahead admits a hit, in microseconds, and for half of what it takes to
/// flow back at most. Longer than a sleep ends late and a call travels. Short, because a hit whose
/// caller is cancelled meanwhile may be lost, and because callers who are told when to come then come
/// together: none of them can take hit after hit.
inline constexpr std::int64_t kMostAhead = 10'000;

/// What the outcomes at each of a limiter's rates come to: allowed when all are.
Outcome merge(std::span<const Outcome> of_rates);

template <class Change>
struct StepResult {
    Outcome outcome{};
    /// To keep for forget_after_us(); none when nothing changed.
    std::optional<Change> change{};
};

template <class Law>
using ChangeOf = typename decltype(std::declval<const Law&>().step(
    nullptr, 0, 0, false, std::declval<Outcome&>()))::value_type;

/// A law's step and its outcome together. `ahead`: as Take::ahead, by a law that does so.
template <class Law>
StepResult<ChangeOf<Law>> step_of(const Law& law, const typename Law::State* state,
                                  std::int64_t now, std::int64_t cost, bool take,
                                  bool ahead = false) {
    StepResult<ChangeOf<Law>> result;
    if constexpr (requires { law.step(state, now, cost, take, result.outcome, ahead); }) {
        result.change = law.step(state, now, cost, take, result.outcome, ahead);
    } else {
        result.change = law.step(state, now, cost, take, result.outcome);
    }
    return result;
}

/// Gives n hits back, no more than there are: to a law it is a cost below 0.
template <class Law>
StepResult<ChangeOf<Law>> give_back(const Law& law, const typename Law::State* state,
                                    std::int64_t now, std::int64_t n) {
    return step_of(law, state, now, -n, state != nullptr);
}

template <class Law, class Change>
void apply_change(const Law& law, typename Law::State& state, Change change) {
    if constexpr (requires { law.apply(state, std::move(change)); }) {
        law.apply(state, std::move(change));
    } else {
        state = std::move(change);
    }
}

class LimiterBackend;
struct OutageAnswers;

/// By what a hit is told from a repeat of it.
struct OnceOnly {
    std::string_view op_id;
    std::chrono::milliseconds keep;  ///< For how long it is remembered.
};
Error hit_op_id_too_old(std::string_view op_id);
Error hit_op_id_ahead(std::string_view op_id);

/// One of the hits that are taken all or none.
struct JointHit {
    LimiterBackend* backend;
    std::string key;
    std::int64_t cost;
    bool looks_on;  ///< Its refusal keeps nobody from taking.
};

/// An algorithm over one store. Each call completes; whether its caller waits, AsyncCall says. Keys come
/// checked and in full, costs are 1 or more.
class LimiterBackend {
  public:
    virtual ~LimiterBackend() = default;

    virtual std::string_view store_prefix() const = 0;
    /// For messages; none where hit_all() takes no hits anyway.
    virtual std::string store_name() const { return {}; }
    virtual KeyRule key_rule() const { return KeyRule::any_bytes; }
    /// How a caller who waits calls the others: with this they have completed when they return.
    virtual AsyncCall waiting(Timeout timeout) const { return {nullptr, timeout, nullptr, true}; }

    /// What the store needs before the first hit; most need nothing.
    virtual void create_table(const AsyncCall&, Completion<void> done) { done({}); }
    virtual void decide(const std::string& key, std::int64_t cost, Take take, const AsyncCall& call,
                        Completion<Outcome> done) = 0;
    /// The same for a caller who waits.
    Result<Outcome> decide(const std::string& key, std::int64_t cost, Take take, Timeout timeout) {
        return wait_for<Outcome>([&](Completion<Outcome> done) {
            decide(key, cost, take, waiting(timeout), std::move(done));
        });
    }
    /// Gives n hits back, no more than there are. The outcome has what remains then.
    virtual void refund(const std::string& key, std::int64_t n, const AsyncCall& call,
                        Completion<Outcome> done) = 0;
    /// Refuses all hits of the key for so long.
    virtual void block(const std::string& key, std::chrono::microseconds life,
                       const AsyncCall& call, Completion<Outcome> done) = 0;
    /// decide() with Take::all, for a caller who waits, of a key that lacks what the limiter's keys
    /// begin with. The outcome is written where it is read: in memory a copy would cost as much as
    /// the arithmetic.
    virtual Result<void> hit(std::string_view prefix, std::string_view key, std::int64_t cost,
                             Timeout timeout, Outcome& outcome);
    /// decide() with Take::all of each key. Results by index.
    virtual void take_many(std::vector<std::string> keys, std::vector<std::int64_t> costs,
                           const AsyncCall& call,
                           Completion<std::vector<Result<Outcome>>> done) = 0;
    /// decide() with Take::all, once per op_id, as Limiter::hit_once() has it. What stands here
    /// refuses: databases remember none.
    virtual void hit_once(const std::string& key, std::int64_t cost, const OnceOnly& once,
                          const AsyncCall& call, Completion<Outcome> done);
    /// Holds `n` for an id for so long, if there is room; a repeat of the id changes nothing. What
    /// stands here refuses.
    virtual void reserve(const std::string& key, std::int64_t n, std::string_view id,
                         std::int64_t lease_us, const AsyncCall& call, Completion<Outcome> done);
    /// Ends that and takes what was used, 0 or more; allowed if there was room for it. With `once`
    /// once per op_id, as Limiter::commit_once() has it; null: each time.
    virtual void commit(const std::string& key, std::string_view id, std::int64_t used,
                        const OnceOnly* once, const AsyncCall& call, Completion<Outcome> done);
    virtual void reset(const std::string& key, const AsyncCall& call, Completion<void> done) = 0;

    /// Limiters that say the same, and not null, can take hits together: the store's address.
    virtual const void* joins() const { return nullptr; }
    /// Takes all of the hits or none, in one step; no two of them are of one key. All are of backends
    /// that joins() with this one. A hit that looks on and is refused takes nothing.
    virtual void hit_together(std::vector<JointHit>, const AsyncCall&,
                              Completion<std::vector<Outcome>>) {}
    /// Itself, or what speaks to the store for it.
    virtual LimiterBackend& innermost() { return *this; }
    /// Gives back what a policy has taken in this process while the store was away.
    virtual Result<void> refund_local(const std::string&, std::int64_t) { return {}; }
    /// What decides while the store is away; null: nobody.
    virtual const OutageAnswers* stand_in() const { return nullptr; }
    /// As Limiter has it.
    virtual std::optional<OutageEvent> next_outage_event() { return std::nullopt; }
};

/// One key of an algorithm outside of any store, on a clock that is given to it: for tests.
class SimulatedKey {
  public:
    virtual ~SimulatedKey() = default;
    /// With `take` false it only looks.
    virtual Outcome hit(std::int64_t now_us, std::int64_t cost, bool take) = 0;
};

class StoredLaw;

/// An algorithm's registration. The options come checked but for the rate.
struct LimiterAlgorithm {
    AlgorithmInfo info;
    Result<std::unique_ptr<LimiterBackend>> (*over_memory)(std::shared_ptr<memory::Store>,
                                                           const LimiterOptions&);
    Result<std::unique_ptr<LimiterBackend>> (*over_redis)(std::shared_ptr<redis::Client>,
                                                          const LimiterOptions&);
    /// For databases.
    Result<std::unique_ptr<StoredLaw>> (*stored)(const LimiterOptions&){nullptr};
    /// A key by arithmetic alone.
    Result<std::unique_ptr<SimulatedKey>> (*simulate)(const LimiterOptions&){nullptr};
    /// Its step in Lua, where the state is one string; algorithms of one step have one name.
    std::string_view step_name{};
    std::string_view (*step_text)(){nullptr};
};

// Each is defined in the file of its algorithm.
extern const LimiterAlgorithm kFixedWindow;
extern const LimiterAlgorithm kSlidingWindow;
extern const LimiterAlgorithm kSlidingLog;
extern const LimiterAlgorithm kGcra;
extern const LimiterAlgorithm kTokenBucket;
extern const LimiterAlgorithm kLeakyBucket;
/// In the order of the enumeration.
inline constexpr std::array kLimiterAlgorithms{&kFixedWindow, &kSlidingWindow, &kSlidingLog,
                                               &kGcra,        &kTokenBucket,   &kLeakyBucket};

const LimiterAlgorithm& find_algorithm(Algorithm algorithm);
/// The names of those for which `has` is true: "fixed_window and gcra".
std::string names_of(bool (*has)(const AlgorithmInfo&));

/// A part of keys and the policy in headers, as LimiterOptions::name has it.
Result<void> check_limiter_name(std::string_view name);
/// What the keys of such limiters begin with, after the store's prefix: those whose states mean the
/// same share keys.
std::string key_prefix(const LimiterOptions& options);
/// Everything but the rates' numbers, which the algorithm checks, and the table.
Result<void> check_limiter_options(const LimiterOptions& options);
/// A window's rate is within its bounds and has no burst.
Result<void> check_window_rate(const Rate& rate);
/// Whether `a` says more than `b`, as Decision has it.
bool says_more(const Outcome& a, const Outcome& b);
/// What a limiter of these rates answers its caller.
void fill(Decision& decision, const Outcome& outcome, std::span<const Rate> rates, bool shadow);
/// The same, inlined for what most hits come to.
inline void fill_soon(Decision& decision, const Outcome& outcome, std::span<const Rate> rates,
                      bool shadow) {
    const bool plain = outcome.allowed && !outcome.untracked && outcome.instead == Reason::allowed;
    if (!plain || outcome.rate != 0 || outcome.violated != 0) [[unlikely]]
        return fill(decision, outcome, rates, shadow);
    decision.allowed = true;
    decision.limit = rates.front().burst;
    decision.remaining = outcome.remaining;
    decision.retry_after.reset();
    if (outcome.retry_after_us)
        decision.retry_after = std::chrono::microseconds{*outcome.retry_after_us};
    decision.reset_after = std::chrono::microseconds{outcome.reset_after_us};
    decision.reason = Reason::allowed;
    decision.rate = 0;
    decision.violated = 0;
}
Decision to_decision(const Outcome& outcome, std::span<const Rate> rates, bool shadow);
/// The error for a key that holds something else.
Error no_limit_state(std::string_view key);

}  // namespace hotcount
