#include "report/trial.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "checkers/audit.hpp"
#include "temporary_folder.hpp"

namespace hotcount::loadtest {
namespace {

constexpr std::int64_t kMs = 1'000'000;

class RunSeriesTest : public testing::Test {
  protected:
    RunSeriesTest() {
        auto made = Ledger::create(folder_ / "ledger", 100, 1);
        EXPECT_TRUE(made);
        ledger_ = std::move(*made);
    }

    LedgerRecord& add(OperationKind kind, Status status, std::int64_t due_ms, std::int64_t sent_ms,
                      std::int64_t done_ms) {
        const std::uint64_t index = ledger_->planned();
        LedgerRecord& record = (*ledger_)[index];
        record.kind = kind;
        record.intended_ns = due_ms * kMs;
        record.sent_ns = sent_ms * kMs;
        record.done_ns = done_ms * kMs;
        record.store_status(status);
        ledger_->set_planned(index + 1);
        return record;
    }

    std::vector<std::string> lines(const char* name, Arrival arrival = Arrival::poisson,
                                   std::int64_t warmup_ns = 1000 * kMs) {
        TrialSettings settings;
        settings.arrival = arrival;
        settings.warmup = Duration{warmup_ns};
        EXPECT_TRUE(write_series(*ledger_, settings, folder_.path()));
        std::ifstream file(folder_ / name);
        std::vector<std::string> all;
        for (std::string line; std::getline(file, line);) all.push_back(line);
        return all;
    }

