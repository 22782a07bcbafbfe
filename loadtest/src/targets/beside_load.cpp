#include "beside_load.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <hotcount/redis.hpp>
#include <hotcount/sql.hpp>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "load/driver.hpp"
#include "load/pacer.hpp"
#include "load/strategy.hpp"
#include "managed_server.hpp"
#include "store_handle.hpp"
#include "store_target.hpp"

namespace hotcount::loadtest {

namespace {

constexpr Duration kEvery = std::chrono::milliseconds{1};
// The pause between two checks whether a server was replaced.
constexpr Duration kReplacedLook = std::chrono::milliseconds{2};

}  // namespace

Result<std::unique_ptr<Bystander>> Bystander::start(const TrialSettings& settings) {
    std::unique_ptr<Bystander> bystander{new Bystander};
    HOTCOUNT_TRY_ASSIGN(redis::Options options, redis::parse_options(settings.redis_url));
    options.timeout = settings.timeout;
    HOTCOUNT_TRY_ASSIGN(bystander->redis_, redis::Client::make(std::move(options)));
    HOTCOUNT_TRY(bystander->redis_->ping());
    const SteadyTime from = std::chrono::steady_clock::now() + settings.warmup;
    const SteadyTime until = from + settings.duration;
    bystander->thread_ =
        std::jthread([self = bystander.get(), from, until](const std::stop_token& ended) {
            sharpen_timers();
            constexpr std::string_view kAsk[] = {"EXISTS", "hotcount-load:bystander"};
            for (SteadyTime due = from; due < until && !ended.stop_requested(); due += kEvery) {
                sleep_until(due);
                const SteadyTime sent = std::chrono::steady_clock::now();
                if (!self->redis_->execute(kAsk)) continue;
                const SteadyTime done = std::chrono::steady_clock::now();
                self->times_.record(
                    std::chrono::duration_cast<std::chrono::nanoseconds>(done - sent).count());
                due = std::max(due,
                               done);  // Commands that were due meanwhile are left out.
            }
        });
    return bystander;
}

const Histogram& Bystander::stop() {
    thread_ = {};
    return times_;
}

Result<std::unique_ptr<Rebuilder>> Rebuilder::start(const TrialSettings& settings) {
    HOTCOUNT_TRY_ASSIGN(const Strategy strategy, find_strategy(settings.strategy));
    HOTCOUNT_TRY_ASSIGN(const StoreHandle store, StoreHandle::open(settings, strategy.store));
    if (settings.traffic.items < 2) {
        return make_error(ErrorCode::config, "--rebuild-every needs 2 items or more");
    }
    std::unique_ptr<Rebuilder> rebuilder{new Rebuilder};
    HOTCOUNT_TRY_ASSIGN(rebuilder->sets_, store.make<LiveSets>(LiveSetsOptions{}));
    rebuilder->thread_ = std::jthread(
        [self = rebuilder.get(), life = long_life(settings), every = settings.rebuild_every,
         items = settings.traffic.items](const std::stop_token& ended) {
            std::uint64_t item = 0;
            SteadyTime due = std::chrono::steady_clock::now();
            while (!ended.stop_requested()) {
                do {
                    item = item % items + 1;
                } while (!outlives_load(item));
                ++(self->build(item, life) ? self->builds_.published : self->builds_.failed);
                // Builds that it could not make meanwhile are not made up for.
                due = std::max(due + every, std::chrono::steady_clock::now());
                sleep_until(due);
            }
        });
    return rebuilder;
}

Result<void> Rebuilder::build(std::uint64_t item, Duration life) {
    const std::string key = item_key(static_cast<std::int64_t>(item));
    HOTCOUNT_TRY_ASSIGN(const auto build, sets_->rebuild(key, life));
    HOTCOUNT_TRY(build->begin());
    HOTCOUNT_TRY_ASSIGN(const std::vector<ScoredMember> source, sets_->range(key, 0, -1));
    std::vector<RebuildMember> members;
    members.reserve(source.size());
    for (const auto& [member, score] : source) members.push_back({member, score});
    HOTCOUNT_TRY(build->add_many(members));
    return build->publish();
}

Builds Rebuilder::stop() {
    thread_ = {};
    return builds_;
}

ServerFaults::ServerFaults(const TrialSettings& settings, Managed* redis, Managed* database,
                           SteadyTime start)
    : thread_([this, redis, database, faults = settings.faults,
               from = start + settings.warmup](const std::stop_token& ended) {
          ended_.done = run(faults, redis, database, from, ended);
      }) {}

Result<void> ServerFaults::run(const std::vector<Fault>& faults, Managed* redis, Managed* database,
                               SteadyTime from, const std::stop_token& ended) {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    std::vector<Outage>& outages = ended_.outages;
    Managed* struck = nullptr;
    // Another server may take the place of the one that went away last.
    const auto watches = [&] {
        return struck != nullptr && !(outages.back().replaced && outages.back().refused);
    };
    const auto look = [&] {
        if (!watches()) return;
        const auto see = [&](std::optional<SteadyTime>& when, bool holds) {
            if (holds) when = std::chrono::steady_clock::now();
        };
        Outage& last = outages.back();
        if (!last.refused) see(last.refused, struck->refuses());
        if (!last.replaced) see(last.replaced, struck->replaced());
    };
    const auto wait_until = [&](SteadyTime due) {
        while (!ended.stop_requested() && std::chrono::steady_clock::now() < due) {
            look();
            const SteadyTime next = std::chrono::steady_clock::now() + kReplacedLook;
            wake.wait_until(lock, ended, watches() ? std::min(next, due) : due,
                            [] { return false; });
        }
    };
    const auto make = [&](const Fault& fault, Managed& server) -> Result<void> {
        wait_until(from + fault.at);
        if (ended.stop_requested()) {
            return make_error(ErrorCode::config, "the load ended before");
        }
        HOTCOUNT_TRY_ASSIGN(const Managed::Strike strike, server.strike(fault));
        struck = &server;
        outages.push_back({fault, strike.away, {}, {}, {}, strike.copied});
        look();  // After a planned failover, another server has taken over by now.
        wait_until(from + fault.at + fault.lasts);
        auto mended = server.mend(fault);
        look();
        outages.back().back = std::chrono::steady_clock::now();
        if (mended || outages.back().replaced) return mended;
        outages.pop_back();  // It has no end.
        struck = nullptr;
        return mended;
    };
    Result<void> done;
    for (const Fault& fault : faults) {
        Managed* const server = is_of_database(fault.kind) ? database : redis;
        if (server == nullptr) continue;
        done = make(fault, *server);
        if (done) continue;
        done = make_error(done.error().code,
                          fmt::format("{}: {}", format_faults({fault}), done.error().message));
        break;
    }
    // A server that came back too late is replaced nevertheless.
    wait_until(std::chrono::steady_clock::now() + std::chrono::hours{24});
    return done;
}

ServerFaults::Ended ServerFaults::stop() {
    thread_ = {};
    return ended_;
}

Result<BesideLoad> BesideLoad::start(const TrialSettings& settings, Managed* redis,
                                     Managed* database) {
    BesideLoad beside;
    const auto strategy = find_strategy(settings.strategy);
    const bool on_redis = strategy && strategy->store == StrategyStore::redis;
    if (settings.bystander && on_redis) {
        HOTCOUNT_TRY_ASSIGN(beside.bystander_, Bystander::start(settings));
    }
    if (settings.rebuild_every > Duration{0}) {
        HOTCOUNT_TRY_ASSIGN(beside.rebuilder_, Rebuilder::start(settings));
    }
    if (!settings.faults.empty()) {
        beside.faults_ = std::make_unique<ServerFaults>(settings, redis, database,
                                                        std::chrono::steady_clock::now());
    }
    return beside;
}

BesideLoad::Found BesideLoad::stop() {
    Found found;
    if (faults_) found.faults = faults_->stop();
    if (rebuilder_) found.builds = rebuilder_->stop();
    if (bystander_) found.bystander_ns = bystander_->stop();
    return found;
}

// -- the work of the servers -----------------------------------------------------------------------

namespace {

constexpr Duration kAskTimeout = std::chrono::seconds{10};

struct LogAndCommits {
    Result<double> log;
    Result<double> commits;
};

Error because(std::string why) { return make_error(ErrorCode::config, std::move(why)); }

double number_in(std::string_view text) {
    double number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
}

Result<LogAndCommits> ask_postgres(sql::Connection& connection) {
    const sql::Statement statement(
        "SELECT CAST(pg_current_wal_insert_lsn() - CAST('0/0' AS pg_lsn) AS text), "
        "CAST(txid_snapshot_xmax(txid_current_snapshot()) AS text)");
    double log = 0;
    double next = 0;
    const sql::RowVisitor take = [&](const sql::Row& row) -> Result<void> {
        log = number_in(row.text(0));
        next = number_in(row.text(1));
        return {};
    };
    HOTCOUNT_TRY(connection.query(statement, {}, take));
    return LogAndCommits{log, next};
}

/// MySQL too. It has no counter of its binary log.
Result<LogAndCommits> ask_mariadb(sql::Connection& connection) {
    const sql::Statement written(
        "SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_os_log_written', "
        "'Binlog_bytes_written')");
    double log = 0;
    const sql::RowVisitor add = [&](const sql::Row& row) -> Result<void> {
        log += number_in(row.text(1));
        return {};
    };
    HOTCOUNT_TRY(connection.query(written, {}, add));
    const sql::Statement committed(
        "SELECT CAST(COUNT AS CHAR), CAST(TIME_ENABLED IS NOT NULL AND (TIME_DISABLED IS NULL OR "
        "TIME_DISABLED < TIME_ENABLED) AS CHAR) FROM information_schema.INNODB_METRICS WHERE NAME "
        "= "
        "'trx_rw_commits'");
    LogAndCommits found{log,
                        because("the server does not count them: SET GLOBAL innodb_monitor_enable "
                                "= 'trx_rw_commits'")};
    const sql::RowVisitor take = [&](const sql::Row& row) -> Result<void> {
        if (row.text(1) == "1") found.commits = number_in(row.text(0));
        return {};
    };
    // It takes a privilege that the user of an application seldom has.
    if (const auto asked = connection.query(committed, {}, take); !asked) {
        found.commits = asked.error();
    }
    return found;
}

Result<LogAndCommits> ask_database(const std::string& url) {
    sql::DatabaseOptions options;
    options.timeout = kAskTimeout;
    options.max_readers = 1;
    HOTCOUNT_TRY_ASSIGN(const auto database, sql::open_database(url, options));
    HOTCOUNT_TRY_ASSIGN(const sql::Lease lease, database->reader(Deadline::after(kAskTimeout)));
    const bool postgres = sql::to_string(database->dialect()) == "postgresql";
    return postgres ? ask_postgres(*lease) : ask_mariadb(*lease);
}

/// The size of the append-only file; none if it keeps none.
Result<std::optional<double>> ask_redis(const std::string& url) {
    HOTCOUNT_TRY_ASSIGN(redis::Options options, redis::parse_options(url));
    options.timeout = kAskTimeout;
    HOTCOUNT_TRY_ASSIGN(const auto client, redis::Client::make(std::move(options)));
    constexpr std::string_view kInfo[] = {"INFO", "persistence"};
    HOTCOUNT_TRY_ASSIGN(const redis::Reply reply, client->execute(kInfo));
    const auto* const info = std::get_if<std::string>(&reply.value);
    constexpr std::string_view kSize = "\naof_current_size:";
    const std::size_t at = info == nullptr ? std::string::npos : info->find(kSize);
    if (at == std::string::npos) return std::optional<double>{};
    return std::optional{number_in(std::string_view{*info}.substr(at + kSize.size()))};
}

std::uint64_t starts_of(const Managed* redis, const Managed* database) {
    return (redis ? redis->starts() : 0) + (database ? database->starts() : 0);
}

/// Of all that hold data; none if one of them is not there.
std::optional<double> cpu_of(const Managed& servers) {
    double sum = 0;
    for (const pid_t pid : servers.pids()) {
        const auto one = cpu_seconds(pid);
        if (!one) return std::nullopt;
        sum += *one;
    }
    return sum;
}

/// The growth between two readings.
std::optional<double> grown(const Result<double>& from, const Result<double>& to, const char* what,
                            std::vector<std::string>& unknown) {
    const Result<double>& wrong = from ? to : from;
    if (!wrong) {
        unknown.push_back(fmt::format("{}: {}", what, wrong.error().message));
    } else if (*to < *from) {
        unknown.push_back(fmt::format("{}: the server began to count anew in the load", what));
    } else {
        return *to - *from;
    }
    return std::nullopt;
}

}  // namespace

ServerMeter::ServerMeter(const TrialSettings& settings, Managed* redis, Managed* database)
    : settings_(settings),
      redis_(redis),
      database_(database),
      starts_(starts_of(redis, database)),
      first_(read()) {}

ServerMeter::Reading ServerMeter::read() const {
    Reading reading;
    const auto strategy = find_strategy(settings_.strategy);
    if (!strategy) return reading;
    const bool on_redis = strategy->store == StrategyStore::redis;
    const bool on_server = strategy->on_sql() && on_database_server(settings_.database_url);
    // The questions are not part of the answer.
    const std::pair<bool, const Managed*> servers[] = {{on_redis, redis_}, {on_server, database_}};
    for (const auto& [used, server] : servers) {
        if (!used || !reading.cpu_s) continue;
        const auto cpu_s = server ? cpu_of(*server) : std::nullopt;
        if (cpu_s) {
            *reading.cpu_s += *cpu_s;
        } else {
            reading.cpu_s = because(server ? "the server is not there"
                                           : "it is known of servers that --managed starts");
        }
    }
    if (!on_redis && !on_server) {
        reading.cpu_s = because("there is no server; the generator's own time holds it");
    }
    if (on_server) {
        const auto asked = ask_database(settings_.database_url);
        if (asked) {
            reading.log = asked->log;
            reading.commits = asked->commits;
        } else {
            reading.log = reading.commits = asked.error();
        }
    } else if (strategy->on_sql()) {
        reading.log = because("SQLite does not count it");
    } else {
        reading.commits = because("there is no database");
        if (!on_redis) reading.log = because("there is no server");
    }
    if (!on_redis || !reading.log) return reading;
    if (names_a_group(settings_.redis_url)) {
        reading.log = because("it is known of one Redis, and not of several");
        return reading;
    }
    const auto file = ask_redis(settings_.redis_url);
    if (!file) {
        reading.log = file.error();
    } else if (*file) {
        *reading.log += **file;
    } else if (!strategy->on_sql()) {
        reading.log = because("the Redis keeps none (appendonly is off)");
    }
    return reading;
}

ServerWork ServerMeter::work(const TargetStats& spent) const {
    const auto strategy = find_strategy(settings_.strategy);
    Reading last = read();
    if (starts_of(redis_, database_) != starts_) {
        const Error anew = because("the server was started anew in the load");
        last.cpu_s = anew;
        const std::string_view url = settings_.database_url;
        if (url.starts_with("mariadb") || url.starts_with("mysql")) {
            last.log = last.commits = anew;
        }
    }
    ServerWork work;
    const bool sqlite =
        strategy && strategy->on_sql() && !on_database_server(settings_.database_url);
    if (sqlite && settings_.processes == 0 && !strategy->exec) {
        work.commits = static_cast<double>(spent.transactions);
    } else if (sqlite) {
        work.unknown.emplace_back("commits: they are counted in the processes of the callers");
    } else {
        work.commits = grown(first_.commits, last.commits, "commits", work.unknown);
    }
    work.log_bytes = grown(first_.log, last.log, "log", work.unknown);
    work.cpu_s = grown(first_.cpu_s, last.cpu_s, "cpu", work.unknown);
    return work;
}

}  // namespace hotcount::loadtest
