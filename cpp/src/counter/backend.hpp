// The store's side of Counter and PeriodCounter. Keys are complete and checked.
#pragma once

#include <hotcount/counter.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/period_counter.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount {

/// The bounds of a period.
struct PeriodWindow {
    Instant begins;
    Instant ends;
    Instant gone;  ///< The period's number is kept until then.
    bool present;  ///< The store's time must be in the period.
};

/// The furthest ahead of the store's time that a period may begin.
inline constexpr std::chrono::seconds kMostAhead = std::chrono::days{36'525};

struct PeriodAnswer {
    enum class Kind : std::uint8_t {
        done,       ///< `value` is the result.
        elsewhere,  ///< `store_time` is in another period. Nothing was done.
        gone,       ///< The period is no longer kept. Nothing was done.
        ahead,      ///< The period begins more than kMostAhead from now. Nothing was done.
    };
    Kind kind;
    std::int64_t value;
    Instant store_time;
};

/// The connection and the bounds of a call. In memory all are unused.
struct Route {
    redis::Channel* channel;
    Deadline deadline;
    const redis::Cancelled* cancelled;
};

class CounterBackend {
  public:
    explicit CounterBackend(CounterOptions options) : options_(std::move(options)) {}
    virtual ~CounterBackend() = default;

    virtual std::string_view store_prefix() const = 0;
    /// For an asynchronous call.
    virtual Route route(const AsyncCall& call) = 0;
    /// For a blocking call: `done` is called before the backend's method returns.
    virtual Route waiting(Timeout timeout) = 0;

    /// add() for a blocking caller. `key` is checked, and lacks the prefixes: in memory, composing
    /// the key and a completion would cost as much as the add.
    virtual Result<std::int64_t> add_now(std::string_view key, std::int64_t n, Timeout timeout) {
        return wait_for<std::int64_t>([&](Completion<std::int64_t> done) {
            add(full_key(store_prefix(), options_.prefix, key), n, waiting(timeout),
                std::move(done));
        });
    }
    /// add_many() for a blocking caller; keys as in add_now().
    virtual BatchResult<std::int64_t> add_many_now(std::span<const std::string_view> keys,
                                                   std::span<const std::int64_t> amounts,
                                                   Timeout timeout) {
        return *wait_for<BatchResult<std::int64_t>>(
            [&](Completion<BatchResult<std::int64_t>> done) {
                add_many(full_keys(keys), {amounts.begin(), amounts.end()}, waiting(timeout),
                         std::move(done));
            });
    }
    /// The keys with the prefixes of the store and of the counter.
    std::vector<std::string> full_keys(std::span<const std::string_view> keys) const;

    virtual void add(std::string key, std::int64_t n, const Route& route,
                     Completion<std::int64_t> done) = 0;
    virtual void add_once(const std::string& key, std::int64_t n, std::string_view op_id,
                          const Route& route, Completion<std::int64_t> done) = 0;
    virtual void try_add(const std::string& key, std::int64_t n, Bounds bounds, const Route& route,
                         Completion<TryAdd> done) = 0;
    virtual void add_many(std::vector<std::string> keys, std::vector<std::int64_t> amounts,
                          const Route& route, Completion<BatchResult<std::int64_t>> done) = 0;
    virtual void get(const std::string& key, const Route& route, Completion<std::int64_t> done) = 0;
    virtual void get_many(std::vector<std::string> keys, const Route& route,
                          Completion<BatchResult<std::int64_t>> done) = 0;
    virtual void reset(const std::string& key, const Route& route,
                       Completion<std::int64_t> done) = 0;
    virtual void ttl(const std::string& key, const Route& route,
                     Completion<std::optional<Duration>> done) = 0;

    // -- periods ----------------------------------------------------------------

    /// Checks the store's time and adds n to a period's number, or reads it if n is null, in one
    /// atomic step. The number expires at PeriodWindow::gone or later.
    virtual void in_period(const std::string& key, std::optional<std::int64_t> n,
                           const PeriodWindow& window, const Route& route,
                           Completion<PeriodAnswer> done) = 0;
    /// in_period() for many keys of one period, with one amount per key; without amounts it reads.
    virtual void in_period_many(std::vector<std::string> keys, std::vector<std::int64_t> amounts,
                                const PeriodWindow& window, const Route& route,
                                Completion<BatchResult<PeriodAnswer>> done) = 0;
    /// An estimate of the store's time, without asking the store.
    virtual Instant guess_time() const = 0;
    /// The time limit of a call of several steps.
    virtual Duration limit(Timeout timeout) const = 0;

    const CounterOptions& options() const { return options_; }

  private:
    CounterOptions options_;
};

std::unique_ptr<CounterBackend> make_memory_backend(std::shared_ptr<memory::Store> store,
                                                    CounterOptions options);
std::unique_ptr<CounterBackend> make_redis_backend(std::shared_ptr<redis::Client> client,
                                                   CounterOptions options);

/// The error for a value that would leave 64 bits.
Error counter_overflow(std::string_view key);
/// The error for an op_id that was made before the store's memory of op_ids begins.
Error op_id_too_old(std::string_view op_id);
/// The error for an op_id that was made more than op_keep in the future.
Error op_id_ahead(std::string_view op_id);

struct IncrBatch {
    std::string server;  ///< The server's name in errors.
    /// Makes an element's error (redis::of_element()).
    Error (*about)(const std::string& key, const Error& error);
    std::vector<std::string> keys;  ///< A key may occur more than once.
    std::vector<std::int64_t> amounts;
};

/// Sends the batch; `done` gets the value after each add, in order for each key. The adds are sent
/// in portions of 1,000, one after the other, so that other calls are sent in between. In a
/// portion, the adds of one key are one command. If a portion fails, its elements get its error,
/// and the next portion is still sent.
void submit_incr_batch(redis::Channel& channel, IncrBatch batch, Deadline deadline,
                       Completion<BatchResult<std::int64_t>> done,
                       const redis::Cancelled* cancelled = nullptr);

// A period's complete key, and its bounds.
struct PeriodCounter::Place {
    std::string name;
    std::string label;
    PeriodWindow window;
};

/// The error for an instant outside of the calendar.
Error bad_time(std::string_view argument);

}  // namespace hotcount
