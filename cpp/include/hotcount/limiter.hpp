// Limiter: at most so many hits in so long, per key, whoever asks and from wherever.
//
//   key  {store prefix}limit:{name}:{algorithm}:{rate}:{key}     with an expiry, always
//
// Keys are taken as they are. Where some are tuples (encode_parts in base/codec.hpp), give the others
// through encode_plain, as the Python bindings do: no two of them then share a state.
//
// So limiters of one name, algorithm and rate share their keys' state, and others never do. A hit
// checks and takes in one step (over Redis one script in one round trip) on the store's clock, and
// a denied hit costs nothing. Each promise below holds for all processes together:
//
//   gcra           <= burst + rate x t in every interval of length t
//   fixed_window   <= limit in each window; twice that within one period across a window's edge
//   list           as fixed_window from the first hit, and remembers who was admitted
//
// The last three are the ways of the Redis documentation's INCR page, holes included, to compare
// with and not to use; tests/races/test_limiter_holes.py forces each hole:
//
//   per_second_key  RACY, WRONG: one key per second of the CALLER's clock. `> limit` admits
//                   limit + 1, and the check before the step admits one more per racing caller.
//   racy_incr       RACY, WRONG: GET, INCR, EXPIRE as three commands. As above, and a caller that
//                   dies before EXPIRE leaves a key that never expires: denied for ever.
//   incr_expire     RACY, WRONG: INCR and EXPIRE in one script, the check outside of it. As above,
//                   and a key that has lost its expiry is never given one again.
//
// Safe from many threads; it holds no state of its own.
#pragma once

#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/completion.hpp>
#include <hotcount/detail/limiter/algorithms.hpp>
#include <hotcount/detail/limiter/decision.hpp>
#include <hotcount/detail/limiter/rate.hpp>
#include <hotcount/memory.hpp>
#include <hotcount/redis.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount {

enum class Algorithm : std::uint8_t {
    fixed_window,
    gcra,
    list,
    per_second_key,
    racy_incr,
    incr_expire,
};

std::string_view to_string(Algorithm algorithm);
/// An unknown name is a config error that lists the known ones.
Result<Algorithm> parse_algorithm(std::string_view name);

struct LimiterOptions {
    Rate rate{};
    Algorithm algorithm{Algorithm::gcra};
    /// Part of the keys, and the policy's name in headers: 1 to 100 printable ASCII characters
    /// without quotes and backslashes.
    std::string name{"default"};
    /// Where a fixed window begins; other algorithms take the default only.
    Align align{Align::clock};
    /// See Plan; for fixed_window and gcra.
    bool charge_denied{false};
};

class LimiterBackend;

class Limiter {
  public:
    static Result<std::shared_ptr<Limiter>> make(std::shared_ptr<memory::Store> store,
                                                 LimiterOptions options);
    static Result<std::shared_ptr<Limiter>> make(std::shared_ptr<redis::Client> client,
                                                 LimiterOptions options);
    Limiter(std::unique_ptr<LimiterBackend> backend, LimiterOptions options);  // Use make().
    ~Limiter();

    /// Takes `cost` (1 or more) if the limit allows. `who` is for list alone: the caller to
    /// remember, the key itself where empty.
    Result<Decision> hit(std::string_view key, std::int64_t cost = 1, std::string_view who = {},
                         Timeout timeout = {});
    /// Element by element in order, so that equal keys are decided one after another. One failure
    /// does not stop the others. Over Redis one script per 256 keys with gcra and fixed_window, one
    /// hit after another with the rest.
    std::vector<Result<Decision>> hit_many(std::span<const std::string_view> keys,
                                           std::span<const std::int64_t> costs,
                                           Timeout timeout = {});
    /// What such a hit would be answered, with what remains as it stands; takes nothing.
    Result<Decision> test(std::string_view key, std::int64_t cost = 1, Timeout timeout = {});
    /// test() with a cost of 1.
    Result<Decision> peek(std::string_view key, Timeout timeout = {}) {
        return test(key, 1, timeout);
    }
    /// Forgets the key: it is as if it had never been hit.
    Result<void> reset(std::string_view key, Timeout timeout = {});
    /// list only: who was admitted in the key's window, in order.
    Result<std::vector<std::string>> entries(std::string_view key, Timeout timeout = {});

    // The same without waiting: `done` gets what the call above would return, in the thread that
    // AsyncCall's channel says; over Memory, and where an argument is bad, before they return.
    // Over Redis the ways of the documentation (per_second_key, racy_incr, incr_expire) are a
    // config error here: each of their hits is several round trips that wait. Arguments are copied.
    void hit_async(std::string_view key, std::int64_t cost, std::string_view who,
                   Completion<Decision> done, AsyncCall call = {});
    void hit_many_async(std::span<const std::string_view> keys, std::span<const std::int64_t> costs,
                        Completion<std::vector<Result<Decision>>> done, AsyncCall call = {});
    void test_async(std::string_view key, std::int64_t cost, Completion<Decision> done,
                    AsyncCall call = {});
    void peek_async(std::string_view key, Completion<Decision> done, AsyncCall call = {}) {
        test_async(key, 1, std::move(done), call);
    }
    void reset_async(std::string_view key, Completion<void> done, AsyncCall call = {});
    void entries_async(std::string_view key, Completion<std::vector<std::string>> done,
                       AsyncCall call = {});

    const LimiterOptions& options() const { return options_; }
    /// What an idle key admits at once: with gcra the burst, else the rate's number.
    std::int64_t limit() const {
        return options_.algorithm == Algorithm::gcra ? options_.rate.burst : options_.rate.limit;
    }

  private:
    struct Batch;
    Result<std::string> full(std::string_view key) const;
    Result<void> check(std::int64_t cost, std::string_view who) const;
    Result<void> check_entries() const;
    Result<void> check_async() const;
    Batch check(std::span<const std::string_view> keys, std::span<const std::int64_t> costs) const;
    void decide_async(std::string_view key, std::int64_t cost, bool take, std::string_view who,
                      Completion<Decision> done, const AsyncCall& call);

    LimiterOptions options_;
    std::string prefix_;
    std::unique_ptr<LimiterBackend> backend_;
};

}  // namespace hotcount
