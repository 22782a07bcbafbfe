// The common base of targets over a store, memory or Redis.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <utility>

#include "sql_place.hpp"
#include "store_handle.hpp"
#include "target.hpp"

namespace hotcount::loadtest {

/// Longer than any run: nothing expires in the middle of one by itself. A run that is kept can be
/// audited for a month.
inline Duration long_life(const TrialSettings& settings) {
    const std::chrono::hours least{settings.keep ? 30 * 24 : 1};
    return std::max<Duration>(least, 2 * (settings.warmup + settings.duration));
}

/// Of four sorted sets one is never made, one dies during the load, and two outlive it.
inline bool outlives_load(std::uint64_t item) { return item % 4 >= 2; }

/// The base of LimiterTarget, SetsTarget and the targets of counters.
class StoreTarget : public Target {
  public:
    std::string place() const override { return store_.place(); }
    /// A server that restarts or takes over counts commands from 0 again: then they are unknown.
    TargetStats stats() const override {
        const bool anew = settings_.kills_redis() || names_a_group(settings_.redis_url);
        return {0, anew ? 0 : store_.commands(), 0};
    }
    Result<void> begin() override {
        begun_ns_ = std::chrono::duration_cast<std::chrono::nanoseconds>(
                        std::chrono::system_clock::now().time_since_epoch())
                        .count();
        return {};
    }
    /// The time of the start, from which a later audit sees if the run's keys have expired.
    nlohmann::json evidence() const override { return {{"begun_ns", begun_ns_}}; }
    Result<void> clean_up() override {
        if (settings_.leaves_keys()) return {};
        return store_.remove_keys();
    }

  protected:
    StoreTarget(const TrialSettings& settings, Strategy strategy, StoreHandle store)
        : settings_(settings), strategy_(std::move(strategy)), store_(std::move(store)) {}

    Contract contract_of(std::string acknowledged) const {
        if (!store_.on_redis()) {
            return {strategy_.name, std::move(acknowledged), "everything, when this process ends",
                    false, true};
        }
        if (names_a_group(settings_.redis_url)) {
            return {strategy_.name, std::move(acknowledged),
                    "what a primary had not copied to the replica that replaces it", true, true};
        }
        return {strategy_.name, std::move(acknowledged),
                "what the server has not persisted, when the server ends", true, true};
    }
    Result<void> count_keys_without_ttl(bool allowed, AuditResult& result) const {
        std::string example;
        HOTCOUNT_TRY_ASSIGN(const std::uint64_t found, store_.keys_without_ttl(example));
        result.keys_without_ttl += found;
        if (allowed) result.allowed_breaches += found;
        if (found > 0) {
            result.example(fmt::format("no TTL: {} keys never expire, such as {}{}", found, example,
                                       allowed ? ", as its contract allows" : ""));
        }
        return {};
    }

    TrialSettings settings_;
    Strategy strategy_;
    StoreHandle store_;

  private:
    std::int64_t begun_ns_{0};  ///< On the wall clock.
};

/// A limit that the strategy's algorithm does not take is a config error, before anything runs.
Result<void> check_limit(const Rate& limit, const Strategy& strategy);

Result<std::unique_ptr<Target>> make_store_target(const TrialSettings& settings,
                                                  const Strategy& strategy);

/// Opens the target of an earlier run. An error, with the reason, if it cannot be audited any more.
Result<std::unique_ptr<Target>> reopen_store_target(const TrialSettings& settings,
                                                    const Strategy& strategy,
                                                    const std::filesystem::path& folder);

/// Counters: counters_target.cpp.
Result<std::unique_ptr<Target>> make_counters_target(const TrialSettings& settings,
                                                     const Strategy& strategy, StoreHandle store);

}  // namespace hotcount::loadtest
