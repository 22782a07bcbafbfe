#include <atomic>
#include <hotcount/counter.hpp>
#include <hotcount/op_id.hpp>
#include <hotcount/redis.hpp>
#include <numeric>
#include <set>

#include "counter/op_ledger.hpp"
#include "support/callers.hpp"
#include "support/held_channel.hpp"
#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

using namespace std::chrono_literals;
using testing::failed_with;
using testing::in_threads;
using testing::memory_store;
using testing::succeeded;

class MemoryCounter : public ::testing::Test {
  protected:
    std::shared_ptr<Counter> make(CounterOptions options = {}) {
        return *Counter::make(store_, std::move(options));
    }
    std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
    std::shared_ptr<memory::Store> store_ = memory_store(clock_);
};

TEST_F(MemoryCounter, EveryCallerGetsItsOwnValue) {
    const auto counter = make();
    std::vector<std::vector<std::int64_t>> seen(16);
    in_threads(seen.size(), [&](std::size_t t) {
        for (int i = 0; i < 2000; ++i) seen[t].push_back(*counter->add("hot"));
    });
    std::set<std::int64_t> distinct;
    for (const auto& mine : seen) {
        EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
        distinct.insert(mine.begin(), mine.end());
    }
    EXPECT_EQ(distinct.size(), 32'000U);
    EXPECT_EQ(*distinct.rbegin(), 32'000);
    EXPECT_EQ(*counter->get("hot"), 32'000);
}

TEST_F(MemoryCounter, AKeyFoundWithoutAnExpiryIsHealed) {
    ASSERT_TRUE(succeeded(make()->add("k")));
    EXPECT_EQ(*make()->ttl("k"), std::nullopt);
    CounterOptions options;
    options.ttl = 60s;
    ASSERT_TRUE(succeeded(make(options)->add("k")));
    EXPECT_EQ(*make()->ttl("k"), 60s);
}

TEST_F(MemoryCounter, TryAddNeverSellsMoreThanThereIs) {
    const auto counter = make();
    ASSERT_TRUE(succeeded(counter->add("stock", 100)));
    std::atomic<int> sold{0};
    in_threads(8, [&](int) {
        for (int i = 0; i < 50; ++i) {
            if (counter->try_add("stock", -1, {.min = 0})->applied) ++sold;
        }
    });
    EXPECT_EQ(sold, 100);
    EXPECT_EQ(*counter->get("stock"), 0);
    EXPECT_FALSE(counter->try_add("absent", -1, {.min = 0})->applied);
    EXPECT_EQ(store_->size(), 1U) << "a refusal makes no key";
    EXPECT_TRUE(failed_with(counter->try_add("k", 1, {.min = 2, .max = 1}), ErrorCode::config));
}

TEST_F(MemoryCounter, WhatAnOpIdCountedOutlivesTheCounter) {
    CounterOptions options;
    options.ttl = 10s;
    options.op_keep = 60s;
    const auto counter = make(options);
    EXPECT_EQ(*counter->add_once("k", 5, "a"), 5);
    EXPECT_EQ(*counter->reset("k"), 5);
    EXPECT_EQ(*counter->add_once("k", 5, "a"), 5);
    EXPECT_EQ(*counter->get("k"), 0);
    EXPECT_EQ(*counter->add_once("k", 7, "b"), 7);
    clock_->advance(10s);
    EXPECT_EQ(*counter->add_once("k", 7, "b"), 7);
    EXPECT_EQ(*counter->get("k"), 0) << "a retry makes no key";
    EXPECT_EQ(store_->size(), 1U) << "what is remembered";
    clock_->advance(50s);
    EXPECT_EQ(*counter->add_once("k", 5, "a"), 5) << "forgotten, so counted";
    EXPECT_EQ(*counter->get("k"), 5);
}

TEST_F(MemoryCounter, ACounterThatHasTheLedgersNameIsLeftAlone) {
    memory::StoreOptions store_options;
    store_options.shards = 1;
    store_ = *memory::Store::make(store_options);
    CounterOptions other;
    other.prefix = "{count";
    ASSERT_EQ(*make(other)->add("k}:ops", 7), 7);
    EXPECT_TRUE(failed_with(make()->add_once("k", 1, "a"), ErrorCode::wrong_type, "{count:k}:ops"));
    EXPECT_EQ(*make(other)->get("k}:ops"), 7);
    EXPECT_EQ(*make()->get("k"), 0) << "nothing was added";
}

TEST_F(MemoryCounter, AnOpIdOfATimeIsRefusedOnceItCannotBeRememberedAnyMore) {
    CounterOptions options;
    options.op_keep = 60s;
    const auto counter = make(options);
    const std::string id = new_op_id(clock_->wall_now());
    EXPECT_EQ(*counter->add_once("k", 5, id), 5);
    clock_->advance(60s);
    EXPECT_TRUE(failed_with(counter->add_once("k", 5, id), ErrorCode::config, "added nothing"));
    EXPECT_TRUE(failed_with(counter->add_once("k", 5, id), ErrorCode::config, id));
    const std::string ahead = new_op_id(clock_->wall_now() + 61s);
    EXPECT_TRUE(failed_with(counter->add_once("k", 5, ahead), ErrorCode::config, "ahead"));
    const std::string soon = new_op_id(clock_->wall_now() + 30s);
    EXPECT_EQ(*counter->add_once("k", 5, soon), 10);
    clock_->advance(89s);
    EXPECT_EQ(*counter->add_once("k", 5, soon), 10) << "as long as it can be taken";
    clock_->advance(1s);
    EXPECT_TRUE(failed_with(counter->add_once("k", 5, soon), ErrorCode::config, "op_keep"));
    EXPECT_EQ(*counter->get("k"), 10);
}

TEST_F(MemoryCounter, AFullStoreStillKnowsWhatItCounted) {
    memory::StoreOptions options;
    options.max_keys = 2;
    const auto counter = *Counter::make(*memory::Store::make(options));
    EXPECT_EQ(*counter->add_once("k", 5, "a"), 5);
    EXPECT_TRUE(failed_with(counter->add_once("other", 5, "a"), ErrorCode::capacity));
    EXPECT_EQ(*counter->reset("k"), 5);
    EXPECT_TRUE(failed_with(counter->add_once("other", 5, "a"), ErrorCode::capacity))
        << "it takes two keys";
    EXPECT_EQ(*counter->add("more"), 1) << "nothing was left behind";
    EXPECT_EQ(*counter->add_once("k", 5, "a"), 5);
    EXPECT_TRUE(failed_with(counter->add_once("k", 5, "b"), ErrorCode::capacity));
}

TEST_F(MemoryCounter, ABatchOfBadElementsAloneHasAnErrorForEach) {
    const auto counter = make();
    const std::string_view keys[] = {"", ""};
    const std::int64_t amounts[] = {1, 1};
    for (const auto& values : {counter->add_many(keys, amounts), counter->get_many(keys)}) {
        EXPECT_EQ(values.values, (std::vector<std::int64_t>{0, 0}));
        ASSERT_EQ(values.errors.size(), 2U);
        EXPECT_EQ(values.errors.at(1).code, ErrorCode::config);
    }
}

TEST_F(MemoryCounter, OptionsThatMakeNoSenseAreRefused) {
    CounterOptions no_life;
    no_life.ttl = 0s;
    EXPECT_TRUE(failed_with(Counter::make(store_, no_life), ErrorCode::config, "ttl"));
    CounterOptions no_memory;
    no_memory.op_keep = 0s;
    EXPECT_TRUE(failed_with(Counter::make(store_, no_memory), ErrorCode::config, "op_keep"));
}

// In a cluster the replies to one batch may come in several threads at once.
TEST(RedisCounter, PartsOfABatchMayEndInTwoThreadsAtOnce) {
    constexpr std::size_t kPairs = 200;
    constexpr std::size_t kKeys = 1000;  // Of a part.
    const auto client = *redis::Client::make({});
    const auto counter = *Counter::make(client);
    const std::vector<std::string_view> keys(2 * kPairs * kKeys, "k");
    testing::HeldChannel channel;
    std::atomic<int> ended{0};
    std::int64_t sum = 0;
    counter->get_many_async(keys,
                            [&](const Result<BatchResult<std::int64_t>>& batch) {
                                ++ended;
                                sum = std::accumulate(batch->values.begin(), batch->values.end(),
                                                      std::int64_t{0});
                            },
                            {&channel});
    const auto parts = channel.take();
    ASSERT_EQ(parts.size(), 2 * kPairs);
    const redis::Reply ones{redis::ReplyArray(kKeys, redis::Reply{std::int64_t{1}})};
    std::atomic<std::size_t> begun{0};
    in_threads(std::size_t{2}, [&](std::size_t thread) {
        for (std::size_t pair = 0; pair < kPairs; ++pair) {
            ++begun;
            while (begun < 2 * (pair + 1)) {  // Spins: both threads run now.
            }
            parts[2 * pair + thread](ones);
        }
    });
    EXPECT_EQ(ended, 1);
    EXPECT_EQ(sum, static_cast<std::int64_t>(keys.size()));
}

TEST(OpLedger, ForgetsAFewOfTheOldWithEachThatComes) {
    constexpr int kOld = 10'000;
    OpLedger ledger;
    const SteadyTime start{};
    for (int i = 0; i < kOld; ++i) ledger.remember(std::to_string(i), i, start, start + 1s);
    std::size_t held = ledger.size();
    EXPECT_EQ(held, static_cast<std::size_t>(kOld));
    for (int i = 0; i < kOld; ++i) {
        ledger.remember("new" + std::to_string(i), i, start + 2s, start + 1000s);
        ASSERT_GE(ledger.size() + 1, held) << "more than two went in one call";
        held = ledger.size();
    }
    for (int i = 0; i < kOld; ++i) {
        ledger.remember("newer" + std::to_string(i), i, start + 2s, start + 1000s);
    }
    EXPECT_EQ(ledger.size(), 2U * kOld) << "the old are gone";
    EXPECT_EQ(ledger.find("new7", start + 3s), 7);
    EXPECT_EQ(ledger.find("7", start + 3s), std::nullopt);
}

}  // namespace
}  // namespace hotcount
