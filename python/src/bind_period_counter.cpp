#include <array>
#include <hotcount/counter/period_counter.hpp>

#include "bind.hpp"
#include "convert.hpp"
#include "function.hpp"
#include "gil.hpp"
#include "signature_text.hpp"
#include "store.hpp"
#include "time_zone.hpp"

namespace hotcount::python {
namespace {

class BoundPeriodCounter {
  public:
    BoundPeriodCounter(std::shared_ptr<PeriodCounter> counter,
                       std::shared_ptr<const PythonZone> zone, StoreReference store)
        : counter_(std::move(counter)),
          zone_(std::move(zone)),
          store_(std::move(store)),
          in_memory_(store_.kind() == StoreKind::memory) {}

    /// Runs f on the counter, for one period. In memory it keeps the GIL, as Counter does.
    template <class F>
    auto one(F&& f) {
        store_.check_open();
        if (in_memory_) return f(*counter_);
        return without_gil([&] { return f(*counter_); });
    }
    template <class F>
    auto many(F&& f) {
        store_.check_open();
        return without_gil([&] { return f(*counter_); });
    }

    const PythonZone& zone() const { return *zone_; }
    void close() { store_.close(); }
    bool closed() const { return store_.closed(); }
    std::string repr() const { return store_.repr(); }

