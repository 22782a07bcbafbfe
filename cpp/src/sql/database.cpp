#include <algorithm>
#include <atomic>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/random.hpp>
#include <hotcount/sql.hpp>
#include <map>

#include "dialect.hpp"

namespace hotcount::sql {

Statement::Statement(std::string text) : text_(std::move(text)) {
    static std::atomic<std::uint64_t> next_id{1};
    id_ = next_id.fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t Connection::next_place() {
    // Each process starts at a value of its own: otherwise all would write to the same few rows.
    using Number = std::atomic<std::uint64_t>;
    static ForkLocal<Number> next{
        [] { return std::make_unique<Number>(1 + thread_random().below(1'000'000)); }};
    return next.get().fetch_add(1, std::memory_order_relaxed);
}

Result<std::int64_t> Connection::run_alone(const Statement& statement,
                                           std::span<const Value> parameters,
                                           const RowVisitor* visit, const Alone& how) {
    if (!in_transaction()) HOTCOUNT_TRY(begin(how.deadline));
    auto changed = run(statement, parameters, visit);
    if (!changed) {
        rollback();
        return changed;
    }
    HOTCOUNT_TRY(commit());
    return changed;
}

Result<std::int64_t> Connection::read_alone(const Statement& statement,
                                            std::span<const Value> parameters,
                                            const RowVisitor* visit, Deadline deadline) {
    HOTCOUNT_TRY(begin_read(deadline));
    auto answer = run(statement, parameters, visit);
    if (!answer) {
        rollback();
        return answer;
    }
    HOTCOUNT_TRY(commit());
    return answer;
}

std::string to_string(const Id& id) {
    if (const auto* number = std::get_if<std::int64_t>(&id)) return std::to_string(*number);
    return "'" + std::get<std::string>(id) + "'";
}

namespace {

/// Adds to the error of an option that no driver knows that it is an argument beside the URL.
Error name_argument(Error error, const Url& url) {
    for (const std::string name : {"timeout", "max_readers", "max_writers", "idle_timeout"}) {
        if (error.facts && error.facts->option == name && url.query.contains(name)) {
            error.message +=
                ". " + name + " is an argument: hotcount.Database(url, " + name + "=...)";
        }
    }
    return error;
}

}  // namespace

Result<std::shared_ptr<Database>> open_database(std::string_view url, DatabaseOptions options) {
    if (options.timeout <= Duration{0}) {
        return bad_option("timeout", "must be more than 0 seconds");
    }
    if (options.max_readers == 0) return bad_option("max_readers", "must be 1 or more");
    if (options.max_writers == 0) return bad_option("max_writers", "must be 1 or more");
    if (options.idle_timeout && *options.idle_timeout <= Duration{0}) {
        return bad_option("idle_timeout", "must be more than 0 seconds, or none");
    }
    if (options.tcp_user_timeout < std::chrono::milliseconds{1} ||
        options.tcp_user_timeout > std::chrono::hours{24}) {
        return bad_option("tcp_user_timeout", "must be from 0.001 seconds to 24 hours");
    }
    HOTCOUNT_TRY_ASSIGN(const Url parsed, parse_url(url));
    std::string known;
    for (const Driver& driver : drivers()) {
        for (const Scheme& scheme : driver.schemes) {
            if (parsed.scheme == scheme.name) {
                auto opened = driver.open(parsed, options);
                if (!opened) return name_argument(std::move(opened).error(), parsed);
                return opened;
            }
            if (!scheme.alias) known += (known.empty() ? "" : ", ") + std::string{scheme.name};
        }
    }
    return make_error(ErrorCode::config, "URL: scheme '" + parsed.scheme +
                                             "' is not a database this version knows: " + known);
}

// -- settings that weaken a commit ----------------------------------------------------------------

bool is_off(std::string_view value) { return value == "off" || value == "OFF" || value == "0"; }

void Database::look_at_durability(const Statement& read, std::span<const WeakSetting> known) {
    std::map<std::string, std::string, std::less<>> settings;
    const RowVisitor see = [&](const Row& row) -> Result<void> {
        settings.emplace(row.text(0), row.text(1));
        return {};
    };
    const auto lease = writer(deadline({}));
    if (!lease || !(*lease)->query(read, {}, see)) return;
    const auto is_on = [&](std::string_view name) {
        const auto found = settings.find(name);
        return found != settings.end() && !is_off(found->second);
    };
    std::string weak;
    for (const WeakSetting& setting : known) {
        const auto found = settings.find(setting.name);
        if (found == settings.end() || !setting.is_weak(found->second)) continue;
        if (!setting.only_with.empty() && !is_on(setting.only_with)) continue;
        weak += (weak.empty() ? "" : "; ") + found->first + "=" + printable(found->second) + ": " +
                std::string{setting.cost};
    }
    if (weak.empty()) return;
    durability_warning_ =
        name() + " keeps commits less safely than hotcount's contracts say: " + weak;
}

}  // namespace hotcount::sql
