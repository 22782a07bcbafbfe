#include <hotcount/detail/base/worker_pool.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <hotcount/detail/base/event.hpp>
#include <thread>
#include <vector>

#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

using namespace std::chrono_literals;
using testing::failed_with;

// One call that is under way until the gate opens, and what the others come to.
class WaitingCallsTest : public ::testing::Test {
  protected:
    ~WaitingCallsTest() override { open(); }

    std::future<Result<int>> run(Deadline deadline, std::function<Result<int>()> work,
                                 const std::atomic<bool>* cancelled = nullptr) {
        const auto told = std::make_shared<std::promise<Result<int>>>();
        auto outcome = told->get_future();
        calls_->run<int>(
            deadline, cancelled, [told](Result<int> result) { told->set_value(std::move(result)); },
            std::move(work));
        return outcome;
    }
    std::future<Result<int>> occupy() {
        auto begun = std::make_shared<std::promise<void>>();
        auto outcome = run(later(), [begun, gate = gate_.get_future().share()]() -> Result<int> {
            begun->set_value();
            gate.wait();
            return 1;
        });
        begun->get_future().wait();
        return outcome;
    }
    void open() {
        if (!std::exchange(open_, true)) gate_.set_value();
    }
    static Deadline later() { return Deadline::after(30s); }

    std::unique_ptr<WaitingCalls> calls_ = std::make_unique<WaitingCalls>("server", 1, 2);
    std::promise<void> gate_;
    bool open_{false};
};

TEST_F(WaitingCallsTest, CallsAreMadeInOrderAndAnswered) {
    auto first = occupy();
    std::vector<int> seen;
    auto second = run(later(), [&]() -> Result<int> {
        seen.push_back(2);
        return 2;
    });
    auto third = run(later(), [&]() -> Result<int> {
        seen.push_back(3);
        return make_error(ErrorCode::wrong_type, "no");
    });
    open();
    EXPECT_EQ(*first.get(), 1);
    EXPECT_EQ(*second.get(), 2);
    EXPECT_TRUE(failed_with(third.get(), ErrorCode::wrong_type));
    EXPECT_EQ(seen, (std::vector{2, 3}));
}

TEST_F(WaitingCallsTest, WhoseTurnDoesNotComeByItsDeadlineIsNeverMade) {
    auto first = occupy();
    bool made = false;
    auto late = run(Deadline::after(20ms), [&]() -> Result<int> {
        made = true;
        return 2;
    });
    EXPECT_TRUE(failed_with(late.get(), ErrorCode::deadline));
    auto third = run(later(), []() -> Result<int> { return 3; });
    open();
    EXPECT_EQ(*third.get(), 3);
    EXPECT_FALSE(made);
    EXPECT_EQ(*first.get(), 1);
}

TEST_F(WaitingCallsTest, WhatALateCallHeldIsFreeBeforeItsTurn) {
    auto first = occupy();
    const auto freed = std::make_shared<std::promise<void>>();
    auto late = run(Deadline::after(20ms),
                    [held = std::shared_ptr<int>(new int{2}, [freed](const int* number) {
                         delete number;
                         freed->set_value();
                     })]() -> Result<int> { return *held; });
    EXPECT_TRUE(failed_with(late.get(), ErrorCode::deadline));
    EXPECT_EQ(freed->get_future().wait_for(20s), std::future_status::ready);
    open();
    EXPECT_EQ(*first.get(), 1);
}

TEST_F(WaitingCallsTest, OneMoreThanMayWaitIsRefusedAtOnce) {
    auto first = occupy();
    auto second = run(later(), []() -> Result<int> { return 2; });
    auto third = run(later(), []() -> Result<int> { return 3; });
    auto fourth = run(later(), []() -> Result<int> { return 4; });
    ASSERT_EQ(fourth.wait_for(0s), std::future_status::ready);
    EXPECT_TRUE(failed_with(fourth.get(), ErrorCode::capacity));
    open();
    EXPECT_EQ(*third.get(), 3);
}

TEST_F(WaitingCallsTest, WhatIsCancelledBeforeItsTurnIsDropped) {
    auto first = occupy();
    std::atomic<bool> cancelled{true};
    bool made = false;
    auto second = run(
        later(),
        [&]() -> Result<int> {
            made = true;
            return 2;
        },
        &cancelled);
    auto third = run(later(), []() -> Result<int> { return 3; });
    open();
    EXPECT_EQ(*third.get(), 3);
    EXPECT_FALSE(made);
    EXPECT_THROW((void)second.get(), std::future_error);
}

TEST_F(WaitingCallsTest, WhoLetsGoOfItLetsGoOfNoCall) {
    auto first = occupy();
    auto second = run(later(), []() -> Result<int> { return 2; });
    calls_.reset();
    open();
    EXPECT_EQ(*first.get(), 1);
    EXPECT_EQ(*second.get(), 2);
}

TEST_F(WaitingCallsTest, EachCallOfManyThreadsIsMade) {
    constexpr int kRounds = 20;  // Threads of a busy machine seldom run at once.
    constexpr int kThreads = 8;
    constexpr int kCalls = 5'000;
    calls_ = std::make_unique<WaitingCalls>("server", 1, kThreads * kCalls + 1);
    std::atomic<int> made{0};
    for (int round = 1; round <= kRounds; ++round) {
        std::vector<std::thread> callers;
        for (int caller = 0; caller < kThreads; ++caller) {
            callers.emplace_back([&] {
                for (int call = 0; call < kCalls; ++call) {
                    calls_->run(
                        later(), [&] { ++made; }, [](const Error&) {});
                }
            });
        }
        for (std::thread& caller : callers) caller.join();
        // One thread makes all calls, in their order.
        ASSERT_EQ(*run(later(), []() -> Result<int> { return 1; }).get(), 1);
        ASSERT_EQ(made, round * kThreads * kCalls);
    }
}

}  // namespace
}  // namespace hotcount
