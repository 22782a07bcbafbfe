// PeriodCounter: a number per key and day (or second, minute, hour, week, month), kept for a while.
//
//   key  {store prefix}{prefix}:{period}:{zone}:{label}:{key}    a plain integer, with an expiry;
//        without {prefix}: if the prefix is empty
//
//   e.g. period:day:Europe/Berlin:2026-11-21:home      "%" and ":" in the zone's name escaped as
//        period:hour:UTC:2026-11-21T170000Z:home       %25 and %3A; labels as Calendar gives them
//
// A period's number is kept for `keep` periods, its own included: with keep = 1 until the period
// ends. The expiry is set in the same step as the add, so no number is without one; a number found
// without gets its own. If counters with different `keep` add to one, the longest wins.
//
// The present is the STORE's: Redis's clock, or the memory store's. The period is computed here by
// this machine's clock and checked there in the step that adds, so that a machine whose clock is
// off counts into the same period as the others, at the price of a second round trip.
//
// Safe from many threads; it holds no state of its own.
//
// Example, the body of a function that returns Result<void>:
//
//   @code
//   HOTCOUNT_TRY_ASSIGN(const auto store, memory::Store::make());
//   PeriodCounterOptions options;
//   options.period = Period::day;
//   options.keep = 30;
//   HOTCOUNT_TRY_ASSIGN(const auto visits, PeriodCounter::make(store, options));
//   HOTCOUNT_TRY_ASSIGN(const std::int64_t today, visits->add("home"));
//   std::cout << today << '\n';  // 1
//   const Instant now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
//   HOTCOUNT_TRY_ASSIGN(const auto week, visits->series("home", now - std::chrono::days{6},
//                                                       now + std::chrono::seconds{1}));
//   for (const PeriodCount& day : week) std::cerr << day.start.time_since_epoch().count() << ' ' << day.count << '\n';
//   @endcode
#pragma once

#include <chrono>
#include <cstddef>
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

/// A whole second of UTC: no period is shorter.
using Instant = std::chrono::sys_seconds;

enum class Period : std::uint8_t { second, minute, hour, day, week, month };

std::string_view to_string(Period period);

class TimeZone {
  public:
    virtual ~TimeZone() = default;
    /// Its name in keys, such as "Europe/Berlin": two zones of one name count together.
    virtual std::string_view name() const = 0;
    /// The offset of its clock from UTC, less than 24 hours either way. Called from many threads.
    virtual std::chrono::seconds offset(Instant at) const = 0;
};

const std::shared_ptr<const TimeZone>& utc_zone();

/// One period.
struct Span {
    Instant begins;
    Instant ends;                      ///< The first instant after it: the next one begins.
    std::chrono::local_seconds reads;  ///< The time on the zone's clock at its beginning.
};

/// Periods of the calendar in a time zone: finds the period of an instant, with its beginning and
/// end.
///
/// Seconds, minutes and hours begin when the zone's clock shows a full one. A change of the zone's
/// offset cuts the one that it falls in: an hour that the clock shows twice is two hours, and the
/// day of the change has 23 or 25 hours. A day, week or month begins when the clock shows its
/// beginning, or the first later time if the clock skips that; it ends when the next one begins. So
/// periods never overlap and leave no gap, and a date that a zone skips has no period. Weeks begin
/// on Monday.
///
/// Pure arithmetic: only the zone's offset from UTC is needed, so that a program may bring its own
/// rules (Python brings zoneinfo).
class Calendar {
  public:
    /// Whether the instant is in the years 2 to 9799, so that both neighbours have a date.
    static bool takes(Instant at);

    /// Keeps the zone.
    Calendar(Period period, std::shared_ptr<const TimeZone> zone);

    Span span(Instant at) const;
    /// The beginning of the period that is `periods` (1 or more) after this one.
    Instant later(const Span& span, std::int64_t periods) const;
    /// The period's name in keys, of one length for all periods of a kind:
    ///   second, minute, hour   2026-11-21T170000Z   when it begins, in UTC
    ///   day, week              2026-11-21           its first day in the zone
    ///   month                  2026-11
    std::string label(const Span& span) const;

    Period period() const { return period_; }
    const TimeZone& zone() const { return *zone_; }

  private:
    Span fixed_span(Instant at, std::chrono::seconds length) const;
    Instant first(std::chrono::local_seconds reads) const;
    Instant change(Instant from, Instant to) const;

