#include "settings_json.hpp"

#include <chrono>
#include <cmath>

#include "trace.hpp"

namespace hotcount::loadtest {
namespace {

using nlohmann::json;

double in_s(Duration duration) { return std::chrono::duration<double>(duration).count(); }
json describe(const Mix& mix) {
    return {{"vote", mix.vote}, {"unvote", mix.unvote}, {"read", mix.read}};
}

}  // namespace

json describe_settings(const TrialSettings& settings) {
    const bool open = settings.arrival != Arrival::closed;
    return {
        {"workload", to_string(settings.workload)},
        {"strategy", settings.strategy},
        {"arrival", settings.profile.constant() ? std::string{to_string(settings.arrival)}
                                                : settings.profile.text},
        {"trace", settings.traffic.trace ? nlohmann::json(settings.traffic.trace->path().string())
                                         : nlohmann::json(nullptr)},
        {"rate_per_s", open ? json(settings.rate_per_s) : json(nullptr)},
        {"workers", settings.workers},
        {"in_flight", settings.in_flight},
        {"warmup_s", in_s(settings.warmup)},
        {"duration_s", in_s(settings.duration)},
        {"timeout_s", in_s(settings.timeout)},
        {"items", settings.traffic.items},
        {"zipf", settings.traffic.zipf},
        {"users", settings.traffic.users},
        {"mix", describe(settings.traffic.mix)},
        {"dup", settings.traffic.dup},
        {"seed", settings.traffic.seed},
        {"max_errors", settings.max_errors},
        {"max_operations", settings.max_operations},
        {"database_url", without_password(settings.database_url)},
        {"managed_database", settings.managed_database},
        {"redis_url", without_password(settings.redis_url)},
        {"managed_redis", settings.managed_redis},
        {"key_prefix", settings.key_prefix},
        {"life_s", in_s(settings.life)},
        {"gate_s", settings.gate ? json(in_s(*settings.gate)) : json(nullptr)},
        {"batch", settings.batch},
        {"slots", settings.slots},
        {"processes", settings.processes},
        {"kill_every_s", in_s(settings.kill_every)},
        {"stall_s", in_s(settings.stall)},
        {"faults", format_faults(settings.faults)},
        {"rebuild_every_s", in_s(settings.rebuild_every)},
        {"bystander", settings.bystander},
        {"slower", settings.slower},
        {"limit", settings.limit.str()}};
}

Result<TrialSettings> settings_of(const json& from) {
    try {
        const auto duration = [&](const char* name) {
            // To the nanosecond: a schedule that ends one earlier is another one.
            return Duration{std::llround(from.at(name).get<double>() * 1e9)};
        };
        TrialSettings settings;
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
        from.at("strategy").get_to(settings.strategy);
        if (from.at("rate_per_s").is_number()) from.at("rate_per_s").get_to(settings.rate_per_s);
        from.at("workers").get_to(settings.workers);
        settings.in_flight = from.value("in_flight", settings.in_flight);
        settings.warmup = duration("warmup_s");
        settings.duration = duration("duration_s");
        settings.timeout = duration("timeout_s");
        from.at("items").get_to(settings.traffic.items);
        from.at("zipf").get_to(settings.traffic.zipf);
        from.at("users").get_to(settings.traffic.users);
        from.at("mix").at("vote").get_to(settings.traffic.mix.vote);
        from.at("mix").at("unvote").get_to(settings.traffic.mix.unvote);
        from.at("mix").at("read").get_to(settings.traffic.mix.read);
        from.at("dup").get_to(settings.traffic.dup);
        from.at("seed").get_to(settings.traffic.seed);
        from.at("max_operations").get_to(settings.max_operations);
        settings.max_errors = from.value("max_errors", settings.max_errors);
        from.at("database_url").get_to(settings.database_url);
        // Runs before there was Redis do not have these.
        settings.redis_url = from.value("redis_url", "");
        settings.managed_redis = from.value("managed_redis", false);
        settings.managed_database = from.value("managed_database", false);
        settings.key_prefix = from.value("key_prefix", "");
        if (from.contains("life_s")) settings.life = duration("life_s");
        if (from.contains("gate_s") && from.at("gate_s").is_number()) {
            settings.gate = duration("gate_s");
        }
        settings.batch = from.value("batch", settings.batch);
        settings.slots = from.value("slots", settings.slots);
        settings.processes = from.value("processes", settings.processes);
        if (from.contains("kill_every_s")) settings.kill_every = duration("kill_every_s");
        if (from.contains("stall_s")) settings.stall = duration("stall_s");
        if (const auto faults = from.value("faults", ""); !faults.empty()) {
            HOTCOUNT_TRY_ASSIGN(settings.faults, parse_faults(faults));
        }
        if (from.contains("rebuild_every_s")) settings.rebuild_every = duration("rebuild_every_s");
        settings.bystander = from.value("bystander", false);
        settings.slower = from.value("slower", 0.0);
        if (from.contains("limit")) {
            HOTCOUNT_TRY_ASSIGN(settings.limit, Rate::parse(from.at("limit").get<std::string>()));
        }
        return settings;
    } catch (const json::exception& wrong) {
        return make_error(ErrorCode::config, wrong.what());
    }
}

}  // namespace hotcount::loadtest
