// Event, Random, ForkLocal, ForkAware, recent_steady_time and ShortLock: what threads and forks lean on.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/event.hpp>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/random.hpp>
#include <hotcount/detail/memory/expiring_map.hpp>
#include <mutex>
#include <thread>
#include <vector>

namespace hotcount {
namespace {

using namespace std::chrono_literals;

// Runs `body` in a forked child and returns what it returned (0 to 255).
template <class Body>
int in_child(Body&& body) {
    const pid_t child = fork();
    if (child == 0) _exit(body());
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Event, WakesEveryWaiterAndShowsWhatWasWrittenBefore) {
    for (int round = 0; round < 200; ++round) {
        Event event;
        int written = 0;
        std::atomic<int> seen{0};
        std::vector<std::thread> waiters;
        for (int i = 0; i < 4; ++i) {
            waiters.emplace_back([&] {
                if (event.wait(Deadline::after(10s)) && written == 42) ++seen;
            });
        }
        written = 42;
        event.set();
        for (auto& waiter : waiters) waiter.join();
        ASSERT_EQ(seen, 4);
    }
}

TEST(Event, GivesUpAtTheDeadlineAndNotBefore) {
    Event event;
    const auto started = std::chrono::steady_clock::now();
    EXPECT_FALSE(event.wait(Deadline::after(30ms)));
    EXPECT_GE(std::chrono::steady_clock::now() - started, 30ms);
    event.set();
    EXPECT_TRUE(event.wait(Deadline::after(0ms)));
    event.clear();
    EXPECT_FALSE(event.wait(Deadline::after(1ms)));
}

TEST(Deadline, OfAHundredYearsIsNotInThePast) {
    EXPECT_FALSE(Deadline::after(std::chrono::hours{24 * 36500}).passed());
    EXPECT_FALSE(Deadline::after(Duration::max()).passed());
}

TEST(Random, RepeatsFromItsSeedAndStaysInBounds) {
    Random a{7};
    Random b{7};
    Random other{8};
    bool differs = false;
    std::vector<int> hits(10);
    for (int i = 0; i < 10'000; ++i) {
        const auto value = a.next();
        EXPECT_EQ(value, b.next());
        differs |= value != other.next();
        ++hits[a.below(10)];
        b.below(10);
    }
    EXPECT_TRUE(differs);
    for (const int hit : hits) EXPECT_NEAR(hit, 1000, 150);  // 5 standard deviations.
}

TEST(ThreadRandom, DiffersInAForkedChild) {
    const auto before = thread_random();
    Random parent = before;
    const std::uint64_t expected = parent.next();
    EXPECT_EQ(in_child([&] { return thread_random().next() == expected ? 1 : 0; }), 0);
}

TEST(ForkLocal, IsBuiltAnewInAChildAndStaysInTheParent) {
    ForkLocal<pid_t> owner{[] { return std::make_unique<pid_t>(getpid()); }};
    EXPECT_EQ(owner.get(), getpid());
    EXPECT_EQ(in_child([&] { return owner.get() == getpid() ? 0 : 1; }), 0);
    EXPECT_EQ(owner.get(), getpid());
}

class Guarded final : ForkAware {
  public:
    Guarded() { start_watching_forks(); }
    ~Guarded() { stop_watching_forks(); }
    std::mutex mutex;

  private:
    void before_fork() override { mutex.lock(); }
    void after_fork(bool) override { mutex.unlock(); }
};

TEST(ForkAware, NoLockIsHeldInAChildByAThreadThatIsNotThere) {
    Guarded guarded;
    std::atomic<bool> stop{false};
    std::thread busy([&] {
        while (!stop) {
            const std::lock_guard lock(guarded.mutex);
            std::this_thread::sleep_for(10us);
        }
    });
    for (int i = 0; i < 50; ++i) {
        EXPECT_EQ(in_child([&] {
                      alarm(5);  // A lock held for ever ends the child, not the test run.
                      const std::lock_guard lock(guarded.mutex);
                      return 0;
                  }),
                  0);
    }
    stop = true;
    busy.join();
}

TEST(RecentSteadyTime, IsLessThanAMicrosecondOldAndNeverGoesBack) {
    SteadyTime last = recent_steady_time();
    for (int i = 0; i < 100'000; ++i) {
        const auto before = std::chrono::steady_clock::now();
        const SteadyTime time = recent_steady_time();
        ASSERT_LE(time, std::chrono::steady_clock::now());
        ASSERT_GT(time, before - 1us);
        ASSERT_GE(time, last);
        last = time;
    }
}

// Two numbers that only the lock keeps equal, and a holder that sleeps now and then, so that the
// others do too.
TEST(ShortLock, LetsOneThreadIn) {
    constexpr int kThreads = 4;
    constexpr int kTimes = 20'000;
    ShortLock lock;
    int first = 0;
    int second = 0;
    {
        std::vector<std::jthread> threads;
        threads.reserve(kThreads);
        for (int thread = 0; thread < kThreads; ++thread) {
            threads.emplace_back([&] {
                for (int i = 0; i < kTimes; ++i) {
                    const std::lock_guard guard(lock);
                    ++first;
                    if (i % 1'000 == 0) std::this_thread::sleep_for(100us);
                    ASSERT_EQ(++second, first);
                }
            });
        }
    }
    EXPECT_EQ(first, kThreads * kTimes);
}

TEST(ShortLock, WakesEverybodyWhoSleeps) {
    ShortLock lock;
    lock.lock();
    std::atomic<int> served{0};
    std::vector<std::jthread> threads;
    threads.reserve(4);
    for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&] {
            const std::lock_guard guard(lock);
            ++served;
        });
    }
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(served, 0);
    lock.unlock();
    threads.clear();
    EXPECT_EQ(served, 4);
}

}  // namespace
}  // namespace hotcount
