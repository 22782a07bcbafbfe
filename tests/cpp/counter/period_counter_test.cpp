#include <hotcount/counter.hpp>
#include <hotcount/period_counter.hpp>

#include "support/callers.hpp"
#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

using namespace std::chrono;
using namespace std::chrono_literals;
using testing::failed_with;
using testing::memory_store;
using testing::succeeded;

class MemoryPeriodCounter : public ::testing::Test {
  protected:
    std::shared_ptr<PeriodCounter> make(Period period = Period::day, std::int64_t keep = 400) {
        PeriodCounterOptions options;
        options.period = period;
        options.keep = keep;
        return *PeriodCounter::make(store_, options);
    }
    Instant now() const { return floor<seconds>(clock_->wall_now()); }

    std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
    std::shared_ptr<memory::Store> store_ = memory_store(clock_);
};

TEST_F(MemoryPeriodCounter, ThePresentIsTheStores) {
    const auto counter = make();
    EXPECT_EQ(*counter->add("k"), 1);
    EXPECT_EQ(*counter->add("k", 4), 5);
    clock_->advance(24h - 1ns);
    EXPECT_EQ(*counter->get("k"), 5);
    clock_->advance(1ns);
    EXPECT_EQ(*counter->get("k"), 0);
    EXPECT_EQ(*counter->add("k"), 1);
    EXPECT_EQ(*counter->get("k", now() - 24h), 5);
}

TEST_F(MemoryPeriodCounter, ANumberIsKeptForSoManyPeriodsAndNotAnInstantLonger) {
    for (const std::int64_t keep : {1, 2, 400}) {
        const auto counter = make(Period::day, keep);
        clock_->advance(24h - clock_->wall_now().time_since_epoch() % 24h + 5h + 3ns);
        const Instant at = now();
        ASSERT_EQ(*counter->add("k"), 1);
        clock_->advance(days{keep - 1} + 19h - 4ns);
        EXPECT_EQ(*counter->get("k", at), 1);
        clock_->advance(1ns);
        EXPECT_EQ(*counter->get("k", at), 0);
        EXPECT_TRUE(failed_with(counter->add("k", 1, at), ErrorCode::config, "not kept"));
        EXPECT_EQ(*counter->get("k", at), 0);
    }
}

TEST_F(MemoryPeriodCounter, WhatIsTooFarAheadIsRefused) {
    const auto counter = make();
    EXPECT_EQ(*counter->add("k", 1, now() + days{36'525}), 1);
    EXPECT_TRUE(failed_with(counter->add("k", 1, now() + days{36'526}), ErrorCode::config,
                            "100 years ahead"));
    EXPECT_TRUE(failed_with(counter->add("k", 1, now() + days{4'000'000}), ErrorCode::config,
                            "years 2 to 9799"));
    EXPECT_EQ(store_->size(), 1U);
}

TEST_F(MemoryPeriodCounter, ANumberFoundWithoutAnExpiryIsGivenItsOwn) {
    CounterOptions plain;
    plain.prefix = "period:day:UTC:1970-01-02";
    const auto rogue = *Counter::make(store_, plain);
    ASSERT_TRUE(succeeded(rogue->add("k", 41)));
    ASSERT_EQ(*rogue->ttl("k"), std::nullopt);
    EXPECT_EQ(*make(Period::day, 1)->add("k"), 42) << "docs/reference/storage.md's layout";
    EXPECT_EQ(*rogue->ttl("k"), 24h);
}

TEST_F(MemoryPeriodCounter, ASeriesHasEveryPeriodThatItTouches) {
    const auto counter = make(Period::hour);
    const Instant start = now();
    for (const int hour : {0, 2, 3})
        ASSERT_TRUE(succeeded(counter->add("k", 7, start + hour * 1h)));
    const auto series = *counter->series("k", start + 59min, start + 3h + 1s);
    EXPECT_EQ(series, (std::vector<PeriodCount>{
                          {start, 7}, {start + 1h, 0}, {start + 2h, 7}, {start + 3h, 7}}));
    EXPECT_EQ(counter->series("k", start, start + 3h)->size(), 3U) << "the end is not in it";
    EXPECT_TRUE(counter->series("k", start, start)->empty());
    EXPECT_TRUE(failed_with(counter->series("k", start, start - 1s), ErrorCode::config, "end"));
    EXPECT_EQ(counter->series("k", start, start + 100'000h)->size(), PeriodCounter::kMaxSeries);
    EXPECT_TRUE(failed_with(counter->series("k", start, start + 100'001h), ErrorCode::config,
                            "100000 periods"));
}

TEST_F(MemoryPeriodCounter, ManyKeysOfOnePeriodAreAddedToAndRead) {
    const auto counter = make(Period::hour);
    const std::vector<std::string_view> keys{"a", "b", "a", ""};
    const std::vector<std::int64_t> amounts{1, 2, 3, 4};
    const auto added = *counter->add_many(keys, amounts);
    EXPECT_EQ(added.values, (std::vector<std::int64_t>{1, 2, 4, 0}));
    ASSERT_EQ(added.errors.size(), 1U);
    EXPECT_EQ(added.errors.at(3).code, ErrorCode::config);
    const std::vector<std::string_view> good{"a", "b"};
    EXPECT_EQ(counter->get_many(good)->values, (std::vector<std::int64_t>{4, 2}));
    EXPECT_EQ(counter->get_many(good, now() - 1h)->values, (std::vector<std::int64_t>{0, 0}));
    EXPECT_TRUE(failed_with(counter->add_many(keys, amounts, Instant::max()), ErrorCode::config,
                            "years 2 to 9799"));
}

TEST_F(MemoryPeriodCounter, ASeriesInAnotherCalendarAddsUpWholePeriods) {
    const auto counter = make(Period::hour);
    const Instant start = now();
    for (const int hour : {0, 1, 25})
        ASSERT_TRUE(succeeded(counter->add("k", 1, start + hour * 1h)));
    const Calendar by_day{Period::day, utc_zone()};
    EXPECT_EQ(*counter->series("k", start, start + 24h, by_day),
              (std::vector<PeriodCount>{{start, 2}}));
    EXPECT_TRUE(
        failed_with(make()->series("k", start, start + 1h, Calendar{Period::hour, utc_zone()}),
                    ErrorCode::config, "whole days of UTC"));
}

TEST_F(MemoryPeriodCounter, OptionsThatMakeNoSenseAreRefused) {
    const auto refused = [&](Period period, std::int64_t keep) {
        PeriodCounterOptions options;
        options.period = period;
        options.keep = keep;
        return failed_with(PeriodCounter::make(store_, options), ErrorCode::config, "keep");
    };
    EXPECT_TRUE(refused(Period::day, 0));
    EXPECT_TRUE(refused(Period::day, INT64_MIN));
    EXPECT_TRUE(refused(Period::day, 36'526));
    EXPECT_TRUE(refused(Period::month, 1'179));
    EXPECT_TRUE(refused(Period::second, INT64_MAX));
}

}  // namespace
}  // namespace hotcount