  private:
    std::shared_ptr<PeriodCounter> counter_;
    std::shared_ptr<const PythonZone> zone_;
    StoreReference store_;
    bool in_memory_;
};

Period to_period(py::handle value) {
    using enum Period;
    constexpr std::array kPeriods{second, minute, hour, day, week, month};
    return kPeriods[to_choice(value, "period",
                              {"second", "minute", "hour", "day", "week", "month"})];
}

BoundPeriodCounter make_period_counter(const Arguments& arguments) {
    StoreReference store(arguments[0], "store", "PeriodCounter",
                         {StoreKind::memory, StoreKind::redis});
    PeriodCounterOptions options;
    if (arguments[1]) options.period = to_period(arguments[1]);
    auto zone = std::make_shared<const PythonZone>(
        arguments[2] ? to_text(arguments[2], "tz") : std::string{options.zone->name()});
    // UTC stays the core's own, which asks nobody.
    if (zone->name() != options.zone->name()) options.zone = zone;
    if (arguments[3]) options.keep = to_option(arguments[3], "keep");
    if (arguments[4]) options.prefix = to_bytes(arguments[4], "prefix");
    auto counter =
        store.kind() == StoreKind::memory
            ? unwrap(PeriodCounter::make(store.backend<memory::Store>(), std::move(options)))
            : unwrap(PeriodCounter::make(store.backend<redis::Client>(), std::move(options)));
    return {std::move(counter), std::move(zone), std::move(store)};
}

std::optional<Instant> to_optional_instant(const Arguments& arguments, std::size_t index) {
    if (!arguments.given(index)) return std::nullopt;
    return to_instant(arguments[index], "at");
}

py::object period_counter_add(BoundPeriodCounter& self, const Arguments& arguments) {
    const std::string_view key = to_bytes(arguments[0], "key");
    const std::int64_t n = arguments[1] ? to_amount(arguments[1], "n") : 1;
    const auto at = to_optional_instant(arguments, 2);
    const Timeout timeout = to_timeout(arguments[3]);
    return py::int_(
        unwrap(self.one([&](PeriodCounter& counter) { return counter.add(key, n, at, timeout); })));
}

py::object period_counter_get(BoundPeriodCounter& self, const Arguments& arguments) {
    const std::string_view key = to_bytes(arguments[0], "key");
    const auto at = to_optional_instant(arguments, 1);
    const Timeout timeout = to_timeout(arguments[2]);
    return py::int_(
        unwrap(self.one([&](PeriodCounter& counter) { return counter.get(key, at, timeout); })));
}

py::object period_counter_series(BoundPeriodCounter& self, const Arguments& arguments) {
    const std::string_view key = to_bytes(arguments[0], "key");
    const Instant start = to_instant(arguments[1], "start");
    const Instant end = to_instant(arguments[2], "end");
    const Timeout timeout = to_timeout(arguments[3]);
    const auto counts = unwrap(self.many(
        [&](PeriodCounter& counter) { return counter.series(key, start, end, timeout); }));
    py::list rows(counts.size());
    for (std::size_t i = 0; i < counts.size(); ++i) {
        rows[i] = py::make_tuple(self.zone().to_datetime(counts[i].start), counts[i].count);
    }
    return rows;
}

}  // namespace

void bind_period_counter(py::module_& module) {
    const PeriodCounterOptions defaults;
    const std::string at = "at: datetime.datetime | None = None";
    py::class_<BoundPeriodCounter> cls(
        module, "PeriodCounter",
        "A number per key and second, minute, hour, day, week or month, kept for a while.\n\n"
        "Works on Memory and Redis; keys and numbers as in Counter. A period is one of the\n"
        "calendar in the zone tz: a day in which its clock changes has 23 or 25 hours, the hour\n"
        "that it reads twice is two hours, and weeks begin on Monday. The present is the store's,\n"
        "whatever this machine's clock says. A number and its expiry are set in one step. Nothing\n"
        "is replayed: an add whose answer is lost is an OutcomeUnknownError. Safe from many\n"
        "threads and across fork.\n"
        "Stands under {store prefix}{prefix}:{period}:{tz}:{label}:{key}, a plain integer; the\n"
        "label is 2026-11-21 for days and weeks (their first day), 2026-11 for months, and\n"
        "2026-11-21T170000Z, the beginning in UTC, for what is shorter.");
    define_init<&make_period_counter>(
        cls,
        "(self, store: " + kKeyValueStore +
            ", "
            "period: typing.Literal['second', 'minute', 'hour', 'day', 'week', 'month'] = " +
            literal(std::string{to_string(defaults.period)}) +
            ", tz: str = " + literal(std::string{defaults.zone->name()}) +
            ", keep: int = " + literal(defaults.keep) +
            ", *, prefix: str | bytes = " + literal(defaults.prefix) + ") -> None",
        "store: an object or its URL. tz: an IANA name, as zoneinfo knows it. keep: how many\n"
        "periods are kept, the present one included; 1 or more and at most 100 years of them.\n"
        "Where counters of different keep add to one number, the longest wins.\n"
        "Bad values: ConfigError that names them.");
    define<&period_counter_add>(
        cls, "add", "(self, key: str | bytes, n: int = 1, " + at + ", *, " + kTimeout + ") -> int",
        "Adds n (any int64, negative too) and returns the period's number after this add.\n\n"
        "at: an aware datetime, in any zone; None: the store's present. Where at's period is not\n"
        "kept any more, or begins more than 100 years ahead, or at is naive: ConfigError, nothing\n"
        "added. Other errors as in Counter.add. timeout in seconds; None: the store's.");
    define<&period_counter_get>(
        cls, "get", "(self, key: str | bytes, " + at + ", *, " + kTimeout + ") -> int",
        "The number of the period that at is in, by default the store's present.\n\n"
        "0 where there was no add, and where the period is not kept any more.");
    define<&period_counter_series>(
        cls, "series",
        "(self, key: str | bytes, start: datetime.datetime, end: datetime.datetime, *, " +
            kTimeout + ") -> list[tuple[datetime.datetime, int]]",
        "Each period's beginning, in tz, and its number, in order; 0 where there was no add.\n\n"
        "From the period that start is in to the last that begins before end, 100,000 at most;\n"
        "start and end are aware datetimes, an end before the start is a ConfigError. One round\n"
        "trip, not a snapshot: adds go on meanwhile. An error of one period is raised.");
    define_lifetime(cls, "Ends this counter; a store made from a URL for it ends too.");
}

}  // namespace hotcount::python
