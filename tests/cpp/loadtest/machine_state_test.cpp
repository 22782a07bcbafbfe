#include "report/machine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "load/callers.hpp"
#include "temporary_folder.hpp"

namespace hotcount::loadtest {
namespace {

using std::chrono::steady_clock;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(MachineState, HasWhatTheSystemSays) {
    const TemporaryFolder folder;
    const MachineState state = measure_machine(folder.path());
    EXPECT_FALSE(state.flush_ns.empty());
    EXPECT_FALSE(state.overshoot_ns.empty());
    ASSERT_TRUE(state.cpu);
    EXPECT_GT(state.cpu->all_s, state.cpu->busy_s);
    EXPECT_GT(state.cpu->own_s, 0);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(MachineState, AFolderThatIsGoneHasNoFlush) {
    EXPECT_THAT(measure_machine("/nonexistent").flush_ns, IsEmpty());
}

/// 10 s of two processors, of which the generator used 4 s.
MachineWatch watch(double others_s, double stolen_s = 0, double flush_ms = 1) {
    MachineWatch found;
    found.before.cpu = CpuTimes{100, 50, 1, 7};
    found.after.cpu = CpuTimes{120, 50 + 4 + others_s, 1 + stolen_s, 11};
    found.before.flush_ns = {static_cast<std::int64_t>(flush_ms * 1e6)};
    found.after.flush_ns = found.before.flush_ns;
    found.before.overshoot_ns = {50'000, 60'000};
    return found;
}

TEST(MachineWatch, TellsOthersWorkFromItsOwn) {
    EXPECT_DOUBLE_EQ(watch(5).others_share().value(), 0.25);
    EXPECT_DOUBLE_EQ(watch(0, 2).stolen_share().value(), 0.1);
    MachineWatch beside_a_server = watch(5);
    beside_a_server.on_server = true;
    EXPECT_FALSE(beside_a_server.others_share());
    EXPECT_FALSE(MachineWatch{}.others_share());
    EXPECT_FALSE(MachineWatch{}.stolen_share());
}

TEST(MachineWatch, TheFloorIsTheP99OfAllSleeps) {
    std::vector<MachineWatch> watches(2);
    for (std::int64_t us = 1; us <= 50; ++us) {
        watches[0].before.overshoot_ns.push_back(us * 1000);
        watches[1].after.overshoot_ns.push_back((us + 50) * 1000);
    }
    EXPECT_EQ(timer_floor_ns(watches), 99'000);
    EXPECT_EQ(timer_floor_ns({}), 0);
}

TEST(Disturbances, NameTheirRounds) {
    const MachineWatch calm = watch(0.1);
    const std::vector<std::size_t> rounds = {1, 2, 3, 4};
    EXPECT_THAT(disturbances(std::vector<MachineWatch>(4, calm), rounds), IsEmpty());
    EXPECT_THAT(disturbances(std::vector<MachineWatch>{calm, watch(5), calm, watch(8)}, rounds),
                ElementsAre("others used up to 40 % of the processors in rounds 2, 4"));
    EXPECT_THAT(disturbances(std::vector<MachineWatch>{calm, calm, watch(0, 3), calm}, rounds),
                ElementsAre("the host took up to 15 % of the processors away in round 3"));
    EXPECT_THAT(disturbances(std::vector<MachineWatch>{calm, calm, calm, watch(0, 0, 30)}, rounds),
                ElementsAre("a flush of the disk took 30 ms in round 4, 1.0 ms else"));
    EXPECT_THAT(disturbances(std::vector<MachineWatch>(4, watch(5)), rounds),
                ElementsAre("others used up to 25 % of the processors in every round"));
    const std::vector<std::size_t> no_round = {0};
    EXPECT_THAT(disturbances(std::vector<MachineWatch>{watch(5)}, no_round),
                ElementsAre("others used up to 25 % of the processors"));
}

/// Each call takes 20 us.
class BusyDriver final : public Driver {
  public:
    Answer apply(const Operation&) override {
        const auto until = steady_clock::now() + std::chrono::microseconds{20};
        while (steady_clock::now() < until) {
        }
        return {};
    }
};

TEST(SlowedDriver, LosesAtLeastItsShareOfTheTime) {
    BusyDriver busy;
    SlowedDriver slowed(busy, 0.5);
    const auto start = steady_clock::now();
    for (int call = 0; call < 500; ++call) (void)slowed.apply({});
    // 10 ms of calls and as much of waiting, but for a wait that is still owed.
    EXPECT_GE(steady_clock::now() - start, std::chrono::milliseconds{19});
}

}  // namespace
}  // namespace hotcount::loadtest
