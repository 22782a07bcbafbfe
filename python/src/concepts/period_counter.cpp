// hotcount.PeriodCounter and hotcount.aio.PeriodCounter: declared in hotcount/period_counter.py and
// hotcount/aio/period_counter.py.
#include <array>
#include <hotcount/period_counter.hpp>

#include "native/key_batches.hpp"
#include "native/native.hpp"
#include "native/native_calls.hpp"
#include "native/options.hpp"
#include "retry_queue.hpp"
#include "values/time_zone.hpp"

namespace hotcount::python {
namespace {

using Zone = std::shared_ptr<const TimeZone>;

/// The end of a series. A period that begins within the second of a fractional end begins before
/// it.
struct SeriesEnd {
    Instant at;
    operator Instant() const { return at; }
};

/// The start of a series, which reads many numbers.
struct SeriesStart {
    Instant at;
    operator Instant() const { return at; }
};

/// How a series is divided: `tz` and `period`, where one of them is given.
struct Division {
    std::optional<Calendar> calendar;
    const PythonZone* shown;
};

struct Series {
    std::vector<PeriodCount> counts;
    const PythonZone* zone;  // Null: the counter's own.
};

}  // namespace

// -- the table, for what period counters alone have -----------------------------------------------

template <>
struct From<Instant> {
    static Instant read(const Argument& argument) {
        return std::chrono::floor<std::chrono::seconds>(to_time(argument.value, argument.name));
    }
};

template <>
struct From<SeriesStart> {
    static constexpr bool kReleasesGil = true;
    static SeriesStart read(const Argument& argument) { return {From<Instant>::read(argument)}; }
};

template <>
struct From<SeriesEnd> {
    static SeriesEnd read(const Argument& argument) {
        return {std::chrono::ceil<std::chrono::seconds>(to_time(argument.value, argument.name))};
    }
};

template <>
inline constexpr std::array<std::string_view, 6> kWords<Period>{"second", "minute", "hour",
                                                                "day",    "week",   "month"};

template <>
struct From<Zone> {
    static Zone read(const Argument& argument) {
        return core_zone(zone_named(to_text(argument.value, argument.name)));
    }
};
template <>
struct To<Zone> {
    static py::object make(const Zone& zone) { return To<std::string_view>::make(zone->name()); }
};

template <>
struct From<Division> {
    static constexpr std::size_t kTakes = 2;

    template <class Self>
    static Division read(const Argument* first, Self& self) {
        const Argument& tz = first[0];
        const auto period = From<std::optional<Period>>::read(first[1]);
        if (tz.value == Py_None && !period) return {};
        const PeriodCounterOptions& options = self.core->options();
        const auto of = period.value_or(options.period);
        if (tz.value == Py_None) return {Calendar{of, options.zone}, nullptr};
        const auto& zone = zone_named(to_text(tz.value, tz.name));
        return {Calendar{of, core_zone(zone)}, zone.get()};
    }
};

namespace {

constexpr std::array kPeriodOptions{always_shown(option<&PeriodCounterOptions::period>()),
                                    option<&PeriodCounterOptions::zone>("tz"),
                                    option<&PeriodCounterOptions::keep>(),
                                    option<&PeriodCounterOptions::prefix, KeyText>()};

class BoundPeriodCounter : public Bound<PeriodCounter> {
  public:
    BoundPeriodCounter(std::shared_ptr<PeriodCounter> counter,
                       BoundQueue<RetryingPeriodCounter> with_queue, StoreReference reference)
        : Bound(std::move(counter), std::move(reference), &kTag<BoundPeriodCounter>),
          queue(std::move(with_queue)),
          zone_(zone_named(std::string{core->options().zone->name()}).get()) {}

    std::string shown_options() const override {
        return python::shown_options<PeriodCounterOptions, kPeriodOptions>(core->options()) +
               queue.shown();
    }

    py::object to_python(const Added& added) { return queue.to_python(added, store); }

    /// Calls of a counter with a queue end in the queue's thread.
    bool ends_elsewhere() const { return queue.core != nullptr; }

    void close() override { queue.close(store); }

    BoundQueue<RetryingPeriodCounter> queue;

    py::object to_batch(ManyAdded many, const Refusals& refusals, OnErrors on_errors) {
        return queue.to_batch(std::move(many), refusals, on_errors, store);
    }

