#include <cmath>
#include <hotcount/counter.hpp>
#include <hotcount/live_sets.hpp>

#include "support/callers.hpp"
#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

using namespace std::chrono_literals;
using testing::failed_with;
using testing::in_threads;
using testing::memory_store;
using testing::succeeded;
using Members = std::vector<ScoredMember>;

// Jumps ahead after some readings: a caller that stalls between two steps.
class StallingClock final : public Clock {
  public:
    SteadyTime steady_now() const override {
        const SteadyTime now = time_;
        if (looks_left_ > 0 && --looks_left_ == 0) time_ += 1h;
        return now;
    }
    WallTime wall_now() const override { return {}; }
    void stall_after(int looks) { looks_left_ = looks; }

  private:
    mutable SteadyTime time_{1000h};
    mutable int looks_left_{0};
};

class MemoryLiveSets : public ::testing::Test {
  protected:
    std::shared_ptr<LiveSets> make(LiveSetsOptions options = {}) {
        return *LiveSets::make(store_, std::move(options));
    }
    std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
    std::shared_ptr<memory::Store> store_ = memory_store(clock_);
};

TEST_F(MemoryLiveSets, AnUpsertAppliesUntilTheInstantOfExpiry) {
    const auto sets = make();
    ASSERT_TRUE(succeeded(sets->create("k", 10s, Members{{"a", 1}})));
    clock_->advance(10s - 1ns);
    EXPECT_EQ(*sets->upsert("k", "b", 2), Upsert::applied);
    clock_->advance(1ns);
    EXPECT_EQ(*sets->upsert("k", "c", 3), Upsert::absent);
    EXPECT_TRUE(sets->top("k", 10)->empty());
}

TEST_F(MemoryLiveSets, TheGateIsExclusive) {
    LiveSetsOptions options;
    options.gate = 5s;
    const auto sets = make(options);
    ASSERT_TRUE(succeeded(sets->create("k", 10s, Members{{"a", 1}})));
    clock_->advance(5s - 1ns);
    EXPECT_EQ(*sets->upsert("k", "b", 2), Upsert::applied);
    clock_->advance(1ns);
    EXPECT_EQ(*sets->upsert("k", "b", 3), Upsert::expiring);
    EXPECT_EQ(sets->top("k", 1)->front(), (ScoredMember{"b", 2}));
}

TEST_F(MemoryLiveSets, VersionsOutliveTheirSetByAnHour) {
    const auto sets = make();
    ASSERT_TRUE(succeeded(sets->create("k", 10s, Members{{"a", 1}})));
    EXPECT_EQ(*sets->upsert("k", "a", 5, 7), Upsert::applied);
    clock_->advance(1h + 9s);  // The set's 10 s and all but one second of the hour.
    ASSERT_TRUE(succeeded(sets->create("k", 10s, Members{{"a", 1}})));
    EXPECT_EQ(*sets->upsert("k", "a", 6, 7), Upsert::stale);
    clock_->advance(1h + 9s);  // create() gave the versions a new TTL with the set's.
    ASSERT_TRUE(succeeded(sets->create("k", 10s, Members{{"a", 1}})));
    EXPECT_EQ(*sets->upsert("k", "a", 6, 7), Upsert::stale);
    clock_->advance(1h + 10s);
    ASSERT_TRUE(succeeded(sets->create("k", 10s, Members{{"a", 1}})));
    EXPECT_EQ(*sets->upsert("k", "a", 6, 7), Upsert::applied);
}

TEST_F(MemoryLiveSets, AFullStoreRefusesNewSetsButLosesNothing) {
    store_ = memory_store(clock_, 2);
    const auto sets = make();
    ASSERT_TRUE(succeeded(sets->create("k", 10s, Members{{"a", 1}})));
    EXPECT_EQ(*sets->upsert("k", "a", 5, 7), Upsert::applied);
    EXPECT_TRUE(failed_with(sets->create("other", 10s, Members{{"a", 1}}), ErrorCode::capacity));
    EXPECT_EQ(*sets->upsert("other", "a", 5, 7), Upsert::absent);
    EXPECT_EQ(*sets->upsert("k", "a", 6), Upsert::applied);
    EXPECT_EQ(*sets->upsert("k", "a", 7, 7), Upsert::stale);
    EXPECT_EQ(store_->size(), 2U) << "the set and its companion";
}

TEST_F(MemoryLiveSets, AnUpsertThatIsAbsentMakesNoCompanion) {
    const auto sets = make();
    EXPECT_EQ(*sets->upsert("absent", "a", 5, 7), Upsert::absent);
    EXPECT_EQ(*sets->remove("absent", "a", 7), Upsert::absent);
    EXPECT_EQ(store_->size(), 0U);
}

TEST_F(MemoryLiveSets, WithoutItsLastMemberASetLivesToItsEnd) {
    LiveSetsOptions options;
    options.gate = 1s;
    const auto sets = make(options);
    ASSERT_TRUE(succeeded(sets->create("k", 10s, Members{{"a", 1}})));
    EXPECT_EQ(*sets->remove("k", "a"), Upsert::applied);
    EXPECT_TRUE(sets->top("k", 1)->empty());
    EXPECT_EQ(sets->sweep("*")->scanned, 0);
    clock_->advance(9s - 1ns);
    EXPECT_EQ(*sets->upsert("k", "b", 1), Upsert::applied);
    EXPECT_EQ(*sets->remove("k", "b", 1), Upsert::applied);
    clock_->advance(1ns);
    EXPECT_EQ(*sets->upsert("k", "c", 1), Upsert::expiring);
    clock_->advance(1s);
    EXPECT_EQ(*sets->upsert("k", "c", 1), Upsert::absent);
}

