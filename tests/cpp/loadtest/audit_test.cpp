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

namespace hotcount::loadtest {
namespace {

using testing::Contains;
using testing::HasSubstr;

/// Passes everything on; a derived one breaks some of it.
class BrokenDriver : public Driver {
  public:
    BrokenDriver(Driver& inner, std::atomic<std::uint64_t>& breaches, std::uint64_t every = 1000)
        : inner_(inner), breaches_(breaches), every_(every) {}
    Answer apply(const Operation& operation) override {
        if (operation.kind != OperationKind::vote || operation.resent ||
            votes_.fetch_add(1) % every_ != every_ / 2) {
            return inner_.apply(operation);
        }
        const Answer answer = breach(operation);
        EXPECT_EQ(answer.outcome, Outcome::ok);
        ++breaches_;
        return answer;
    }

  protected:
    virtual Answer breach(const Operation& operation) = 0;
    Driver& inner() { return inner_; }

  private:
    Driver& inner_;
    std::atomic<std::uint64_t>& breaches_;
    std::uint64_t every_;
    std::atomic<std::uint64_t> votes_{0};
};

/// Acknowledges one vote in 1,000 without casting it.
class DroppingDriver final : public BrokenDriver {
  public:
    using BrokenDriver::BrokenDriver;
    Answer breach(const Operation&) override { return {}; }
};

/// Applies one vote in `every` twice: its row is there once, but it counts 2.
class DoublingDriver final : public BrokenDriver {
  public:
    DoublingDriver(Driver& inner, std::atomic<std::uint64_t>& breaches,
                   std::shared_ptr<sql::Database> database, const std::string& again,
                   std::uint64_t every = 1000)
        : BrokenDriver(inner, breaches, every), database_(std::move(database)), again_(again) {}
    Answer breach(const Operation& operation) override {
        const Answer answer = inner().apply(operation);
        const auto writer = database_->writer(Deadline::after(std::chrono::seconds{5}));
        EXPECT_TRUE(writer);
        const auto changed = (*writer)->execute(again_, {operation.item});
        EXPECT_TRUE(changed) << changed.error().message;
        return answer;
    }

  private:
    std::shared_ptr<sql::Database> database_;
    sql::Statement again_;
};

/// With one vote in 1,000, casts another one in the name of somebody who did not vote.
class GhostDriver final : public BrokenDriver {
  public:
    using BrokenDriver::BrokenDriver;
    Answer breach(const Operation& operation) override {
        Operation ghost = operation;
        ghost.user += 1'000'000'000;
        EXPECT_EQ(inner().apply(ghost).outcome, Outcome::ok);
        return inner().apply(operation);
    }
};

/// Refuses one vote in 1,000, having applied it.
class LyingDriver final : public BrokenDriver {
  public:
    using BrokenDriver::BrokenDriver;
    Answer apply(const Operation& operation) override {
        if (operation.kind != OperationKind::vote || calls_.fetch_add(1) % 1000 != 500) {
            return inner().apply(operation);
        }
        EXPECT_EQ(inner().apply(operation).outcome, Outcome::ok);
        ++lies_;
        return {Outcome::failed, ErrorCode::deadline};
    }
    Answer breach(const Operation& operation) override { return inner().apply(operation); }
    static std::atomic<std::uint64_t> lies_;

  private:
    std::atomic<std::uint64_t> calls_{0};
};
std::atomic<std::uint64_t> LyingDriver::lies_{0};

/// Takes 50 ms for each call, and then makes it or, with another outcome than ok, does not.
class LateDriver final : public Driver {
  public:
    explicit LateDriver(Driver& inner, Outcome outcome = Outcome::ok)
        : inner_(inner), outcome_(outcome) {}
    Answer apply(const Operation& operation) override {
        std::this_thread::sleep_for(std::chrono::milliseconds{50});
        if (outcome_ == Outcome::ok) return inner_.apply(operation);
        return {outcome_, ErrorCode::deadline};
    }

  private:
    Driver& inner_;
    Outcome outcome_;
};

class AuditTest : public testing::Test {
  protected:
    using Wrap = std::function<std::unique_ptr<Driver>(Driver&)>;

    AuditTest() {
        settings_.strategy = "batched";
        settings_.workers = 64;
        settings_.warmup = Duration{0};
        settings_.duration = std::chrono::seconds{60};
        settings_.max_operations = 6000;
        settings_.traffic.items = 200;
        // Nothing later may mend what was broken.
        settings_.traffic.mix = {90, 0, 10};
        settings_.traffic.dup = 0;
        settings_.database_url = sqlite_url(folder_ / "votes.db");
    }