    Period period_;
    std::shared_ptr<const TimeZone> zone_;
};

/// The longest that a period of the kind lasts, nominally.
std::chrono::seconds longest(Period period);

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
    /// The number of that period; 0 if there was no add, or it is not kept any more.
    Result<std::int64_t> get(std::string_view key, std::optional<Instant> at = {},
                             Timeout timeout = {});
    /// add() of many keys, which may repeat, with an amount for each; the value after each add. One
    /// period for all of them: without `at` the present. A failed element does not stop the others.
    /// Over Redis adds travel in scripts of 256 keys.
    Result<BatchResult<std::int64_t>> add_many(std::span<const std::string_view> keys,
                                               std::span<const std::int64_t> amounts,
                                               std::optional<Instant> at = {},
                                               Timeout timeout = {});
    /// get() of many keys.
    Result<BatchResult<std::int64_t>> get_many(std::span<const std::string_view> keys,
                                               std::optional<Instant> at = {},
                                               Timeout timeout = {});
    /// Every period from the one that `start` is in to the last that begins before `end`, in order
    /// and 0 included, in one round trip. Not a snapshot: adds go on meanwhile. With `in`, its
    /// periods: each the sum of the counter's periods that it consists of. Config errors: an end
    /// before the start, more than kMaxSeries periods of the counter, a period of `in` that does
    /// not consist of whole periods of the counter. A sum outside of 64 bits is an overflow error.
    Result<std::vector<PeriodCount>> series(std::string_view key, Instant start, Instant end,
                                            const std::optional<Calendar>& in = {},
                                            Timeout timeout = {});

    // The calls above without waiting. `done` gets the result of the call above, in the thread that
    // AsyncCall's channel names; over Memory, and for a bad argument, before the call returns. An
    // add at the present may send a second time, in the thread that received the first reply.
    void add_async(std::string_view key, std::int64_t n, std::optional<Instant> at,
                   Completion<std::int64_t> done, AsyncCall call = {});
    void get_async(std::string_view key, std::optional<Instant> at, Completion<std::int64_t> done,
                   AsyncCall call = {});
    void add_many_async(std::span<const std::string_view> keys,
                        std::span<const std::int64_t> amounts, std::optional<Instant> at,
                        Completion<BatchResult<std::int64_t>> done, AsyncCall call = {});
    void get_many_async(std::span<const std::string_view> keys, std::optional<Instant> at,
                        Completion<BatchResult<std::int64_t>> done, AsyncCall call = {});
    void series_async(std::string_view key, Instant start, Instant end,
                      const std::optional<Calendar>& in, Completion<std::vector<PeriodCount>> done,
                      AsyncCall call = {});

    const PeriodCounterOptions& options() const { return options_; }

  private:
    friend class RetryingPeriodCounter;
    struct Place;
    struct Many;
    struct Reads;
    Result<Place> place(std::string_view key, Instant at, std::string_view argument) const;
    std::string name(const Span& span, std::string_view key) const;
    Error not_added(bool gone, const std::string& label) const;
    void start_add(std::string_view key, std::int64_t n, std::optional<Instant> at,
                   const Route& route, Deadline deadline, Completion<std::int64_t> done);
    void start_get(std::string_view key, std::optional<Instant> at, const Route& route,
                   Deadline deadline, Completion<std::int64_t> done);
    void start_many(std::span<const std::string_view> keys,
                    std::optional<std::span<const std::int64_t>> amounts, std::optional<Instant> at,
                    const Route& route, Deadline deadline,
                    Completion<BatchResult<std::int64_t>> done);
    void ask_many(const std::shared_ptr<Many>& many, Instant at, const Route& route,
                  Deadline deadline);
    Result<Reads> reads_of(std::string_view key, Instant start, Instant end,
                           const Calendar& in) const;
    void start_series(std::string_view key, Instant start, Instant end,
                      const std::optional<Calendar>& in, const Route& route,
                      Completion<std::vector<PeriodCount>> done);
    void ask_present(std::string key, std::optional<std::int64_t> n, Instant present,
                     const Route& route, Deadline deadline, Completion<std::int64_t> done);

    std::unique_ptr<CounterBackend> backend_;
    PeriodCounterOptions options_;
    Calendar calendar_;
    std::string prefix_;  // {prefix}:{period}:{zone}
};

}  // namespace hotcount
