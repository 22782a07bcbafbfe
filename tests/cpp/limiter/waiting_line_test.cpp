#include "limiter/waiting_line.hpp"

#include <malloc.h>

#include <array>
#include <atomic>
#include <hotcount/concurrency_limit.hpp>
#include <hotcount/detail/base/interrupt.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

using namespace std::chrono_literals;
using testing::failed_with;

Decision refusal() {
    Decision decision{};
    decision.limit = 1;
    decision.retry_after = 1ms;
    return decision;
}

class WaitingLineTest : public ::testing::Test {
  protected:
    Waiting waiting(int number = 0) {
        Waiting made;
        made.ask = [this, number]() -> Result<Decision> {
            ++asks_;
            if (failures_ > 0) {
                --failures_;
                return make_error(failure_, "away");
            }
            Decision decision = refusal();
            decision.allowed = open_;
            if (decision.allowed) {
                served_.push_back(number);  // One at a time: the head's.
                decision.retry_after.reset();
            }
            return decision;
        };
        made.pause = [](const Decision& decision, bool) {
            const bool is_usable = decision.allowed && decision.retry_after == Duration{0};
            return is_usable ? std::nullopt : decision.retry_after;
        };
        return made;
    }
    /// A thread that is in the queue when this returns.
    std::thread start(Waiting how) {
        const std::size_t before = waiters_in_line(this, "k");
        std::thread thread([this, how = std::move(how)] {
            auto outcome = wait_in_line(this, "k", how);
            const std::lock_guard lock(mutex_);
            outcomes_.push_back(std::move(outcome));
        });
        while (waiters_in_line(this, "k") == before) std::this_thread::yield();
        return thread;
    }

    std::atomic<int> asks_{0};
    std::atomic<bool> open_{false};
    std::atomic<int> failures_{0};
    ErrorCode failure_{ErrorCode::outcome_unknown};
    std::mutex mutex_;
    std::vector<int> served_;
    std::vector<Result<Decision>> outcomes_;
};

TEST_F(WaitingLineTest, TheHeadAloneAsksAndAllAreServedInTheirOrder) {
    std::vector<std::thread> threads;
    threads.push_back(start(waiting()));
    std::atomic<bool> only_first{true};
    for (int number = 1; number < 5; ++number) {
        Waiting behind = waiting(number);
        behind.ask = [&, ask = behind.ask] {
            if (!open_) only_first = false;
            return ask();
        };
        threads.push_back(start(std::move(behind)));
    }
    for (const int seen = asks_; asks_ < seen + 3;) std::this_thread::yield();
    EXPECT_TRUE(only_first);
    open_ = true;
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(served_, (std::vector{0, 1, 2, 3, 4}));
    EXPECT_EQ(waiters_in_line(this, "k"), 0U);
}

TEST_F(WaitingLineTest, TheSecondFailureInARowIsEveryonesWhoseHitsWereNotSent) {
    std::vector<std::thread> threads;
    threads.reserve(5);
    for (int number = 0; number < 5; ++number) threads.push_back(start(waiting()));
    failures_ = 5;
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(failures_, 3) << "two asked";
    int unsent = 0;
    for (const auto& outcome : outcomes_) {
        if (failed_with(outcome, ErrorCode::outcome_unknown)) continue;
        EXPECT_TRUE(failed_with(outcome, ErrorCode::unavailable));
        EXPECT_TRUE(outcome.error().message.starts_with("not sent: ")) << outcome.error().message;
        ++unsent;
    }
    EXPECT_EQ(unsent, 3);
    // Those that come again are a queue: the first asks, and nobody for itself.
    EXPECT_TRUE(failed_with(wait_in_line(this, "k", waiting()), ErrorCode::outcome_unknown));
    EXPECT_EQ(failures_, 2);
    Waiting late = waiting();
    late.ends = std::chrono::steady_clock::now();
    failures_ = 0;
    open_ = true;
    EXPECT_TRUE(wait_in_line(this, "k", late)->allowed) << "no refusal is remembered";
}

