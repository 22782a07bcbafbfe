#include <algorithm>
#include <array>
#include <hotcount/period_counter.hpp>

namespace hotcount {
namespace {

using std::chrono::days;
using std::chrono::floor;
using std::chrono::hours;
using std::chrono::local_days;
using std::chrono::local_seconds;
using std::chrono::months;
using std::chrono::seconds;
using std::chrono::year;
using std::chrono::year_month_day;

class Utc final : public TimeZone {
  public:
    std::string_view name() const override { return "UTC"; }
    seconds offset(Instant) const override { return seconds{0}; }
};

// The local time at which the day, week or month of `local` begins.
local_seconds civil_floor(Period period, local_seconds local) {
    const local_days day = floor<days>(local);
    if (period == Period::week) {
        return day - (std::chrono::weekday{day} - std::chrono::Monday);
    }
    if (period == Period::month) {
        const year_month_day date{day};
        return local_days{date.year() / date.month() / 1};
    }
    return day;
}

local_seconds civil_later(Period period, local_seconds reads, std::int64_t periods) {
    if (period == Period::day) return reads + days{periods};
    if (period == Period::week) return reads + days{7 * periods};
    const year_month_day date{floor<days>(reads)};
    return local_days{date + months{periods}};
}

// A number with zeros before it, in `digits` digits.
void append(std::string& text, std::int64_t number, std::size_t digits) {
    const std::string plain = std::to_string(number);
    text.append(digits - std::min(digits, plain.size()), '0');
    text += plain;
}

void append_date(std::string& text, year_month_day date, bool with_day) {
    append(text, static_cast<int>(date.year()), 4);
    text += '-';
    append(text, static_cast<unsigned>(date.month()), 2);
    if (!with_day) return;
    text += '-';
    append(text, static_cast<unsigned>(date.day()), 2);
}

}  // namespace

std::string_view to_string(Period period) {
    constexpr std::array<std::string_view, 6> kNames{"second", "minute", "hour",
                                                     "day",    "week",   "month"};
    return kNames[static_cast<std::size_t>(period)];
}

std::chrono::seconds longest(Period period) {
    constexpr std::array<seconds, 6> kLengths{seconds{1}, seconds{60},   hours{1},
                                              hours{24},  hours{24 * 7}, hours{24 * 31}};
    return kLengths[static_cast<std::size_t>(period)];
}

const std::shared_ptr<const TimeZone>& utc_zone() {
    static const std::shared_ptr<const TimeZone> zone = std::make_shared<Utc>();
    return zone;
}

bool Calendar::takes(Instant at) {
    constexpr Instant kFirst = std::chrono::sys_days{year{2} / 1 / 1};
    constexpr Instant kEnd = std::chrono::sys_days{year{9800} / 1 / 1};
    return at >= kFirst && at < kEnd;
}

Calendar::Calendar(Period period, std::shared_ptr<const TimeZone> zone)
    : period_(period), zone_(std::move(zone)) {}

// The first instant in (from, to] with another offset than `from`. `to` must have another one.
Instant Calendar::change(Instant from, Instant to) const {
    const seconds old = zone_->offset(from);
    while (to - from > seconds{1}) {
        const Instant middle = from + (to - from) / 2;
        (zone_->offset(middle) == old ? from : to) = middle;
    }
    return to;
}

// The first instant at which the clock reads `reads` or more.
Instant Calendar::first(local_seconds reads) const {
    const Instant as_utc{reads.time_since_epoch()};
    // Further back than any offset reaches, so the clock reads less there.
    const Instant before = as_utc - hours{26};
    const Instant there = as_utc - zone_->offset(before);
    if (zone_->offset(there) == zone_->offset(before)) return there;
    const Instant changed = change(before, there);
    // A clock set forward over `reads` reaches it at the change. One set back takes longer.
    return std::max(changed, as_utc - zone_->offset(changed));
}

Span Calendar::fixed_span(Instant at, seconds length) const {
    const seconds offset = zone_->offset(at);
    const local_seconds local{at.time_since_epoch() + offset};
    const seconds rest = local.time_since_epoch() % length;
    const seconds into = rest < seconds{0} ? rest + length : rest;
    Instant begins = at - into;
    Instant ends = begins + length;
    if (zone_->offset(begins) != offset) begins = change(begins, at);
    if (zone_->offset(ends - seconds{1}) != offset) ends = change(at, ends - seconds{1});
    return {begins, ends, local_seconds{begins.time_since_epoch() + offset}};
}

Span Calendar::span(Instant at) const {
    if (period_ <= Period::hour) return fixed_span(at, longest(period_));
    const local_seconds local{at.time_since_epoch() + zone_->offset(at)};
    local_seconds reads = civil_floor(period_, local);
    Instant begins = first(reads);
    Instant ends{};
    for (;;) {
        const local_seconds next = civil_later(period_, reads, 1);
        ends = first(next);
        if (at < ends) break;
        // The clock was set back over a beginning that it had reached: the later period goes on.
        reads = next;
        begins = ends;
    }
    return {begins, ends, reads};
}

Instant Calendar::later(const Span& span, std::int64_t periods) const {
    if (period_ <= Period::hour) return span.begins + longest(period_) * periods;
    return first(civil_later(period_, span.reads, periods));
}

std::string Calendar::label(const Span& span) const {
    std::string text;
    if (period_ > Period::hour) {
        append_date(text, year_month_day{floor<days>(span.reads)}, period_ != Period::month);
        return text;
    }
    const auto day = floor<days>(span.begins);
    const std::chrono::hh_mm_ss time{span.begins - day};
    append_date(text, year_month_day{day}, true);
    text += 'T';
    append(text, time.hours().count(), 2);
    append(text, time.minutes().count(), 2);
    append(text, time.seconds().count(), 2);
    text += 'Z';
    return text;
}

}  // namespace hotcount
