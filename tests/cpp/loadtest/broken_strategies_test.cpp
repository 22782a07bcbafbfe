// Strategies that are broken on purpose in ways that leave nothing wrong behind, or hardly anything: one
// write in 100,000, or only what callers were told. Each of them must end with exit code 1.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <hotcount/detail/zset/sorted_set.hpp>
#include <hotcount/memory.hpp>
#include <hotcount/sql.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "load/run_folder.hpp"
#include "report/trial.hpp"
#include "temporary_folder.hpp"

namespace hotcount::loadtest {
namespace {

using testing::Contains;
using testing::HasSubstr;

/// What a broken strategy answers; it may ask the sound one, several times or never.
using Behaviour = std::function<Answer(Driver& sound, const Operation&)>;

class BrokenStrategy final : public Driver {
  public:
    BrokenStrategy(Driver& sound, Behaviour behaviour)
        : sound_(sound), behaviour_(std::move(behaviour)) {}
    Answer apply(const Operation& operation) override { return behaviour_(sound_, operation); }

  private:
    Driver& sound_;
    Behaviour behaviour_;
};

class BrokenStrategiesTest : public testing::Test {
  protected:
    BrokenStrategiesTest() {
        settings_.workers = 8;
        settings_.warmup = Duration{0};
        settings_.duration = std::chrono::seconds{60};
        // No call fails on a slow machine.
        settings_.timeout = std::chrono::seconds{20};
        settings_.traffic.items = 40;
        settings_.traffic.mix = {90, 0, 10};
        settings_.traffic.dup = 0;
        settings_.key_prefix = "broken_strategies_test";
    }

    TrialResult run(const std::string& strategy, const Behaviour& behaviour,
                    std::uint64_t operations) {
        settings_.strategy = strategy;
        settings_.workload = find_strategy(strategy).value().workload;
        settings_.max_operations = operations;
        const TrialHooks hooks{interrupt_, {}, {}, [&](Driver& sound) -> std::unique_ptr<Driver> {
                                   return std::make_unique<BrokenStrategy>(sound, behaviour);
                               }};
        auto trial = run_trial(settings_, folder_.path(), nlohmann::json::object(), hooks);
        EXPECT_TRUE(trial) << trial.error().message;
        if (!trial) return {};
        EXPECT_EQ(exit_code(trial->conclusion), 1) << testing::PrintToString(trial->reasons);
        return *trial;
    }

    /// Whether this is the middle one of each 100,000 writes.
    bool is_the_one() { return writes_.fetch_add(1) % 100'000 == 50'000; }