    TrialResult run(const Wrap& wrap = {}) {
        const TrialHooks hooks{interrupt_, {}, {}, wrap};
        auto trial = run_trial(settings_, folder_.path(), nlohmann::json::object(), hooks);
        EXPECT_TRUE(trial) << trial.error().message;
        return trial ? *trial : TrialResult{};
    }

    template <class Broken>
    TrialResult run_broken() {
        return run([&](Driver& inner) { return std::make_unique<Broken>(inner, breaches_); });
    }

    std::shared_ptr<sql::Database> database() {
        return sql::open_database(settings_.database_url).value();
    }

    TemporaryFolder folder_;
    TrialSettings settings_;
    std::atomic<bool> interrupt_{false};
    std::atomic<std::uint64_t> breaches_{0};
};

TEST_F(AuditTest, EverySoundStrategyPasses) {
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
        const TrialHooks hooks{interrupt_, {}, {}, {}};
        const auto trial = run_trial(settings_, folder.path(), nlohmann::json::object(), hooks);
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
    const TrialResult trial = run_broken<DroppingDriver>();
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

TEST_F(AuditTest, FindsEveryVoteThatAStrategyAppliesTwice) {
    settings_.strategy = "naive";
    settings_.max_operations = 400;
    const TrialResult trial = run([&](Driver& inner) {
        return std::make_unique<DoublingDriver>(
            inner, breaches_, database(),
            "UPDATE item SET vote_count = vote_count + 1 WHERE id = ?1", 100);
    });
    EXPECT_GE(breaches_.load(), 2U);
    EXPECT_EQ(trial.audit.doubled(), breaches_.load());
    EXPECT_EQ(trial.audit.stored_high, breaches_.load());
    EXPECT_EQ(trial.audit.counted_high, breaches_.load());
    EXPECT_EQ(trial.audit.lost(), 0U);
    EXPECT_EQ(trial.audit.ghost(), 0U);
    EXPECT_EQ(trial.conclusion, Conclusion::broken);
}

TEST_F(AuditTest, FindsEveryVoteThatCountsTwiceInACellToo) {
    settings_.strategy = "slotted";
    settings_.max_operations = 400;
    const TrialResult trial = run([&](Driver& inner) {
        return std::make_unique<DoublingDriver>(
            inner, breaches_, database(),
            "UPDATE vote_cell SET n = n + 1 WHERE item = ?1 AND slot = "
            "(SELECT MIN(slot) FROM vote_cell WHERE item = ?1)",
            100);
    });
    EXPECT_GE(breaches_.load(), 2U);
    EXPECT_EQ(trial.audit.doubled(), breaches_.load());
    EXPECT_EQ(trial.audit.counted_high, breaches_.load());
    EXPECT_EQ(trial.audit.lost(), 0U);
    EXPECT_EQ(trial.conclusion, Conclusion::broken);
}

TEST_F(AuditTest, ComesToTheSameInParts) {
    settings_.traffic.items = 37;
    const TrialResult trial = run_broken<GhostDriver>();
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
    const TrialResult trial = run_broken<GhostDriver>();
    EXPECT_GE(breaches_.load(), 5U);
    EXPECT_EQ(trial.audit.ghost(), breaches_.load());
    EXPECT_EQ(trial.audit.lost(), 0U);
    EXPECT_EQ(trial.audit.doubled(), 0U);
    EXPECT_EQ(trial.conclusion, Conclusion::broken);
}

TEST_F(AuditTest, FindsEveryVoteThatWasAppliedThoughRefused) {
    LyingDriver::lies_ = 0;
    const TrialResult trial = run_broken<LyingDriver>();
    EXPECT_GE(LyingDriver::lies_.load(), 5U);
    EXPECT_EQ(trial.audit.ghost(), LyingDriver::lies_.load());
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

/// Of twenty calls one has no answer.
class SometimesLateDriver final : public Driver {
  public:
    explicit SometimesLateDriver(Driver& inner) : inner_(inner) {}
    Answer apply(const Operation& operation) override {
        const Answer answer = inner_.apply(operation);
        if (calls_.fetch_add(1) % 20 != 10) return answer;
        return {Outcome::unknown, ErrorCode::deadline};
    }

  private:
    Driver& inner_;
    std::atomic<std::uint64_t> calls_{0};
};

TEST_F(AuditTest, FailuresAreAVerdictAndTheirMeasurementIsKept) {
    settings_.max_operations = 400;
    const auto late = [](Driver& inner) { return std::make_unique<SometimesLateDriver>(inner); };
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
    const TrialHooks hooks{interrupt_, {}, {}, late};
    const auto allowed = run_trial(settings_, second.path(), nlohmann::json::object(), hooks);
    EXPECT_EQ(allowed->conclusion, Conclusion::passed) << testing::PrintToString(allowed->reasons);
}

/// With its last call takes the votes away.
class ThievingDriver final : public Driver {
  public:
    ThievingDriver(Driver& inner, std::uint64_t calls, std::shared_ptr<sql::Database> database)
        : inner_(inner), left_(calls), database_(std::move(database)) {}
    Answer apply(const Operation& operation) override {
        const Answer answer = inner_.apply(operation);
        if (--left_ > 0) return answer;
        const auto writer = database_->writer(Deadline::after(std::chrono::seconds{5}));
        EXPECT_TRUE((*writer)->run_script("ALTER TABLE vote RENAME TO stolen"));
        return answer;
    }

  private:
    Driver& inner_;
    std::uint64_t left_;
    std::shared_ptr<sql::Database> database_;
};

TEST_F(AuditTest, AnAuditThatIsImpossibleLeavesTheMeasurement) {
    settings_.strategy = "naive";
    settings_.max_operations = 100;
    settings_.workers = 1;
    const TrialResult trial = run([&](Driver& inner) {
        return std::make_unique<ThievingDriver>(inner, settings_.max_operations, database());
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
    const TrialHooks hooks{interrupt_, {}, {}, {}};
    const auto trial = run_trial(settings_, second.path(), nlohmann::json::object(), hooks);
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

TEST_F(AuditTest, AStrategyThatNeverComesToItsWindowIsOverloadedAndNothingElse) {
    settings_.arrival = Arrival::uniform;
    settings_.rate_per_s = 1000;
    settings_.workers = 1;
    settings_.warmup = std::chrono::milliseconds{400};
    settings_.duration = std::chrono::milliseconds{200};
    // In all of its time it serves slots of the warm-up.
    const TrialResult trial =
        run([](Driver& inner) { return std::make_unique<LateDriver>(inner); });
    EXPECT_EQ(trial.load.tally.answered(), 0U);
    EXPECT_EQ(trial.conclusion, Conclusion::inconclusive);
    EXPECT_TRUE(trial.overloaded()) << testing::PrintToString(trial.reasons);
}

TEST_F(AuditTest, ARunWhoseCallsAllFailIsNotMerelyOverloaded) {
    settings_.arrival = Arrival::uniform;
    settings_.rate_per_s = 1000;
    settings_.workers = 1;
    settings_.warmup = Duration{0};
    settings_.duration = std::chrono::milliseconds{200};
    const TrialResult trial =
        run([](Driver& inner) { return std::make_unique<LateDriver>(inner, Outcome::failed); });
    EXPECT_GT(trial.load.tally.failed, 0U);
    EXPECT_EQ(trial.conclusion, Conclusion::inconclusive);
    EXPECT_FALSE(trial.overloaded()) << testing::PrintToString(trial.reasons);
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
    settings_.workload = WorkloadKind::counters;
    settings_.strategy = "memory";
    settings_.database_url.clear();
    settings_.traffic.mix = {80, 10, 10};
    settings_.max_operations = 50'000;
    const TrialResult trial = run();
    EXPECT_EQ(trial.conclusion, Conclusion::passed);
    EXPECT_GT(trial.audit.sum, 30'000);
    EXPECT_EQ(trial.audit.items, 200U);
    // A counter cannot be audited once its process has ended.
    const auto again = audit_folder(folder_.path());
    ASSERT_FALSE(again);
    EXPECT_THAT(again.error().message, HasSubstr("in the memory of the run"));
}

TEST_F(AuditTest, FindsEveryAddThatACounterDrops) {
    settings_.workload = WorkloadKind::counters;
    settings_.strategy = "memory";
    settings_.database_url.clear();
    settings_.max_operations = 50'000;
    const TrialResult trial = run_broken<DroppingDriver>();
    EXPECT_GE(breaches_.load(), 40U);
    EXPECT_EQ(trial.audit.lost(), breaches_.load());
    EXPECT_EQ(trial.audit.doubled(), 0U);
    EXPECT_EQ(trial.conclusion, Conclusion::broken);
}

}  // namespace
}  // namespace hotcount::loadtest
