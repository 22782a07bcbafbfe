// What Counter and PeriodCounter ask of a store. Keys come checked and in full.
#pragma once

#include <hotcount/counter.hpp>
#include <hotcount/period_counter.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount {

/// A period as a store needs to know it.
struct PeriodWindow {
    Instant begins;
    Instant ends;
    Instant gone;  ///< From when on its number is not kept.
    bool present;  ///< The store's time must be in it.
};

/// The furthest ahead of the store's time that a period may begin.
inline constexpr std::chrono::seconds kMostAhead = std::chrono::days{36'525};

struct PeriodAnswer {
    enum class Kind : std::uint8_t {
        done,       ///< Here is the value.
        elsewhere,  ///< The store's time is in another period; here it is. Nothing was done.
        gone,       ///< The period is not kept any more. Nothing was done.
        ahead,      ///< It begins more than kMostAhead from now. Nothing was done.
    };
    Kind kind;
    std::int64_t value;
    Instant store_time;
};

/// The connection that a call goes over, and its bounds. Memory needs none.
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
    /// For a call that does not wait.
    virtual Route route(const AsyncCall& call) = 0;
    /// For a call that waits: `done` is called before it returns.
    virtual Route waiting(Timeout timeout) = 0;

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

    /// Adds n to a period's number, or reads it if there is no n, in one step with the look at the
    /// store's time. What stands afterwards expires when the period is gone, or later.
    virtual void in_period(const std::string& key, std::optional<std::int64_t> n,
                           const PeriodWindow& window, const Route& route,
                           Completion<PeriodAnswer> done) = 0;
    /// The same for many keys of one period, with an amount for each, or without any to read.
    virtual void in_period_many(std::vector<std::string> keys, std::vector<std::int64_t> amounts,
                                const PeriodWindow& window, const Route& route,
                                Completion<BatchResult<PeriodAnswer>> done) = 0;
    /// The store's time, as far as this machine knows it.
    virtual Instant guess_time() const = 0;
    /// How long a call of several steps may take.
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
/// The error for an op_id that is not remembered, and was made before all that is.
Error op_id_too_old(std::string_view op_id);
/// The error for one from further ahead than op_keep.
Error op_id_ahead(std::string_view op_id);

struct IncrBatch {
    std::string server;  ///< What errors call the server.
    /// Makes the error of an element, with its key in it.
    Error (*about)(const std::string& key, const Error& error);
    std::vector<std::string> keys;  ///< A key may occur more than once.
    std::vector<std::int64_t> amounts;
};

/// Sends the batch; `done` gets the value after each add, in order for each key. The adds travel in
/// portions of 1,000, one portion after the other, so that calls of others pass in between. In a
/// portion the adds of one key travel as one command. When a portion fails its elements get its
/// error, and the next portion is sent all the same.
void submit_incr_batch(redis::Channel& channel, IncrBatch batch, Deadline deadline,
                       Completion<BatchResult<std::int64_t>> done,
                       const redis::Cancelled* cancelled = nullptr);

// A period's key in full, and what the store needs to know of the period.
struct PeriodCounter::Place {
    std::string name;
    std::string label;
    PeriodWindow window;
};

/// The error for an instant that the calendar does not take.
Error bad_time(std::string_view argument);

}  // namespace hotcount
