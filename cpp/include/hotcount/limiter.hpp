// Limiter: at most N hits per period and key, for all threads, processes and machines together.
//
// A hit checks and takes in one step, on the store's clock (over Redis one script in one round trip,
// over a database one transaction that concurrent hits share); a denied hit costs nothing. A limiter may have several rates: a hit takes from all of them or from
// none. Limiters of one name, algorithm and rates share their keys' state, and others never do. Safe
// from many threads; a limiter holds no state of its own.
//
//   key  {store prefix}limit:{name}:{algorithm}:{rate}:{key}     always with an expiry
//
// A database keeps them in one table, which create_table() makes, without a store prefix.
//
// Keys are taken as they are. If some are tuples (encode_parts in base/codec.hpp), pass the others
// through encode_plain, as the Python bindings do: no two of them then share a state.
//
// Example, the body of a function that returns Result<void>:
//
//   @code
//   HOTCOUNT_TRY_ASSIGN(const auto store, memory::Store::make());
//   LimiterOptions options;
//   HOTCOUNT_TRY_ASSIGN(options.rates, Rate::parse_many("100/minute burst 20; 1000/day"));
//   options.name = "api";
//   HOTCOUNT_TRY_ASSIGN(const auto limiter, Limiter::make(store, options));
//   HOTCOUNT_TRY_ASSIGN(const Decision decision, limiter->hit("user:1"));
//   std::cout << decision.allowed << ' ' << decision.remaining << '\n';  // 1 19
//   for (const auto& [field, value] :
//        headers(decision, HeaderStyle::ietf, options.name, options.rates[decision.rate])) {
//       std::cout << field << ": " << value << '\n';
//   }
//   @endcode
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/completion.hpp>
#include <hotcount/memory.hpp>
#include <hotcount/redis.hpp>
#include <hotcount/result.hpp>
#include <hotcount/sql.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hotcount {

// -- rates ----------------------------------------------------------------------------------------

/// N per period, read from text:
///
///   "100/minute"   "5/s"   "10/2 hours"   "10 per minute"   "100/min burst 20"
///
/// Units: us ms s m h d; sec min hr and the full words, each with a plural.
struct Rate {
    static constexpr std::int64_t kMaxLimit = 1'000'000'000'000;
    static constexpr std::chrono::microseconds kMaxPeriod = std::chrono::hours{24 * 366};

    std::int64_t limit{1};                                      ///< N, 1 to kMaxLimit.
    std::chrono::microseconds period{std::chrono::seconds{1}};  ///< 1 ms to 366 days.
    /// How many an idle key admits at once; for gcra and the buckets. It equals `limit` unless another
    /// number is given, and windows take no other.
    std::int64_t burst{1};

    /// One rate; other text is a config error that quotes it.
    static Result<Rate> parse(std::string_view text);
    /// Several, separated by ";", "," or "|".
    static Result<std::vector<Rate>> parse_many(std::string_view text);
    /// The canonical text of this rate: "100/minute burst 20", "10/2 hours".
    std::string str() const;

    bool operator==(const Rate&) const = default;
};

/// A config error when a number is outside of the ranges above.
Result<void> check_rate(const Rate& rate);

// -- decisions ------------------------------------------------------------------------------------

enum class Reason : std::uint8_t {
    allowed,           ///< The limit has room.
    limited,           ///< The limit is reached; later it may be admitted.
    cost_above_limit,  ///< Costs more than an idle key admits: never admissible.
    untracked,         ///< Admitted without being counted: the memory store is full (`when_full`).
    blocked,           ///< The key is blocked (`block`); what its limits say does not count.
    shadow,  ///< Admitted although a limit refuses it: the limiter only looks on (`shadow`).
    open,    ///< The store is away, and `on_error` admits: nothing was counted.
    closed,  ///< The store is away, and `on_error` refuses.
    local,   ///< The store is away: this process counted by itself, as `on_error` says.
};

std::string_view to_string(Reason reason);