    TemporaryFolder folder_;
    TrialSettings settings_;
    std::atomic<bool> interrupt_{false};
    std::atomic<std::uint64_t> writes_{0};
    std::atomic<std::uint64_t> breaches_{0};
};

TEST_F(BrokenStrategiesTest, OneThatDropsOneIn100000) {
    const TrialResult trial = run(
        "memory",
        [&](Driver& sound, const Operation& operation) -> Answer {
            if (operation.kind == OperationKind::read || !is_the_one()) {
                return sound.apply(operation);
            }
            ++breaches_;
            Operation look = operation;
            look.kind = OperationKind::read;
            return sound.apply(look);
        },
        100'000);
    EXPECT_EQ(breaches_.load(), 1U);
    EXPECT_EQ(trial.audit.lost(), 1U);
    EXPECT_EQ(trial.audit.doubled(), 0U);
}

TEST_F(BrokenStrategiesTest, OneThatCountsOneIn100000Twice) {
    const TrialResult trial = run(
        "memory",
        [&](Driver& sound, const Operation& operation) {
            if (operation.kind != OperationKind::read && is_the_one()) {
                ++breaches_;
                (void)sound.apply(operation);
            }
            return sound.apply(operation);
        },
        100'000);
    EXPECT_EQ(breaches_.load(), 1U);
    EXPECT_EQ(trial.audit.doubled(), 1U);
    EXPECT_EQ(trial.audit.lost(), 0U);
}

TEST_F(BrokenStrategiesTest, OneWhoseCountIsMovedInMidRunAndMovedBack) {
    const std::shared_ptr<sql::Database> database =
        sql::open_database(sqlite_url(folder_ / kDatabaseFile) + "?mode=rwc").value();
    const sql::Statement move("UPDATE item SET vote_count = vote_count + ?2 WHERE id = ?1");
    const auto move_by = [&](std::int64_t item, std::int64_t by) {
        const auto writer = database->writer(Deadline::after(std::chrono::seconds{20}));
        ASSERT_TRUE(writer);
        const auto moved = (*writer)->execute(move, {item, by});
        EXPECT_TRUE(moved) << moved.error().message;
    };
    std::atomic<std::uint64_t> reads{0};
    const TrialResult trial = run(
        "batched",
        [&](Driver& sound, const Operation& operation) {
            if (operation.kind != OperationKind::read || reads.fetch_add(1) != 10) {
                return sound.apply(operation);
            }
            move_by(operation.item, 1'000'000);
            const Answer answer = sound.apply(operation);
            move_by(operation.item, -1'000'000);
            EXPECT_GE(answer.returned, 1'000'000);
            return answer;
        },
        300);
    // Nothing is left of it.
    EXPECT_EQ(trial.audit.lost() + trial.audit.doubled() + trial.audit.ghost(), 0U);
    EXPECT_TRUE(trial.audit.counts_agree());
    // Other callers may have read it meanwhile.
    EXPECT_GE(trial.audit.wrong_reads, 1U);
    EXPECT_EQ(trial.audit.stale_reads + trial.audit.wrong_casts, 0U);
    EXPECT_THAT(trial.reasons,
                Contains(HasSubstr("reads right at no moment, against their promise")));
    // The folder alone shows it again.
    const auto again = audit_folder(folder_.path());
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again->conclusion, Conclusion::broken);
    EXPECT_EQ(again->result.wrong_reads, trial.audit.wrong_reads);
    EXPECT_EQ(again->result.reads, trial.audit.reads);
    EXPECT_EQ(again->result.casts, trial.audit.casts);
}

TEST_F(BrokenStrategiesTest, OneWhoseReadsAre300MillisecondsOld) {
    using Clock = std::chrono::steady_clock;
    std::mutex mutex;
    std::map<std::int64_t, std::pair<Clock::time_point, Answer>> copies;
    const TrialResult trial = run(
        "memory",
        [&](Driver& sound, const Operation& operation) {
            if (operation.kind != OperationKind::read) return sound.apply(operation);
            const std::lock_guard lock(mutex);
            auto& [taken, copy] = copies[operation.item];
            const Clock::time_point now = Clock::now();
            if (now - taken >= std::chrono::milliseconds{300}) {
                taken = now;
                copy = sound.apply(operation);
            }
            return copy;
        },
        50'000);
    EXPECT_GT(trial.audit.stale_reads, 0U);
    EXPECT_EQ(trial.audit.stale_reads, trial.audit.reads_stale());
    EXPECT_EQ(trial.audit.wrong_reads, 0U);
    EXPECT_GT(trial.audit.versions_behind.max(), 0);
    EXPECT_TRUE(trial.audit.counts_agree());
    const auto kept = read_json(folder_ / kRunFile).value();
    const auto& reads = kept["audit"]["reads"];
    EXPECT_EQ(reads["stale"], trial.audit.stale_reads);
    EXPECT_GT(reads["staleness_ms"]["max"], 0);
    std::uint64_t counted = 0;
    for (const auto& step : reads["staleness_ms"]["up_to"]) {
        counted += step[1].get<std::uint64_t>();
    }
    EXPECT_EQ(counted, trial.audit.reads) << "the histogram has each read";
}

TEST_F(BrokenStrategiesTest, OneThatTellsAWrongChanged) {
    settings_.traffic.mix = {80, 10, 10};
    settings_.traffic.users = 50;
    const TrialResult trial = run(
        "batched",
        [&](Driver& sound, const Operation& operation) {
            Answer answer = sound.apply(operation);
            const bool first = (answer.said & said::kChanged) != 0;
            if (operation.kind == OperationKind::vote && first && writes_.fetch_add(1) == 50) {
                // As if it had been there before: it agrees with itself.
                answer.said &= static_cast<std::uint8_t>(~said::kChanged);
                answer.returned = answer.now;
                ++breaches_;
            }
            return answer;
        },
        300);
    EXPECT_EQ(breaches_.load(), 1U);
    EXPECT_GE(trial.audit.casts, 200U);
    EXPECT_EQ(trial.audit.wrong_casts, 1U);
    EXPECT_EQ(trial.audit.stale_reads + trial.audit.wrong_reads, 0U);
    EXPECT_TRUE(trial.audit.counts_agree());
    EXPECT_THAT(trial.reasons, Contains(HasSubstr("1 casts told wrong")));
}

TEST_F(BrokenStrategiesTest, ALimiterThatAdmitsOneMore) {
    settings_.limit = Rate::parse("20/300 days").value();
    const TrialResult trial = run(
        "memory/gcra",
        [&](Driver& sound, const Operation& operation) {
            Answer answer = sound.apply(operation);
            if (operation.kind == OperationKind::vote && answer.refused && ++breaches_ == 1) {
                answer.refused = false;
                answer.returned = 1;
            }
            return answer;
        },
        20'000);
    EXPECT_EQ(trial.audit.over_admitted, 1U);
}

TEST_F(BrokenStrategiesTest, OneThatRevivesASetThatHasExpired) {
    settings_.duration = std::chrono::milliseconds{100};
    const std::shared_ptr<memory::Store> store = memory::named_store(settings_.key_prefix).value();
    const TrialResult trial = run(
        "memory/script",
        [&](Driver& sound, const Operation& operation) {
            const Answer answer = sound.apply(operation);
            // Of four, the second one was made and dies during the load.
            if (operation.item % 4 != 1 || !answer.refused) return answer;
            const auto put = [](memory::Entry& entry, bool fresh) {
                entry.as<SortedSet>(fresh)->put("user:1", 1);
                return Result<void>{};
            };
            EXPECT_TRUE(store->upsert("item:" + std::to_string(operation.item), put));
            return answer;
        },
        20'000'000);
    EXPECT_GT(trial.audit.rogue_sets, 0U);
}

}  // namespace
}  // namespace hotcount::loadtest