    py::object to_python(const Series& series) const {
        const PythonZone& zone = series.zone != nullptr ? *series.zone : *zone_;
        py::list rows(series.counts.size());
        for (std::size_t i = 0; i < series.counts.size(); ++i) {
            const PeriodCount& each = series.counts[i];
            rows[i] = py::make_tuple(zone.to_datetime(each.start), each.count);
        }
        return rows;
    }

  private:
    const PythonZone* const zone_;
};

using PeriodQueue = QueueOf<RetryingPeriodCounter>;
using At = std::optional<Instant>;

Result<Added> add_at(PeriodCounter& counter, const PeriodQueue& queue, std::string_view key,
                     std::int64_t n, const At& at, Timeout timeout) {
    if (queue.retrying != nullptr) return queue.retrying->add(key, n, at, timeout);
    return to_added(counter.add(key, n, at, timeout));
}
void add_at_async(PeriodCounter& counter, const PeriodQueue& queue, std::string_view key,
                  std::int64_t n, const At& at, Completion<Added> done, AsyncCall call) {
    if (queue.retrying != nullptr) {
        return queue.retrying->add_async(key, n, at, std::move(done), call);
    }
    counter.add_async(key, n, at, to_added(std::move(done)), call);
}

Result<ManyAdded> add_many_at(PeriodCounter& counter, const PeriodQueue& queue,
                              const std::vector<std::string_view>& keys,
                              const std::vector<std::int64_t>& amounts, const At& at,
                              Timeout timeout) {
    if (queue.retrying != nullptr) {
        return to_many(queue.retrying->add_many(keys, amounts, at, timeout));
    }
    return to_many(counter.add_many(keys, amounts, at, timeout), queue.given);
}
void add_many_at_async(PeriodCounter& counter, const PeriodQueue& queue,
                       const std::vector<std::string_view>& keys,
                       const std::vector<std::int64_t>& amounts, const At& at,
                       Completion<ManyAdded> done, AsyncCall call) {
    if (queue.retrying != nullptr) {
        return queue.retrying->add_many_async(keys, amounts, at, to_many(std::move(done)), call);
    }
    counter.add_many_async(keys, amounts, at, to_many(std::move(done), queue.given), call);
}

Result<Series> series(PeriodCounter& counter, std::string_view key, Instant start, Instant end,
                      const Division& division, Timeout timeout) {
    HOTCOUNT_TRY_ASSIGN(auto counts, counter.series(key, start, end, division.calendar, timeout));
    return Series{std::move(counts), division.shown};
}
void series_async(PeriodCounter& counter, std::string_view key, Instant start, Instant end,
                  const Division& division, Completion<Series> done, AsyncCall call) {
    counter.series_async(
        key, start, end, division.calendar,
        [done = std::move(done), shown = division.shown](Result<std::vector<PeriodCount>> counts) {
            if (!counts) return done(std::move(counts).error());
            done(Series{std::move(*counts), shown});
        },
        call);
}

}  // namespace

template <>
struct BoundOf<PeriodCounter> {
    using type = BoundPeriodCounter;
};

void bind_period_counter() {
    constructor<&make_with_queue<BoundPeriodCounter, PeriodCounter, RetryingPeriodCounter,
                                 PeriodCounterOptions>,
                StoreArgument, Options<PeriodCounterOptions, kPeriodOptions>,
                std::optional<QueueRow>>("PeriodCounterBase.__init__",
                                         "store " + names_of<kPeriodOptions>() + "retry");
    attributes<BoundPeriodCounter, kPeriodOptions>("PeriodCounterBase");
    declare_queue<BoundPeriodCounter>("PeriodCounterBase", "PeriodCounterBase.retry_stats");

    using Key = std::string_view;
    method<&add_at, &add_at_async, PeriodQueue, Key, Amount, At, Timeout>("PeriodCounter.add",
                                                                          "key n at timeout");
    method<&PeriodCounter::get, &PeriodCounter::get_async, Key, At, Timeout>("PeriodCounter.get",
                                                                             "key at timeout");
    method<&add_many_at, &add_many_at_async, PeriodQueue, KeysAndAmounts, At, OnErrors, Timeout>(
        "PeriodCounter.add_many", "keys n at errors timeout");
    method<&PeriodCounter::get_many, &PeriodCounter::get_many_async, Keys, At, OnErrors, Timeout>(
        "PeriodCounter.get_many", "keys at errors timeout");
    method<&series, &series_async, Key, SeriesStart, SeriesEnd, Division, Timeout>(
        "PeriodCounter.series", "key start end tz period timeout");
}

}  // namespace hotcount::python