// How many of these failures, one after another, are the heads' own.
TEST_F(WaitingLineTest, OneFailureOfTheStoreAndErrorsOfArgumentsAreTheHeadsAlone) {
    for (const auto& [code, failures] :
         {std::pair{ErrorCode::deadline, 1}, std::pair{ErrorCode::config, 3}}) {
        std::vector<std::thread> threads;
        threads.reserve(5);
        for (int number = 0; number < 5; ++number) threads.push_back(start(waiting()));
        failure_ = code;
        open_ = true;
        failures_ = failures;
        for (std::thread& thread : threads) thread.join();
        int failed = 0;
        for (const auto& outcome : outcomes_) failed += outcome ? 0 : 1;
        EXPECT_EQ(failed, failures_ == 0 ? failures : -1);
        outcomes_.clear();
        open_ = false;
    }
}

TEST_F(WaitingLineTest, TheRefusalOfACostAboveTheLimitIsOfItsHeadAlone) {
    // Two failures leave a queue that knows no refusal, so that any cost joins it.
    std::vector<std::thread> failed;
    failed.reserve(2);
    for (int number = 0; number < 2; ++number) failed.push_back(start(waiting()));
    failures_ = 3;
    for (std::thread& thread : failed) thread.join();
    failures_ = 0;
    outcomes_.clear();

    std::atomic<bool> answers_first{false};
    std::atomic<bool> answers_second{false};
    Waiting above = waiting();
    above.cost = 2;
    above.ask = [&]() -> Result<Decision> {
        while (!answers_first) std::this_thread::yield();
        Decision decision = refusal();
        decision.retry_after.reset();
        return decision;
    };
    Waiting slow = waiting();
    slow.ask = [&]() -> Result<Decision> {
        while (!answers_second) std::this_thread::yield();
        return Decision{};
    };
    slow.pause = [](const Decision&, bool) { return std::nullopt; };
    std::thread head = start(above);
    std::thread next = start(slow);
    Waiting late = waiting();
    late.ends = std::chrono::steady_clock::now() + 300ms;
    std::thread last = start(late);
    answers_first = true;
    head.join();
    last.join();
    answers_second = true;
    next.join();
    ASSERT_EQ(outcomes_.size(), 3U);
    EXPECT_FALSE(outcomes_[0]->retry_after) << "the head's own";
    EXPECT_EQ(outcomes_[1]->retry_after, Duration{1ms}) << "its cost has room in time";
}

TEST_F(WaitingLineTest, OneWhoseTimePassesBehindTheHeadGetsItsRefusal) {
    Waiting long_pause = waiting();
    long_pause.ask = [&]() -> Result<Decision> {
        Decision decision = refusal();
        decision.retry_after = 1h;
        decision.allowed = open_;
        return decision;
    };
    long_pause.pause = [](const Decision& decision, bool) {
        return decision.allowed ? std::nullopt : std::optional<Duration>{1ms};
    };
    std::thread head = start(long_pause);
    Waiting late = waiting();
    late.ends = std::chrono::steady_clock::now() + 10ms;
    const auto at_once = wait_in_line(this, "k", late);
    EXPECT_FALSE(at_once->allowed);
    late.knows_when = false;
    EXPECT_FALSE(wait_in_line(this, "k", late)->allowed);
    EXPECT_EQ(asks_, 0) << "the head's answer is theirs";
    late.cost = 2;
    EXPECT_FALSE(wait_in_line(this, "k", late)->allowed) << "above the limit: it asks";
    EXPECT_EQ(asks_, 1);
    open_ = true;
    head.join();
}

// Interrupts come in the first thread, which is that of the test.
class InterruptedInLine : public WaitingLineTest {
  protected:
    void SetUp() override {
        set_interrupt_hook([] { return true; });
    }
    void TearDown() override {
        set_interrupt_hook(nullptr);
        clear_interrupt();
    }
    /// A waiter whose answer says to wait for `long_time`.
    Waiting waiting_for(Duration long_time, bool allowed) {
        Waiting made = waiting();
        made.ask = [this, long_time, allowed]() -> Result<Decision> {
            ++asks_;
            Decision decision = refusal();
            decision.allowed = allowed;
            decision.retry_after = decision.reset_after = long_time;
            return decision;
        };
        return made;
    }
};

TEST_F(InterruptedInLine, TheHeadGetsItsRefusal) {
    EXPECT_FALSE(wait_in_line(this, "k", waiting_for(1h, false))->allowed);
    EXPECT_EQ(asks_, 1);
    EXPECT_EQ(waiters_in_line(this, "k"), 0U);
}

