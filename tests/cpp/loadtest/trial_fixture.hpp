// Trials of the load generator in a folder of their own, with strategies that are broken on purpose.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "load/run_folder.hpp"
#include "report/trial.hpp"
#include "temporary_folder.hpp"

namespace hotcount::loadtest {

/// The answer of a broken strategy, which may ask the sound one several times or never.
using Behaviour = std::function<Answer(Driver& sound, const Operation&)>;

class BrokenStrategy final : public Driver {
  public:
    BrokenStrategy(Driver& sound, Behaviour behaviour)
        : sound_(sound), behaviour_(std::move(behaviour)) {}
    Answer apply(const Operation& operation) override { return behaviour_(sound_, operation); }

  private:
    Driver& sound_;
    Behaviour behaviour_;
};

class TrialTest : public testing::Test {
  protected:
    TrialTest() {
        settings_.warmup = Duration{0};
        settings_.duration = std::chrono::seconds{60};
        settings_.traffic.mix = {90, 0, 10};
        settings_.traffic.dup = 0;
    }

    Result<TrialResult> try_run(const std::filesystem::path& folder,
                                const Behaviour& behaviour = {}) const {
        const TrialHooks hooks{interrupt_, {}, {}, [&](Driver& sound) -> std::unique_ptr<Driver> {
                                   if (!behaviour) return nullptr;
                                   return std::make_unique<BrokenStrategy>(sound, behaviour);
                               }};
        return run_trial(settings_, folder, nlohmann::json::object(), hooks);
    }
    TrialResult run(const Behaviour& behaviour = {}) const {
        std::filesystem::remove(folder_ / kLedgerFile);  // Of a trial before, in memory.
        auto trial = try_run(folder_.path(), behaviour);
        EXPECT_TRUE(trial) << trial.error().message;
        return trial ? *trial : TrialResult{};
    }
    /// With the strategy's own workload.
    TrialResult run(const std::string& strategy, const Behaviour& behaviour = {}) {
        settings_.strategy = strategy;
        settings_.workload = find_strategy(strategy).value().workload;
        return run(behaviour);
    }

    /// Breaks the middle one of each `every` first votes, and counts them.
    Behaviour one_in(std::uint64_t every, Behaviour breach) {
        breaches_ = votes_ = 0;
        return
            [this, every, breach = std::move(breach)](Driver& sound, const Operation& operation) {
                if (operation.kind != OperationKind::vote || operation.resent ||
                    votes_.fetch_add(1) % every != every / 2) {
                    return sound.apply(operation);
                }
                ++breaches_;
                return breach(sound, operation);
            };
    }

    TemporaryFolder folder_;
    TrialSettings settings_;
    std::atomic<bool> interrupt_{false};
    std::atomic<std::uint64_t> votes_{0};
    std::atomic<std::uint64_t> breaches_{0};
};

}  // namespace hotcount::loadtest