/// Of a limiter with several rates, `limit` is that of the one that says most: of those that refused
/// the one that refuses for longest, else the one that has least left. So are the times; `remaining`
/// is the least of all.
struct Decision {
    bool allowed;
    std::int64_t limit;      ///< What an idle key admits at once.
    std::int64_t remaining;  ///< What is left after this call.
    /// Until the same hit would be admitted if no other hit came: 0 when it was admitted, none when it
    /// never would be.
    std::optional<Duration> retry_after;
    Duration reset_after;  ///< Until `limit` is left again if no other hit came.
    Reason reason;
    std::uint8_t rate{0};      ///< Which of the limiter's rates `limit` is of.
    std::uint8_t violated{0};  ///< Which rates refused: bit i is for the rate i.
};

enum class HeaderStyle : std::uint8_t {
    ietf,    ///< RateLimit-Policy and RateLimit: draft-ietf-httpapi-ratelimit-headers-11.
    legacy,  ///< X-RateLimit-Limit, -Remaining and -Reset, the last in seconds from now.
};

/// The HTTP headers that tell a client of the decision; a denial that may pass later adds
/// Retry-After. Times are whole seconds, rounded up, so that a client that waits for them is admitted.
/// `policy` is printable ASCII without quotes; `rate` is the limiter's that `decision.rate` names. If
/// an idle key admits another number at once than the rate has, the policy has both:
/// ";q=5;w=60;hotcount-burst=9" is 5 a minute in the long run and 9 at once.
std::vector<std::pair<std::string, std::string>> headers(const Decision& decision,
                                                         HeaderStyle style, std::string_view policy,
                                                         const Rate& rate);

// -- algorithms -----------------------------------------------------------------------------------

/// How hits are limited. Each promise holds for all processes together.
enum class Algorithm : std::uint8_t {
    fixed_window,    ///< At most limit in each window; up to twice that within one period, across
                     ///< the edge of two windows.
    sliding_window,  ///< At most limit in each window of the clock, and at most twice that in any
                     ///< period: the window before counts in part, as if it had been used evenly.
    sliding_log,  ///< At most limit in every period, exactly. It keeps a note of each hit: limits
                  ///< up to 100,000.
    gcra,         ///< At most burst + rate x t in every interval of length t. The default.
    token_bucket,  ///< Decides each hit as gcra does: the tokens in the bucket are what gcra has left.
    leaky_bucket,  ///< Decides each hit as gcra does: the water in the bucket is gcra's debt.
};

std::string_view to_string(Algorithm algorithm);
/// An unknown name is a config error that lists the known ones.
Result<Algorithm> parse_algorithm(std::string_view name);

/// What an algorithm's windows follow.
enum class WindowKind : std::uint8_t {
    none,            ///< It has none: gcra and the buckets.
    store_clock,     ///< Multiples of the period on the store's clock.
    weighted_clock,  ///< The same, and the window before counts in part.
    sliding,         ///< Every period.
};

/// What an algorithm does, as it is registered.
struct AlgorithmInfo {
    Algorithm algorithm;
    std::string_view name;
    /// What holds of admitted hits: "at most the limit in ...".
    std::string_view promise;
    WindowKind window;
    /// The promise with Align::first; empty if the algorithm takes no `align`.
    std::string_view promise_from_first{};
    bool takes_charge_denied{false};
};
const AlgorithmInfo& info(Algorithm algorithm);
/// All of them, in the order of the enumeration.
std::span<const Algorithm> algorithms();

// -- the limiter ----------------------------------------------------------------------------------

/// Where a fixed window begins.
enum class Align : std::uint8_t {
    clock,  ///< At multiples of the period since the epoch: all keys' windows end together.
    first,  ///< At the key's first hit.
};

