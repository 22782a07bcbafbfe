// Waits that end early because the hook said so. GoogleTest runs tests in the first thread.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <hotcount/detail/base/event.hpp>
#include <hotcount/detail/base/interrupt.hpp>
#include <hotcount/detail/base/worker_pool.hpp>
#include <mutex>
#include <thread>

namespace hotcount {
namespace {

using namespace std::chrono_literals;

std::atomic<int> asked{0};
std::atomic<bool> answer{false};

bool count_and_answer() {
    ++asked;
    return answer;
}

class Interrupt : public testing::Test {
  protected:
    void SetUp() override {
        asked = 0;
        answer = false;
        set_interrupt_hook(&count_and_answer);
    }
    void TearDown() override {
        set_interrupt_hook(nullptr);
        clear_interrupt();
    }
};

TEST_F(Interrupt, EndsAWaitLongBeforeItsDeadlineAndAllThatFollow) {
    Event event;
    answer = true;
    const Deadline deadline = Deadline::after(60s);
    EXPECT_FALSE(event.wait(deadline));
    EXPECT_TRUE(interrupted());
    EXPECT_TRUE(deadline.passed());
    EXPECT_EQ(deadline.remaining(), 0s);
    EXPECT_TRUE(Deadline::after(60s).passed());
    EXPECT_FALSE(event.wait(deadline));
    EXPECT_EQ(asked, 1) << "once it has said yes it need not be asked again";

    clear_interrupt();
    answer = false;
    EXPECT_FALSE(deadline.passed());
    event.set();
    EXPECT_TRUE(event.wait(deadline));
}

TEST_F(Interrupt, WhatHasNoDeadlineGoesOn) {
    answer = true;
    ASSERT_TRUE(check_interrupt());
    EXPECT_FALSE(Deadline::at(SteadyTime::max()).passed());
    Event event;
    std::thread setter([&] { event.set(); });
    EXPECT_TRUE(event.wait(Deadline::at(SteadyTime::max())));
    setter.join();
}

TEST_F(Interrupt, WhatHasHappenedAlreadyIsStillSeen) {
    Event event;
    event.set();
    answer = true;
    check_interrupt();
    EXPECT_TRUE(event.wait(Deadline::after(60s)));
}

TEST_F(Interrupt, AHookThatSaysNoLetsTheWaitGoOn) {
    Event event;
    std::thread setter([&] {
        while (asked < 3) std::this_thread::sleep_for(1ms);
        event.set();
    });
    EXPECT_TRUE(event.wait(Deadline::after(60s)));
    setter.join();
    EXPECT_FALSE(interrupted());
}

TEST_F(Interrupt, EndsTheWaitsOfHelperThreadsToo) {
    Event event;
    std::atomic<int> ended{0};
    const SteadyTime began = std::chrono::steady_clock::now();
    HelperThreads helpers;
    for (int i = 0; i < 2; ++i) {
        ASSERT_TRUE(helpers.start([&] {
            if (!event.wait(Deadline::after(60s))) ++ended;
        }));
    }
    std::thread signal([&] {
        while (asked < 2) std::this_thread::sleep_for(1ms);
        answer = true;
    });
    helpers.join();
    signal.join();
    EXPECT_EQ(ended, 2);
    EXPECT_LT(std::chrono::steady_clock::now() - began, 30s);
    EXPECT_TRUE(interrupted());
}

TEST_F(Interrupt, ASignalEndsTheWait) {
    struct sigaction quiet {};
    struct sigaction before {};
    quiet.sa_handler = [](int) { answer = true; };
    sigaction(SIGUSR1, &quiet, &before);  // Without SA_RESTART, as Python has it.
    Event event;
    const pthread_t waiting = pthread_self();
    std::thread sender([&] {
        while (asked < 1) std::this_thread::sleep_for(1ms);  // It has slept for a slice: it waits.
        pthread_kill(waiting, SIGUSR1);
    });
    EXPECT_FALSE(event.wait(Deadline::after(60s)));
    sender.join();
    sigaction(SIGUSR1, &before, nullptr);
    EXPECT_TRUE(interrupted());
}

TEST_F(Interrupt, OtherThreadsAreNotAsked) {
    answer = true;
    std::thread([] {
        Event event;
        EXPECT_FALSE(event.wait(Deadline::after(2 * kInterruptSlice)));
        EXPECT_FALSE(check_interrupt());
        EXPECT_FALSE(interrupted());
    }).join();
    EXPECT_EQ(asked, 0);
}

TEST_F(Interrupt, TheThreadThatForksIsTheFirstOneOfTheChild) {
    answer = true;
    int status = 0;
    std::thread([&] {
        EXPECT_FALSE(check_interrupt());
        const pid_t child = fork();
        if (child == 0) _exit(check_interrupt() ? 42 : 0);
        waitpid(child, &status, 0);
        EXPECT_FALSE(check_interrupt());
    }).join();
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 42);
}

TEST_F(Interrupt, EndsAWaitForAConditionWithoutTheMutexHeldMeanwhile) {
    static std::mutex mutex;
    static bool was_free = false;
    std::condition_variable changed;
    set_interrupt_hook([] {
        std::thread([] {
            if (mutex.try_lock()) {
                was_free = true;
                mutex.unlock();
            }
        }).join();
        return true;
    });
    std::unique_lock lock(mutex);
    EXPECT_FALSE(wait_or_interrupt(changed, lock, Deadline::after(60s), [] { return false; }));
    EXPECT_TRUE(lock.owns_lock());
    EXPECT_TRUE(was_free);
    EXPECT_TRUE(wait_or_interrupt(changed, lock, Deadline::after(60s), [] { return true; }));
}

TEST_F(Interrupt, EndsASleep) {
    answer = true;
    const Deadline late = Deadline::at(std::chrono::steady_clock::now() + 30s);
    sleep_or_interrupt(60s);
    clear_interrupt();
    EXPECT_FALSE(late.passed());
    answer = false;
    sleep_or_interrupt(1ms);
    EXPECT_FALSE(interrupted());
}

TEST(NoInterruptHook, NothingIsAskedAndDeadlinesAreTheirTimes) {
    EXPECT_FALSE(check_interrupt());
    const Deadline deadline = Deadline::after(60s);
    EXPECT_EQ(next_check(deadline), deadline.time());
    Event event;
    EXPECT_FALSE(event.wait(Deadline::after(1ms)));
}

}  // namespace
}  // namespace hotcount
