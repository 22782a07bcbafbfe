// The parts of a limiter algorithm. To add one: a file with its arithmetic and its registration
// (gcra.cpp is the model), its script in lua/, an enumerator in limiter.hpp, and its name in the
// list below.
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
#include <variant>
#include <vector>

namespace hotcount {

/// How much a hit takes.
enum class Take : std::uint8_t {
    nothing,    ///< Nothing: a look.
    all,        ///< The cost or nothing.
    all_free,   ///< As `all`; a denied hit is not charged, whatever the options say.
    what_fits,  ///< As much of the cost as there is room for.
    ahead,      ///< As `all`; admits the hit up to kMostAhead before there is room for it.
};

/// The answer of a law to a hit, in whole microseconds.
struct Outcome {
    bool allowed{false};
    std::int64_t remaining{0};
    /// Null: never. Of a hit that was admitted ahead: the time until it counts.
    std::optional<std::int64_t> retry_after_us{};
    /// Time until the rate is as if it had never been hit.
    std::int64_t reset_after_us{0};
    bool untracked{false};  ///< Admitted and not counted: the store has no room.
    bool blocked{false};    ///< Refused, whatever the limits allow.
    // As Decision has them.
    std::uint8_t rate{0};
    std::uint8_t violated{0};
    std::int64_t taken{0};             ///< With Take::what_fits.
    std::int64_t longest_reset_us{0};  ///< Of several rates.
    /// open, closed or local if a policy decided during an outage.
    Reason instead{Reason::allowed};

