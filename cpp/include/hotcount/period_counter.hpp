// PeriodCounter: a number per key and day (or second, minute, hour, week, month), kept for a while.
//
//   key  {store prefix}{prefix}:{period}:{zone}:{label}:{key}    a plain integer, with an expiry
//
//   e.g. period:day:Europe/Berlin:2026-11-21:home      "%" and ":" in the zone's name escaped as
//        period:hour:UTC:2026-11-21T170000Z:home       %25 and %3A; labels as in period.hpp
//
// A period's number is gone when `keep` periods have begun since, itself counted: with keep = 1 at
// its end. The expiry is set in the same step as the add, so that there is no number without one;
// one found without is given its own, and where counters of different `keep` add, the longest wins.
//
// The present is the STORE's: Redis's clock, or the memory store's. The period is computed here by
// this machine's clock and checked there in the step that adds, so that a machine whose clock is
// off counts where the others do, at the price of a second round trip.
//
// Safe from many threads; it holds no state of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/completion.hpp>
#include <hotcount/detail/counter/period.hpp>
#include <hotcount/memory.hpp>
#include <hotcount/redis.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount {

struct PeriodCounterOptions {
    Period period{Period::day};
    std::shared_ptr<const TimeZone> zone{utc_zone()};
    /// How many periods are kept, the present one included: 1 or more, at most 100 years of them.
    /// More costs a key per period in which there was an add.
    std::int64_t keep{400};
    /// Put before every key of this counter.
    std::string prefix{"period"};
};

struct PeriodCount {
    Instant start;
    std::int64_t count;
    bool operator==(const PeriodCount&) const = default;
};

class CounterBackend;
struct Route;

class PeriodCounter : public std::enable_shared_from_this<PeriodCounter> {
  public:
    /// Most periods that one series() reads.
    static constexpr std::size_t kMaxSeries = 100'000;

    static Result<std::shared_ptr<PeriodCounter>> make(std::shared_ptr<memory::Store> store,
                                                       PeriodCounterOptions options = {});
    static Result<std::shared_ptr<PeriodCounter>> make(std::shared_ptr<redis::Client> client,
                                                       PeriodCounterOptions options = {});
    PeriodCounter(std::unique_ptr<CounterBackend> backend, PeriodCounterOptions options);  // make()
    ~PeriodCounter();

    /// Adds n (any int64) to the period that `at` is in, the present one by default, and returns
    /// its number after this add; overflow changes nothing. An `at` whose period is not kept any
    /// more, or begins more than 100 years ahead, is a config error and nothing is added.
    Result<std::int64_t> add(std::string_view key, std::int64_t n = 1,
                             std::optional<Instant> at = {}, Timeout timeout = {});
    /// The number of that period; 0 where there was no add, or it is not kept any more.
    Result<std::int64_t> get(std::string_view key, std::optional<Instant> at = {},
                             Timeout timeout = {});
    /// Every period from the one that `start` is in to the last that begins before `end`, in order
    /// and 0 included, in one round trip. Not a snapshot: adds go on meanwhile. Config errors: an
    /// end before the start, more than kMaxSeries periods.
    Result<std::vector<PeriodCount>> series(std::string_view key, Instant start, Instant end,
                                            Timeout timeout = {});

    // The same without waiting: `done` gets what the call above would return, in the thread that
    // AsyncCall's channel says; over Memory, and where an argument is bad, before they return. An
    // add at the present may send a second time, from the thread that the first reply came in.
    void add_async(std::string_view key, std::int64_t n, std::optional<Instant> at,
                   Completion<std::int64_t> done, AsyncCall call = {});
    void get_async(std::string_view key, std::optional<Instant> at, Completion<std::int64_t> done,
                   AsyncCall call = {});
    void series_async(std::string_view key, Instant start, Instant end,
                      Completion<std::vector<PeriodCount>> done, AsyncCall call = {});

    const PeriodCounterOptions& options() const { return options_; }

  private:
    struct Place;
    Result<Place> place(std::string_view key, Instant at, std::string_view argument) const;
    std::string name(const Span& span, std::string_view key) const;
    Error not_added(bool gone, const std::string& label) const;
    void start_add(std::string_view key, std::int64_t n, std::optional<Instant> at,
                   const Route& route, Deadline deadline, Completion<std::int64_t> done);
    void start_get(std::string_view key, std::optional<Instant> at, const Route& route,
                   Deadline deadline, Completion<std::int64_t> done);
    void start_series(std::string_view key, Instant start, Instant end, const Route& route,
                      Completion<std::vector<PeriodCount>> done);
    void ask_present(std::string key, std::optional<std::int64_t> n, Instant present,
                     const Route& route, Deadline deadline, Completion<std::int64_t> done);

    std::unique_ptr<CounterBackend> backend_;
    PeriodCounterOptions options_;
    Calendar calendar_;
    std::string prefix_;  // {prefix}:{period}:{zone}
};

}  // namespace hotcount
