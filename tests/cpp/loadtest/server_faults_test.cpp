// What --fault reports of faults that went wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "targets/beside_load.hpp"

namespace hotcount::loadtest {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

/// A group whose faults take no time, and of which some fail.
class FakeGroup final : public Managed {
  public:
    FakeGroup() : Managed("redis://fake") {}
    std::vector<pid_t> pids() const override { return {}; }
    std::uint64_t starts() const override { return 1; }
    Result<Strike> strike(const Fault& /*fault*/) override {
        if (++strikes_ > good_strikes) return make_error(ErrorCode::unavailable, "no replica");
        const SteadyTime now = std::chrono::steady_clock::now();
        return Strike{now, now};
    }
    Result<void> mend(const Fault& /*fault*/) override {
        if (++mends_ <= good_mends) return {};
        return make_error(ErrorCode::unavailable, "it does not start");
    }
    /// Some looks after the strike.
    bool replaced() override { return ++looks_ > looks_before_replaced; }

    int good_strikes{100};
    int good_mends{100};
    int looks_before_replaced{1'000'000};

  private:
    int strikes_{0};
    int mends_{0};
    int looks_{0};
};

ServerFaults::Ended faults_of(FakeGroup& group, const char* faults, milliseconds load) {
    TrialSettings settings;
    settings.warmup = Duration{0};
    settings.faults = parse_faults(faults).value();
    ServerFaults made(settings, &group, nullptr, std::chrono::steady_clock::now());
    std::this_thread::sleep_for(load);
    return made.stop();
}

TEST(ServerFaults, AFaultThatFailsLeavesTheOutagesBeforeIt) {
    FakeGroup group;
    group.good_strikes = 1;
    // The server is back at its time, even if the thread was late to strike.
    const auto ended =
        faults_of(group, "1ms:redis.kill9+80ms,100ms:redis.pause+1ms", milliseconds{300});
    ASSERT_EQ(ended.outages.size(), 1U);
    EXPECT_EQ(ended.outages[0].fault.kind, FaultKind::redis_kill9);
    EXPECT_GE(ended.outages[0].back - ended.outages[0].away, milliseconds{1});
    EXPECT_EQ(ended.done.error().message, "100ms:redis.pause+1ms: no replica");
}

TEST(ServerFaults, ATakeoverIsSeenAfterALaterFaultHasFailed) {
    FakeGroup group;
    group.good_strikes = 1;
    group.looks_before_replaced = 10;
    const auto ended =
        faults_of(group, "1ms:redis.kill9+2ms,4ms:redis.pause+1ms", milliseconds{200});
    ASSERT_EQ(ended.outages.size(), 1U);
    EXPECT_TRUE(ended.outages[0].replaced);
    EXPECT_FALSE(ended.done.ok());
}

TEST(ServerFaults, AServerThatDoesNotComeBackIsAnOutageOnlyIfItWasReplaced) {
    for (const bool replaced : {false, true}) {
        FakeGroup group;
        group.good_mends = 1;
        if (replaced) group.looks_before_replaced = 0;
        const auto ended =
            faults_of(group, "1ms:redis.kill9+2ms,10ms:redis.kill9+2ms", milliseconds{100});
        EXPECT_EQ(ended.outages.size(), replaced ? 2U : 1U);
        for (const Outage& outage : ended.outages) EXPECT_GE(outage.back, outage.away);
        EXPECT_EQ(ended.done.error().message, "10ms:redis.kill9+2ms: it does not start");
    }
}

TEST(ServerFaults, AFaultThatIsNotDueBeforeTheLoadEndsIsNamed) {
    FakeGroup group;
    const auto ended = faults_of(group, "1ms:redis.pause+1ms,1m:redis.kill9+1s", milliseconds{50});
    EXPECT_EQ(ended.outages.size(), 1U);
    EXPECT_THAT(ended.done.error().message, HasSubstr("1m:redis.kill9+1s: the load ended before"));
}

}  // namespace
}  // namespace hotcount::loadtest
