#include "load/runner.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "fake_drivers.hpp"
#include "report/machine.hpp"
#include "temporary_folder.hpp"

namespace hotcount::loadtest {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class RunnerTest : public testing::Test {
  protected:
    LoadResult run(const LoadSettings& settings, Driver& driver,
                   std::uint64_t max_operations = 1'000'000, const LoadObserver& observe = {}) {
        auto made = Ledger::create(folder_ / ("ledger" + std::to_string(runs_++)),
                                   ledger_capacity(settings, max_operations), 1);
        EXPECT_TRUE(made) << made.error().message;
        ledger_ = std::move(made).value();
        return run_load(settings, driver, *ledger_, interrupt_, observe);
    }

    static LoadSettings open_loop(double rate_per_s, Duration duration, std::uint32_t workers) {
        LoadSettings settings;
        settings.arrival = Arrival::uniform;
        settings.rate_per_s = rate_per_s;
        settings.duration = duration;
        settings.warmup = Duration{0};
        settings.workers = workers;
        return settings;
    }

    static LoadSettings closed_loop(Duration duration, std::uint32_t workers) {
        LoadSettings settings;
        settings.duration = duration;
        settings.warmup = Duration{0};
        settings.workers = workers;
        return settings;
    }

    std::map<Status, std::uint64_t> statuses() const {
        std::map<Status, std::uint64_t> counts;
        for (std::uint64_t index = 0; index < ledger_->planned(); ++index) {
            ++counts[(*ledger_)[index].load_status()];
        }
        return counts;
    }

