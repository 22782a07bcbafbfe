#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

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

bool blocks_no_signal() {
    sigset_t mask;
    sigemptyset(&mask);
    pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    for (int number = 1; number < SIGRTMAX; ++number) {
        if (sigismember(&mask, number) == 1) return false;
    }
    return true;
}

// While one lives no thread can be started: its stack would be larger than the address space. A
// limit (RLIMIT_NPROC, RLIMIT_AS) refuses in the same call, but neither root nor a sanitizer's
// shadow lives with one.
class NoMoreThreads {
  public:
    NoMoreThreads() {
        pthread_getattr_default_np(&before_);
        pthread_attr_t huge;
        pthread_attr_init(&huge);
        pthread_attr_setstacksize(&huge, std::size_t{1} << 47);
        pthread_setattr_default_np(&huge);
        pthread_attr_destroy(&huge);
    }
    ~NoMoreThreads() {
        pthread_setattr_default_np(&before_);
        pthread_attr_destroy(&before_);
    }
    NoMoreThreads(const NoMoreThreads&) = delete;
    NoMoreThreads& operator=(const NoMoreThreads&) = delete;

  private:
    pthread_attr_t before_{};
};

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

TEST(SpawnThreadTest, TheThreadTakesNoSignalsAndItsMakersMaskStays) {
    std::promise<bool> inside;
    ASSERT_TRUE(succeeded(spawn_thread([&] { inside.set_value(blocks_no_signal()); })));
    EXPECT_FALSE(inside.get_future().get());
    EXPECT_TRUE(blocks_no_signal());
}

TEST(HelperThreadsTest, TheThreadsTakeNoSignalsAndTheirMakersMaskStays) {
    std::promise<bool> inside;
    HelperThreads helpers;
    ASSERT_TRUE(helpers.start([&] { inside.set_value(blocks_no_signal()); }));
    EXPECT_FALSE(inside.get_future().get());
    EXPECT_TRUE(blocks_no_signal());
}

TEST(SpawnThreadTest, OneThatCannotBeStartedIsACapacityErrorAndLeavesNoSignalBlocked) {
    Result<void> refused;
    {
        const NoMoreThreads limit;
        refused = spawn_thread([] { ADD_FAILURE() << "it ran"; });
    }
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::capacity);
    EXPECT_TRUE(blocks_no_signal());
}

TEST(SpawnThreadTest, APoolWithoutAThreadSaysSoAndStartsLater) {
    WorkerPool pool{1};
    Result<void> refused;
    {
        const NoMoreThreads limit;
        refused = pool.start();
    }
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::capacity);
    EXPECT_TRUE(blocks_no_signal());
    EXPECT_TRUE(succeeded(pool.start()));
}

}  // namespace
}  // namespace hotcount