/// Who decides while a Redis is away: when a hit failed because the server cannot be reached, is not
/// ready, is full or does not answer within the timeout (ErrorCode unavailable, capacity, deadline,
/// outcome_unknown). Other errors are always returned. From then on hits are decided without waiting,
/// and one a second asks the server in the background, until it answers. It is for hit, hit_many,
/// at_most, test and peek; what sets a state fails all the same. A store in memory is never away.
enum class OutagePolicy : std::uint8_t {
    raise,   ///< Nobody: the hit's error is returned.
    open,    ///< Every hit is admitted, but for a cost above the limit.
    closed,  ///< None is.
    local,  ///< This process limits by itself, at the same rates: N processes admit N times as much.
            ///< It knows nothing of earlier hits, and counts 100,000 keys at most at once; hits of
            ///< more are admitted.
};

std::string_view to_string(OutagePolicy policy);

struct LimiterOptions {
    static constexpr std::size_t kMaxRates = 8;

    /// 1 to kMaxRates: a hit takes from all of them or from none.
    std::vector<Rate> rates{Rate{}};
    Algorithm algorithm{Algorithm::gcra};
    /// Part of the keys, and the policy's name in headers: 1 to 100 printable ASCII characters
    /// without quotes and backslashes.
    std::string name{"default"};
    /// Other algorithms than fixed_window take the default only.
    Align align{Align::clock};
    /// For windows and buckets: denied hits cost as admitted ones do, up to twice the limit, so that
    /// a caller that keeps asking waits longer. A cost above the limit is never charged.
    bool charge_denied{false};
    /// Decides and counts as without it, and admits what it would refuse: to try a limit on traffic
    /// that must not notice. Such a hit has Reason::shadow, `violated` and `retry_after` as refused.
    bool shadow{false};
    /// For databases alone: the table, or `schema.table`; limiters share it. Up to 55 bytes.
    std::string table{kTable};

    static constexpr std::string_view kTable = "hotcount_limit";
    OutagePolicy on_error{OutagePolicy::raise};
    static constexpr std::int64_t kMaxDenyCache = 10'000'000;
    /// How many denied keys this limiter remembers: over Redis the same hit, of the same cost, is
    /// denied without asking until retry_after has passed since the denied one was sent. Another cost
    /// is asked about. What this process does to a key otherwise (reset, refund, block) is seen at
    /// once, what others do is not. Not with charge_denied.
    std::int64_t deny_cache{0};
    static constexpr std::int64_t kMaxLease = 1'000'000;
    /// How many hits of a key this limiter takes from the store at once, to spend them without asking;
    /// 0 and 1: none. (The lease of reserve() is a time.) The store counts them when they are taken, so at most lease - 1 more than the
    /// algorithm admits pass in any interval for each limiter object that takes leases; with a
    /// fixed_window of one rate none do. What is held ends with that window, with the shortest period,
    /// and with the process: it is not given back. For Redis and databases, without charge_denied
    /// and shadow: a config error else. Memory takes none.
    std::int64_t lease{0};
    /// How long hit_once() remembers an op_id, 1 second or more.
    Duration op_keep{std::chrono::hours{24}};
};

/// That a store went away, or came back.
struct OutageEvent {
    bool is_away;
    std::string server;
    std::string why;    ///< The message of the first call that failed.
    Duration duration;  ///< How long it was away; 0 when it has just gone.
};

/// The SQL that create_table() runs, without a database. A config error for a bad `table`.
Result<std::string> limiter_schema(sql::Dialect dialect, const LimiterOptions& options = {});

enum class KeyRule : std::uint8_t;
class JointCall;
class Limiter;
class LimiterBackend;
struct Outcome;
struct OnceOnly;
/// Makes the backend of a limiter at other rates, with what such limiters share.
using LimiterBackendMaker =
    std::function<Result<std::unique_ptr<LimiterBackend>>(const LimiterOptions&)>;

namespace detail {
/// What acquire() does between its sleeps, for bindings that sleep by themselves.
struct HitAhead {
    /// How long before its time now() takes a hit: 10 ms, or half of what the burst takes to flow back
    /// if that is less. 0 if it does as hit(): with gcra and the buckets it takes hits that cost the whole
    /// burst of one rate, without charge_denied, shadow and leases. Others have saved up what a late
    /// caller forfeits.
    static Duration most(const Limiter& limiter, std::int64_t cost);
    /// hit(), which may admit the hit for a moment that is most() ahead, and no other hit before.
    /// retry_after of such a decision says in how long the caller may go on; it is 0 else.
    static Result<Decision> now(Limiter& limiter, std::string_view key, std::int64_t cost,
                                Timeout timeout = {});
    static void later(Limiter& limiter, std::string_view key, std::int64_t cost,
                      Completion<Decision> done, AsyncCall call);
};
}  // namespace detail

