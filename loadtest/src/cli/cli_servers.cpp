#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <hotcount/url.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli_checks.hpp"
#include "cli_read.hpp"

namespace hotcount::loadtest {
namespace {

/// As --managed calls it.
std::string kind_of(const std::string& url) {
    const auto parsed = parse_url(url);
    if (!parsed) return "database";
    return parsed->scheme.starts_with("postgres") ? "postgres" : parsed->scheme;
}

/// Two of a kind are postgres and postgres-2.
void add_database(std::vector<Database>& databases, Database database) {
    const std::string kind = database.label;
    const auto taken = [&] {
        return std::any_of(databases.begin(), databases.end(),
                           [&](const Database& one) { return one.label == database.label; });
    };
    for (int other = 2; taken(); ++other) database.label = fmt::format("{}-{}", kind, other);
    databases.push_back(std::move(database));
}

Result<void> check_one_database(const Given& given, const Settings& settings,
                                const std::vector<Database>& databases) {
    if (databases.size() < 2) return {};
    if (settings.command != Command::compare) {
        const bool both = given.contains("db") && settings.trial.managed_database;
        return make_error(
            ErrorCode::config,
            both ? "--db names a server and --managed starts one: take one of them; compare takes "
                   "both"
                 : fmt::format("--{}: {} takes one database; compare takes several "
                               "databases",
                               given.contains("db") ? "db" : "managed",
                               to_string(settings.command)));
    }
    for (std::size_t i = 1; i < databases.size(); ++i) {
        for (std::size_t before = 0; before < i; ++before) {
            if (databases[i].url.empty() || databases[i].url != databases[before].url) continue;
            return make_error(ErrorCode::config, "--db names a database twice");
        }
    }
    return {};
}

}  // namespace

Result<void> read_servers(const Given& given, Settings& settings) {
    TrialSettings& trial = settings.trial;
    HOTCOUNT_TRY(read(given, "managed", parse_managed, settings.managed));
    trial.managed_redis = manages(settings, ServerKind::redis);
    trial.managed_database = manages_database(settings);
    if (trial.managed_redis && given.contains("redis")) {
        return make_error(ErrorCode::config,
                          "--redis names a server and --managed starts one: take one of them");
    }
    HOTCOUNT_TRY(read(given, "redis", parse_redis_url, trial.redis_url));
    std::vector<std::string> urls;
    HOTCOUNT_TRY(read(given, "db", absolute_database_urls, urls));
    std::vector<Database> databases;
    for (const ServerKind kind : settings.managed) {
        if (kind == ServerKind::redis) continue;
        add_database(databases, {std::string{to_string(kind)}, kind, {}});
    }
    for (const std::string& url : urls) add_database(databases, {kind_of(url), std::nullopt, url});
    HOTCOUNT_TRY(check_one_database(given, settings, databases));
    if (databases.size() == 1) trial.database_url = databases.front().url;
    if (databases.size() > 1) settings.databases = std::move(databases);
    return {};
}

void spread_over_databases(Settings& settings) {
    if (settings.databases.empty()) return;
    std::vector<StrategyGroup> groups;
    const auto add = [&](const StrategyGroup& from, const std::optional<Database>& database) {
        StrategyGroup group = from;
        std::erase_if(group.strategies, [&](const std::string& name) {
            const auto strategy = find_strategy(name);
            return strategy && is_on_sql(*strategy) != database.has_value();
        });
        if (group.strategies.empty()) return;
        const auto& names = group.strategies;
        if (std::find(names.begin(), names.end(), group.baseline) == names.end()) {
            group.baseline = names.front();
        }
        group.trial.strategy = names.front();
        group.trial.database_url = database ? database->url : "";
        group.trial.managed_database = database && database->managed;
        group.database = database;
        groups.push_back(std::move(group));
    };
    for (const StrategyGroup& group : settings.groups) {
        add(group, std::nullopt);
        for (const Database& database : settings.databases) add(group, database);
    }
    settings.groups = std::move(groups);
}

}  // namespace hotcount::loadtest
