#include "report/machine.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "load/run_folder.hpp"
#include "report/report.hpp"
#include "report/trial.hpp"
#include "temporary_folder.hpp"

namespace hotcount::loadtest {
namespace {

nlohmann::json provenance(int cpus) {
    return {{"command", {"hotcount-load"}},
            {"versions", {{"version", "1"}}},
            {"machine", {{"cpus", cpus}}}};
}

nlohmann::json calibration() {
    nlohmann::json document = provenance(2);
    document["schema"] = kSchema;
    document["ceiling"] = {{"closed_per_s", 1e6}, {"open_per_s", 5e5}};
    return document;
}

TEST(Calibration, IsFoundOnTheMachineThatItIsOf) {
    const TemporaryFolder folder;
    const auto path = folder / kCalibrationFile;
    ASSERT_TRUE(write_json(path, calibration()));
    const auto found = find_ceiling(path, provenance(2));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->per_s(Arrival::closed), 1e6);
    EXPECT_EQ(found->per_s(Arrival::poisson), 5e5);
    EXPECT_FALSE(find_ceiling(path, provenance(4)));
    EXPECT_FALSE(find_ceiling(folder / "none", provenance(2)));
}

TEST(Calibration, WhatIsNoneIsNotFound) {
    const TemporaryFolder folder;
    const auto path = folder / kCalibrationFile;
    for (const char* text : {"", "{}", "[1]", R"({"machine": {"cpus": 2}})"}) {
        std::ofstream(path) << text;
        EXPECT_FALSE(find_ceiling(path, provenance(2))) << text;
    }
    nlohmann::json document = calibration();
    document["ceiling"] = "high";
    ASSERT_TRUE(write_json(path, document));
    EXPECT_FALSE(find_ceiling(path, provenance(2)));
}

TEST(Headroom, IsTheCeilingDividedByTheLoad) {
    TrialResult trial;
    EXPECT_EQ(trial.headroom(), 0);
    EXPECT_FALSE(trial.near_ceiling());
    trial.ceiling_per_s = 1000;
    trial.load.window_s = 2;
    trial.load.tally.votes_ok = 1000;
    EXPECT_EQ(trial.headroom(), 2);
    EXPECT_TRUE(trial.near_ceiling());
    trial.settings.arrival = Arrival::uniform;
    trial.settings.rate_per_s = 250;
    EXPECT_EQ(trial.headroom(), 4);
    EXPECT_FALSE(trial.near_ceiling());
}

}  // namespace
}  // namespace hotcount::loadtest
