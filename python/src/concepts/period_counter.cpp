// hotcount.PeriodCounter and hotcount.aio.PeriodCounter: declared in hotcount/period_counter.py and
// hotcount/aio/period_counter.py.
#include <array>
#include <hotcount/period_counter.hpp>

#include "native/bind.hpp"
#include "native/native_calls.hpp"
#include "native/options.hpp"
#include "retry_queue.hpp"
#include "values/time_zone.hpp"

namespace hotcount::python {
namespace {

using Zone = std::shared_ptr<const TimeZone>;

/// Of a series: what begins within the second of an end that has a fraction begins before it.
struct SeriesEnd {
    Instant at;
    operator Instant() const { return at; }
};

/// Of a series, which reads many numbers.
struct SeriesStart {
    Instant at;
    operator Instant() const { return at; }
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
        auto zone = std::make_shared<const PythonZone>(to_text(argument.value, argument.name));
        // UTC stays the core's own, which asks nobody.
        if (zone->name() == utc_zone()->name()) return utc_zone();
        return zone;
    }
};
template <>
struct To<Zone> {
    static py::object make(const Zone& zone) { return To<std::string_view>::make(zone->name()); }
};

namespace {

using O = PeriodCounterOptions;
constexpr std::array kOptions{always_shown(option<&O::period>()), option<&O::zone>("tz"),
                              option<&O::keep>(), option<&O::prefix, KeyText>()};

class BoundPeriodCounter : public Bound<PeriodCounter> {
  public:
    BoundPeriodCounter(std::shared_ptr<PeriodCounter> counter,
                       BoundQueue<RetryingPeriodCounter> with_queue, StoreReference reference)
        : Bound(std::move(counter), std::move(reference), &kTag<BoundPeriodCounter>),
          queue(std::move(with_queue)),
          zone_(std::string{core->options().zone->name()}) {}

    std::string shown_options() const override {
        return python::shown_options<O, kOptions>(core->options()) + queue.shown();
    }

    py::object to_python(const Added& added) { return queue.to_python(added, store); }

    /// What has a queue ends in the queue's thread.
    bool ends_elsewhere() const { return queue.core != nullptr; }

    void close() override { queue.close(store); }

    BoundQueue<RetryingPeriodCounter> queue;

    py::object to_python(const std::vector<PeriodCount>& counts) const {
        py::list rows(counts.size());
        for (std::size_t i = 0; i < counts.size(); ++i) {
            rows[i] = py::make_tuple(zone_.to_datetime(counts[i].start), counts[i].count);
        }
        return rows;
    }

  private:
    PythonZone zone_;
};

using Queue = QueueOf<RetryingPeriodCounter>;
using At = std::optional<Instant>;

Result<Added> add(PeriodCounter& counter, const Queue& queue, std::string_view key, std::int64_t n,
                  const At& at, Timeout timeout) {
    if (queue.retrying != nullptr) return queue.retrying->add(key, n, at, timeout);
    return to_added(counter.add(key, n, at, timeout));
}
void add_async(PeriodCounter& counter, const Queue& queue, std::string_view key, std::int64_t n,
               const At& at, Completion<Added> done, AsyncCall call) {
    if (queue.retrying != nullptr) {
        return queue.retrying->add_async(key, n, at, std::move(done), call);
    }
    counter.add_async(key, n, at, to_added(std::move(done)), call);
}

}  // namespace

template <>
struct BoundOf<PeriodCounter> {
    using type = BoundPeriodCounter;
};

void bind_period_counter() {
    constructor<&make_with_queue<BoundPeriodCounter, PeriodCounter, RetryingPeriodCounter, O>,
                StoreArgument, Options<O, kOptions>, std::optional<QueueRow>>(
        "PeriodCounterBase.__init__", "store " + names_of<kOptions>() + "retry");
    attributes<BoundPeriodCounter, kOptions>("PeriodCounterBase");
    declare_queue<BoundPeriodCounter>("PeriodCounterBase", "PeriodCounterBase.retry_stats");

    using Key = std::string_view;
    method<&add, &add_async, Queue, Key, Amount, At, Timeout>("PeriodCounter.add",
                                                              "key n at timeout");
    method<&PeriodCounter::get, &PeriodCounter::get_async, Key, At, Timeout>("PeriodCounter.get",
                                                                             "key at timeout");
    method<&PeriodCounter::series, &PeriodCounter::series_async, Key, SeriesStart, SeriesEnd,
           Timeout>("PeriodCounter.series", "key start end timeout");
}

}  // namespace hotcount::python
