// The settings of a trial as JSON, in run.json.
#include <chrono>
#include <cmath>
#include <hotcount/result.hpp>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "run_folder.hpp"
#include "settings.hpp"
#include "workload.hpp"

namespace hotcount::loadtest {
namespace {

using nlohmann::json;

/// The settings that are written as they are, and durations as seconds: calls `always` for those that
/// every document has, and `since` for those that came later.
template <class Settings, class Always, class Since>
void for_each_field(Settings& settings, const Always& always, const Since& since) {
    auto& traffic = settings.traffic;
    always("strategy", settings.strategy);
    always("workers", settings.workers);
    always("warmup_s", settings.warmup);
    always("duration_s", settings.duration);
    always("timeout_s", settings.timeout);
    always("items", traffic.items);
    always("zipf", traffic.zipf);
    always("users", traffic.users);
    always("dup", traffic.dup);
    always("seed", traffic.seed);
    always("max_operations", settings.max_operations);
    always("database_url", settings.database_url);
    since("max_errors", settings.max_errors);
    since("in_flight", settings.in_flight);
    since("redis_url", settings.redis_url);
    since("managed_redis", settings.managed_redis);
    since("managed_database", settings.managed_database);
    since("key_prefix", settings.key_prefix);
    since("life_s", settings.life);
    since("batch", settings.batch);
    since("slots", settings.slots);
    since("processes", settings.processes);
    since("kill_every_s", settings.kill_every);
    since("stall_s", settings.stall);
    since("rebuild_every_s", settings.rebuild_every);
    since("bystander", settings.bystander);
    since("slower", settings.slower);
    since("tables", settings.tables);
}

double in_s(Duration duration) { return std::chrono::duration<double>(duration).count(); }

void get_to(const json& value, Duration& duration) {
    // To the nanosecond: a schedule that ends one earlier is another one.
    duration = Duration{std::llround(value.get<double>() * 1e9)};
}
template <class T>
void get_to(const json& value, T& member) {
    value.get_to(member);
}

}  // namespace

json describe_settings(const TrialSettings& settings) {
    const bool open = settings.arrival != Arrival::closed;
    const TrafficSettings& traffic = settings.traffic;
    json to = {
        {"workload", to_string(settings.workload)},
        {"arrival", settings.profile.constant() ? std::string{to_string(settings.arrival)}
                                                : settings.profile.text},
        {"trace", traffic.trace ? json(traffic.trace->path().string()) : json(nullptr)},
        {"rate_per_s", open ? json(settings.rate_per_s) : json(nullptr)},
        {"mix",
         {{"vote", traffic.mix.vote}, {"unvote", traffic.mix.unvote}, {"read", traffic.mix.read}}},
        {"gate_s", settings.gate ? json(in_s(*settings.gate)) : json(nullptr)},
        {"faults", format_faults(settings.faults)},
        {"limit", settings.limit.str()}};
    const auto put = [&](const char* name, const auto& member) {
        if constexpr (std::is_same_v<decltype(member), const Duration&>) {
            to[name] = in_s(member);
        } else {
            to[name] = member;
        }
    };
    for_each_field(settings, put, put);
    to["database_url"] = without_password(settings.database_url);
    to["redis_url"] = without_password(settings.redis_url);
    return to;
}

Result<TrialSettings> settings_of(const json& from) {
    try {
        TrialSettings settings;
        const auto take = [&](const char* name, auto& member) { get_to(from.at(name), member); };
        const auto take_if = [&](const char* name, auto& member) {
            if (from.contains(name) && !from.at(name).is_null()) take(name, member);
        };
        for_each_field(settings, take, take_if);
        HOTCOUNT_TRY_ASSIGN(settings.workload,
                            parse_workload(from.at("workload").get<std::string>()));
        const auto arrival = from.at("arrival").get<std::string>();
        HOTCOUNT_TRY_ASSIGN(auto profile, parse_profile(arrival));
        settings.arrival = Arrival::poisson;
        if (profile) {
            settings.profile = std::move(*profile);
        } else if (arrival == to_string(Arrival::trace)) {
            settings.arrival = Arrival::trace;  // An audit has its operations from the ledger.
        } else {
            HOTCOUNT_TRY_ASSIGN(settings.arrival, parse_arrival(arrival));
        }
        if (from.at("rate_per_s").is_number()) take("rate_per_s", settings.rate_per_s);
        for (const auto& [name, share] : {std::pair{"vote", &settings.traffic.mix.vote},
                                          std::pair{"unvote", &settings.traffic.mix.unvote},
                                          std::pair{"read", &settings.traffic.mix.read}}) {
            from.at("mix").at(name).get_to(*share);
        }
        if (from.contains("gate_s") && from.at("gate_s").is_number()) {
            take("gate_s", settings.gate.emplace());
        }
        if (const auto faults = from.value("faults", ""); !faults.empty()) {
            HOTCOUNT_TRY_ASSIGN(settings.faults, parse_faults(faults));
        }
        if (from.contains("limit")) {
            HOTCOUNT_TRY_ASSIGN(settings.limit, Rate::parse(from.at("limit").get<std::string>()));
        }
        return settings;
    } catch (const json::exception& wrong) {
        return make_error(ErrorCode::config, wrong.what());
    }
}

}  // namespace hotcount::loadtest
