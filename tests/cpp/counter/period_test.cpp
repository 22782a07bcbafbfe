#include <hotcount/period_counter.hpp>
#include <vector>

#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

using namespace std::chrono;
using namespace std::chrono_literals;

// A zone of our own making: offsets, each from an instant on.
class Rules final : public TimeZone {
  public:
    struct Rule {
        Instant from;
        seconds offset;
    };
    Rules(seconds before, std::vector<Rule> rules) : before_(before), rules_(std::move(rules)) {}
    std::string_view name() const override { return "Rules"; }
    seconds offset(Instant at) const override {
        seconds offset = before_;
        for (const Rule& rule : rules_) {
            if (at >= rule.from) offset = rule.offset;
        }
        return offset;
    }

  private:
    seconds before_;
    std::vector<Rule> rules_;
};

Instant utc(int y, unsigned m, unsigned d, seconds time = 0s) {
    return sys_days{year{y} / month{m} / day{d}} + time;
}

std::vector<Span> spans(const Calendar& calendar, Instant start, Instant end) {
    std::vector<Span> all;
    for (Instant at = start; at < end; at = all.back().ends) all.push_back(calendar.span(at));
    return all;
}

// Whichever instant of a span one asks with, the answer is that span; so spans neither overlap nor
// leave a gap.
void expect_whole(const Calendar& calendar, Instant start, Instant end, seconds step) {
    for (const Span& span : spans(calendar, start, end)) {
        ASSERT_LT(span.begins, span.ends);
        for (Instant at = span.begins; at < span.ends; at += step) {
            ASSERT_EQ(calendar.span(at).begins, span.begins);
            ASSERT_EQ(calendar.span(at).ends, span.ends);
        }
        ASSERT_EQ(calendar.span(span.ends - 1s).begins, span.begins);
    }
}

const Instant kForward = utc(2026, 3, 29, 1h);  // Central Europe: 02:00 becomes 03:00,
const Instant kBack = utc(2026, 10, 25, 1h);    // and 03:00 becomes 02:00.
const auto kBerlin =
    std::make_shared<const Rules>(1h, std::vector<Rules::Rule>{{kForward, 2h}, {kBack, 1h}});

TEST(Calendar, PeriodsOfUtcAreWhereOneExpectsThem) {
    struct Case {
        Period period;
        Instant begins;
        Instant ends;
        std::string label;
    };
    const Instant at = utc(2024, 2, 29, 23h + 59min + 58s);
    for (const auto& [period, begins, ends, label] : {
             Case{Period::second, at, at + 1s, "2024-02-29T235958Z"},
             Case{Period::minute, at - 58s, at + 2s, "2024-02-29T235900Z"},
             Case{Period::hour, utc(2024, 2, 29, 23h), utc(2024, 3, 1), "2024-02-29T230000Z"},
             Case{Period::day, utc(2024, 2, 29), utc(2024, 3, 1), "2024-02-29"},
             Case{Period::week, utc(2024, 2, 26), utc(2024, 3, 4), "2024-02-26"},
             Case{Period::month, utc(2024, 2, 1), utc(2024, 3, 1), "2024-02"},
         }) {
        const Calendar calendar{period, utc_zone()};
        const Span span = calendar.span(at);
        EXPECT_EQ(span.begins, begins) << to_string(period);
        EXPECT_EQ(span.ends, ends) << to_string(period);
        EXPECT_EQ(calendar.label(span), label);
    }
}

TEST(Calendar, BeforeTheEpochPeriodsBeginBeforeWhatIsInThem) {
    for (const Period period :
         {Period::second, Period::minute, Period::hour, Period::day, Period::week, Period::month}) {
        const Calendar calendar{period, utc_zone()};
        const Instant at = utc(1969, 12, 31, 23h + 59min + 59s);
        EXPECT_LE(calendar.span(at).begins, at) << to_string(period);
        EXPECT_GT(calendar.span(at).ends, at) << to_string(period);
        expect_whole(calendar, utc(3, 5, 17), utc(3, 5, 17, 2h), 977s);
    }
}

TEST(Calendar, ADayOfTheChangeHas23Or25Hours) {
    const Calendar day{Period::day, kBerlin};
    const Calendar hour{Period::hour, kBerlin};
    for (const auto& [change, length] : {std::pair{kForward, 23h}, std::pair{kBack, 25h}}) {
        const Span span = day.span(change);
        EXPECT_EQ(span.ends - span.begins, length);
        EXPECT_EQ(spans(hour, span.begins, span.ends).size(), length / 1h);
        EXPECT_EQ(day.span(span.begins - 1s).ends, span.begins);
        expect_whole(day, span.begins - 48h, span.ends + 48h, 1h);
    }
    EXPECT_EQ(day.label(day.span(kBack)), "2026-10-25");
    // The hour that the clock reads twice is two, of two names.
    EXPECT_EQ(hour.label(hour.span(kBack - 1s)), "2026-10-25T000000Z");
    EXPECT_EQ(hour.label(hour.span(kBack)), "2026-10-25T010000Z");
}

