// Limiter: at most N hits per period and key, for all threads, processes and machines together.
//
// A hit checks and takes in one step, on the store's clock: over Redis one script in one round
// trip, over a database one transaction that concurrent hits share. A denied hit costs nothing,
// except with `charge_denied`. A limiter may have several rates: a hit takes from all of them or
// from none. Limiters of one name, algorithm and rates share the state of their keys; others never
// do. Thread-safe.
//
//   key  {store prefix}limit:{name}:{algorithm}:{rate}:{key}     always with an expiry
//
// A database keeps these keys, without a store prefix, in the table that create_table() makes.
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
    /// How many hits an idle key admits at once. parse() sets it to `limit` if the text has no
    /// burst; a Rate made without parse() has 1. Windows take no value but `limit`.
    std::int64_t burst{1};

    /// One rate. Any other text is a config error that quotes it.
    static Result<Rate> parse(std::string_view text);
    /// Several, separated by ";", "," or "|".
    static Result<std::vector<Rate>> parse_many(std::string_view text);
    /// The canonical text of this rate: "100/minute burst 20", "10/2 hours".
    std::string str() const;

    bool operator==(const Rate&) const = default;
};

/// A config error if a number is outside of the ranges above.
Result<void> check_rate(const Rate& rate);

// -- decisions ------------------------------------------------------------------------------------

enum class Reason : std::uint8_t {
    allowed,           ///< The limit has room.
    limited,           ///< The limit is reached; later it may be admitted.
    cost_above_limit,  ///< Costs more than an idle key admits: never admissible.
    untracked,         ///< Admitted without being counted: the memory store is full (`when_full`).
    blocked,           ///< The key is blocked (`block`), whatever its limits allow.
    shadow,            ///< Admitted although a limit refuses the hit (option `shadow`).
    open,              ///< The store is unreachable and `on_error` admits: nothing was counted.
    closed,            ///< The store is unreachable and `on_error` refuses.
    local,             ///< The store is unreachable: this process counted the hit (`on_error`).
};

std::string_view to_string(Reason reason);

/// With several rates, `limit` and the times are those of one rate: the one that refuses for
/// longest or, if none refuses, the one with the least left. `remaining` is the least of all rates.
struct Decision {
    bool allowed;
    std::int64_t limit;      ///< How many hits an idle key admits at once.
    std::int64_t remaining;  ///< How many are left after this call.
    /// Time until the same hit is admitted if no other hit comes: 0 if it was admitted, none if it
    /// never will be.
    std::optional<Duration> retry_after;
    Duration reset_after;  ///< Time until `limit` is left again if no other hit comes.
    Reason reason;
    std::uint8_t rate{0};      ///< Index of the rate that `limit` belongs to.
    std::uint8_t violated{0};  ///< The rates that refused: bit i stands for rate i.
};

enum class HeaderStyle : std::uint8_t {
    ietf,    ///< RateLimit-Policy and RateLimit: draft-ietf-httpapi-ratelimit-headers-11.
    legacy,  ///< X-RateLimit-Limit, -Remaining and -Reset, the last in seconds from now.
};

/// The HTTP headers for a decision. A denial that is not final adds Retry-After. Times are whole
/// seconds, rounded up: a client that waits for them is admitted. `policy` is printable ASCII
/// without quotes; `rate` is the one that `decision.rate` names. If the burst differs from the
/// rate's number, the policy has both: ";q=5;w=60;hotcount-burst=9" is 5 a minute and 9 at once.
std::vector<std::pair<std::string, std::string>> headers(const Decision& decision,
                                                         HeaderStyle style, std::string_view policy,
                                                         const Rate& rate);

// -- algorithms -----------------------------------------------------------------------------------

/// The algorithms. Each bound holds for all processes together.
enum class Algorithm : std::uint8_t {
    fixed_window,    ///< At most limit in each window; up to twice that within one period, across
                     ///< the edge of two windows.
    sliding_window,  ///< At most limit in each window of the clock, and at most twice that in any
                     ///< period: the previous window counts in part, as if used evenly.
    sliding_log,  ///< At most limit in every period, exactly. It stores an entry for each hit, so
                  ///< limits go up to 100,000.
    gcra,         ///< At most burst + rate x t in every interval of length t. The default.
    token_bucket,  ///< Decides each hit as gcra does: the tokens in the bucket are what gcra has left.
    leaky_bucket,  ///< Decides each hit as gcra does: the water in the bucket is gcra's debt.
};

std::string_view to_string(Algorithm algorithm);
/// An unknown name is a config error that lists the known ones.
Result<Algorithm> parse_algorithm(std::string_view name);

