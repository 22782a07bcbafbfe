#include <gtest/gtest.h>

#include <future>
#include <hotcount/detail/base/completion.hpp>
#include <hotcount/detail/base/worker_pool.hpp>
#include <set>
#include <thread>

#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

using namespace std::chrono_literals;
using hotcount::testing::succeeded;

TEST(WorkerPoolTest, OneThreadDoesThingsInOrder) {
    WorkerPool pool{1};
    ASSERT_TRUE(succeeded(pool.start()));
    std::vector<int> seen;
    std::promise<void> last;
    for (int i = 0; i < 100; ++i) pool.run([&seen, i] { seen.push_back(i); });
    pool.run([&] { last.set_value(); });
    last.get_future().wait();
    for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], i);
}

TEST(WorkerPoolTest, NoMoreThreadsThanAllowedAndAsManyAsAreNeeded) {
    WorkerPool pool{3};
    ASSERT_TRUE(succeeded(pool.start()));
    std::mutex mutex;
    std::set<std::thread::id> threads;
    std::promise<void> go;
    const std::shared_future<void> gate = go.get_future().share();
    std::atomic<int> inside{0};
    std::atomic<int> done{0};
    for (int i = 0; i < 9; ++i) {
        pool.run([&] {
            {
                const std::lock_guard lock(mutex);
                threads.insert(std::this_thread::get_id());
            }
            ++inside;
            gate.wait();
            ++done;
        });
    }
    while (inside < 3) std::this_thread::yield();
    go.set_value();
    while (done < 9) std::this_thread::yield();
    EXPECT_EQ(threads.size(), 3U);
}

TEST(WorkerPoolTest, WhatIsForLaterIsDoneInTimeBesideOneThatIsBusy) {
    WorkerPool pool{2};
    ASSERT_TRUE(succeeded(pool.start()));
    std::promise<void> go;
    std::promise<SteadyTime> came;
    pool.run([gate = go.get_future().share()] { gate.wait(); });
    const SteadyTime when = std::chrono::steady_clock::now() + 30ms;
    pool.run_at(when + 10min, [] { FAIL() << "long before its time"; });
    pool.run_at(when, [&] { came.set_value(std::chrono::steady_clock::now()); });
    auto answer = came.get_future();
    ASSERT_EQ(answer.wait_for(10s), std::future_status::ready);
    EXPECT_GE(answer.get(), when);
    go.set_value();
}

TEST(WorkerPoolTest, ATaskMayBeWhatEndsThePool) {
    auto pool = std::make_shared<WorkerPool>(1);
    ASSERT_TRUE(succeeded(pool->start()));
    std::promise<bool> own;
    WorkerPool& kept = *pool;
    kept.run([pool = std::exchange(pool, nullptr), &own]() mutable {
        const bool is_own = pool->is_own_thread();
        pool.reset();
        own.set_value(is_own);
    });
    EXPECT_TRUE(own.get_future().get());
}

TEST(CompletionBatchTest, WhatIsForAfterwardsWaitsForTheOutermost) {
    std::string told;
    {
        const CompletionBatch outer;
        {
            const CompletionBatch inner;
            after_completions([&] { told += "b"; });
        }
        told += "a";
    }
    after_completions([&] { told += "c"; });
    EXPECT_EQ(told, "abc");
}

}  // namespace
}  // namespace hotcount