TEST_F(MemoryLiveSets, VersionsFromManyThreadsEndWithTheHighest) {
    const auto sets = make();
    ASSERT_TRUE(succeeded(sets->create("k", 10s, Members{{"seed", 0}})));
    in_threads(8, [&](int t) {
        for (int i = 0; i < 500; ++i) {
            const std::int64_t version = (i * 8 + t) * 7919 % 4001;
            ASSERT_TRUE(succeeded(sets->upsert("k", "a", static_cast<double>(version), version)));
        }
    });
    EXPECT_EQ(sets->top("k", 1)->front(), (ScoredMember{"a", 4000}));
}

TEST_F(MemoryLiveSets, CallsThatDoNotWaitAnswerAsThoseThatDo) {
    const auto sets = make();
    const std::vector<ScoredMember> members{{"a", 1}};
    sets->create_async("k", 60s, members, [](const Result<void>& done) { EXPECT_TRUE(done.ok()); });
    std::vector<Result<Upsert>> answers;
    const auto keep = [&](Result<Upsert> answer) { answers.push_back(std::move(answer)); };
    sets->upsert_async("k", "b", 2, {}, keep);
    sets->upsert_async("never", "b", 2, {}, keep);
    sets->upsert_async("k", "", 2, {}, keep);
    sets->upsert_async("k", "b", std::nan(""), {}, keep);
    sets->remove_async("k", "a", 5, keep);
    sets->upsert_async("k", "a", 1, 5, keep);
    ASSERT_EQ(answers.size(), 6U);
    EXPECT_EQ(*answers[0], Upsert::applied);
    EXPECT_EQ(*answers[1], Upsert::absent);
    EXPECT_TRUE(failed_with(answers[2], ErrorCode::config));
    EXPECT_TRUE(failed_with(answers[3], ErrorCode::config));
    EXPECT_EQ(*answers[4], Upsert::applied);
    EXPECT_EQ(*answers[5], Upsert::stale);

    int called = 0;
    const std::vector<UpsertItem> items{{"k", "c", 3}, {"", "c", 3}, {"never", "c", 3}};
    sets->upsert_many_async(items, 2, [&](const Result<std::vector<Result<Upsert>>>& all) {
        ++called;
        ASSERT_EQ(all->size(), 3U);
        EXPECT_EQ(*(*all)[0], Upsert::applied);
        EXPECT_TRUE(failed_with((*all)[1], ErrorCode::config));
        EXPECT_EQ(*(*all)[2], Upsert::absent);
    });
    sets->upsert_many_async(items, 0, [&](const Result<std::vector<Result<Upsert>>>& all) {
        ++called;
        EXPECT_TRUE(failed_with(all, ErrorCode::config));
    });
    sets->top_async("k", 1, [&](const Result<Members>& top) {
        ++called;
        EXPECT_EQ(*top, (Members{{"c", 3}}));
    });
    sets->range_async("k", 0, -1, [&](const Result<Members>& all) {
        ++called;
        EXPECT_EQ(*all, (Members{{"c", 3}, {"b", 2}}));
    });
    sets->rank_async("k", "b", [&](const Result<std::optional<std::int64_t>>& rank) {
        ++called;
        EXPECT_EQ(**rank, 1);
    });
    sets->sweep_async("*", true, [&](const Result<SweepReport>& report) {
        ++called;
        EXPECT_EQ(report->scanned, 1);
    });
    EXPECT_EQ(called, 6);
}

// -- the holes, forced: the caller stalls for an hour between its two steps ----

class StalledUpsert : public ::testing::TestWithParam<UpsertMethod> {};

TEST_P(StalledUpsert, RevivesADeadSetUnlessItIsOneStep) {
    const auto clock = std::make_shared<StallingClock>();
    const auto store = memory_store(clock);
    LiveSetsOptions options;
    options.method = GetParam();
    const auto sets = *LiveSets::make(store, options);
    ASSERT_TRUE(succeeded(sets->create("k", 60s, Members{{"a", 1}, {"b", 2}})));
    // The store looks at the clock once to find the set, and once more for the gate.
    const bool one_step = GetParam() == UpsertMethod::script;
    clock->stall_after(2);
    EXPECT_EQ(*sets->upsert("k", "late", 3), Upsert::applied);
    // What was added in one step dies with the set.
    const auto left = *sets->sweep("*");
    EXPECT_EQ(left.found, one_step ? 0 : 1);
    EXPECT_EQ(left.deleted, left.found);
    EXPECT_TRUE(sets->top("k", 1)->empty());
}

INSTANTIATE_TEST_SUITE_P(Methods, StalledUpsert,
                         ::testing::Values(UpsertMethod::script, UpsertMethod::ttl_gate),
                         [](const auto& method) { return std::string{to_string(method.param)}; });

}  // namespace
}  // namespace hotcount