    TemporaryFolder folder_;
    std::unique_ptr<Ledger> ledger_;
};

// While a primary is away, the others acknowledge votes. Its failover cannot lose these.
TEST_F(RunSeriesTest, AServerThatIsAwayAcknowledgesNothingThatItMayLose) {
    const auto at = [this](std::int64_t ms) {
        return SteadyTime{std::chrono::nanoseconds{ledger_->started_ns()}} + Duration{ms * kMs};
    };
    for (const std::int64_t done_ms : {990, 1002, 1500, 2500, 3500, 4500}) {
        add(OperationKind::vote, Status::ok, done_ms, done_ms - 1, done_ms);
    }
    const auto lost = [&](FaultKind kind, std::int64_t back_ms, std::int64_t refused_ms = 1000) {
        const Outage outage{{Duration{0}, kind, Duration{0}},
                            at(1000),
                            at(back_ms),
                            at(4000),
                            at(refused_ms),
                            at(995)};
        const auto all = recoveries(*ledger_, {outage}, TrialSettings{});
        return all.front().may_lose.writes;
    };
    EXPECT_EQ(lost(FaultKind::redis_kill9, 5000), 1U);
    EXPECT_EQ(lost(FaultKind::redis_pause, 3000), 2U) << "it went on before it was replaced";
    EXPECT_EQ(lost(FaultKind::redis_failover, 3000), 4U) << "it never was away";
    EXPECT_EQ(lost(FaultKind::redis_cut, 5000, 2400), 2U) << "until it missed the majority";
    EXPECT_EQ(lost(FaultKind::redis_cut, 5000, 4600), 5U) << "beyond the promotion too";
}

// Item 1 has one add before the fault, then an add and two -1 that a failover may lose. Item 2 has
// one add before the fault.
TEST_F(RunSeriesTest, ALostMinusOneIsNotTakenForADoubledAdd) {
    const SteadyTime start{std::chrono::nanoseconds{ledger_->started_ns()}};
    const auto at = [&](std::int64_t ms) { return start + Duration{ms * kMs}; };
    for (const std::int64_t done_ms : {500, 1010, 1020, 1030}) {
        const bool subtracts = done_ms > 1010;
        LedgerRecord& record = add(subtracts ? OperationKind::unvote : OperationKind::vote,
                                   Status::ok, done_ms, done_ms - 1, done_ms);
        record.item = 1;
        record.value = subtracts ? -1 : 1;
    }
    LedgerRecord& other = add(OperationKind::vote, Status::ok, 400, 400, 401);
    other.item = 2;
    other.value = 1;
    const Outage outage{{Duration{0}, FaultKind::redis_kill9, Duration{0}},
                        at(1000),
                        at(4000),
                        at(3000),
                        at(1000),
                        at(995)};
    const MayLose most = may_lose(recoveries(*ledger_, {outage}, TrialSettings{}));
    EXPECT_EQ(most.writes, 3U);
    const auto audited = [&](std::int64_t first, std::int64_t second) {
        const std::array<std::int64_t, 2> values{first, second};
        AuditResult result = audit_counters(*ledger_, values, false);
        result.allow_failover(most);
        return result;
    };
    EXPECT_EQ(audited(0, 1).word(), "passed");
    for (const std::int64_t value : {1, 2}) {
        const AuditResult lost = audited(value, 1);
        EXPECT_EQ(lost.word(), "allowed") << value;
        EXPECT_EQ(lost.lost_in_failover, static_cast<std::uint64_t>(value));
    }
    EXPECT_EQ(audited(3, 1).doubled(), 1U) << "one more than the two -1 explain";
    EXPECT_EQ(audited(3, 1).word(), "broken");
    EXPECT_EQ(audited(0, 2).doubled(), 1U) << "item 2 lost no -1";
    EXPECT_EQ(audited(1, 2).word(), "broken");
}

TEST_F(RunSeriesTest, AnAnswerBelongsToTheSecondInWhichItCame) {
    add(OperationKind::vote, Status::ok, 100, 100, 110);
    add(OperationKind::vote, Status::ok, 900, 1000, 1200);  // 300 ms after it was due.
    add(OperationKind::unvote, Status::ok, 1300, 1300, 1301);
    add(OperationKind::read, Status::ok, 1400, 1400, 1402);
    EXPECT_EQ(lines(kSeriesFile),
              (std::vector<std::string>{
                  "from_s,length_s,warmup,vote_ok,unvote_ok,read_ok,failed,unknown,unserved,p50_ms,"
                  "p99_ms,max_ms,waiting",
                  "0,1,1,1,0,0,0,0,0,10,10,10,1",
                  "1,1,0,1,1,1,0,0,0,2.00089,300,300,0",
              }));
}

TEST_F(RunSeriesTest, InTheClosedLoopLatencyCountsFromTheTimeItWasSent) {
    add(OperationKind::vote, Status::ok, 0, 1000, 1007);
    add(OperationKind::vote, Status::planned, 0, 0, 0);  // No caller took it from the plan.
    EXPECT_EQ(lines(kSeriesFile, Arrival::closed)[2], "1,1,0,1,0,0,0,0,0,7,7,7,0");
}

TEST_F(RunSeriesTest, FailuresHaveNoLatencyAndUnansweredCallsWaitForEver) {
    add(OperationKind::vote, Status::failed, 0, 0, 500);
    add(OperationKind::vote, Status::unknown, 0, 0, 600);
    add(OperationKind::vote, Status::sent, 0, 700, 0);
    add(OperationKind::vote, Status::planned, 1500, 0, 0);
    add(OperationKind::vote, Status::ok, 1600, 1600, 1601);
    const std::vector<std::string> rows = lines(kSeriesFile);
    EXPECT_EQ(rows[1], "0,1,1,0,0,0,1,2,0,0,0,0,1");
    EXPECT_EQ(rows[2], "1,1,0,1,0,0,0,0,1,1,1,1,2");
}

TEST_F(RunSeriesTest, ALongRunHasLongerIntervalsNotMore) {
    add(OperationKind::vote, Status::ok, 0, 0, 1);
    const std::int64_t hour = 3'600'000;
    add(OperationKind::vote, Status::ok, hour, hour, hour + 1);
    const std::vector<std::string> rows = lines(kSeriesFile);
    EXPECT_EQ(rows.size(), 1 + 451U);  // 3,601 s in intervals of 8.
    EXPECT_EQ(rows.back().substr(0, 8), "3593,8,0");
}

TEST_F(RunSeriesTest, AnIntervalBeginsWhereTheWarmUpEnds) {
    add(OperationKind::vote, Status::ok, 200, 200, 249);
    add(OperationKind::vote, Status::ok, 200, 200, 251);
    const std::vector<std::string> rows = lines(kSeriesFile, Arrival::poisson, 250 * kMs);
    EXPECT_EQ(rows[1], "0,0.25,1,1,0,0,0,0,0,49,49,49,1");
    EXPECT_EQ(rows[2], "0.25,1,0,1,0,0,0,0,0,51,51,51,0");
}

TEST_F(RunSeriesTest, ARunWithoutAnOperationHasARowOfZeros) {
    EXPECT_EQ(lines(kSeriesFile)[1], "0,1,1,0,0,0,0,0,0,0,0,0,0");
    EXPECT_EQ(lines(kResponseFile).size(), 4U);  // The header only.
}

TEST_F(RunSeriesTest, TheLogHasALineForEachIntervalKindAndOutcome) {
    add(OperationKind::vote, Status::ok, 100, 100, 110);
    add(OperationKind::vote, Status::failed, 100, 100, 1110);
    const std::vector<std::string> rows = lines(kResponseFile);
    ASSERT_EQ(rows.size(), 6U);
    EXPECT_TRUE(rows[4].starts_with("Tag=vote,0.000,1.000,10.000,HISTFA")) << rows[4];
    EXPECT_TRUE(rows[5].starts_with("Tag=failed,1.000,1.000,1010.000,HISTFA")) << rows[5];
}

TEST_F(RunSeriesTest, AFolderThatCannotBeWrittenIsNamed) {
    const auto written = write_series(*ledger_, TrialSettings{}, folder_ / "nowhere");
    ASSERT_FALSE(written);
    EXPECT_NE(written.error().message.find("nowhere/series.csv cannot be written"),
              std::string::npos);
}

}  // namespace
}  // namespace hotcount::loadtest
