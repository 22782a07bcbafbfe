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
#include "trial_fixture.hpp"

namespace hotcount::loadtest {
namespace {

using testing::Contains;
using testing::HasSubstr;

class BrokenStrategiesTest : public TrialTest {
  protected:
    BrokenStrategiesTest() {
        settings_.workers = 8;
        // No call fails on a slow machine.
        settings_.timeout = std::chrono::seconds{20};
        settings_.traffic.items = 40;
        settings_.key_prefix = "broken_strategies_test";
    }

    TrialResult find(const std::string& strategy, std::uint64_t operations,
                     const Behaviour& behaviour) {
        settings_.max_operations = operations;
        const TrialResult trial = run(strategy, behaviour);
        EXPECT_EQ(exit_code(trial.conclusion), 1) << testing::PrintToString(trial.reasons);
        return trial;
    }
};

TEST_F(BrokenStrategiesTest, OneThatDropsOrDoublesOneIn100000) {
    settings_.traffic.mix = {100, 0, 0};
    const TrialResult dropped =
        find("memory", 100'000, one_in(100'000, [](Driver& sound, const Operation& operation) {
                 Operation look = operation;
                 look.kind = OperationKind::read;
                 return sound.apply(look);
             }));
    EXPECT_EQ(breaches_.load(), 1U);
    EXPECT_EQ(dropped.audit.lost(), 1U);
    EXPECT_EQ(dropped.audit.doubled(), 0U);
    const TrialResult doubled =
        find("memory", 100'000, one_in(100'000, [](Driver& sound, const Operation& operation) {
                 (void)sound.apply(operation);
                 return sound.apply(operation);
             }));
    EXPECT_EQ(breaches_.load(), 1U);
    EXPECT_EQ(doubled.audit.doubled(), 1U);
    EXPECT_EQ(doubled.audit.lost(), 0U);
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
    const TrialResult trial = find("batched", 300, [&](Driver& sound, const Operation& operation) {
        if (operation.kind != OperationKind::read || reads.fetch_add(1) != 10) {
            return sound.apply(operation);
        }
        move_by(operation.item, 1'000'000);
        const Answer answer = sound.apply(operation);
        move_by(operation.item, -1'000'000);
        EXPECT_GE(answer.returned, 1'000'000);
        return answer;
    });
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
    const TrialResult trial =
        find("memory", 50'000, [&](Driver& sound, const Operation& operation) {
            if (operation.kind != OperationKind::read) return sound.apply(operation);
            const std::lock_guard lock(mutex);
            auto& [taken, copy] = copies[operation.item];
            const Clock::time_point now = Clock::now();
            if (now - taken >= std::chrono::milliseconds{300}) {
                taken = now;
                copy = sound.apply(operation);
            }
            return copy;
        });
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
    const TrialResult trial = find("batched", 300, [&](Driver& sound, const Operation& operation) {
        Answer answer = sound.apply(operation);
        const bool first = (answer.said & said::kChanged) != 0;
        if (operation.kind == OperationKind::vote && first && votes_.fetch_add(1) == 50) {
            // As if it had been there before: it agrees with itself.
            answer.said &= static_cast<std::uint8_t>(~said::kChanged);
            answer.returned = answer.now;
            ++breaches_;
        }
        return answer;
    });
    EXPECT_EQ(breaches_.load(), 1U);
    EXPECT_GE(trial.audit.casts, 200U);
    EXPECT_EQ(trial.audit.wrong_casts, 1U);
    EXPECT_EQ(trial.audit.stale_reads + trial.audit.wrong_reads, 0U);
    EXPECT_TRUE(trial.audit.counts_agree());
    EXPECT_THAT(trial.reasons, Contains(HasSubstr("1 casts told wrong")));
}

TEST_F(BrokenStrategiesTest, ALimiterThatAdmitsOneMore) {
    settings_.limit = Rate::parse("20/300 days").value();
    const TrialResult trial =
        find("memory/gcra", 20'000, [&](Driver& sound, const Operation& operation) {
            Answer answer = sound.apply(operation);
            if (operation.kind == OperationKind::vote && answer.refused && ++breaches_ == 1) {
                answer.refused = false;
                answer.returned = 1;
            }
            return answer;
        });
    EXPECT_EQ(trial.audit.over_admitted, 1U);
}

TEST_F(BrokenStrategiesTest, OneThatRevivesASetThatHasExpired) {
    settings_.duration = std::chrono::milliseconds{100};
    const std::shared_ptr<memory::Store> store = memory::named_store(settings_.key_prefix).value();
    const TrialResult trial =
        find("memory/script", 20'000'000, [&](Driver& sound, const Operation& operation) {
            const Answer answer = sound.apply(operation);
            // Of four, the second one was made and dies during the load.
            if (operation.item % 4 != 1 || !answer.refused) return answer;
            const auto put = [](memory::Entry& entry, bool fresh) {
                entry.as<SortedSet>(fresh)->put("user:1", 1);
                return Result<void>{};
            };
            EXPECT_TRUE(store->upsert("item:" + std::to_string(operation.item), put));
            return answer;
        });
    EXPECT_GT(trial.audit.rogue_sets, 0U);
}

}  // namespace
}  // namespace hotcount::loadtest
