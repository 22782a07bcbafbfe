// ConcurrencyLimit: at most N holders of a key at once, for all threads, processes and machines
// together.
//
// A holder takes a place, renews it while it works for longer than the lease, and gives it back.
// The place of one that died is free when its lease ends, on the store's clock. A holder is told
// from others by its id: one that gives back or renews a place after its lease has ended changes
// nothing for whoever holds it now. A call is one step of the store: over Redis one script in one
// round trip. It counts leases and cannot stop a holder whose lease has ended: until that holder
// looks, one more may be at work. Safe from many threads; an object holds no state of its own.
//
//   key  {store prefix}concurrency:{name}:{key}     always with an expiry
//
// Limits of one name share their places, whatever their `limit` and `lease` are, so that these may
// be changed while processes with the old ones run: each takes while there are fewer than it
// allows. Keys are taken as they are, as Limiter has it.
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

    /// How many hold a key at once: 1 to kMaxLimit.
    std::int64_t limit{1};
    /// For how long a place is held that is neither renewed nor given back: 1 ms to 366 days.
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

    /// Takes a place for `holder` (1 to 1,000 bytes that no other holder has: new_op_id()), or says
    /// that all are held: `retry_after` is the time until enough of their leases have ended (one,
    /// unless more are held than `limit`), and a release may come sooner. `remaining` is how many
    /// places are free then. Of one that holds a place already the lease begins anew, so the call
    /// may be repeated after any error, and a lost reply is. After outcome_unknown the place may be
    /// held until the lease ends; release() frees it.
    Result<Decision> try_acquire(std::string_view key, std::string_view holder,
                                 Timeout timeout = {});
    /// try_acquire(), and as long as all places are held it asks again, after 5 ms at first and
    /// 100 ms at most, 20 ms if others wait behind it: callers of this object for one key are a
    /// queue, first come first served, whose head asks. Returns a refusal when `patience` has
    /// passed; none waits for ever. Each of the calls has the store's timeout.
    Result<Decision> acquire(std::string_view key, std::string_view holder, Timeout patience = {});
    /// The lease begins anew. False: it had ended, or the place was given back; nothing was
    /// changed, and the holder must stop.
    Result<bool> renew(std::string_view key, std::string_view holder, Timeout timeout = {});
    /// Gives the place back. False: the lease had ended before, or the place was given back
    /// already.
    Result<bool> release(std::string_view key, std::string_view holder, Timeout timeout = {});

    // The same without waiting, as Limiter::hit_async().
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
