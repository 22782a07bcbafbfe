#include "load/runner.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "temporary_folder.hpp"

namespace hotcount::loadtest {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

/// 1,000 operations a second for 11 seconds; `sent_at` says when each was sent, negative: never.
class OfferedTest : public testing::Test {
  protected:
    OfferedLoad measure(const std::function<std::int64_t(std::int64_t)>& sent_at) {
        auto made = Ledger::create(folder_ / "ledger", 11'000, 1);
        EXPECT_TRUE(made);
        Ledger& ledger = **made;
        for (std::int64_t index = 0; index < 11'000; ++index) {
            LedgerRecord& record = ledger[static_cast<std::uint64_t>(index)];
            record.intended_ns = index * 1'000'000;
            record.sent_ns = sent_at(record.intended_ns);
            record.store_status(record.sent_ns < 0 ? Status::planned : Status::ok);
        }
        ledger.set_planned(11'000);
        // One second of warm-up, ten that count.
        return measure_offered(ledger, kSecond, 11 * kSecond, 32);
    }
    TemporaryFolder folder_;
};

TEST_F(OfferedTest, IsCarriedWhereEverythingIsSentInTime) {
    const OfferedLoad load = measure([](std::int64_t intended) { return intended + 50'000; });
    EXPECT_EQ(load.due, 10'000U);
    EXPECT_GE(load.sent, 9'999U);
    EXPECT_TRUE(load.carried());
}

TEST_F(OfferedTest, AStallThatIsCaughtUpWithIsCarried) {
    // Nothing goes out for a quarter of a second; all of it does right after.
    const OfferedLoad load = measure([](std::int64_t intended) {
        const std::int64_t stall = 5 * kSecond;
        return intended > stall && intended < stall + kSecond / 4 ? stall + kSecond / 4 : intended;
    });
    EXPECT_TRUE(load.carried());
    EXPECT_EQ(load.share, 1.0);
}

TEST_F(OfferedTest, TwoPercentTooSlowIsNotCarried) {
    const OfferedLoad load = measure([](std::int64_t intended) { return intended * 102 / 100; });
    EXPECT_LT(load.share, 0.99);
    EXPECT_TRUE(load.growing);
    EXPECT_FALSE(load.carried());
}

TEST_F(OfferedTest, SlotsThatNobodyServedCountAgainstIt) {
    const OfferedLoad load = measure([](std::int64_t intended) {
        return intended >= 10 * kSecond + kSecond / 2 ? -1 : intended;
    });
    EXPECT_NEAR(load.share, 0.95, 0.001);
    EXPECT_FALSE(load.carried());
}

TEST_F(OfferedTest, ABacklogOfTheWarmUpThatStaysIsNotHeldAgainstTheWindow) {
    // 40 ms late throughout: slow to answer, but keeping up.
    const OfferedLoad load = measure([](std::int64_t intended) { return intended + 40'000'000; });
    EXPECT_NEAR(load.backlog_early, 40, 1);
    EXPECT_FALSE(load.growing);
    EXPECT_TRUE(load.carried());
}

/// Ten calls that took `fastest` and ninety that took `others`.
Histogram calls_of(std::int64_t fastest, std::int64_t others) {
    Histogram times;
    for (int i = 0; i < 10; ++i) times.record(fastest);
    for (int i = 0; i < 90; ++i) times.record(others);
    return times;
}

TEST(LoadBound, NamesWhatKeptTheRateBack) {
    LoadSettings closed;
    LoadSettings in_flight;
    in_flight.in_flight = 100;
    LoadSettings open;
    open.arrival = Arrival::poisson;
    OfferedLoad late;
    late.share = 0.5;
    const Histogram even = calls_of(1000, 1500);
    const Histogram slower = calls_of(1000, 9000);
    const WorkerTime calls{1000, 10, 5};
    EXPECT_EQ(find_bound(open, {}, calls, slower), LoadBound::schedule);
    EXPECT_EQ(find_bound(open, late, calls, even), LoadBound::workers);
    EXPECT_EQ(find_bound(open, late, calls, slower), LoadBound::system);
    EXPECT_EQ(find_bound(open, late, calls, {}), LoadBound::system) << "nothing was answered";
    EXPECT_EQ(find_bound(open, late, {1000, 1200, 100}, even), LoadBound::generator);
    EXPECT_EQ(find_bound(open, late, {1000, 1200, 700}, even), LoadBound::planner);
    EXPECT_EQ(find_bound(closed, {}, calls, even), LoadBound::workers);
    EXPECT_EQ(find_bound(closed, {}, calls, slower), LoadBound::system);
    EXPECT_EQ(find_bound(closed, {}, {1000, 0, 600}, even), LoadBound::planner);
    EXPECT_EQ(find_bound(in_flight, {}, calls, even), LoadBound::in_flight);
}

}  // namespace
}  // namespace hotcount::loadtest