TEST(Calendar, AWeekBeginsOnMondayAndKnowsOfTheChangeInIt) {
    const Calendar week{Period::week, kBerlin};
    const Span span = week.span(kBack);  // A Sunday.
    EXPECT_EQ(week.label(span), "2026-10-19");
    EXPECT_EQ(span.ends - span.begins, 7 * 24h + 1h);
    expect_whole(week, utc(2025, 12, 20), utc(2026, 12, 31), 5h);
    const Calendar month{Period::month, kBerlin};
    EXPECT_EQ(month.span(kForward).ends - month.span(kForward).begins, 31 * 24h - 1h);
    expect_whole(month, utc(2025, 12, 20), utc(2026, 12, 31), 5h);
}

TEST(Calendar, AMidnightThatTheClockJumpsOverBeginsItsDayLater) {
    // Havana: on 8 March 2026 00:00 becomes 01:00; on 1 November 01:00 becomes 00:00.
    const auto havana = std::make_shared<const Rules>(
        -5h, std::vector<Rules::Rule>{{utc(2026, 3, 8, 5h), -4h}, {utc(2026, 11, 1, 5h), -5h}});
    const Calendar day{Period::day, havana};
    const Span spring = day.span(utc(2026, 3, 8, 12h));
    EXPECT_EQ(spring.begins, utc(2026, 3, 8, 5h));
    EXPECT_EQ(spring.ends - spring.begins, 23h);
    // Midnight comes twice, and the day begins with the first.
    const Span autumn = day.span(utc(2026, 11, 1, 12h));
    EXPECT_EQ(autumn.begins, utc(2026, 11, 1, 4h));
    EXPECT_EQ(autumn.ends - autumn.begins, 25h);
    expect_whole(day, utc(2026, 3, 5), utc(2026, 3, 12), 600s);
    expect_whole(day, utc(2026, 10, 29), utc(2026, 11, 4), 600s);
}

TEST(Calendar, AClockSetBackOverMidnightStaysInTheDayThatHasBegun) {
    // Newfoundland until 2011: at 00:01 it became 23:01 of the day before.
    const Instant change = utc(2010, 11, 7, 2h + 31min);
    const auto zone = std::make_shared<const Rules>(
        -(2h + 30min), std::vector<Rules::Rule>{{change, -(3h + 30min)}});
    const Calendar day{Period::day, zone};
    const Span span = day.span(change);
    EXPECT_EQ(span.begins, utc(2010, 11, 7, 2h + 30min));
    EXPECT_EQ(day.label(span), "2010-11-07");
    EXPECT_EQ(span.ends - span.begins, 25h);
    expect_whole(day, utc(2010, 11, 5), utc(2010, 11, 9), 30s);
}

TEST(Calendar, ADateThatAZoneLeavesOutIsNoPeriod) {
    // Samoa crossed the date line: no 30 December 2011.
    const auto apia = std::make_shared<const Rules>(
        -10h, std::vector<Rules::Rule>{{utc(2011, 12, 30, 10h), 14h}});
    const Calendar day{Period::day, apia};
    std::vector<std::string> labels;
    for (const Span& span : spans(day, utc(2011, 12, 29, 12h), utc(2012, 1, 1))) {
        labels.push_back(day.label(span));
    }
    EXPECT_EQ(labels, (std::vector<std::string>{"2011-12-29", "2011-12-31", "2012-01-01"}));
    expect_whole(day, utc(2011, 12, 27), utc(2012, 1, 3), 600s);
}

TEST(Calendar, AnHourInWhichTheOffsetChangesByHalfOfOneIsCut) {
    // Lord Howe: at 02:00 it becomes 01:30.
    const Instant change = utc(2026, 4, 4, 15h);
    const auto zone =
        std::make_shared<const Rules>(11h, std::vector<Rules::Rule>{{change, 10h + 30min}});
    const Calendar hour{Period::hour, zone};
    const Span cut = hour.span(change + 10min);
    EXPECT_EQ(cut.begins, change);
    EXPECT_EQ(cut.ends - cut.begins, 30min);
    EXPECT_EQ(hour.span(change - 1s).ends, change);
    expect_whole(hour, change - 5h, change + 5h, 10s);
}

TEST(Calendar, LaterCountsByTheCalendar) {
    const auto later = [](Period period, Instant at, std::int64_t periods) {
        const Calendar calendar{period, kBerlin};
        return calendar.later(calendar.span(at), periods);
    };
    EXPECT_EQ(later(Period::month, utc(2026, 1, 31), 1), utc(2026, 1, 31, 23h));
    EXPECT_EQ(later(Period::month, utc(2026, 1, 31), 13), utc(2027, 1, 31, 23h));
    EXPECT_EQ(later(Period::day, kForward, 1), utc(2026, 3, 29, 22h));
    EXPECT_EQ(later(Period::day, kForward, 400), utc(2027, 5, 2, 23h));
    EXPECT_EQ(later(Period::week, kBack, 1), utc(2026, 10, 25, 23h));
    EXPECT_EQ(later(Period::hour, kBack, 2), kBack + 2h);
}

}  // namespace
}  // namespace hotcount