class Limiter {
  public:
    static Result<std::shared_ptr<Limiter>> make(std::shared_ptr<memory::Store> store,
                                                 LimiterOptions options);
    static Result<std::shared_ptr<Limiter>> make(std::shared_ptr<redis::Client> client,
                                                 LimiterOptions options);
    /// sliding_log takes limits up to 1,000 here: a config error else.
    static Result<std::shared_ptr<Limiter>> make(std::shared_ptr<sql::Database> database,
                                                 LimiterOptions options);
    Limiter(std::unique_ptr<LimiterBackend> backend, LimiterOptions options,
            std::shared_ptr<const LimiterBackendMaker> maker);  // Use make().
    ~Limiter();

    /// Creates the database's table where it is missing; idempotent. Other stores need none.
    Result<void> create_table(Timeout timeout = {});

    /// Takes `cost` (1 or more) if the limit allows it.
    Result<Decision> hit(std::string_view key, std::int64_t cost = 1, Timeout timeout = {});
    /// The same, once per op_id (1 to 1,000 bytes) and key: a repeat within op_keep returns the first
    /// decision, a refusal too, as it was then, and takes nothing; after reset() also. So it may be
    /// called again after any error. A UUIDv7 (new_op_id()) that is older than op_keep, or further
    /// ahead of the store's clock, is refused with a config error. Asks the store always. For Memory
    /// and Redis: a config error else.
    Result<Decision> hit_once(std::string_view key, std::int64_t cost, std::string_view op_id,
                              Timeout timeout = {});
    /// Element by element in order, so that equal keys are decided one after another. One failure
    /// does not stop the others. Over Redis one script per 256 keys, over a database one transaction
    /// per 1,000 keys.
    std::vector<Result<Decision>> hit_many(std::span<const std::string_view> keys,
                                           std::span<const std::int64_t> costs,
                                           Timeout timeout = {});
    /// Takes as much of `n` (1 or more) as the limit allows, and returns how much that is: 0 to n.
    /// With `shadow` always n.
    Result<std::int64_t> at_most(std::string_view key, std::int64_t n, Timeout timeout = {});
    /// Answers as hit() would, and takes nothing; `remaining` is what remains now.
    Result<Decision> test(std::string_view key, std::int64_t cost = 1, Timeout timeout = {});
    /// test() with a cost of 1.
    Result<Decision> peek(std::string_view key, Timeout timeout = {}) {
        return test(key, 1, timeout);
    }
    /// Gives `n` (1 or more) back that were taken and not used, never beyond a full limit, and returns
    /// what remains then. To a key that has expired nothing: it is full. Which hits: the newest.
    Result<std::int64_t> refund(std::string_view key, std::int64_t n, Timeout timeout = {});
    /// Refuses all hits of the key for this long (366 days at most) with Reason::blocked, whatever its
    /// limits say; they cost nothing. The last block counts, reset() lifts it.
    Result<void> block(std::string_view key, Duration duration, Timeout timeout = {});
    /// Hits, and as long as it is refused sleeps for retry_after and hits again. Callers of this object
    /// for one key are a queue, first come first served: the first one hits, the others sleep. A hit that
    /// costs the whole burst is taken up to 10 ms ahead, and acquire returns when its time has come: while
    /// others wait, such a limit refuses nearly each hit(). Returns a refusal when the cost is above the
    /// limit, when `patience` has passed, or once the next hit would come later; none waits for ever.
    /// Each hit has the store's timeout.
    Result<Decision> acquire(std::string_view key, std::int64_t cost = 1, Timeout patience = {});
    /// Holds `n` (1 or more) for an id (1 to 100 bytes of [0-9A-Za-z_-] that no other has:
    /// new_op_id()) until commit(), cancel() or the end of the lease (1 ms to 366 days), if there is
    /// room: to others it is taken meanwhile. Nothing is charged yet. A repeat with the id answers that
    /// it is held, so the call may be repeated after any error, and a lost reply is. A key has 1,000
    /// reservations at most; reset() forgets them. For Memory and Redis, and for gcra, the buckets,
    /// fixed_window and sliding_window: a config error else. Where `on_error` answers (Reason open,
    /// closed or local), nothing is held: there is nothing to commit.
    Result<Decision> reserve(std::string_view key, std::int64_t n, std::string_view id,
                             Duration lease, Timeout timeout = {});
    /// Ends what is held for the id and takes what was used, 0 or more. If the limit has no room for
    /// it, because it is more or the lease has ended, it is charged as denied hits are, up to twice
    /// the limit, and the decision is a refusal. Not to be repeated after outcome_unknown: it would be
    /// taken twice.
    Result<Decision> commit(std::string_view key, std::string_view id, std::int64_t used,
                            Timeout timeout = {});
    /// The same, once per op_id (1 to 1,000 bytes, of a UUIDv7 as in hit_once()) and key: a repeat
    /// within op_keep returns the first decision, as it was then, and takes nothing. So it may be
    /// called again after any error, and a lost reply is. It may be another reservation's, as when the
    /// work is done once more: that one is ended, and nothing is taken for it.
    Result<Decision> commit_once(std::string_view key, std::string_view id, std::int64_t used,
                                 std::string_view op_id, Timeout timeout = {});
    /// Gives back what OutagePolicy::local has taken in this process, as refund() does at the store;
    /// without that policy it does nothing. For JointDecision::answered_by.
    Result<void> refund_local(std::string_view key, std::int64_t n);
    /// Ends what is held for the id and takes nothing; may be repeated.
    Result<Decision> cancel(std::string_view key, std::string_view id, Timeout timeout = {});
    /// This limiter at other rates, for rates that callers bring: their plan's, their own. All of one
    /// database share transactions, those of one limiter the denials that it remembers. A key has a
    /// state of its own at each rate, blocks and op_ids too. It costs 1 or 2 microseconds: keep those
    /// that come again. A config error as in make().
    Result<std::shared_ptr<Limiter>> with_rates(std::vector<Rate> rates) const;
    /// Forgets the key: it is as if it had never been hit.
    Result<void> reset(std::string_view key, Timeout timeout = {});