TEST_F(InterruptedInLine, OneBehindTheHeadGetsTheHeadsRefusal) {
    std::thread head = start(waiting());
    EXPECT_FALSE(wait_in_line(this, "k", waiting_for(1h, true))->allowed);
    EXPECT_EQ(waiters_in_line(this, "k"), 1U);
    open_ = true;
    head.join();
    EXPECT_EQ(served_, std::vector{0});
}

TEST_F(InterruptedInLine, TheHitThatItsHeadWasAdmittedAheadIsForTheNextUntilItIsDue) {
    const Waiting ahead = waiting_for(400ms, true);
    const auto due = std::chrono::steady_clock::now() + 400ms;
    EXPECT_FALSE(wait_in_line(this, "k", ahead)->allowed);
    clear_interrupt();
    set_interrupt_hook(nullptr);
    const auto next = wait_in_line(this, "k", ahead);
    EXPECT_TRUE(next->allowed);
    EXPECT_EQ(next->retry_after, Duration{0});
    EXPECT_EQ(next->reset_after, Duration{0});
    EXPECT_GE(std::chrono::steady_clock::now(), due);
    EXPECT_EQ(asks_, 1);
}

TEST_F(InterruptedInLine, ARefusalDoesNotMoveTheTimeOfAHitThatWasAdmittedAhead) {
    const Waiting ahead = waiting_for(400ms, true);
    const auto due = std::chrono::steady_clock::now() + 400ms;
    EXPECT_FALSE(wait_in_line(this, "k", ahead)->allowed);
    clear_interrupt();
    set_interrupt_hook(nullptr);
    Waiting hurried = waiting_for(1h, false);
    hurried.ends = std::chrono::steady_clock::now() + 1ms;
    hurried.pause = [](const Decision&, bool) { return std::nullopt; };
    EXPECT_FALSE(wait_in_line(this, "k", hurried)->allowed);
    EXPECT_EQ(asks_, 2) << "it has no time for the hit ahead";
    Waiting patient = ahead;
    patient.ends = due + 10s;
    EXPECT_TRUE(wait_in_line(this, "k", patient)->allowed);
    EXPECT_GE(std::chrono::steady_clock::now(), due);
    EXPECT_EQ(asks_, 2) << "the hit ahead";
}

TEST_F(InterruptedInLine, AnObjectAtTheAddressOfADestroyedOneFindsNoHitOfIt) {
    const auto store = *memory::Store::make({});
    std::shared_ptr<Limiter> limiter = *Limiter::make(store, {});
    std::shared_ptr<ConcurrencyLimit> places = *ConcurrencyLimit::make(store, {});
    const std::array<const void*, 2> addresses{limiter.get(), places.get()};
    for (const void* const address : addresses) {
        EXPECT_FALSE(wait_in_line(address, "k", waiting_for(1h, true))->allowed);
    }
    limiter.reset();
    places.reset();
    clear_interrupt();
    set_interrupt_hook(nullptr);
    open_ = true;
    for (const void* const address : addresses) {
        EXPECT_TRUE(wait_in_line(address, "k", waiting(7))->allowed);
    }
    EXPECT_EQ(served_, (std::vector{7, 7})) << "hits of their own";
}

TEST_F(InterruptedInLine, QueuesOfOneKeyThatAreKeptOneAfterAnotherTakeTheRoomOfOne) {
    const std::string key(4000, 'k');
    const auto keep_and_outlive = [&] {
        EXPECT_FALSE(wait_in_line(this, key, waiting_for(1ms, true))->allowed);
        std::this_thread::sleep_for(2ms);
    };
    for (int number = 0; number < 10; ++number) keep_and_outlive();
    const std::size_t before = ::mallinfo2().uordblks;
    for (int number = 0; number < 200; ++number) keep_and_outlive();
    EXPECT_LT(::mallinfo2().uordblks, before + 100 * key.size());
}

TEST_F(InterruptedInLine, AHitAheadThatNobodyUsedInTimeIsForgotten) {
    const Waiting ahead = waiting_for(110ms, true);
    EXPECT_FALSE(wait_in_line(this, "k", ahead)->allowed);
    clear_interrupt();
    set_interrupt_hook(nullptr);
    std::this_thread::sleep_for(120ms);
    open_ = true;
    EXPECT_TRUE(wait_in_line(this, "k", waiting(7))->allowed);
    EXPECT_EQ(served_, std::vector{7}) << "a hit of its own";
}

}  // namespace
}  // namespace hotcount
