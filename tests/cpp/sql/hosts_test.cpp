// The search for the host that takes writes: the order, the time for each, what is waited for.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "sql/hosts.hpp"
#include "support/result_matchers.hpp"

namespace hotcount::sql {
namespace {

using namespace std::chrono_literals;
using testing::failed_with;
using testing::succeeded;

// Three hosts, of which some answer. Notes who was dialled, and for how long.
class Farm {
  public:
    explicit Farm(HostUse use = HostUse::writes) : hosts("pg a,b,c/db", {"a", "b", "c"}, use) {}

    Result<void> find(Duration within) {
        return hosts.find(Deadline::after(within), false, [this](std::size_t host, Deadline until) {
            dialled.push_back(host);
            shares.push_back(until.remaining());
            if (silent[host]) return late();
            if (!up[host]) return refused();
            return hosts.takes(host, standby[host], std::chrono::steady_clock::now());
        });
    }
    static Result<void> late() { return make_error(ErrorCode::deadline, "pg a,b,c/db: late"); }
    static Result<void> refused() {
        return make_error(ErrorCode::unavailable, "pg a,b,c/db: refused; nothing was applied");
    }

    Hosts hosts;
    std::array<bool, 3> up{true, true, true};
    std::array<bool, 3> standby{false, true, true};
    std::array<bool, 3> silent{false, false, false};
    std::vector<std::size_t> dialled{};
    std::vector<Duration> shares{};
};

TEST(HostsTest, TheOneFoundLastIsDialledFirst) {
    Farm farm;
    farm.standby = {true, true, false};
    ASSERT_TRUE(succeeded(farm.find(1s)));
    EXPECT_EQ(farm.dialled, (std::vector<std::size_t>{0, 1, 2}));
    farm.dialled.clear();
    ASSERT_TRUE(succeeded(farm.find(1s)));
    EXPECT_EQ(farm.dialled, (std::vector<std::size_t>{2}));
    farm.hosts.leave(2);
    farm.hosts.leave(2);
    farm.standby = {true, false, true};
    farm.dialled.clear();
    ASSERT_TRUE(succeeded(farm.find(1s)));
    EXPECT_EQ(farm.dialled, (std::vector<std::size_t>{0, 1}));
}

TEST(HostsTest, ASilentHostHasItsShareOnly) {
    Farm farm;
    farm.silent[0] = true;
    farm.standby = {false, true, false};
    ASSERT_TRUE(succeeded(farm.find(10min)));
    EXPECT_LE(farm.shares[0], 1s);
    farm.shares.clear();
    farm.hosts.leave(2);
    ASSERT_TRUE(succeeded(farm.find(100ms)));
    EXPECT_LE(farm.shares[0], 50ms);
    EXPECT_GT(farm.shares[2], 10ms);
}

TEST(HostsTest, WithoutOneThatTakesWritesEachRefusalIsNamedAtTheDeadline) {
    Farm farm;
    farm.up[0] = false;
    farm.silent[2] = true;
    const auto found = farm.find(200ms);
    EXPECT_TRUE(failed_with(found, ErrorCode::unavailable,
                            "no host takes writes: a: refused; b: is a standby or read-only; c: "
                            "no answer; nothing was applied"));
    EXPECT_GT(farm.dialled.size(), 3U) << "it dials again";
    EXPECT_LT(farm.dialled.size(), 200U) << "with pauses";
    ASSERT_TRUE(farm.hosts.refusal());
    farm.up[0] = true;
    ASSERT_TRUE(succeeded(farm.find(5s)));
    EXPECT_FALSE(farm.hosts.refusal());
}

TEST(HostsTest, AHostOfAnotherClusterEndsTheSearch) {
    Hosts hosts{"pg a,b/db", {"a", "b"}, HostUse::writes};
    ASSERT_TRUE(succeeded(hosts.check_cluster(0, 0)));
    ASSERT_TRUE(succeeded(hosts.check_cluster(0, 7)));
    ASSERT_TRUE(succeeded(hosts.check_cluster(1, 7)));
    int dials = 0;
    const auto found = hosts.find(Deadline::after(1min), false, [&](std::size_t host, Deadline) {
        ++dials;
        return host == 0 ? Farm::refused() : hosts.check_cluster(host, 8);
    });
    EXPECT_TRUE(failed_with(found, ErrorCode::config, "b is of another cluster than a"));
    EXPECT_EQ(dials, 2);
}

TEST(HostsTest, WhatNoWaitEndsIsToldAtOnce) {
    Hosts hosts{"pg a,b/db", {"a", "b"}, HostUse::writes};
    const auto found = hosts.find(Deadline::after(1min), false, [](std::size_t, Deadline) {
        return Result<void>{make_error(ErrorCode::auth, "pg a,b/db: no such role")};
    });
    EXPECT_TRUE(failed_with(found, ErrorCode::auth, "no such role"));
}

TEST(HostsTest, CallersShareTheRounds) {
    Hosts hosts{"pg a,b/db", {"a", "b"}, HostUse::writes};
    std::atomic<int> dials{0};
    std::vector<std::jthread> callers;
    for (int i = 0; i < 16; ++i) {
        callers.emplace_back([&] {
            (void)hosts.find(Deadline::after(1s), false, [&](std::size_t, Deadline) {
                dials.fetch_add(1);
                return Farm::refused();
            });
        });
    }
    callers.clear();
    // Each has a round of its own at first; then 9 rounds or so for all.
    EXPECT_LT(dials.load(), 16 * 2 + 2 * 60);
}

TEST(HostsTest, APrimaryOfAnOlderTimelineIsRefused) {
    Hosts hosts{"pg a,b/db", {"a", "b"}, HostUse::writes};
    EXPECT_TRUE(succeeded(hosts.check_timeline(0, 1)));
    EXPECT_TRUE(succeeded(hosts.check_timeline(1, 2)));
    EXPECT_TRUE(succeeded(hosts.check_timeline(1, 0)));
    EXPECT_TRUE(failed_with(hosts.check_timeline(0, 1), ErrorCode::unavailable,
                            "a was replaced: its timeline is 1, that of the primary 2"));
}

TEST(HostsTest, ALookAtTheOthersEndsWithTheCaller) {
    std::vector<std::size_t> dialled;
    const auto until = [](Duration left) { return std::chrono::steady_clock::now() + left; };
    const Hosts::Dial dial = [&](std::size_t host, Deadline limit) {
        dialled.push_back(host);
        EXPECT_LE(limit.remaining(), 250ms);
        return host == 2 ? Result<void>{} : Farm::refused();
    };
    const auto look = [&](std::size_t host, Duration left) {
        Hosts hosts{"pg a,b,c/db", {"a", "b", "c"}, HostUse::writes};
        dialled.clear();
        return hosts.any_other(host, until(left), dial);
    };
    EXPECT_EQ(look(0, 1min), true);
    EXPECT_EQ(dialled, (std::vector<std::size_t>{1, 2}));
    EXPECT_EQ(look(2, 1min), false);
    EXPECT_EQ(dialled, (std::vector<std::size_t>{0, 1}));
    EXPECT_EQ(look(0, -1ms), false);
    EXPECT_TRUE(dialled.empty());
}

TEST(HostsTest, OneCallerLooksAtTheOthersForAll) {
    Farm farm;
    farm.standby = {true, true, true};
    const auto until = std::chrono::steady_clock::now() + 1min;
    const Hosts::Dial dial = [&](std::size_t host, Deadline) {
        farm.dialled.push_back(host);
        return farm.hosts.takes(host, farm.standby[host], SteadyTime::max());
    };
    EXPECT_EQ(farm.hosts.any_other(0, until, dial), false);
    EXPECT_EQ(farm.hosts.any_other(0, until, dial), std::nullopt);
    EXPECT_EQ(farm.dialled, (std::vector<std::size_t>{1, 2}));
    EXPECT_FALSE(farm.hosts.replaced(0));
    farm.standby[1] = false;
    ASSERT_TRUE(succeeded(farm.find(1s)));
    farm.dialled.clear();
    EXPECT_EQ(farm.hosts.any_other(0, until, dial), true);
    EXPECT_TRUE(farm.dialled.empty());
    EXPECT_TRUE(farm.hosts.replaced(0));
    EXPECT_FALSE(farm.hosts.replaced(1));
    // A dial of the old one that began before and is answered only now; a later one may be right.
    EXPECT_TRUE(failed_with(farm.hosts.takes(0, false, {}), ErrorCode::unavailable,
                            "a was replaced while it was dialled"));
    EXPECT_TRUE(succeeded(farm.hosts.takes(0, false, SteadyTime::max())));
}

TEST(HostsTest, AUseIsHeldAgainstTheHost) {
    const Hosts reads{"pg a,b/db", {"a", "b"}, HostUse::reads};
    EXPECT_TRUE(succeeded(reads.takes(0, true, {})));
    EXPECT_TRUE(failed_with(reads.takes(0, false, {}), ErrorCode::unavailable, "a takes writes"));
    const Hosts any{"pg a,b/db", {"a", "b"}, HostUse::any};
    EXPECT_TRUE(succeeded(any.takes(1, true, {})));
}

}  // namespace
}  // namespace hotcount::sql