    // The same without waiting: `done` gets what the call above would return, in the thread that
    // AsyncCall's channel says; over Memory, and when an argument is bad, before they return.
    // Over a database a thread of the library calls `done`, which must not block.
    // Arguments are copied.
    void create_table_async(Completion<void> done, AsyncCall call = {});
    void hit_async(std::string_view key, std::int64_t cost, Completion<Decision> done,
                   AsyncCall call = {});
    void hit_once_async(std::string_view key, std::int64_t cost, std::string_view op_id,
                        Completion<Decision> done, AsyncCall call = {});
    void hit_many_async(std::span<const std::string_view> keys, std::span<const std::int64_t> costs,
                        Completion<std::vector<Result<Decision>>> done, AsyncCall call = {});
    void at_most_async(std::string_view key, std::int64_t n, Completion<std::int64_t> done,
                       AsyncCall call = {});
    void refund_async(std::string_view key, std::int64_t n, Completion<std::int64_t> done,
                      AsyncCall call = {});
    void block_async(std::string_view key, Duration duration, Completion<void> done,
                     AsyncCall call = {});
    void reserve_async(std::string_view key, std::int64_t n, std::string_view id, Duration lease,
                       Completion<Decision> done, AsyncCall call = {});
    void commit_async(std::string_view key, std::string_view id, std::int64_t used,
                      Completion<Decision> done, AsyncCall call = {});
    void commit_once_async(std::string_view key, std::string_view id, std::int64_t used,
                           std::string_view op_id, Completion<Decision> done, AsyncCall call = {});
    void cancel_async(std::string_view key, std::string_view id, Completion<Decision> done,
                      AsyncCall call = {});
    void test_async(std::string_view key, std::int64_t cost, Completion<Decision> done,
                    AsyncCall call = {});
    void peek_async(std::string_view key, Completion<Decision> done, AsyncCall call = {}) {
        test_async(key, 1, std::move(done), call);
    }
    void reset_async(std::string_view key, Completion<void> done, AsyncCall call = {});