    /// Time until the state, which all rates share, can be dropped.
    std::int64_t forget_after_us() const { return std::max(reset_after_us, longest_reset_us); }
};

/// The outcome of a hit of a blocked key, from the outcome at its limits. Its rate is the first one,
/// and its reset_after_us that of the key at all rates.
inline Outcome blocked(Outcome outcome, std::int64_t left) {
    outcome.allowed = false;
    outcome.blocked = true;
    outcome.remaining = 0;
    outcome.rate = 0;
    outcome.retry_after_us = left;
    outcome.reset_after_us = std::max(outcome.forget_after_us(), left);
    return outcome;
}

/// In microseconds. A store's clock that was set back by at most this counts as standing still.
/// Servers that fail over to each other differ by less.
inline constexpr std::int64_t kMostSkew = 100'000;

/// Whether the clock was set back since a state was written: it has a time that far ahead.
constexpr bool lies_ahead(std::int64_t at, std::int64_t now) { return at - now > kMostSkew; }

/// How long before its time Take::ahead admits a hit, in microseconds, and at most half of the time
/// in which its cost refills. Longer than the lateness of a sleep and a round trip. Short, because
/// a hit whose caller is cancelled meanwhile is lost, and because waiting callers then hit at about
/// the same time, so none of them can take hit after hit.
inline constexpr std::int64_t kMostAhead = 10'000;

/// The joint outcome of several rates: allowed if all are.
Outcome merge(std::span<const Outcome> of_rates);

template <class Change>
struct StepResult {
    Outcome outcome{};
    /// To keep for forget_after_us(); null if nothing changed.
    std::optional<Change> change{};
};

template <class Law>
using ChangeOf = typename decltype(std::declval<const Law&>().step(
    nullptr, 0, 0, false, std::declval<Outcome&>()))::value_type;

/// A law's step with its outcome. `ahead`: as Take::ahead, by a law that supports it.
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

/// Gives n hits back, at most as many as the state holds. Null: the key is absent, and nothing
/// changes.
template <class Law>
StepResult<ChangeOf<Law>> give_back(const Law& law, const typename Law::State* state,
                                    std::int64_t now, std::int64_t n) {
    StepResult<ChangeOf<Law>> result;
    result.outcome.allowed = true;
    result.outcome.retry_after_us = 0;
    result.outcome.remaining = law.limit();
    if (state != nullptr) result.change = law.give_back(*state, now, n, result.outcome);
    return result;
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

/// The identity of a call that is counted once.
struct OnceOnly {
    std::string_view op_id;
    std::chrono::milliseconds keep;  ///< How long the store remembers it.
};
Error hit_op_id_too_old(std::string_view op_id);
Error hit_op_id_ahead(std::string_view op_id);

// -- calls about one key --------------------------------------------------------------------------

/// With `once`, one with Take::all that is counted once per op_id (Limiter::hit_once()).
struct HitRequest {
    std::int64_t cost;
    Take take{Take::all};
    const OnceOnly* once{nullptr};
};
/// Gives n hits back, at most as many as there are. Outcome::remaining is the number afterwards.
struct RefundRequest {
    std::int64_t n;
};
/// Refuses all hits of the key for `life`.
struct BlockRequest {
    std::chrono::microseconds life;
};
/// Holds `n` for an id until its lease ends, if there is room; a repeat changes nothing.
struct ReserveRequest {
    std::int64_t n;
    std::string_view id;
    std::int64_t lease_us;
};
/// Ends the reservation and takes the used units, 0 or more; allowed if they had room. With `once`,
/// once per op_id (Limiter::commit_once()).
struct CommitRequest {
    std::string_view id;
    std::int64_t used;
    const OnceOnly* once{nullptr};
};
/// Forgets the key. The outcome says nothing.
struct ResetRequest {};

/// A call, as `{HitRequest{1}}`. Its views and pointers are valid until LimiterBackend::run()
/// returns.
struct LimitRequest {
    std::variant<HitRequest, RefundRequest, BlockRequest, ReserveRequest, CommitRequest,
                 ResetRequest>
        call;

    /// Null: the call is no hit.
    const HitRequest* hit() const { return std::get_if<HitRequest>(&call); }
    bool resets() const { return std::holds_alternative<ResetRequest>(call); }
    bool blocks() const { return std::holds_alternative<BlockRequest>(call); }
};

/// One of the hits of hit_all().
struct JointHit {
    LimiterBackend* backend;
    std::string key;
    std::int64_t cost;
    bool is_shadow;  ///< Of a shadow limiter: a refusal does not keep the others from taking.
};

/// The store of a backend.
struct LimiterPlace {
    std::string prefix{};  ///< Of its keys.
    std::string name{};    ///< For messages.
    KeyRule key_rule{KeyRule::any_bytes};
    /// Its address: limiters with equal, non-null ones can take hits together.
    const void* joins{nullptr};
};

/// An algorithm over one store. Each call ends with its completion; AsyncCall says whether the
/// caller waits. Keys are checked and in full; costs are 1 or more.
class LimiterBackend {
  public:
    explicit LimiterBackend(LimiterPlace place) : place_(std::move(place)) {}
    virtual ~LimiterBackend() = default;

    const LimiterPlace& place() const { return place_; }
    /// The AsyncCall of a caller that waits: with it the calls below have completed when they
    /// return.
    virtual AsyncCall waiting(Timeout timeout) const { return {nullptr, timeout, nullptr, true}; }

    virtual void run(const std::string& key, const LimitRequest& request, const AsyncCall& call,
                     Completion<Outcome> done) = 0;
    /// run() for a caller that waits.
    Result<Outcome> run_now(const std::string& key, const LimitRequest& request, Timeout timeout) {
        return wait_for<Outcome>([&](Completion<Outcome> done) {
            run(key, request, waiting(timeout), std::move(done));
        });
    }
    /// run_now() of a hit; `key` lacks the prefix of the limiter's keys. The outcome is written in
    /// place: in memory a copy would cost as much as the arithmetic.
    virtual Result<void> hit(std::string_view prefix, std::string_view key, std::int64_t cost,
                             Timeout timeout, Outcome& outcome);
    /// run() of a hit of each key. Results by index.
    virtual void hit_many(std::vector<std::string> keys, std::vector<std::int64_t> costs,
                          const AsyncCall& call, Completion<std::vector<Result<Outcome>>> done) = 0;
    /// Takes all of the hits or none, in one step. Their keys differ, and their backends have the
    /// same LimiterPlace::joins. A refused hit of a shadow limiter takes nothing.
    virtual void hit_together(std::vector<JointHit>, const AsyncCall&,
                              Completion<std::vector<Outcome>>) {}
    /// Creates the tables that the store needs before the first hit; most stores need none.
    virtual void create_table(const AsyncCall&, Completion<void> done) { done({}); }

    /// The backend that talks to the store: this one, or the one that it wraps.
    virtual LimiterBackend& innermost() { return *this; }
    /// The policy for outages; null: errors are returned.
    virtual const OutageAnswers* stand_in() const { return nullptr; }

  private:
    const LimiterPlace place_;
};

// The outage policy of a backend: its counts in this process, and its events; see Limiter.
Result<void> refund_local(const LimiterBackend& backend, const std::string& key, std::int64_t n);
std::optional<OutageEvent> next_outage_event(const LimiterBackend& backend);

/// One key of an algorithm outside of any store, on a clock that is given to it: for tests.
class SimulatedKey {
  public:
    virtual ~SimulatedKey() = default;
    /// `take` false: a look.
    virtual Outcome hit(std::int64_t now_us, std::int64_t cost, bool take) = 0;
};

class StoredLaw;

/// An algorithm's registration. The options are checked except for the rates.
struct LimiterAlgorithm {
    AlgorithmInfo info;
    Result<std::unique_ptr<LimiterBackend>> (*over_memory)(std::shared_ptr<memory::Store>,
                                                           const LimiterOptions&);
    Result<std::unique_ptr<LimiterBackend>> (*over_redis)(std::shared_ptr<redis::Client>,
                                                          const LimiterOptions&);
    /// For databases.
    Result<std::unique_ptr<StoredLaw>> (*stored)(const LimiterOptions&){nullptr};
    /// A key without a store.
    Result<std::unique_ptr<SimulatedKey>> (*simulate)(const LimiterOptions&){nullptr};
    /// Its step in Lua, if the state is one string; algorithms with the same step share a name.
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
/// The names of the algorithms for which `has` is true: "fixed_window and gcra".
std::string names_of(bool (*has)(const AlgorithmInfo&));

/// Checks LimiterOptions::name, which is a part of keys and of headers.
Result<void> check_limiter_name(std::string_view name);
/// The prefix of the limiter's keys, after the store's. Limiters with interchangeable states have
/// the same prefix.
std::string key_prefix(const LimiterOptions& options);
/// Checks all options except the rates' numbers, which the algorithm checks, and the table.
Result<void> check_limiter_options(const LimiterOptions& options);
/// Checks the rate of a window: its bounds, and that it has no burst.
Result<void> check_window_rate(const Rate& rate);
/// Whether Decision reports `a` rather than `b`.
bool says_more(const Outcome& a, const Outcome& b);
/// Fills in the decision of a limiter of these rates.
void fill(Decision& decision, const Outcome& outcome, std::span<const Rate> rates, bool shadow);
/// fill(), inlined for the common case: a plainly admitted hit.
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
