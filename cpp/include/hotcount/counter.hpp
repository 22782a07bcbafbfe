// Counter: add to a number under a key and learn the value after this very add.
//
//   key  {store prefix}{prefix}:{key}     a plain integer, as INCRBY leaves it;
//        {store prefix}{key} if the prefix is empty
//   ops  key_beside(key, "ops.0"), "ops.1"  over Redis, when op_ids are used: hashes op_id -> result
//        of 4,096 op_ids each. More go to pairs of hashes with ".XXXX" after these names,
//        XXXX being 0000 to ffff by the op_id. A server frees an expired hash in one go (2
//        ms for 4,096), so hashes stay near that size up to 268 million op_ids within
//        op_keep, and expire at times spread over half of op_keep.
//
//        In memory the results are beside the counter, as one more key.
//
// Exact and linearizable over every store: each caller gets the value after its own add. Over Redis
// an add is one command in one round trip: INCRBY, or a script if the key is to expire. An add
// whose reply was lost is outcome_unknown and is never sent again, unless it has an op_id.
// Safe from many threads; it holds no state of its own.
//
// Example, the body of a function that returns Result<void>:
//
//   @code
//   HOTCOUNT_TRY_ASSIGN(const auto store, memory::Store::make());
//   HOTCOUNT_TRY_ASSIGN(const auto counter, Counter::make(store));
//   HOTCOUNT_TRY_ASSIGN(const std::int64_t views, counter->add("page:home", 5));
//   std::cout << views << '\n';  // 5
//   // A retry with the same op_id returns the first result and adds nothing:
//   HOTCOUNT_TRY(counter->add_once("page:home", 1, "order:17"));
//   HOTCOUNT_TRY_ASSIGN(const std::int64_t again, counter->add_once("page:home", 1, "order:17"));
//   std::cout << again << '\n';  // 6
//   HOTCOUNT_TRY_ASSIGN(const TryAdd taken, counter->try_add("page:home", -7, {.min = 0}));
//   std::cout << taken.applied << ' ' << taken.value << '\n';  // 0 6
//   @endcode
#pragma once

#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/completion.hpp>
#include <hotcount/memory.hpp>
#include <hotcount/redis.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount {

struct CounterOptions {
    /// Put before every key of this counter, with a ':'. Empty: no prefix and no ':'.
    std::string prefix{"count"};
    /// A key's time to live from its first add; later adds do not extend it. nullopt: no expiry.
    std::optional<Duration> ttl{};
    /// How long the result of an add with an op_id is remembered, at least; over Redis at most
    /// twice that. Longer: later retries are still counted once; each op_id of 36 characters costs
    /// 40 to 100 bytes of Redis 7 until then, up to 200 when a counter has 8,000 to 100,000 of
    /// them, and in memory about 140. Counters that share a key may differ in it: none is cut short
    /// by another.
    Duration op_keep{std::chrono::hours{24}};
};

struct TryAdd {
    bool applied;
    std::int64_t value;  ///< After the add, or as it stands if the add was refused.
};

/// Bounds, both inclusive, that try_add keeps the value inside.
struct Bounds {
    std::optional<std::int64_t> min{};
    std::optional<std::int64_t> max{};
};

class CounterBackend;

class Counter {
  public:
    static Result<std::shared_ptr<Counter>> make(std::shared_ptr<memory::Store> store,
                                                 CounterOptions options = {});
    static Result<std::shared_ptr<Counter>> make(std::shared_ptr<redis::Client> client,
                                                 CounterOptions options = {});
    explicit Counter(std::unique_ptr<CounterBackend> backend);  // Use make().
    ~Counter();

    /// Adds n (any int64) and returns the value after it; overflow changes nothing.
    Result<std::int64_t> add(std::string_view key, std::int64_t n = 1, Timeout timeout = {});
    /// The same, once per op_id (1 to 1000 bytes): a repeat within op_keep returns the first result
    /// and adds nothing, also after reset() or after the counter has expired. An op_id that is a
    /// UUIDv7 (new_op_id()) is refused with a config error once it is older than op_keep and not
    /// remembered; any other then counts again. Over Redis the call is sent once more when its
    /// reply is lost; outcome_unknown: that was lost too, and it may be retried with the same
    /// op_id. A config error for a key whose braces make no hash tag, over Redis. HOLE: a repeat
    /// counts again if the remembered op_ids (`{KEY}:ops.0`, `{KEY}:ops.1` ...) were deleted or
    /// evicted.
    Result<std::int64_t> add_once(std::string_view key, std::int64_t n, std::string_view op_id,
                                  Timeout timeout = {});
    /// Adds n only if the result stays inside the bounds. A refusal is a value, not an error.
    Result<TryAdd> try_add(std::string_view key, std::int64_t n, Bounds bounds,
                           Timeout timeout = {});
    /// Element by element in order; keys may repeat. One failure does not stop the others.
    BatchResult<std::int64_t> add_many(std::span<const std::string_view> keys,
                                       std::span<const std::int64_t> amounts, Timeout timeout = {});
    Result<std::int64_t> get(std::string_view key, Timeout timeout = {});  ///< 0 if absent.
    BatchResult<std::int64_t> get_many(std::span<const std::string_view> keys,
                                       Timeout timeout = {});
    /// Removes the key and returns its last value, 0 if absent.
    Result<std::int64_t> reset(std::string_view key, Timeout timeout = {});
    /// The remaining time to live; nullopt if the key is absent or never expires.
    Result<std::optional<Duration>> ttl(std::string_view key, Timeout timeout = {});

    // The calls above without waiting. `done` gets the result of the call above, in the thread that
    // AsyncCall's channel names; over Memory, and for a bad argument, before the call returns.
    // Arguments are copied.
    void add_async(std::string_view key, std::int64_t n, Completion<std::int64_t> done,
                   AsyncCall call = {});
    void add_once_async(std::string_view key, std::int64_t n, std::string_view op_id,
                        Completion<std::int64_t> done, AsyncCall call = {});
    void try_add_async(std::string_view key, std::int64_t n, Bounds bounds, Completion<TryAdd> done,
                       AsyncCall call = {});
    void add_many_async(std::span<const std::string_view> keys,
                        std::span<const std::int64_t> amounts,
                        Completion<BatchResult<std::int64_t>> done, AsyncCall call = {});
    void get_async(std::string_view key, Completion<std::int64_t> done, AsyncCall call = {});
    void get_many_async(std::span<const std::string_view> keys,
                        Completion<BatchResult<std::int64_t>> done, AsyncCall call = {});
    void reset_async(std::string_view key, Completion<std::int64_t> done, AsyncCall call = {});
    void ttl_async(std::string_view key, Completion<std::optional<Duration>> done,
                   AsyncCall call = {});

    const CounterOptions& options() const;

  private:
    struct Checked;
    Result<std::string> full(std::string_view key) const;
    Result<void> check_once(std::string_view op_id) const;
    Result<void> check_try(Bounds bounds) const;
    Checked check(std::span<const std::string_view> keys,
                  std::span<const std::int64_t> amounts) const;
    template <class T, class Go>
    void begin(std::string_view key, const Result<void>& fits, Completion<T>& done, Go&& go);

    std::unique_ptr<CounterBackend> backend_;
};

}  // namespace hotcount