/// The windows of an algorithm.
enum class WindowKind : std::uint8_t {
    none,            ///< No windows: gcra and the buckets.
    store_clock,     ///< Multiples of the period on the store's clock.
    weighted_clock,  ///< The same, and the previous window counts in part.
    sliding,         ///< Every period.
};

/// The registered facts of an algorithm.
struct AlgorithmInfo {
    Algorithm algorithm;
    std::string_view name;
    /// The bound on admitted hits: "at most the limit in ...".
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

/// The decision on a hit while Redis is unreachable. An outage begins with a hit that fails because
/// the server cannot be reached, is not ready, is full or does not answer within the timeout
/// (ErrorCode unavailable, capacity, deadline, outcome_unknown). Other errors are always returned.
///
/// If a hit's own timeout is below nine tenths of the client's and passes, the policy decides the
/// hit. That begins an outage only if such hits have failed for as long as the client's timeout and
/// no call has been answered meanwhile. During an outage hits are decided without waiting, and one
/// probe a second asks the server until it answers.
///
/// The policy decides the hits of every call, test, peek and reserve included, and those of
/// hit_all() if all its limiters have a policy; refund, block, commit, cancel and reset fail. Memory
/// has no outages.
enum class OutagePolicy : std::uint8_t {
    raise,   ///< The hit's error is returned.
    open,    ///< Every hit is admitted, except one whose cost is above the limit.
    closed,  ///< Every hit is refused.
    local,  ///< This process limits by itself at the same rates: N processes admit N times as much.
            ///< Earlier hits are not known. It counts up to 100,000 keys at once and admits the
            ///< hits of further keys.
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
    /// For windows and buckets: denied hits are charged like admitted ones, up to twice the limit.
    /// So a caller that keeps asking waits longer. A cost above the limit is never charged.
    bool charge_denied{false};
    /// Admits hits that the limit refuses, and counts the others: for a trial on live traffic. Such
    /// a hit has Reason::shadow, and `violated` and `retry_after` of its refusal.
    bool shadow{false};
    /// For databases alone: the table, or `schema.table`; limiters share it. Up to 55 bytes.
    std::string table{kTable};

    static constexpr std::string_view kTable = "hotcount_limit";
    OutagePolicy on_error{OutagePolicy::raise};
    static constexpr std::int64_t kMaxDenyCache = 10'000'000;
    /// How many denied keys this limiter remembers. Over Redis a hit of the same key and cost is
    /// denied without a round trip until the denied hit's retry_after has passed since it was sent.
    /// A reset, refund or block of this process ends that at once; one of another process is not
    /// seen. Not with charge_denied.
    std::int64_t deny_cache{0};
    static constexpr std::int64_t kMaxLease = 1'000'000;
    /// How many hits of a key this limiter takes from the store in advance, to spend without a
    /// round trip; 0 and 1: none. (The lease of reserve() is a time.) The store counts them when
    /// they are taken. So each limiter object may admit up to lease - 1 hits more in an interval
    /// than the algorithm does, except with a fixed_window of one rate. Unspent hits are not given
    /// back: they end with their window, with the shortest period and with the process. For Redis
    /// and databases; a config error with charge_denied or shadow. Memory ignores it.
    std::int64_t lease{0};
    /// How long hit_once() remembers an op_id, 1 second or more.
    Duration op_keep{std::chrono::hours{24}};
};

/// The beginning or the end of an outage.
struct OutageEvent {
    bool is_away;
    std::string server;
    std::string why;    ///< The message of the first call that failed.
    Duration duration;  ///< Length of the outage; 0 at its beginning.
};

/// The SQL that create_table() runs, without a database. A config error for a bad `table`.
Result<std::string> limiter_schema(sql::Dialect dialect, const LimiterOptions& options = {});

enum class KeyRule : std::uint8_t;
class JointCall;
class Limiter;
class LimiterBackend;
struct LimitRequest;
struct OnceOnly;
struct Outcome;
/// Makes the backend of a limiter at other rates, which shares connections and caches.
using LimiterBackendMaker =
    std::function<Result<std::unique_ptr<LimiterBackend>>(const LimiterOptions&)>;

namespace detail {
/// The hits that acquire() makes between its sleeps, for bindings that have a sleep of their own.
struct HitAhead {
    /// How early now() may admit a hit: 10 ms, or half of the time in which the burst refills if
    /// that is less. 0: now() is hit(). Only hits that cost the whole burst are admitted early, if
    /// the limiter has gcra or a bucket, one rate, and no charge_denied, shadow or lease. For other
    /// hits the burst makes up for a caller that wakes late.
    static Duration most(const Limiter& limiter, std::int64_t cost);
    /// A hit() that may be admitted up to most() early; retry_after is then the rest of that time,
    /// for which the caller must wait. Other hits are not admitted early.
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
    /// A config error for a sliding_log with a limit above 1,000.
    static Result<std::shared_ptr<Limiter>> make(std::shared_ptr<sql::Database> database,
                                                 LimiterOptions options);
    Limiter(std::unique_ptr<LimiterBackend> backend, LimiterOptions options,
            std::shared_ptr<const LimiterBackendMaker> maker);  // Use make().
    ~Limiter();

