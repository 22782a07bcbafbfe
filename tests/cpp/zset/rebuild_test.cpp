#include <sys/wait.h>
#include <unistd.h>

#include <hotcount/live_sets.hpp>
#include <limits>
#include <thread>

#include "support/callers.hpp"
#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

using namespace std::chrono_literals;
using testing::failed_with;
using testing::memory_store;
using testing::succeeded;
using Members = std::vector<ScoredMember>;

class MemoryRebuild : public ::testing::Test {
  protected:
    std::shared_ptr<Rebuild> begun(Duration ttl = 60s, Duration lease = 10s) {
        auto build = *sets_->rebuild("k", ttl, lease);
        EXPECT_TRUE(succeeded(build->begin()));
        return build;
    }
    Members all() { return *sets_->range("k", 0, -1); }

    std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
    std::shared_ptr<memory::Store> store_ = memory_store(clock_);
    std::shared_ptr<LiveSets> sets_ = *LiveSets::make(store_);
};

TEST_F(MemoryRebuild, PublishesAllMembersAtOnceWithTheTtl) {
    ASSERT_TRUE(succeeded(sets_->create("k", 60s, Members{{"old", 1}})));
    const auto build = begun();
    ASSERT_TRUE(succeeded(build->add("a", 1)));
    const std::vector<RebuildMember> more{{"b", 2, {}}, {"c", 3, 7}};
    ASSERT_TRUE(succeeded(build->add_many(more)));
    EXPECT_EQ(all(), (Members{{"old", 1}}));
    ASSERT_TRUE(succeeded(build->publish()));
    EXPECT_EQ(all(), (Members{{"c", 3}, {"b", 2}, {"a", 1}}));
    clock_->advance(60s - 1ns);
    EXPECT_EQ(*sets_->upsert("k", "c", 4, 7), Upsert::stale);
    clock_->advance(1ns);
    EXPECT_EQ(*sets_->upsert("k", "c", 4), Upsert::absent);
}

TEST_F(MemoryRebuild, ALeaseEndsAtItsInstantAndNotBefore) {
    const auto build = begun(60s, 10s);
    ASSERT_TRUE(succeeded(build->add("a", 1)));
    ASSERT_TRUE(succeeded(build->renew()));
    clock_->advance(10s - 1ns);
    const auto second = *sets_->rebuild("k", 60s);
    EXPECT_TRUE(failed_with(second->begin(), ErrorCode::lease_lost, "another builder"));
    ASSERT_TRUE(succeeded(build->renew()));
    clock_->advance(10s);
    EXPECT_TRUE(failed_with(build->publish(), ErrorCode::lease_lost, "k"));
    ASSERT_TRUE(succeeded(second->begin()));
    ASSERT_TRUE(succeeded(second->publish()));
    EXPECT_TRUE(all().empty());
}

TEST_F(MemoryRebuild, CallsOutOfTheirOrderAreConfigErrors) {
    const auto build = *sets_->rebuild("k", 60s);
    EXPECT_TRUE(failed_with(build->add("a", 1), ErrorCode::config, "begun"));
    EXPECT_TRUE(failed_with(build->publish(), ErrorCode::config, "begun"));
    EXPECT_TRUE(succeeded(build->abandon()));
    ASSERT_TRUE(succeeded(build->begin()));
    EXPECT_TRUE(failed_with(build->begin(), ErrorCode::config, "begun already"));
    EXPECT_TRUE(failed_with(build->add("", 1), ErrorCode::config, "member"));
    EXPECT_TRUE(failed_with(build->add("a", std::numeric_limits<double>::quiet_NaN()),
                            ErrorCode::config, "score"));
    ASSERT_TRUE(succeeded(build->publish()));
    EXPECT_TRUE(succeeded(build->finish()));
    EXPECT_TRUE(failed_with(build->publish(), ErrorCode::config, "published"));
}

TEST_F(MemoryRebuild, TheBoundsOfTtlLeaseKeyAndMethodAreConfigErrors) {
    EXPECT_TRUE(failed_with(sets_->rebuild("k", 0s), ErrorCode::config, "ttl"));
    EXPECT_TRUE(failed_with(sets_->rebuild("k", 1s, 99ms), ErrorCode::config, "lease"));
    EXPECT_TRUE(failed_with(sets_->rebuild("k", 1s, 3601s), ErrorCode::config, "lease"));
    EXPECT_TRUE(failed_with(sets_->rebuild("a}b{", 1s), ErrorCode::config, "braces"));
    LiveSetsOptions options;
    options.method = UpsertMethod::ttl_gate;
    const auto gated = *LiveSets::make(store_, options);
    EXPECT_TRUE(failed_with(gated->rebuild("k", 1s), ErrorCode::config, "script"));
}

TEST_F(MemoryRebuild, CallsWithCompletionsEndBeforeTheyReturnInMemory) {
    const auto build = *sets_->rebuild("k", 60s);
    std::vector<bool> ends;
    const auto note = [&](const Result<void>& outcome) { ends.push_back(outcome.ok()); };
    build->begin_async(note);
    build->add_async("a", 1, {}, note);
    const std::vector<RebuildMember> more{{"b", 2, {}}};
    build->add_many_async(more, note);
    build->renew_async(note);
    build->publish_async(note);
    build->finish_async(note);
    build->abandon_async(note);
    build->publish_async(note);
    EXPECT_EQ(ends, (std::vector<bool>{true, true, true, true, true, true, true, false}));
    EXPECT_EQ(all(), (Members{{"b", 2}, {"a", 1}}));
}

TEST_F(MemoryRebuild, ThreadsUpsertBesideRebuildsAndLoseNothing) {
    ASSERT_TRUE(succeeded(sets_->create("k", 60s, Members{{"first", 0}})));
    constexpr int kThreads = 4;
    constexpr int kRounds = 2000;
    std::vector<std::thread> writers;
    for (int thread = 0; thread < kThreads; ++thread) {
        writers.emplace_back([&, name = std::to_string(thread)] {
            for (int round = 1; round <= kRounds; ++round) {
                EXPECT_EQ(*sets_->upsert("k", name, round, round), Upsert::applied);
                EXPECT_EQ(*sets_->upsert("k", "plain " + name, round), Upsert::applied);
            }
        });
    }
    for (int round = 0; round < 200; ++round) {
        const auto build = begun();
        // What the source has of now: an upsert that is later is in both sets.
        std::vector<ScoredMember> source = all();
        for (const ScoredMember& each : source) {
            ASSERT_TRUE(succeeded(build->add(each.member, each.score)));
        }
        ASSERT_TRUE(succeeded(build->publish()));
    }
    for (std::thread& writer : writers) writer.join();
    for (int thread = 0; thread < kThreads; ++thread) {
        const std::string name = std::to_string(thread);
        EXPECT_EQ(*sets_->upsert("k", name, 0, kRounds), Upsert::stale);
        for (const std::string& member : {name, "plain " + name}) {
            bool found = false;
            for (const ScoredMember& each : all()) {
                found = found || each == ScoredMember{member, kRounds};
            }
            EXPECT_TRUE(found) << member;
        }
    }
}

TEST_F(MemoryRebuild, AForkedChildIsRefused) {
    const auto build = begun();
    const pid_t child = fork();
    if (child == 0) {
        const bool refused = failed_with(build->add("a", 1), ErrorCode::lease_lost, "process") &&
                             failed_with(build->publish(), ErrorCode::lease_lost, "process");
        _exit(refused ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(succeeded(build->publish()));
}

}  // namespace
}  // namespace hotcount
