// ConcurrencyLimit: at most N holders of a key at once, for all threads, processes and machines
// together.
//
// A holder takes a place, renews it if its work takes longer than the lease, and gives it back. The
// place of a holder that died is free when its lease ends, on the store's clock. Each holder has an
// id: a holder that renews or gives back a place after its lease has ended does not affect the
// present holder. A call is one atomic step of the store: over Redis one script in one round trip.
// The limit counts leases and cannot stop a holder whose lease has ended: until that holder calls
// renew(), more than N may be at work. Thread-safe; an object holds no state of its own.
//
//   key  {store prefix}concurrency:{name}:{key}     always with an expiry
//
// Limits of one name share their places, even if their `limit` and `lease` differ. So both may be
// changed while processes with the old values run: each process takes a place only while fewer
// places than its own `limit` are held. Keys are not encoded, as in Limiter.
//
// Example, the body of a function that returns Result<void>:
//
//   @code
//   HOTCOUNT_TRY_ASSIGN(const auto store, memory::Store::make());
//   ConcurrencyOptions options;
//   options.limit = 1;
//   HOTCOUNT_TRY_ASSIGN(const auto exports, ConcurrencyLimit::make(store, options));
//   const std::string mine = new_op_id();
//   HOTCOUNT_TRY_ASSIGN(const Decision taken, exports->try_acquire("user:1", mine));
//   HOTCOUNT_TRY_ASSIGN(const Decision second, exports->try_acquire("user:1", new_op_id()));
//   std::cout << taken.allowed << ' ' << second.allowed << '\n';  // 1 0
//   HOTCOUNT_TRY_ASSIGN(const bool held, exports->release("user:1", mine));
//   std::cout << held << '\n';  // 1
//   @endcode
#pragma once

#include <chrono>
#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/completion.hpp>
#include <hotcount/limiter.hpp>
#include <hotcount/memory.hpp>
#include <hotcount/op_id.hpp>
#include <hotcount/redis.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <string>
#include <string_view>

namespace hotcount {

struct ConcurrencyOptions {
    static constexpr std::int64_t kMaxLimit = 10'000;

    /// Maximum of holders of a key at once: 1 to kMaxLimit.
    std::int64_t limit{1};
    /// How long a place that is neither renewed nor given back stays held: 1 ms to 366 days.
    Duration lease{std::chrono::seconds{30}};
    /// Part of the keys; as LimiterOptions::name.
    std::string name{"default"};
};

class ConcurrencyBackend;

class ConcurrencyLimit {
  public:
    static Result<std::shared_ptr<ConcurrencyLimit>> make(std::shared_ptr<memory::Store> store,
                                                          ConcurrencyOptions options);
    static Result<std::shared_ptr<ConcurrencyLimit>> make(std::shared_ptr<redis::Client> client,
                                                          ConcurrencyOptions options);
    ConcurrencyLimit(std::unique_ptr<ConcurrencyBackend> backend,
                     ConcurrencyOptions options);  // Use make().
    ~ConcurrencyLimit();

    /// Takes a place for `holder` (a unique id of 1 to 1,000 bytes, such as new_op_id()), or
    /// refuses if all places are held. `retry_after` is the time until enough leases have ended for
    /// a place to be free; a release may free one sooner. `remaining` is the number of free places
    /// after the call. If `holder` has a place already, its lease begins anew. So the call may be
    /// repeated after any error, and the client repeats it after a lost reply. After
    /// outcome_unknown the place may be held until the lease ends; release() frees it.
    Result<Decision> try_acquire(std::string_view key, std::string_view holder,
                                 Timeout timeout = {});
    /// Repeats try_acquire() while all places are held, after pauses that grow from 5 ms to 100 ms,
    /// or to 20 ms if other callers wait behind it. Callers of this object for one key form a
    /// queue, first come, first served, and only its head calls try_acquire(). Returns a refusal
    /// when `patience` has passed; no wait is infinite. Each try_acquire() has the store's timeout.
    Result<Decision> acquire(std::string_view key, std::string_view holder, Timeout patience = {});
    /// Begins the lease anew. False: the lease had ended, or the place was given back; nothing was
    /// changed, and the holder must stop its work.
    Result<bool> renew(std::string_view key, std::string_view holder, Timeout timeout = {});
    /// Gives the place back. False: the lease had ended before, or the place was given back
    /// already.
    Result<bool> release(std::string_view key, std::string_view holder, Timeout timeout = {});

    // The calls above without waiting, as Limiter::hit_async().
    void try_acquire_async(std::string_view key, std::string_view holder, Completion<Decision> done,
                           AsyncCall call = {});
    void renew_async(std::string_view key, std::string_view holder, Completion<bool> done,
                     AsyncCall call = {});
    void release_async(std::string_view key, std::string_view holder, Completion<bool> done,
                       AsyncCall call = {});

    const ConcurrencyOptions& options() const { return options_; }

  private:
    Result<std::string> full(std::string_view key, std::string_view holder) const;

    ConcurrencyOptions options_;
    std::string prefix_;
    std::unique_ptr<ConcurrencyBackend> backend_;
};

}  // namespace hotcount