    /// Creates the database's table where it is missing; idempotent. Other stores need none.
    Result<void> create_table(Timeout timeout = {});

    /// Takes `cost` (1 or more) if the limit allows it.
    Result<Decision> hit(std::string_view key, std::int64_t cost = 1, Timeout timeout = {});
    /// The same, once per op_id (1 to 1,000 bytes) and key: a repeat within op_keep returns the
    /// first decision, also a refusal, and takes nothing, even after reset(). So the call may be
    /// repeated after any error. A config error for a UUIDv7 (new_op_id()) that is older than
    /// op_keep or further ahead of the store's clock, and for databases. deny_cache and lease have
    /// no effect on it.
    Result<Decision> hit_once(std::string_view key, std::int64_t cost, std::string_view op_id,
                              Timeout timeout = {});
    /// Decides element by element in order; keys may repeat. A failed element does not stop the
    /// others. Over Redis one script for 256 keys, over a database one transaction for 1,000 keys.
    std::vector<Result<Decision>> hit_many(std::span<const std::string_view> keys,
                                           std::span<const std::int64_t> costs,
                                           Timeout timeout = {});
    /// Takes as many of `n` (1 or more) as the limit allows, and returns their number, 0 to n; with
    /// `shadow` always n.
    Result<std::int64_t> at_most(std::string_view key, std::int64_t n, Timeout timeout = {});
    /// The decision of a hit() that takes nothing; `remaining` is the present number.
    Result<Decision> test(std::string_view key, std::int64_t cost = 1, Timeout timeout = {});
    /// test() with a cost of 1.
    Result<Decision> peek(std::string_view key, Timeout timeout = {}) {
        return test(key, 1, timeout);
    }
    /// Gives back `n` (1 or more) of the newest hits, up to the full limit, and returns what
    /// remains. An expired key is full already.
    Result<std::int64_t> refund(std::string_view key, std::int64_t n, Timeout timeout = {});
    /// Refuses all hits of the key for `duration`, up to 366 days, with Reason::blocked; they cost
    /// nothing. A later block replaces an earlier one; reset() lifts it.
    Result<void> block(std::string_view key, Duration duration, Timeout timeout = {});
    /// Hits, and after a refusal sleeps for retry_after and hits again. The callers of this object
    /// for one key form a queue: the first one hits, the others sleep. A hit that costs the whole
    /// burst is taken up to 10 ms early, and acquire() returns when its time has come; so while
    /// callers wait, nearly every hit() of the key is refused. Returns a refusal if the cost is
    /// above the limit, if `patience` has passed, or if the next hit would come later than that.
    /// Each hit has the store's timeout.
    Result<Decision> acquire(std::string_view key, std::int64_t cost = 1, Timeout patience = {});
    /// Holds `n` (1 or more) of the limit, if there is room, until commit(), cancel() or the end of
    /// the lease (1 ms to 366 days): other callers find it taken, and nothing is charged yet. `id`:
    /// 1 to 100 bytes of [0-9A-Za-z_-], unique (new_op_id()). A repeat with the id changes nothing
    /// and succeeds. So the call may be repeated after any error, and is sent again if its reply is
    /// lost. A key has up to 1,000 reservations; reset() drops them. A config error for databases
    /// and for sliding_log. If `on_error` answers (Reason open, closed or local), nothing is held
    /// and there is nothing to commit.
    Result<Decision> reserve(std::string_view key, std::int64_t n, std::string_view id,
                             Duration lease, Timeout timeout = {});
    /// Ends the reservation and takes `used`, 0 or more. If the limit has no room for it, because
    /// `used` is more than was held or the lease has ended, it is charged up to twice the limit, as
    /// with `charge_denied`, and the decision is a refusal. Do not repeat the call after
    /// outcome_unknown: `used` may be taken twice.
    Result<Decision> commit(std::string_view key, std::string_view id, std::int64_t used,
                            Timeout timeout = {});
    /// The same, once per op_id (as in hit_once()) and key: a repeat within op_keep returns the
    /// first decision and takes nothing. So the call may be repeated after any error, and is sent
    /// again if its reply is lost. The repeat may name another reservation, as when the work is
    /// done again: this reservation ends, and nothing is taken for it.
    Result<Decision> commit_once(std::string_view key, std::string_view id, std::int64_t used,
                                 std::string_view op_id, Timeout timeout = {});
    /// Gives back hits that OutagePolicy::local has counted in this process, as
    /// JointDecision::answered_by shows. Without that policy it does nothing.
    Result<void> refund_local(std::string_view key, std::int64_t n);
    /// Ends the reservation and takes nothing; may be repeated.
    Result<Decision> cancel(std::string_view key, std::string_view id, Timeout timeout = {});
    /// This limiter at other rates, such as those of a caller's plan. Limiters of one database
    /// share transactions; those made from one limiter share its remembered denials. States, blocks
    /// and op_ids of a key are separate for each rate. The call takes 1 to 2 us; keep limiters of
    /// rates that recur. A config error as in make().
    Result<std::shared_ptr<Limiter>> with_rates(std::vector<Rate> rates) const;
    /// Forgets the key, as if it had never been hit.
    Result<void> reset(std::string_view key, Timeout timeout = {});

