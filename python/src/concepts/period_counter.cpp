// hotcount.PeriodCounter and hotcount.aio.PeriodCounter: declared in hotcount/period_counter.py and
// hotcount/aio/period_counter.py.
#include <array>
#include <hotcount/period_counter.hpp>

#include "native/bind.hpp"
#include "native/native_calls.hpp"
#include "native/options.hpp"
#include "values/time_zone.hpp"

namespace hotcount::python {
namespace {

using Zone = std::shared_ptr<const TimeZone>;

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
        return to_instant(argument.value, argument.name);
    }
};

template <>
struct From<SeriesStart> {
    static constexpr bool kReleasesGil = true;
    static SeriesStart read(const Argument& argument) { return {From<Instant>::read(argument)}; }
};

template <>
struct From<Period> {
    static Period read(const Argument& argument) {
        using enum Period;
        constexpr std::array kPeriods{second, minute, hour, day, week, month};
        return kPeriods[to_choice(argument.value, argument.name,
                                  {"second", "minute", "hour", "day", "week", "month"})];
    }
};
template <>
struct To<Period> {
    static py::object make(Period period) { return To<std::string_view>::make(to_string(period)); }
};

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

constexpr std::array kOptions{
    option<&PeriodCounterOptions::period>("period", Shown::always),
    option<&PeriodCounterOptions::zone>("tz"),
    option<&PeriodCounterOptions::keep>("keep"),
    option<&PeriodCounterOptions::prefix, KeyText>("prefix"),
};

class BoundPeriodCounter : public Bound<PeriodCounter> {
  public:
    BoundPeriodCounter(std::shared_ptr<PeriodCounter> counter, StoreReference reference)
        : Bound(std::move(counter), std::move(reference), &kTag<BoundPeriodCounter>),
          zone_(std::string{core->options().zone->name()}) {}

    std::string shown_options() const override {
        return python::shown_options<PeriodCounterOptions, kOptions>(core->options());
    }

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

std::shared_ptr<BoundBase> make_period_counter(const std::string& title, py::handle where,
                                               const PeriodCounterOptions& options) {
    StoreReference store(where, "store", title.c_str(), {StoreKind::memory, StoreKind::redis});
    auto counter = store.kind() == StoreKind::memory
                       ? unwrap(PeriodCounter::make(store.backend<memory::Store>(), options))
                       : unwrap(PeriodCounter::make(store.backend<redis::Client>(), options));
    return std::make_shared<BoundPeriodCounter>(std::move(counter), std::move(store));
}

}  // namespace

template <>
struct BoundOf<PeriodCounter> {
    using type = BoundPeriodCounter;
};

void bind_period_counter() {
    constructor<&make_period_counter, StoreArgument, Options<PeriodCounterOptions, kOptions>>(
        "PeriodCounterBase.__init__", "store " + names_of<kOptions>());
    attributes<BoundPeriodCounter, kOptions>("PeriodCounterBase");

    using Key = std::string_view;
    using At = std::optional<Instant>;
    method<&PeriodCounter::add, &PeriodCounter::add_async, Key, Amount, At, Timeout>(
        "PeriodCounter.add", "key n at timeout");
    method<&PeriodCounter::get, &PeriodCounter::get_async, Key, At, Timeout>("PeriodCounter.get",
                                                                             "key at timeout");
    method<&PeriodCounter::series, &PeriodCounter::series_async, Key, SeriesStart, Instant,
           Timeout>("PeriodCounter.series", "key start end timeout");
}

}  // namespace hotcount::python
