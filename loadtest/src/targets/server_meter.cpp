#include "beside_load.hpp"

#include <fmt/core.h>

#include <charconv>
#include <chrono>
#include <hotcount/redis.hpp>
#include <hotcount/sql.hpp>
#include <string_view>
#include <utility>
#include <variant>

#include "managed_server.hpp"

namespace hotcount::loadtest {
namespace {

constexpr Duration kAsk = std::chrono::seconds{10};

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
    options.timeout = kAsk;
    options.max_readers = 1;
    HOTCOUNT_TRY_ASSIGN(const auto database, sql::open_database(url, options));
    HOTCOUNT_TRY_ASSIGN(const sql::Lease lease, database->reader(Deadline::after(kAsk)));
    const bool postgres = sql::to_string(database->dialect()) == "postgresql";
    return postgres ? ask_postgres(*lease) : ask_mariadb(*lease);
}

/// The size of the append-only file; none if it keeps none.
Result<std::optional<double>> ask_redis(const std::string& url) {
    HOTCOUNT_TRY_ASSIGN(redis::Options options, redis::parse_options(url));
    options.timeout = kAsk;
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
    const bool on_redis = strategy->store == StoreKind::redis;
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