    TemporaryFolder folder_;
    std::unique_ptr<Ledger> ledger_;
    std::atomic<bool> interrupt_{false};
    int runs_{0};
};

TEST_F(RunnerTest, AClosedLoopEndsWithItsOperations) {
    NoopDriver driver;
    const LoadResult result = run(closed_loop(seconds{30}, 4), driver, 20'000);
    EXPECT_TRUE(result.ledger_full);
    EXPECT_EQ(result.operations, 20'000U);
    EXPECT_EQ(result.tally.ok(), 20'000U);
    EXPECT_EQ(result.service_ns.count(), 20'000U);
    EXPECT_EQ(result.response_ns.count(), 0U);
    EXPECT_LT(result.window_s, 10);
    EXPECT_GT(result.window_s, 0);
    EXPECT_EQ(statuses(), (std::map<Status, std::uint64_t>{{Status::ok, 20'000}}));
    for (std::uint64_t index = 0; index < 20'000; ++index) {
        const LedgerRecord& record = (*ledger_)[index];
        ASSERT_EQ(record.load_status(), Status::ok);
        ASSERT_LE(record.sent_ns, record.done_ns);
    }
}

TEST_F(RunnerTest, AClosedLoopEndsWithItsTimeAndLeavesTheWarmUpOut) {
    SlowDriver driver(std::chrono::microseconds{1000});
    LoadSettings settings = closed_loop(milliseconds{200}, 4);
    settings.warmup = milliseconds{200};
    const LoadResult result = run(settings, driver);
    EXPECT_FALSE(result.ledger_full);
    EXPECT_NEAR(result.window_s, 0.2, 1e-9);
    // Few on a busy machine.
    EXPECT_GT(result.tally.ok(), 0U);
    EXPECT_GT(result.operations, result.tally.ok());
}

TEST_F(RunnerTest, ACallUnderWayAtTheEndOfAClosedLoopCountsButNotInTheRate) {
    SlowDriver slow(milliseconds{1500});
    const LoadResult late = run(closed_loop(milliseconds{700}, 4), slow);
    EXPECT_EQ(late.operations, 4U);
    EXPECT_EQ(late.tally.ok(), 0U);
    EXPECT_EQ(late.tally.answered(), 0U);
    ASSERT_EQ(late.service_ns.count(), 4U) << "what a server that hangs does to its callers";
    EXPECT_GE(late.service_ns.min(), 1'400'000'000);
    EXPECT_LE(late.time.calls_ns, 4 * 700'000'000LL) << "of the window";

    class LateFailure final : public Driver {
      public:
        Answer apply(const Operation& /*operation*/) override {
            std::this_thread::sleep_for(milliseconds{1500});
            return {Outcome::unknown, ErrorCode::outcome_unknown};
        }
    } failing;
    const LoadResult failed = run(closed_loop(milliseconds{700}, 4), failing);
    EXPECT_EQ(failed.tally.unknown, 4U);
    EXPECT_EQ(failed.service_ns.count(), 4U);
    EXPECT_EQ(failed.tally.errors[static_cast<std::size_t>(ErrorCode::outcome_unknown)], 4U);
}

TEST_F(RunnerTest, AnOpenLoopServesEverySlotAtItsTime) {
    NoopDriver driver;
    const LoadResult result = run(open_loop(1000, milliseconds{400}, 8), driver);
    EXPECT_EQ(result.scheduled, 400U);
    EXPECT_EQ(result.tally.ok(), 400U);
    EXPECT_EQ(result.censored, 0U);
    EXPECT_EQ(result.response_ns.count(), 400U);
    EXPECT_EQ(result.send_lag_ns.count(), 400U);
    for (std::uint64_t index = 0; index < 400; ++index) {
        const LedgerRecord& record = (*ledger_)[index];
        ASSERT_EQ(record.intended_ns, static_cast<std::int64_t>(index) * 1'000'000);
        ASSERT_GE(record.sent_ns, record.intended_ns) << "sent before its time";
    }
}

TEST_F(RunnerTest, AnOpenLoopByCompletionsWaitsForNoAnswer) {
    // More calls than threads must be under way before the first is answered.
    LateDriver driver(20);
    LoadSettings settings = open_loop(1000, milliseconds{400}, 1);
    settings.in_flight = 30;
    const LoadResult result = run(settings, driver);
    EXPECT_EQ(result.scheduled, 400U);
    EXPECT_EQ(result.tally.ok() + result.censored, 400U);
    EXPECT_GE(driver.most(), 20U);
    EXPECT_LE(driver.most(), 30U);
    EXPECT_EQ(result.response_ns.count(), 400U);
    for (std::uint64_t index = 0; index < ledger_->planned(); ++index) {
        const LedgerRecord& record = (*ledger_)[index];
        if (record.load_status() == Status::planned) continue;
        ASSERT_GE(record.sent_ns, record.intended_ns) << "sent before its time";
        ASSERT_GE(record.done_ns, record.sent_ns);
    }
}

TEST_F(RunnerTest, AStallIsChargedToEveryOperationThatWasDueInIt) {
    StallingDriver driver(100, milliseconds{200});
    const LoadResult result = run(open_loop(1000, milliseconds{500}, 1), driver);
    EXPECT_EQ(result.tally.ok(), 500U);
    // One call was slow; but 200 operations were due while it lasted, half of them over 100 ms late.
    EXPECT_LT(result.service_ns.value_at(0.99), 50'000'000);
    EXPECT_GE(result.response_ns.value_at(0.85), 90'000'000);
    EXPECT_GE(result.send_lag_ns.value_at(0.85), 90'000'000);
}

TEST_F(RunnerTest, SlotsThatNobodyServedAreCensoredAndCounted) {
    SlowDriver driver(milliseconds{50});
    LoadSettings settings = open_loop(1000, milliseconds{300}, 1);
    settings.timeout = seconds{100};
    const LoadResult result = run(settings, driver);
    EXPECT_EQ(result.scheduled, 300U);
    EXPECT_GT(result.censored, 200U);
    EXPECT_EQ(result.tally.answered() + result.censored, 300U);
    // They stand in the headline as slower than a call may be.
    EXPECT_EQ(result.response_ns.count(), 300U);
    EXPECT_GT(result.response_ns.value_at(0.5), 100'000'000'000);
    EXPECT_LT(result.response_ns.min(), 10'000'000'000);
    EXPECT_FALSE(result.offered.carried());
    EXPECT_NE(result.bound, LoadBound::generator) << "its workers were in calls";
    EXPECT_EQ(statuses()[Status::planned], result.censored);
}

TEST_F(RunnerTest, RefusedAndUnknownAnswersAreTalliedByTheirCode) {
    FailingDriver driver;
    const LoadResult result = run(closed_loop(seconds{30}, 2), driver, 1000);
    EXPECT_EQ(result.tally.failed, 100U);
    EXPECT_EQ(result.tally.unknown, 100U);
    EXPECT_EQ(result.tally.ok(), 800U);
    EXPECT_EQ(result.tally.errors[static_cast<std::size_t>(ErrorCode::deadline)], 100U);
    EXPECT_EQ(result.tally.errors[static_cast<std::size_t>(ErrorCode::outcome_unknown)], 100U);
    EXPECT_EQ(statuses(), (std::map<Status, std::uint64_t>{
                              {Status::ok, 800}, {Status::failed, 100}, {Status::unknown, 100}}));
    for (std::uint64_t index = 0; index < 1000; ++index) {
        const LedgerRecord& record = (*ledger_)[index];
        if (record.load_status() != Status::failed) continue;
        ASSERT_EQ(record.error, static_cast<std::uint8_t>(ErrorCode::deadline) + 1);
    }
}

TEST_F(RunnerTest, WhatIsNotAcknowledgedCountsAsSlowerThanTheTimeLimit) {
    FailingDriver driver;
    LoadSettings settings = closed_loop(seconds{30}, 2);
    settings.timeout = seconds{100};
    const LoadResult result = run(settings, driver, 1000);
    // Of ten calls two fail, and at once: without this they would make the percentiles better.
    EXPECT_LT(result.service_ns.value_at(0.8), 10'000'000'000);
    EXPECT_GT(result.service_ns.value_at(0.81), 100'000'000'000);
    std::uint64_t answered = 0;
    for (const OutcomeTimes& times : result.outcomes) {
        answered += times.ns.count();
        EXPECT_LT(times.ns.max(), 10'000'000'000) << "as they were";
    }
    EXPECT_EQ(answered, 1000U);
    EXPECT_GE(result.outcomes.size(), 6U) << "votes and reads, each with three outcomes";
}

TEST_F(RunnerTest, ALoadThatTheGeneratorCannotMakeIsBoundByIt) {
    NoopDriver driver;
    const LoadResult result = run(open_loop(100e6, milliseconds{5}, 1), driver);
    EXPECT_FALSE(result.offered.carried());
    EXPECT_TRUE(result.bound == LoadBound::generator || result.bound == LoadBound::planner)
        << to_string(result.bound);
}

TEST_F(RunnerTest, AnInterruptEndsItEarly) {
    SlowDriver driver(milliseconds{1});
    std::thread interrupter([&] {
        std::this_thread::sleep_for(milliseconds{100});
        interrupt_.store(true);
    });
    const auto start = std::chrono::steady_clock::now();
    // The second worker sleeps towards a slot far away.
    const LoadResult result = run(open_loop(2, seconds{60}, 2), driver);
    interrupter.join();
    EXPECT_TRUE(result.interrupted);
    EXPECT_LT(std::chrono::steady_clock::now() - start, seconds{10});
    EXPECT_LT(result.window_s, 10);
}

TEST_F(RunnerTest, TellsHowItStands) {
    NoopDriver driver;
    int samples = 0;
    LoadSample last{};
    run(open_loop(500, milliseconds{1300}, 2), driver, 10'000, [&](const LoadSample& sample) {
        ++samples;
        last = sample;
    });
    EXPECT_EQ(samples, 1);
    EXPECT_GE(last.elapsed_s, 1.0);
    EXPECT_NEAR(last.total_s, 1.3, 1e-9);
    EXPECT_GT(last.rate_per_s, 100);
    EXPECT_EQ(last.errors, 0U);
}

double process_cpu_ns() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

TEST_F(RunnerTest, CostsLessThanAMicrosecondAnOperation) {
    NoopDriver driver;
    const std::uint64_t operations = why_not_measurable() ? 20'000 : 400'000;
    for (const std::uint32_t workers : {1U, 64U}) {
        // Processor time: it does not depend on who else uses the machine. The threads' start and
        // the planning of the operations are in it.
        const double before_ns = process_cpu_ns();
        const LoadResult result = run(closed_loop(seconds{60}, workers), driver, operations);
        const double each_ns = (process_cpu_ns() - before_ns) / static_cast<double>(operations);
        EXPECT_EQ(result.operations, operations);
        std::printf("generator's own cost, %u workers: %.0f ns an operation\n", workers, each_ns);
        RecordProperty("ns_per_operation_" + std::to_string(workers), static_cast<int>(each_ns));
        if (!why_not_measurable()) {
            EXPECT_LT(each_ns, 1000);
        }
    }
}

TEST(LedgerCapacity, HoldsEverySlotOfTheSchedule) {
    LoadSettings settings;
    settings.arrival = Arrival::poisson;
    settings.rate_per_s = 10'000;
    settings.warmup = seconds{1};
    settings.duration = seconds{9};
    EXPECT_GE(ledger_capacity(settings, 1'000'000), 101'500U);
    EXPECT_LT(ledger_capacity(settings, 1'000'000), 105'000U);
    settings.arrival = Arrival::closed;
    EXPECT_EQ(ledger_capacity(settings, 1'000'000), 1'000'000U);
}

}  // namespace
}  // namespace hotcount::loadtest
