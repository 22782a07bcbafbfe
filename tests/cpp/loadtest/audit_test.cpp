// The auditor against strategies that are broken on purpose, on a real SQLite file: each breach
// must be found, with its exact number, and nothing else.
#include "checkers/audit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <memory>
#include <string>
#include <thread>

#include "load/run_folder.hpp"
#include "report/trial.hpp"
#include "temporary_folder.hpp"
#include "trial_fixture.hpp"

namespace hotcount::loadtest {
namespace {

using testing::Contains;
using testing::HasSubstr;

class AuditTest : public TrialTest {
  protected:
    AuditTest() {
        settings_.strategy = "batched";
        settings_.workers = 64;
        settings_.max_operations = 6000;
        settings_.traffic.items = 200;
        settings_.database_url = sqlite_url(folder_ / "votes.db");
    }

    std::shared_ptr<sql::Database> database() {
        return sql::open_database(settings_.database_url).value();
    }
    /// Acknowledges one vote in 1,000 without casting it.
    Behaviour dropping() {
        return one_in(1000, [](Driver&, const Operation&) { return Answer{}; });
    }
    /// With one vote in 1,000, casts another one in the name of somebody who did not vote.
    Behaviour with_ghosts() {
        return one_in(1000, [](Driver& sound, const Operation& operation) {
            Operation ghost = operation;
            ghost.user += 1'000'000'000;
            EXPECT_EQ(sound.apply(ghost).outcome, Outcome::ok);
            return sound.apply(operation);
        });
    }
    /// Runs a statement on the item of one vote in 100, whose row is there once and counts 2.
    Behaviour doubling(const char* again) {
        const auto statement = std::make_shared<const sql::Statement>(again);
        return one_in(100, [this, statement](Driver& sound, const Operation& operation) {
            const Answer answer = sound.apply(operation);
            const auto votes = database();  // A lease does not keep it.
            const auto writer = votes->writer(Deadline::after(std::chrono::seconds{5}));
            EXPECT_TRUE(writer);
            const auto changed = (*writer)->execute(*statement, {operation.item});
            EXPECT_TRUE(changed) << changed.error().message;
            return answer;
        });
    }
};

TEST_F(AuditTest, EverySoundStrategyPasses) {
    settings_.timeout = std::chrono::seconds{20};  // No call fails on a slow machine.
    settings_.max_operations = 4000;
    settings_.traffic.mix = {60, 20, 20};
    settings_.traffic.dup = 0.1;
    // Few users, so that votes repeat and overlap with un-votes of the same vote.
    settings_.traffic.users = 30;
    settings_.traffic.items = 20;
    for (const std::string strategy : {"batched", "naive", "slotted"}) {
        const TemporaryFolder folder;
        settings_.strategy = strategy;
        // A transaction per vote may cost 4 ms; un-votes come after the first 1,024 votes.
        if (strategy != "batched") settings_.max_operations = 250;
        settings_.database_url.clear();
        const auto trial = try_run(folder.path());
        ASSERT_TRUE(trial) << trial.error().message;
        EXPECT_EQ(trial->conclusion, Conclusion::passed) << strategy;
        EXPECT_TRUE(trial->audit.passed());
        EXPECT_TRUE(trial->audit.counts_agree());
        EXPECT_GT(trial->audit.acknowledged, settings_.max_operations / 3);
        EXPECT_LE(trial->audit.rows, 600U);
        EXPECT_THAT(trial->place, HasSubstr("journal_mode=wal, synchronous=FULL"));
        EXPECT_THAT(trial->place, testing::Not(HasSubstr("unknown")));
        // A second look, from what lies in the folder alone, comes to the same.
        const auto again = audit_folder(folder.path());
        ASSERT_TRUE(again) << again.error().message;
        EXPECT_EQ(again->conclusion, Conclusion::passed);
        EXPECT_EQ(again->result.rows, trial->audit.rows);
        EXPECT_EQ(again->result.acknowledged, trial->audit.acknowledged);
        EXPECT_EQ(again->state, "finished");
    }
}

TEST_F(AuditTest, FindsEveryVoteThatAStrategyDrops) {
    const TrialResult trial = run(dropping());
    EXPECT_GE(breaches_.load(), 5U);
    EXPECT_EQ(trial.audit.lost(), breaches_.load());
    EXPECT_EQ(trial.audit.doubled(), 0U);
    EXPECT_EQ(trial.audit.ghost(), 0U);
    EXPECT_TRUE(trial.audit.counts_agree()) << "rows and counts are wrong alike";
    EXPECT_EQ(trial.conclusion, Conclusion::broken);
    EXPECT_THAT(trial.audit.examples, Contains(HasSubstr("lost: item")));
    const auto again = audit_folder(folder_.path());
    ASSERT_TRUE(again);
    EXPECT_EQ(again->result.lost(), breaches_.load());
}

TEST_F(AuditTest, FindsEveryVoteThatCountsTwiceInItsItemOrInACell) {
    settings_.max_operations = 400;
    for (const auto& [strategy, again] :
         {std::pair{"naive", "UPDATE item SET vote_count = vote_count + 1 WHERE id = ?1"},
          std::pair{"slotted",
                    "UPDATE vote_cell SET n = n + 1 WHERE item = ?1 AND slot = "
                    "(SELECT MIN(slot) FROM vote_cell WHERE item = ?1)"}}) {
        const TemporaryFolder folder;
        settings_.strategy = strategy;
        settings_.database_url = sqlite_url(folder / "votes.db");
        const TrialResult trial = try_run(folder.path(), doubling(again)).value();
        EXPECT_GE(breaches_.load(), 2U) << strategy;
        EXPECT_EQ(trial.audit.doubled(), breaches_.load()) << strategy;
        EXPECT_EQ(trial.audit.stored_high, breaches_.load()) << strategy;
        EXPECT_EQ(trial.audit.counted_high, breaches_.load()) << strategy;
        EXPECT_EQ(trial.audit.lost(), 0U) << strategy;
        EXPECT_EQ(trial.audit.ghost(), 0U) << strategy;
        EXPECT_EQ(trial.conclusion, Conclusion::broken) << strategy;
    }
}

TEST_F(AuditTest, ComesToTheSameInParts) {
    settings_.traffic.items = 37;
    const TrialResult trial = run(with_ghosts());
    const auto ledger = Ledger::open(folder_ / kLedgerFile).value();
    const auto votes = Votes::make(database()).value();
    for (const std::uint64_t most : {1U, 100U, 1000U, 5000U}) {
        const AuditResult result = audit_votes(*ledger, *database(), *votes, most).value();
        EXPECT_EQ(result.ghost(), trial.audit.ghost()) << most;
        EXPECT_EQ(result.lost(), 0U);
        EXPECT_EQ(result.doubled(), 0U);
        EXPECT_EQ(result.rows, trial.audit.rows);
        EXPECT_EQ(result.live, trial.audit.live);
        EXPECT_EQ(result.items, 37U);
        EXPECT_EQ(result.acknowledged, trial.audit.acknowledged);
    }
}

TEST_F(AuditTest, FindsEveryRowThatNobodyAttempted) {
    const TrialResult trial = run(with_ghosts());
    EXPECT_GE(breaches_.load(), 5U);
    EXPECT_EQ(trial.audit.ghost(), breaches_.load());
    EXPECT_EQ(trial.audit.lost(), 0U);
    EXPECT_EQ(trial.audit.doubled(), 0U);
    EXPECT_EQ(trial.conclusion, Conclusion::broken);
}

TEST_F(AuditTest, FindsEveryVoteThatWasAppliedThoughRefused) {
    const TrialResult trial = run(one_in(1000, [](Driver& sound, const Operation& operation) {
        EXPECT_EQ(sound.apply(operation).outcome, Outcome::ok);
        return Answer{Outcome::failed, ErrorCode::deadline};
    }));
    EXPECT_GE(breaches_.load(), 5U);
    EXPECT_EQ(trial.audit.ghost(), breaches_.load());
    EXPECT_EQ(trial.audit.lost(), 0U);
}

TEST_F(AuditTest, FindsACountThatIsWrong) {
    const TrialResult trial = run();
    EXPECT_EQ(trial.conclusion, Conclusion::passed);
    const sql::Statement lower("UPDATE item SET vote_count = vote_count - 3 WHERE id = 7");
    ASSERT_TRUE((*database()->writer(Deadline::after(std::chrono::seconds{5})))->execute(lower));
    const auto again = audit_folder(folder_.path());
    ASSERT_TRUE(again);
    EXPECT_EQ(again->result.stored_low, 3U);
    EXPECT_EQ(again->result.counted_low, 3U);
    EXPECT_EQ(again->result.lost(), 3U);
    EXPECT_EQ(again->conclusion, Conclusion::broken);
}

TEST_F(AuditTest, FailuresAreAVerdictAndTheirMeasurementIsKept) {
    settings_.max_operations = 400;
    std::atomic<std::uint64_t> calls{0};
    const auto late = [&](Driver& sound, const Operation& operation) {
        const Answer answer = sound.apply(operation);
        if (calls.fetch_add(1) % 20 != 10) return answer;
        return Answer{Outcome::unknown, ErrorCode::deadline};
    };
    const TrialResult trial = run(late);
    EXPECT_EQ(trial.load.tally.unknown, 20U);
    EXPECT_TRUE(trial.audit.passed());
    EXPECT_EQ(trial.conclusion, Conclusion::inconclusive);
    EXPECT_THAT(trial.reasons, testing::ElementsAre(HasSubstr("20 of 400 calls")));
    EXPECT_THAT(trial.reasons, Contains(HasSubstr("5 %; --max-errors allows 0.1 %")));
    const auto kept = read_json(folder_ / kRunFile).value();
    EXPECT_EQ(kept["state"], "finished");
    EXPECT_EQ(kept["exit_code"], 3);
    EXPECT_EQ(kept["result"]["operations"]["ok"], 380);
    EXPECT_GT(kept["result"]["outcomes_us"]["vote"]["unknown"]["count"], 10);
    EXPECT_GT(kept["result"]["service_us"]["p99"], 1'000'000) << "the time limit is 1 s";
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run.json.new"));

    const TemporaryFolder second;
    settings_.database_url.clear();
    settings_.max_errors = 0.05;
    const auto allowed = try_run(second.path(), late);
    EXPECT_EQ(allowed->conclusion, Conclusion::passed) << testing::PrintToString(allowed->reasons);
}

TEST_F(AuditTest, AnAuditThatIsImpossibleLeavesTheMeasurement) {
    settings_.strategy = "naive";
    settings_.max_operations = 100;
    settings_.workers = 1;
    std::uint64_t left = settings_.max_operations;
    const TrialResult trial = run([&](Driver& sound, const Operation& operation) {
        const Answer answer = sound.apply(operation);
        if (--left > 0) return answer;
        const auto votes = database();
        const auto writer = votes->writer(Deadline::after(std::chrono::seconds{5}));
        EXPECT_TRUE((*writer)->run_script("ALTER TABLE vote RENAME TO stolen"));
        return answer;
    });
    EXPECT_FALSE(trial.audited);
    EXPECT_EQ(trial.load.tally.ok(), 100U);
    EXPECT_EQ(trial.conclusion, Conclusion::inconclusive);
    EXPECT_THAT(trial.reasons, testing::ElementsAre(HasSubstr("audit impossible: ")));
    const auto kept = read_json(folder_ / kRunFile).value();
    EXPECT_EQ(kept["state"], "measured");
    EXPECT_TRUE(kept["audit"].is_null());
    EXPECT_EQ(kept["result"]["operations"]["ok"], 100);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run.json.new"));
    // When they are back, so is the audit.
    const auto tables = database();  // A lease does not keep it.
    ASSERT_TRUE((*tables->writer(Deadline::after(std::chrono::seconds{5})))
                    ->run_script("ALTER TABLE stolen RENAME TO vote"));
    const auto again = audit_folder(folder_.path());
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again->state, "measured");
    EXPECT_EQ(again->conclusion, Conclusion::passed);
}

TEST_F(AuditTest, RefusesTablesThatHoldVotesAlready) {
    ASSERT_EQ(run().conclusion, Conclusion::passed);
    const TemporaryFolder second;
    const auto trial = try_run(second.path());
    ASSERT_FALSE(trial);
    EXPECT_EQ(trial.error().code, ErrorCode::config);
    EXPECT_THAT(trial.error().message, HasSubstr("holds"));
    EXPECT_THAT(trial.error().message, HasSubstr("fresh database"));
}

TEST_F(AuditTest, ARunThatSentNothingIsInconclusive) {
    interrupt_.store(true);
    run();
    const auto audit = audit_folder(folder_.path());
    ASSERT_TRUE(audit) << audit.error().message;
    EXPECT_EQ(audit->conclusion, Conclusion::inconclusive);
    EXPECT_THAT(audit->reasons, Contains(HasSubstr("before its first write")));
}

/// Takes 50 ms for each call, and then makes it or, with another outcome than ok, does not.
Behaviour slow(Outcome outcome) {
    return [outcome](Driver& sound, const Operation& operation) {
        std::this_thread::sleep_for(std::chrono::milliseconds{50});
        return outcome == Outcome::ok ? sound.apply(operation)
                                      : Answer{outcome, ErrorCode::deadline};
    };
}

TEST_F(AuditTest, AStrategyThatNeverComesToItsWindowIsOverloadedAndNothingElse) {
    settings_.arrival = Arrival::uniform;
    settings_.rate_per_s = 1000;
    settings_.workers = 1;
    settings_.duration = std::chrono::milliseconds{200};
    settings_.warmup = std::chrono::milliseconds{400};
    // In all of its time it serves slots of the warm-up.
    const TrialResult late = run(slow(Outcome::ok));
    EXPECT_EQ(late.load.tally.answered(), 0U);
    EXPECT_EQ(late.conclusion, Conclusion::inconclusive);
    EXPECT_TRUE(late.overloaded()) << testing::PrintToString(late.reasons);
    // One whose calls all fail is not merely overloaded.
    const TemporaryFolder second;
    settings_.database_url.clear();
    settings_.warmup = Duration{0};
    const TrialResult failing = try_run(second.path(), slow(Outcome::failed)).value();
    EXPECT_GT(failing.load.tally.failed, 0U);
    EXPECT_EQ(failing.conclusion, Conclusion::inconclusive);
    EXPECT_FALSE(failing.overloaded()) << testing::PrintToString(failing.reasons);
}

TEST_F(AuditTest, AMissingDatabaseIsAnErrorAndIsNotMade) {
    run();
    for (const char* suffix : {"", "-wal", "-shm"}) {
        std::filesystem::remove(folder_ / (std::string{"votes.db"} + suffix));
    }
    const auto audit = audit_folder(folder_.path());
    ASSERT_FALSE(audit);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "votes.db"));
}

TEST_F(AuditTest, CountersAreHeldAgainstTheirAdds) {
    settings_.database_url.clear();
    settings_.max_operations = 50'000;
    const TrialResult dropped = run("memory", dropping());
    EXPECT_GE(breaches_.load(), 40U);
    EXPECT_EQ(dropped.audit.lost(), breaches_.load());
    EXPECT_EQ(dropped.audit.doubled(), 0U);
    EXPECT_EQ(dropped.conclusion, Conclusion::broken);
    settings_.traffic.mix = {80, 10, 10};
    const TrialResult trial = run("memory");
    EXPECT_EQ(trial.conclusion, Conclusion::passed);
    EXPECT_GT(trial.audit.sum, 30'000);
    EXPECT_EQ(trial.audit.items, 200U);
    // A counter cannot be audited once its process has ended.
    const auto again = audit_folder(folder_.path());
    ASSERT_FALSE(again);
    EXPECT_THAT(again.error().message, HasSubstr("in the memory of the run"));
}

}  // namespace
}  // namespace hotcount::loadtest
