// The auditor against counters, limiters and sorted sets that are broken on purpose, in memory:
// each breach must be found, with its exact number. What needs a server is in tests/integration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <hotcount/detail/zset/sorted_set.hpp>
#include <hotcount/memory.hpp>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "checkers/audit.hpp"
#include "trial_fixture.hpp"

namespace hotcount::loadtest {
namespace {

using testing::Contains;
using testing::HasSubstr;

/// Changes what a sound write answers, or what is in the store; false: it changed nothing.
using Breach = std::function<bool(const Operation&, Answer&, memory::Store&)>;

class StoreAuditTest : public TrialTest {
  protected:
    StoreAuditTest() {
        settings_.workers = 16;
        settings_.max_operations = 50'000;
        settings_.traffic.items = 40;
        settings_.key_prefix = "store_audit_test";
    }

    /// Breaks the middle one of each `every` successful writes.
    TrialResult run_broken(const std::string& strategy, const Breach& breach,
                           std::uint64_t every = 1000) {
        breaches_ = votes_ = 0;
        return run(strategy, [&](Driver& sound, const Operation& operation) {
            Answer answer = sound.apply(operation);
            const bool wrote =
                operation.kind == OperationKind::vote && answer.outcome == Outcome::ok;
            if (wrote && votes_.fetch_add(1) % every == every / 2 &&
                breach(operation, answer, *memory::named_store(settings_.key_prefix).value())) {
                ++breaches_;
            }
            return answer;
        });
    }
};

/// The same answer, but that the hit was admitted.
bool admit(const Operation&, Answer& answer, memory::Store&) {
    if (!answer.refused) return false;
    answer.refused = false;
    answer.returned = 1;
    return true;
}

bool deny(const Operation&, Answer& answer, memory::Store&) {
    if (answer.refused) return false;
    answer.refused = true;
    answer.returned = 0;
    return true;
}

/// A key that never expires.
bool leave_a_key(const Operation& operation, Answer&, memory::Store& store) {
    const std::string key =
        "left:" + std::to_string(operation.value) + ":" + std::to_string(operation.user);
    return store.upsert(key, [](memory::Entry&, bool fresh) { return Result<bool>{fresh}; })
        .value();
}

TEST_F(StoreAuditTest, EverySoundStrategyPasses) {
    settings_.max_operations = 20'000;
    for (const std::string& name : strategies_of({}, false)) {
        if (find_strategy(name)->store != StrategyStore::memory) continue;
        const bool counters = find_strategy(name)->workload == WorkloadKind::counters;
        settings_.traffic.mix.unvote = counters ? 10 : 0;
        const TrialResult trial = run(name);
        EXPECT_EQ(trial.conclusion, Conclusion::passed) << name;
        EXPECT_GT(trial.audit.acknowledged, 15'000U) << name;
        EXPECT_EQ(trial.audit.breaches(), trial.audit.allowed_breaches) << name;
        if (trial.contract.exact) {
            EXPECT_EQ(trial.audit.breaches(), 0U) << name;
        }
    }
}

TEST_F(StoreAuditTest, FindsEveryValueThatAnAddIsToldWrongly) {
    const TrialResult trial =
        run_broken("memory", [](const Operation&, Answer& answer, memory::Store&) {
            // As if another caller's add had been told.
            answer.returned -= 1;
            return true;
        });
    EXPECT_GE(breaches_.load(), 40U);
    EXPECT_EQ(trial.audit.wrong_answers, breaches_.load());
    EXPECT_EQ(trial.audit.lost(), 0U);
    EXPECT_EQ(trial.conclusion, Conclusion::broken);
    EXPECT_THAT(trial.reasons, Contains(HasSubstr("wrong answers")));
}

TEST_F(StoreAuditTest, FindsValuesThatNoLifeOfAShortLivedCounterCameTo) {
    settings_.life = std::chrono::milliseconds{2};
    const TrialResult sound = run("memory/ttl");
    EXPECT_EQ(sound.conclusion, Conclusion::passed);
    EXPECT_LT(sound.audit.sum, static_cast<std::int64_t>(sound.audit.acknowledged))
        << "keys expired under the load";
    const TrialResult trial =
        run_broken("memory/ttl", [](const Operation&, Answer& answer, memory::Store&) {
            answer.returned += 1'000'000;
            return true;
        });
    EXPECT_GE(breaches_.load(), 40U);
    EXPECT_GE(trial.audit.wrong_answers, breaches_.load());
    EXPECT_EQ(trial.conclusion, Conclusion::broken);
}

/// Behind the back of the counter.
bool add_behind(const Operation& operation, memory::Store& store, std::int64_t n) {
    const auto change = [n](memory::Entry* entry) {
        if (entry == nullptr) return Result<bool>{false};
        *entry->as<std::int64_t>(false) += n;
        return Result<bool>{true};
    };
    return store.modify("count:item:" + std::to_string(operation.item), change).value();
}
bool lose_an_add(const Operation& operation, Answer&, memory::Store& store) {
    return add_behind(operation, store, -1);
}
bool double_an_add(const Operation& operation, Answer&, memory::Store& store) {
    return add_behind(operation, store, 1);
}

TEST_F(StoreAuditTest, FindsEveryAddThatIsLostOrCountedTwice) {
    for (const char* const strategy : {"memory", "memory/ttl"}) {
        const TrialResult low = run_broken(strategy, lose_an_add);
        EXPECT_GE(breaches_.load(), 40U);
        EXPECT_EQ(low.audit.lost(), breaches_.load()) << strategy;
        EXPECT_EQ(low.conclusion, Conclusion::broken);
        const TrialResult high = run_broken(strategy, double_an_add);
        EXPECT_EQ(high.audit.doubled(), breaches_.load()) << strategy;
        EXPECT_EQ(high.conclusion, Conclusion::broken);
    }
}

TEST_F(StoreAuditTest, FindsAddsToShortLivedCountersThatAreLostOrCountedTwice) {
    // One caller, and lives far longer than the time between two adds: the next one is told a number
    // that comes again, or one whose predecessor nobody was told.
    settings_.workers = 1;
    settings_.traffic.items = 2;
    settings_.life = std::chrono::milliseconds{500};
    EXPECT_EQ(run("memory/ttl").conclusion, Conclusion::passed);
    for (const auto& breach : {lose_an_add, double_an_add}) {
        const TrialResult trial = run_broken("memory/ttl", breach, 10'000);
        EXPECT_GE(breaches_.load(), 3U);
        EXPECT_GT(trial.audit.wrong_answers, 0U);
        EXPECT_EQ(trial.conclusion, Conclusion::broken);
    }
}

TEST_F(StoreAuditTest, FindsEveryCounterThatNeverExpires) {
    const TrialResult trial = run_broken("memory/ttl", leave_a_key);
    EXPECT_GE(breaches_.load(), 40U);
    EXPECT_EQ(trial.audit.keys_without_ttl, breaches_.load());
    EXPECT_EQ(trial.conclusion, Conclusion::broken);
}

class LimiterAuditTest : public StoreAuditTest, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(, LimiterAuditTest,
                         testing::Values("memory/gcra", "memory/token_bucket",
                                         "memory/leaky_bucket", "memory/fixed_window",
                                         "memory/fixed_window_first", "memory/sliding_window",
                                         "memory/sliding_log"),
                         [](const auto& one) {
                             const std::string name = one.param;
                             return name.substr(name.find('/') + 1);
                         });

TEST_P(LimiterAuditTest, FindsEveryHitAdmittedAboveTheLimit) {
    // So long a period that all falls into one, and nothing is paid back.
    settings_.limit = Rate::parse("20/300 days").value();
    const TrialResult trial = run_broken(GetParam(), admit, 100);
    EXPECT_GE(breaches_.load(), 200U);
    EXPECT_EQ(trial.audit.over_admitted, breaches_.load());
    EXPECT_EQ(trial.audit.wrong_refusals, 0U);
    EXPECT_EQ(trial.audit.allowed_breaches, 0U);
    EXPECT_EQ(trial.conclusion, Conclusion::broken);
    EXPECT_THAT(trial.reasons, Contains(HasSubstr("over-admitted")));
}

TEST_P(LimiterAuditTest, FindsEveryHitDeniedWithoutACause) {
    settings_.limit = Rate::parse("100000/300 days").value();
    const TrialResult trial = run_broken(GetParam(), deny);
    EXPECT_GE(breaches_.load(), 40U);
    EXPECT_EQ(trial.audit.wrong_refusals, breaches_.load());
    EXPECT_EQ(trial.audit.over_admitted, 0U);
    EXPECT_EQ(trial.conclusion, Conclusion::broken);
}

TEST_P(LimiterAuditTest, AHitWithoutAnAnswerMayComeLongAfterItsCallerStoppedWaiting) {
    settings_.limit = Rate::parse("100/400 ms").value();
    settings_.workers = 1;
    settings_.max_operations = 600;
    settings_.traffic.items = 1;
    settings_.traffic.mix = {1, 0, 0};
    settings_.max_errors = 1;
    // A server that is stopped when the load begins: its caller stops waiting, and it runs what was
    // sent when it goes on, long after.
    constexpr std::size_t kWaiting = 101;
    std::size_t calls = 0;
    std::vector<Operation> waiting;
    const TrialResult trial = run(GetParam(), [&](Driver& sound, const Operation& operation) {
        if (calls++ >= kWaiting) return sound.apply(operation);
        waiting.push_back(operation);
        if (calls == kWaiting) {
            std::this_thread::sleep_for(std::chrono::milliseconds{1100});
            for (const Operation& late : waiting) (void)sound.apply(late);
        }
        return Answer{Outcome::unknown, ErrorCode::outcome_unknown};
    });
    EXPECT_GT(trial.audit.refused, 0U);
    EXPECT_EQ(trial.audit.unknown, 101U);
    EXPECT_EQ(trial.audit.breaches(), 0U) << testing::PrintToString(trial.audit.examples);
    EXPECT_EQ(trial.conclusion, Conclusion::passed) << testing::PrintToString(trial.reasons);
}

TEST_P(LimiterAuditTest, FindsHitsThatTheStoreForgotAndHitsThatItCountedTwice) {
    settings_.limit = Rate::parse("20/300 days").value();
    settings_.max_operations = 5000;
    const auto forget = [](const Operation&, Answer&, memory::Store& store) {
        return store.erase_if([](std::string_view, const memory::Entry&) { return true; }) > 0;
    };
    const TrialResult forgotten = run_broken(GetParam(), forget, 1000);
    EXPECT_GE(breaches_.load(), 3U);
    EXPECT_GT(forgotten.audit.over_admitted, 0U);
    EXPECT_EQ(forgotten.conclusion, Conclusion::broken);
    // Twice for every caller: half of what the limit allows is admitted.
    const TrialResult doubled = run(GetParam(), [](Driver& sound, const Operation& operation) {
        const Answer answer = sound.apply(operation);
        if (operation.kind != OperationKind::read) (void)sound.apply(operation);
        return answer;
    });
    EXPECT_GT(doubled.audit.wrong_refusals, 0U);
    EXPECT_EQ(doubled.conclusion, Conclusion::broken);
}

TEST_P(LimiterAuditTest, FindsEveryKeyThatNeverExpires) {
    settings_.limit = Rate::parse("20/s").value();
    const TrialResult trial = run_broken(GetParam(), leave_a_key);
    EXPECT_GE(breaches_.load(), 40U);
    EXPECT_EQ(trial.audit.keys_without_ttl, breaches_.load());
    EXPECT_EQ(trial.conclusion, Conclusion::broken);
}

TEST_F(StoreAuditTest, FindsEverySetThatAnUpsertMade) {
    std::mutex mutex;
    std::set<std::int64_t> made;
    const TrialResult trial = run_broken(
        "memory/script",
        [&](const Operation& operation, Answer&, memory::Store& store) {
            // Of four, the fourth is never made.
            if (operation.item % 4 != 0) return false;
            const auto put = [](memory::Entry& entry, bool fresh) {
                entry.as<SortedSet>(fresh)->put("user:1", 1);
                return Result<void>{};
            };
            EXPECT_TRUE(store.upsert("item:" + std::to_string(operation.item), put));
            const std::lock_guard lock(mutex);
            made.insert(operation.item);
            return true;
        },
        10);
    EXPECT_GE(made.size(), 5U);
    EXPECT_EQ(trial.audit.rogue_sets, made.size());
    EXPECT_EQ(trial.conclusion, Conclusion::broken);
    EXPECT_THAT(trial.audit.examples, Contains(HasSubstr("never made")));
}

TEST_F(StoreAuditTest, FindsEveryWriteAnsweredAsAppliedWhereNoSetIs) {
    const TrialResult trial = run_broken(
        "memory/script",
        [](const Operation& operation, Answer& answer, memory::Store&) {
            if (operation.item % 4 != 0) return false;
            answer.refused = false;
            answer.returned = static_cast<std::int64_t>(Upsert::applied);
            return true;
        },
        10);
    EXPECT_GE(breaches_.load(), 100U);
    EXPECT_EQ(trial.audit.late_writes, breaches_.load());
    EXPECT_EQ(trial.audit.rogue_sets, 0U);
    EXPECT_EQ(trial.conclusion, Conclusion::broken);
}

TEST_F(StoreAuditTest, FindsEveryWrongScoreAndEveryMemberThatIsNotThere) {
    std::atomic<std::uint64_t> dropped{0};
    const TrialResult trial = run_broken(
        "memory/script",
        [&](const Operation& operation, Answer&, memory::Store& store) {
            if (operation.item % 4 < 2) return false;
            const bool drop = operation.item % 4 == 2;
            const std::string member = "user:" + std::to_string(operation.user);
            const auto change = [&](memory::Entry* entry) {
                auto* const set = entry->as<SortedSet>(false);
                if (drop) {
                    set->erase(member);
                } else {
                    set->put(member, operation.value + 1);
                }
                return Result<void>{};
            };
            EXPECT_TRUE(store.modify("item:" + std::to_string(operation.item), change));
            if (drop) ++dropped;
            return !drop;
        },
        100);
    EXPECT_GE(breaches_.load(), 50U);
    EXPECT_GE(dropped.load(), 50U);
    EXPECT_EQ(trial.audit.wrong_scores, breaches_.load());
    EXPECT_EQ(trial.audit.lost(), dropped.load());
    EXPECT_EQ(trial.conclusion, Conclusion::broken);
}

TEST_F(StoreAuditTest, FindsEveryUpsertRefusedWhileItsSetLived) {
    const TrialResult trial = run_broken(
        "memory/script",
        [](const Operation& operation, Answer& answer, memory::Store&) {
            if (operation.item % 4 < 2) return false;
            answer.refused = true;
            answer.returned = static_cast<std::int64_t>(Upsert::absent);
            return true;
        },
        1000);
    EXPECT_GE(breaches_.load(), 10U);
    EXPECT_EQ(trial.audit.wrong_refusals, breaches_.load());
    EXPECT_EQ(trial.conclusion, Conclusion::broken);
}

TEST_F(StoreAuditTest, FindsASetThatLostItsTtl) {
    std::mutex mutex;
    std::set<std::int64_t> changed;
    const TrialResult trial = run_broken(
        "memory/ttl_gate",
        [&](const Operation& operation, Answer&, memory::Store& store) {
            if (operation.item % 4 < 2) return false;
            const std::lock_guard lock(mutex);
            const auto change = [&](memory::Entry* entry) {
                entry->expires_at.reset();
                return Result<void>{};
            };
            EXPECT_TRUE(store.modify("item:" + std::to_string(operation.item), change));
            return changed.insert(operation.item).second;
        },
        1000);
    EXPECT_GE(changed.size(), 5U);
    EXPECT_EQ(trial.audit.keys_without_ttl, changed.size());
    EXPECT_EQ(trial.conclusion, Conclusion::broken);
}

TEST_F(StoreAuditTest, AGateThatACallOutlivedMayLetItMakeASet) {
    settings_.gate = std::chrono::milliseconds{1};
    std::set<std::int64_t> made;
    std::mutex mutex;
    // Of four sets the fourth is never made; a call on it stalls, or has no answer, and makes it.
    const auto run_with = [&](const auto& spoil) {
        made.clear();
        return run_broken(
            "memory/ttl_gate",
            [&](const Operation& operation, Answer& answer, memory::Store& store) {
                if (operation.item % 4 != 0) return false;
                const std::lock_guard lock(mutex);
                if (!made.insert(operation.item).second) return false;
                const auto put = [](memory::Entry& entry, bool fresh) {
                    entry.as<SortedSet>(fresh)->put("user:1", 1);
                    return Result<void>{};
                };
                EXPECT_TRUE(store.upsert("item:" + std::to_string(operation.item), put));
                spoil(answer);
                return true;
            },
            10);
    };
    const TrialResult stalled =
        run_with([](Answer&) { std::this_thread::sleep_for(std::chrono::milliseconds{20}); });
    EXPECT_GE(made.size(), 5U);
    EXPECT_EQ(stalled.audit.rogue_sets, made.size());
    EXPECT_EQ(stalled.conclusion, Conclusion::passed) << testing::PrintToString(stalled.reasons);
    const TrialResult unanswered = run_with([](Answer& answer) {
        answer = {Outcome::unknown, ErrorCode::outcome_unknown};
    });
    EXPECT_GE(unanswered.audit.rogue_sets, 5U);
    EXPECT_EQ(unanswered.audit.breaches(), unanswered.audit.allowed_breaches);
    // With a gate that no call outlives it is broken.
    settings_.gate = std::chrono::hours{1};
    EXPECT_EQ(run_with([](Answer&) {}).conclusion, Conclusion::broken);
}

TEST_F(StoreAuditTest, UpsertsWithRemovesAndOverwritesPass) {
    settings_.traffic.users = 20;
    settings_.traffic.mix = {70, 20, 10};
    const TrialResult trial = run("memory/script");
    EXPECT_EQ(trial.conclusion, Conclusion::passed) << testing::PrintToString(trial.reasons);
    EXPECT_GT(trial.audit.refused, 1000U);
}

}  // namespace
}  // namespace hotcount::loadtest
