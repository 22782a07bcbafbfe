#include "report/calibration.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "load/run_folder.hpp"
#include "report/trial.hpp"
#include "temporary_folder.hpp"

namespace hotcount::loadtest {
namespace {

using testing::HasSubstr;

nlohmann::json provenance(int cpus) {
    return {{"command", {"hotcount-load"}},
            {"versions", {{"version", "1"}}},
            {"machine", {{"cpus", cpus}}}};
}

Calibration calibration() {
    Calibration made;
    made.measured = "2030-01-01T00:00:00Z";
    made.ceiling = {1e6, 5e5};
    made.timer_ns.record(17'000);
    made.flush_ns.record(1'000'000);
    made.flushed_on = "ext4";
    return made;
}

TEST(Calibration, IsFoundOnTheMachineThatItIsOf) {
    const TemporaryFolder folder;
    const auto path = folder / kCalibrationFile;
    ASSERT_TRUE(write_json(path, calibration_document(calibration(), provenance(2))));
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
    nlohmann::json document = calibration_document(calibration(), provenance(2));
    document["ceiling"] = "high";
    ASSERT_TRUE(write_json(path, document));
    EXPECT_FALSE(find_ceiling(path, provenance(2)));
}

TEST(Calibration, TextAndDocumentSayTheSame) {
    const std::string text = calibration_text(calibration());
    EXPECT_THAT(text, HasSubstr("1,000,000/s in a closed loop, 500,000/s in an open loop"));
    EXPECT_THAT(text, HasSubstr("p50 17.0 us"));
    const nlohmann::json document = calibration_document(calibration(), provenance(2));
    EXPECT_EQ(document["kind"], "calibration");
    EXPECT_EQ(document["timer_late_us"]["p50"], 17);
    EXPECT_EQ(document["flush_us"]["file_system"], "ext4");
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