    /// With `on_error` other than raise: the outage, or its end, that no limiter of this client has
    /// returned here yet. For a log: each once in a process. It costs one load when there is none.
    std::optional<OutageEvent> next_outage_event();

    const LimiterOptions& options() const { return options_; }
    /// What an idle key admits at once: with gcra and the buckets the burst, else the rate's number,
    /// which is its burst too. Of several rates the least.
    std::int64_t limit() const { return limit_; }

    /// Limiters that say the same can take hits together in one step (hit_all): those over one
    /// memory::Store, and those over one redis::Client but for sliding_log. The others say what no
    /// other does.
    const void* joins() const;

  private:
    friend class JointCall;
    friend struct detail::HitAhead;
    struct Batch;
    Result<std::string> full(std::string_view key) const;
    Result<void> check(std::int64_t cost) const;
    Result<void> check_n(std::int64_t n) const;
    Result<void> check_block(Duration duration) const;
    Result<void> check_reservation(std::string_view id, std::int64_t n, std::int64_t least) const;
    Result<void> check_once(std::int64_t cost, std::string_view op_id) const;
    OnceOnly once(std::string_view op_id) const;
    void settle(std::string_view key, std::string_view id, std::int64_t used, const OnceOnly* once,
                Completion<Decision> done, const AsyncCall& call);
    static Result<std::shared_ptr<Limiter>> make_with(LimiterBackendMaker maker,
                                                      LimiterOptions options);
    Batch check(std::span<const std::string_view> keys, std::span<const std::int64_t> costs) const;
    Completion<Outcome> decided(Completion<Decision> done) const;

    LimiterOptions options_;
    const AlgorithmInfo& info_;
    std::shared_ptr<const std::vector<Rate>> rates_;  // For calls that outlive this.
    std::int64_t limit_;
    std::string prefix_;
    std::unique_ptr<LimiterBackend> backend_;
    KeyRule key_rule_;
    std::shared_ptr<const LimiterBackendMaker> maker_;
};

/// One of the hits of hit_all().
struct LimitedHit {
    std::shared_ptr<Limiter> limiter;  ///< With Limiter::with_rates() at a rate of this hit.
    std::string key;
    std::int64_t cost{1};
};

/// What hit_all() answers. `decision` is that of the limiter that says most, with the least that
/// remains at any of them.
struct JointDecision {
    Decision decision;
    std::shared_ptr<const Limiter> limiter;  ///< Which one that is.
    std::vector<std::string> violated;       ///< The names of those that refused.
    /// What answered each hit, in the order of the hits: open, closed, local, or allowed for the store.
    std::vector<Reason> answered_by;
};

/// Takes all hits or none, in one step: nobody sees a part of them, and a refused one spends nothing of
/// the others, with charge_denied neither. 1 to 100 hits; equal keys of a limiter are one hit of their
/// sum. A limiter with `shadow` is not taken from where it refuses, and keeps nobody from taking. Over
/// Redis one script on one node; keys in several slots of a cluster are each held first, for 10 seconds
/// at most, and taken when all are held, each step with the timeout (outcome_unknown: a part of them may
/// have been taken). Config errors: limiters that do not all say the same in joins(), which
/// take one key a call (over databases too: hit() them one after another, and refund() when one
/// refuses).
Result<JointDecision> hit_all(std::span<const LimitedHit> hits, Timeout timeout = {});
/// The same without waiting, as Limiter::hit_async().
void hit_all_async(std::span<const LimitedHit> hits, Completion<JointDecision> done,
                   AsyncCall call = {});

}  // namespace hotcount
