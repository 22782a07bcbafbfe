// Periods of the calendar, in a time zone: which one an instant is in, and where it begins and ends.
// Pure arithmetic; a zone is asked for nothing but its offset from UTC, so a program may bring its
// own rules (Python brings zoneinfo) and tests a zone of their making.
//
// Seconds, minutes and hours begin where the zone's clock reads a full one, and are cut where the
// zone changes its offset within one. So the hour that the clock reads twice is two hours, and the
// day of the change has 23 or 25.
// A day, week or month begins at the first instant at which the clock reads its beginning or, where
// it jumps over that, something later; it ends where the next one begins. So periods never overlap
// and leave no gap, each instant is in exactly one, and a date that a zone has left out is none.
// Weeks begin on Monday.
#pragma once

#include <chrono>
#include <cstdint>
#include <hotcount/result.hpp>
#include <memory>
#include <string>
#include <string_view>

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
    /// What its clock reads minus UTC, less than 24 hours either way. Called from many threads.
    virtual std::chrono::seconds offset(Instant at) const = 0;
};

const std::shared_ptr<const TimeZone>& utc_zone();

/// One period.
struct Span {
    Instant begins;
    Instant ends;                      ///< The first instant after it: the next one begins.
    std::chrono::local_seconds reads;  ///< What the zone's clock reads at its beginning.
};

class Calendar {
  public:
    /// Instants that it takes: those of the years 2 to 9799, so that every neighbour has a date.
    static bool takes(Instant at);

    /// Keeps the zone.
    Calendar(Period period, std::shared_ptr<const TimeZone> zone);

    Span span(Instant at) const;
    /// Where the period that comes so many (1 or more) after this one begins.
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

}  // namespace hotcount
