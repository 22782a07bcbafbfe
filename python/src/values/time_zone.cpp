#include "time_zone.hpp"

#include <datetime.h>

#include <map>

namespace hotcount::python {
namespace {

using std::chrono::days;
using std::chrono::microseconds;
using std::chrono::seconds;

constexpr std::uint64_t kZero = 1ULL << 20U;     // Makes an offset positive, and so no word is 0.
constexpr std::uint64_t kChanges = 1ULL << 22U;  // In place of an offset: there is none for all.

void import_datetime() {
    if (PyDateTimeAPI == nullptr) PyDateTime_IMPORT;
    if (PyDateTimeAPI == nullptr) throw py::error_already_set();
}

microseconds to_microseconds(const py::object& timedelta) {
    return days{PyDateTime_DELTA_GET_DAYS(timedelta.ptr())} +
           seconds{PyDateTime_DELTA_GET_SECONDS(timedelta.ptr())} +
           microseconds{PyDateTime_DELTA_GET_MICROSECONDS(timedelta.ptr())};
}

py::object find_zone(const std::string& name) {
    // Known without a database of zones.
    if (name == "UTC") return import_module("datetime").attr("timezone").attr("utc");
    try {
        return import_module("zoneinfo").attr("ZoneInfo")(name);
    } catch (py::error_already_set& error) {
        // ZoneInfoNotFoundError is a KeyError; names that are no names end in the others.
        if (!error.matches(PyExc_KeyError) && !error.matches(PyExc_ValueError) &&
            !error.matches(PyExc_OSError)) {
            throw;
        }
    }
    raise(bad_option("tz",
                     "is " + quoted(py::str(name)) +
                         ", which zoneinfo does not know; it takes an IANA name such as "
                         "'Europe/Berlin'. Where the system has no time zones at all, install the "
                         "package tzdata",
                     name));
}

}  // namespace

PythonZone::PythonZone(std::string name) : name_(std::move(name)), zone_(find_zone(name_)) {
    import_datetime();
    const auto datetime = import_module("datetime");
    timedelta_ = datetime.attr("timedelta");
    epoch_ =
        datetime.attr("datetime")(1970, 1, 1, 0, 0, 0, 0, datetime.attr("timezone").attr("utc"));
}

PythonZone::~PythonZone() {
    const py::gil_scoped_acquire gil;
    for (py::object* object : {&zone_, &timedelta_, &epoch_}) *object = py::object();
}

py::object PythonZone::to_datetime(Instant at) const {
    return (epoch_ + timedelta_(0, at.time_since_epoch().count())).attr("astimezone")(zone_);
}

seconds PythonZone::ask(Instant at) const {
    const py::gil_scoped_acquire gil;
    return std::chrono::floor<seconds>(to_microseconds(to_datetime(at).attr("utcoffset")()));
}

// None if the stretch that `at` is in has more than one offset.
std::optional<seconds> PythonZone::ask(Instant at, Kept& kept) const {
    const std::int64_t since = at.time_since_epoch().count();
    const std::int64_t length = kept.length.count();
    const std::int64_t number = since / length - (since % length < 0 ? 1 : 0);
    const auto high = static_cast<std::uint64_t>(static_cast<std::uint32_t>(number)) << 32U;
    auto& slot = kept.words[static_cast<std::uint64_t>(number) % kept.words.size()];
    std::uint64_t word = slot.load(std::memory_order_relaxed);
    if (word == 0 || (word >> 32U << 32U) != high) {
        const Instant begins{seconds{number * length}};
        const py::gil_scoped_acquire gil;
        const seconds first = ask(begins);
        const bool changes = first != ask(begins + kept.length - seconds{1});
        word = high |
               (changes
                    ? kChanges
                    : static_cast<std::uint64_t>(first.count() + static_cast<std::int64_t>(kZero)));
        slot.store(word, std::memory_order_relaxed);
    }
    const std::uint64_t low = word - high;
    if (low == kChanges) return std::nullopt;
    return seconds{static_cast<std::int64_t>(low) - static_cast<std::int64_t>(kZero)};
}

seconds PythonZone::offset(Instant at) const {
    if (const auto offset = ask(at, days_)) return *offset;
    if (const auto offset = ask(at, quarters_)) return *offset;
    return ask(at);
}

const std::shared_ptr<const PythonZone>& zone_named(const std::string& name) {
    // Never destroyed: the interpreter may end first.
    static auto& known = *new std::map<std::string, std::shared_ptr<const PythonZone>, std::less<>>;
    if (const auto found = known.find(name); found != known.end()) return found->second;
    auto made = std::make_shared<const PythonZone>(name);  // It may let go of the GIL.
    return known.try_emplace(name, std::move(made)).first->second;
}

std::shared_ptr<const TimeZone> core_zone(const std::shared_ptr<const PythonZone>& zone) {
    if (zone->name() == utc_zone()->name()) return utc_zone();
    return zone;
}

Time to_time(py::handle value, const Where& where) {
    import_datetime();
    PyObject* const at = value.ptr();
    if (!PyDateTime_Check(at)) {
        raise_wrong_type(where, "datetime.datetime with a time zone", value);
    }
    const py::object offset = value.attr("utcoffset")();
    if (offset.is_none()) {
        raise_config(where.str() +
                     " is a naive datetime, which says no instant; give it a time zone (tzinfo)");
    }
    const std::chrono::year_month_day date{
        std::chrono::year{PyDateTime_GET_YEAR(at)},
        std::chrono::month{static_cast<unsigned>(PyDateTime_GET_MONTH(at))},
        std::chrono::day{static_cast<unsigned>(PyDateTime_GET_DAY(at))}};
    const auto time = std::chrono::hours{PyDateTime_DATE_GET_HOUR(at)} +
                      std::chrono::minutes{PyDateTime_DATE_GET_MINUTE(at)} +
                      seconds{PyDateTime_DATE_GET_SECOND(at)} +
                      microseconds{PyDateTime_DATE_GET_MICROSECOND(at)};
    return std::chrono::sys_days{date} + time - to_microseconds(offset);
}

}  // namespace hotcount::python
