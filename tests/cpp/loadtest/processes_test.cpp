// Callers in processes of their own, and calls in batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "fake_drivers.hpp"
#include "load/callers.hpp"
#include "load/processes.hpp"

namespace hotcount::loadtest {
namespace {

using std::chrono::milliseconds;

Operation vote(std::int64_t item) { return {item, 1, OperationKind::vote, false}; }

/// Answers with the process that it is in; item 0 ends that process in the middle of the call.
class PidDriver final : public Driver {
  public:
    Answer apply(const Operation& operation) override {
        if (operation.item == 0) _exit(3);
        Answer answer;
        answer.returned = getpid();
        answer.refused = operation.item % 2 == 0;
        return answer;
    }
};

TEST(Processes, AnswerFromOtherProcessesThanThis) {
    PidDriver driver;
    const auto processes = Processes::start(driver, {.processes = 3, .workers = 3}).value();
    std::set<std::int64_t> pids;
    for (std::int64_t item = 1; item <= 9; ++item) {
        const Answer answer = processes->apply(vote(item));
        EXPECT_EQ(answer.outcome, Outcome::ok);
        EXPECT_EQ(answer.refused, item % 2 == 0);
        pids.insert(answer.returned);
    }
    EXPECT_EQ(pids.size(), 3U);
    EXPECT_FALSE(pids.contains(getpid()));
}

TEST(Processes, ACallWhoseProcessDiesIsUnknownAndTheOthersGoOn) {
    PidDriver driver;
    const auto processes = Processes::start(driver, {.processes = 2, .workers = 2}).value();
    const std::vector<Operation> batch{vote(1), vote(0), vote(3)};
    for (const Answer& answer : processes->apply_many(batch)) {
        EXPECT_EQ(answer.outcome, Outcome::unknown);
        EXPECT_EQ(answer.error, ErrorCode::outcome_unknown);
    }
    EXPECT_EQ(processes->apply(vote(1)).outcome, Outcome::ok);
    EXPECT_EQ(processes->apply(vote(0)).outcome, Outcome::unknown);
    // Nobody is left: not applied, and nobody waits for ever.
    EXPECT_EQ(processes->apply(vote(1)).outcome, Outcome::failed);
}

TEST(Processes, OneIsKilledAgainAndAgainAndReplaced) {
    SlowDriver driver(std::chrono::microseconds{500});
    const auto processes =
        Processes::start(driver, {.processes = 2, .workers = 4, .kill_every = milliseconds{5}})
            .value();
    std::atomic<std::uint64_t> ok{0};
    std::atomic<std::uint64_t> unknown{0};
    std::vector<std::thread> callers;
    for (int i = 0; i < 4; ++i) {
        callers.emplace_back([&] {
            while (processes->faults().kills < 20) {
                const Outcome outcome = processes->apply(vote(1)).outcome;
                EXPECT_NE(outcome, Outcome::failed);
                ++(outcome == Outcome::ok ? ok : unknown);
            }
        });
    }
    for (std::thread& caller : callers) caller.join();
    EXPECT_GT(ok, 0U);
    EXPECT_GT(unknown, 0U) << "20 kills, and two calls under way in each process";
}

TEST(Processes, AStoppedOneKeepsItsCallsWaitingAndLosesNone) {
    NoopDriver driver;
    const auto processes =
        Processes::start(driver, {.processes = 1, .workers = 1, .stall = milliseconds{20}}).value();
    auto longest = std::chrono::steady_clock::duration::zero();
    while (processes->faults().stalls < 3) {
        const auto sent = std::chrono::steady_clock::now();
        EXPECT_EQ(processes->apply(vote(1)).outcome, Outcome::ok);
        longest = std::max(longest, std::chrono::steady_clock::now() - sent);
    }
    EXPECT_GE(longest, milliseconds{15});
}

/// Notes how many came together; the first batch stays under way until `all_came`.
class GatheringDriver final : public Driver {
  public:
    Answer apply(const Operation&) override { return {}; }
    std::vector<Answer> apply_many(std::span<const Operation> operations) override {
        sizes.push_back(operations.size());
        while (!all_came) std::this_thread::yield();
        std::vector<Answer> answers;
        for (const Operation& operation : operations) {
            answers.emplace_back().returned = operation.item;
        }
        return answers;
    }
    std::atomic<bool> all_came{false};
    std::vector<std::size_t> sizes;  // One thread's, which ends before they are read.
};

TEST(Batches, TravelWhenTheyAreFullAndWhatIsLeftFollows) {
    GatheringDriver driver;
    std::atomic<int> right{0};
    {
        Batches batches(driver, 4, 1);
        for (std::int64_t item = 1; item <= 10; ++item) {
            batches.start(vote(item), [&, item](const Answer& answer) {
                if (answer.returned == item) ++right;
            });
        }
        driver.all_came = true;
        while (right < 10) std::this_thread::yield();
    }
    // The first may have left before it was full.
    ASSERT_GE(driver.sizes.size(), 3U);
    EXPECT_LE(driver.sizes[0], 4U);
    EXPECT_EQ(driver.sizes[1], 4U);
    EXPECT_EQ(std::accumulate(driver.sizes.begin(), driver.sizes.end(), 0U), 10U);
}

}  // namespace
}  // namespace hotcount::loadtest
