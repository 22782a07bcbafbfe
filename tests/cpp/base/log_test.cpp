// Lines for the log: their delivery, and what begins and ends in several threads at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <hotcount/detail/base/log.hpp>
#include <iterator>
#include <mutex>
#include <thread>

namespace hotcount {
namespace {

using namespace std::chrono_literals;

std::mutex mutex;
std::vector<LogLine> told;
std::atomic<Duration> sink_time{Duration{0}};

void keep(std::vector<LogLine> lines) {
    std::this_thread::sleep_for(sink_time.load());
    const std::lock_guard lock(mutex);
    std::move(lines.begin(), lines.end(), std::back_inserter(told));
}

class Log : public testing::Test {
  protected:
    void SetUp() override {
        told.clear();
        sink_time = Duration{0};
        set_log_sink(&keep);
    }
    void TearDown() override {
        (void)take_log_lines();
        set_log_sink(nullptr);
    }
};

TEST_F(Log, TheLastLinesWaitForThoseThatAThreadHandsToTheSink) {
    sink_time = 100ms;
    log_line(true, "first");
    EXPECT_TRUE(take_log_lines().empty());
    const std::lock_guard lock(mutex);
    ASSERT_EQ(told.size(), 1U);
    EXPECT_EQ(told[0].text, "first");
}

TEST_F(Log, ASinkThatHangsDoesNotKeepTheLastLinesForEver) {
    sink_time = kLastWait + 1s;
    log_line(true, "first");
    const SteadyTime began = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - began < 100ms) std::this_thread::yield();
    log_line(true, "second");
    const auto lines = take_log_lines();
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_EQ(lines[0].text, "second");
    sink_time = Duration{0};
}

TEST_F(Log, EachWarningHasItsEndWhicheverThreadSeesIt) {
    constexpr int kTimes = 20'000;
    std::atomic<Trouble*> now{nullptr};
    std::atomic<bool> stop{false};
    std::atomic<bool> at_it{false};
    std::thread other([&] {
        while (!stop) {
            at_it = true;
            if (Trouble* const trouble = now.load()) trouble->end();
            at_it = false;
        }
    });
    for (int i = 0; i < kTimes; ++i) {
        Trouble trouble("server", kUnavailable, kAvailable);
        now = &trouble;
        trouble.begin("refused");
        now = nullptr;
        while (at_it) std::this_thread::yield();
        trouble.end();
        if (i % 100 == 0) (void)take_log_lines();  // Before there are too many.
    }
    stop = true;
    other.join();
    EXPECT_TRUE(take_log_lines().empty());
    const std::lock_guard lock(mutex);
    ASSERT_EQ(told.size(), 2U * kTimes);
    for (std::size_t i = 0; i < told.size(); ++i) ASSERT_EQ(told[i].is_trouble, i % 2 == 0) << i;
}

TEST(WithoutKey, LeavesOutWhatTheCallersKeyMayHold) {
    EXPECT_EQ(without_key("GET: WRONGTYPE (key anna (key b))"), "GET: WRONGTYPE");
    EXPECT_EQ(without_key("refused"), "refused");
}

}  // namespace
}  // namespace hotcount