    // The same without waiting. `done` gets the result of the call above: over Redis in the thread
    // that AsyncCall's channel names, over a database in a thread of the library, which `done` must
    // not block; over Memory, and for a bad argument, before the call returns. Arguments are
    // copied.
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

    /// With `on_error` other than raise: the next beginning or end of an outage, for a log. Each is
    /// returned once in a process, by one limiter of the client. Without an event it costs one
    /// load.
    std::optional<OutageEvent> next_outage_event();

    const LimiterOptions& options() const { return options_; }
    /// How many hits an idle key admits at once: the burst, which is the rate's number unless gcra
    /// or a bucket has another. Of several rates the least.
    std::int64_t limit() const { return limit_; }

    /// An address: limiters with the same one can take hits together in one step (hit_all). Those
    /// are the limiters over one memory::Store, and those over one redis::Client except
    /// sliding_log. Every other limiter returns a unique address.
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
    // `fits`: the check of the call's arguments.
    void run(std::string_view key, const Result<void>& fits, const LimitRequest& request,
             const AsyncCall& call, Completion<Outcome> done) const;
    static Result<std::shared_ptr<Limiter>> make_with(LimiterBackendMaker maker,
                                                      LimiterOptions options);
    Batch check(std::span<const std::string_view> keys, std::span<const std::int64_t> costs) const;
    Completion<Outcome> decided(Completion<Decision> done) const;

    LimiterOptions options_;
    const AlgorithmInfo& info_;
    std::shared_ptr<const std::vector<Rate>> rates_;  // Calls may outlive this object.
    std::int64_t limit_;
    std::string prefix_;
    std::unique_ptr<LimiterBackend> backend_;
    KeyRule key_rule_;
    std::shared_ptr<const LimiterBackendMaker> maker_;
};

/// One of the hits of hit_all().
struct LimitedHit {
    std::shared_ptr<Limiter> limiter;  ///< For another rate: that of Limiter::with_rates().
    std::string key;
    std::int64_t cost{1};
};

/// The result of hit_all(). `decision` is that of one limiter, chosen as Decision chooses a rate;
/// `remaining` is the least of all.
struct JointDecision {
    Decision decision;
    std::shared_ptr<const Limiter> limiter;  ///< The limiter of `decision`.
    std::vector<std::string> violated;       ///< The names of the limiters that refused.
    /// For each hit: open, closed or local if a policy decided it, allowed if the store did.
    std::vector<Reason> answered_by;
};

/// Takes all hits or none, in one step. Other callers never see a part of them, and a refusal
/// charges nothing, even with charge_denied. 1 to 100 hits; hits of one limiter and key count as
/// one. If a limiter with `shadow` refuses, nothing is taken from it, and the others are decided
/// without it.
///
/// Over Redis this is one script on one node. Keys in several slots of a cluster are first held,
/// for at most 10 seconds plus twice the timeout, and taken when all are held. Each of these two
/// steps is sent to all slots at once and has the whole timeout. outcome_unknown: a part may have
/// been taken.
///
/// Limiters whose joins() differ are a config error, as are several keys of a limiter over a
/// database and of a sliding_log over Redis: hit() these one after another, and refund() when one
/// refuses.
Result<JointDecision> hit_all(std::span<const LimitedHit> hits, Timeout timeout = {});
/// The same without waiting, as Limiter::hit_async().
void hit_all_async(std::span<const LimitedHit> hits, Completion<JointDecision> done,
                   AsyncCall call = {});

}  // namespace hotcount
