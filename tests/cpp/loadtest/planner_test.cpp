#include "load/planner.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "temporary_folder.hpp"

namespace hotcount::loadtest {
namespace {

std::unique_ptr<Ledger> make_ledger(const TemporaryFolder& folder, const std::string& name,
                                    std::uint64_t capacity) {
    auto made = Ledger::create(folder / name, capacity, 1);
    EXPECT_TRUE(made) << made.error().message;
    return std::move(made).value();
}

bool same_records(const Ledger& a, const Ledger& b, std::uint64_t records) {
    for (std::uint64_t index = 0; index < records; ++index) {
        if (a[index].item != b[index].item || a[index].user != b[index].user ||
            a[index].kind != b[index].kind || a[index].intended_ns != b[index].intended_ns) {
            return false;
        }
    }
    return true;
}

TEST(Planner, IsTheSameHoweverManyWorkersAskForIt) {
    const TemporaryFolder folder;
    const auto alone = make_ledger(folder, "alone", 20'000);
    const auto together = make_ledger(folder, "together", 20'000);
    const TrafficSettings traffic{.seed = 5};
    const Schedule schedule(Arrival::poisson, 1e6, 5);

    Planner one(*alone, traffic, schedule, INT64_MAX, UnvoteValue::set_zero);
    for (std::uint64_t index = 0; one.reach(index); ++index) {
    }
    Planner many(*together, traffic, schedule, INT64_MAX, UnvoteValue::set_zero);
    std::atomic<std::uint64_t> next{0};
    std::atomic<std::uint64_t> unplanned{0};
    std::vector<std::thread> workers;
    for (int worker = 0; worker < 8; ++worker) {
        workers.emplace_back([&] {
            for (;;) {
                const std::uint64_t index = next.fetch_add(1);
                if (!many.reach(index)) return;
                if ((*together)[index].load_status() != Status::planned) unplanned.fetch_add(1);
            }
        });
    }
    for (std::thread& worker : workers) worker.join();
    EXPECT_EQ(unplanned.load(), 0U);
    EXPECT_EQ(alone->planned(), 20'000U);
    EXPECT_EQ(together->planned(), 20'000U);
    EXPECT_TRUE(many.ledger_full());
    EXPECT_TRUE(same_records(*alone, *together, 20'000));
}

TEST(Planner, EndsWithItsTime) {
    const TemporaryFolder folder;
    const auto ledger = make_ledger(folder, "ledger", 100'000);
    // 1,000 a second for 2 seconds.
    Planner planner(*ledger, TrafficSettings{}, Schedule(Arrival::uniform, 1000, 1), 2'000'000'000,
                    UnvoteValue::set_zero);
    EXPECT_TRUE(planner.reach(1999));
    EXPECT_FALSE(planner.reach(2000));
    EXPECT_FALSE(planner.reach(50'000));
    EXPECT_EQ(ledger->planned(), 2000U);
    EXPECT_FALSE(planner.ledger_full());
    EXPECT_EQ((*ledger)[1999].intended_ns, 1'999'000'000);
}

TEST(Planner, TheTrafficDoesNotDependOnTheRate) {
    const TemporaryFolder folder;
    const auto slow = make_ledger(folder, "slow", 5000);
    const auto closed = make_ledger(folder, "closed", 5000);
    Planner(*slow, TrafficSettings{}, Schedule(Arrival::poisson, 10, 1), INT64_MAX,
            UnvoteValue::set_zero)
        .reach(4999);
    Planner(*closed, TrafficSettings{}, Schedule(Arrival::closed, 0, 1), INT64_MAX,
            UnvoteValue::set_zero)
        .reach(4999);
    for (std::uint64_t index = 0; index < 5000; ++index) {
        ASSERT_EQ((*slow)[index].item, (*closed)[index].item);
        ASSERT_EQ((*slow)[index].user, (*closed)[index].user);
    }
    EXPECT_GT((*slow)[4999].intended_ns, 0);
    EXPECT_EQ((*closed)[4999].intended_ns, 0);
}

TEST(Planner, SaysWhatAnUnvoteWrites) {
    const TemporaryFolder folder;
    TrafficSettings traffic;
    traffic.mix = {50, 50, 0};
    const auto votes = make_ledger(folder, "votes", 5000);
    const auto counters = make_ledger(folder, "counters", 5000);
    Planner(*votes, traffic, Schedule(Arrival::closed, 0, 1), INT64_MAX, UnvoteValue::set_zero)
        .reach(4999);
    Planner(*counters, traffic, Schedule(Arrival::closed, 0, 1), INT64_MAX,
            UnvoteValue::add_minus_one)
        .reach(4999);
    int unvotes = 0;
    for (std::uint64_t index = 0; index < 5000; ++index) {
        if ((*votes)[index].kind != OperationKind::unvote) {
            ASSERT_EQ((*votes)[index].value, 1);
            continue;
        }
        ++unvotes;
        ASSERT_EQ((*votes)[index].value, 0);
        ASSERT_EQ((*counters)[index].value, -1);
    }
    EXPECT_GT(unvotes, 1000);
}

}  // namespace
}  // namespace hotcount::loadtest
