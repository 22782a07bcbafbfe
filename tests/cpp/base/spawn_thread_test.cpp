#include "base/spawn_thread.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <future>
#include <hotcount/detail/base/worker_pool.hpp>

#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

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

TEST(BackgroundThreadTest, ItTakesNoSignalsAndItsMakersMaskStays) {
    std::promise<bool> inside;
    ASSERT_TRUE(succeeded(spawn_background_thread([&] { inside.set_value(blocks_no_signal()); })));
    EXPECT_FALSE(inside.get_future().get());
    EXPECT_TRUE(blocks_no_signal());
}

TEST(BackgroundThreadTest, OneThatCannotBeStartedIsACapacityErrorAndLeavesNoSignalBlocked) {
    Result<void> refused;
    {
        const NoMoreThreads limit;
        refused = spawn_background_thread([] { ADD_FAILURE() << "it ran"; });
    }
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::capacity);
    EXPECT_TRUE(blocks_no_signal());
}

TEST(BackgroundThreadTest, APoolWithoutAThreadSaysSoAndStartsLater) {
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
