#include "views_target.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <hotcount/url.hpp>
#include <hotcount/write_behind_counter.hpp>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checkers/audit.hpp"
#include "load/run_folder.hpp"
#include "sql_place.hpp"
#include "store_handle.hpp"
#include "sync_thread.hpp"

namespace hotcount::loadtest {
namespace {

Ack ack_of(const Strategy& strategy) {
    if (strategy.way == "views_local") return Ack::local;
    return strategy.way == "views_sql" ? Ack::sql : Ack::cache;
}

/// The part of a contract's text that is about one kind of acknowledgement: "ack='cache': ...; ack=...".
std::string clause_of(const std::string& text, Ack ack) {
    const std::string_view name = ack == Ack::local ? "local" : ack == Ack::sql ? "sql" : "cache";
    const std::string begin = fmt::format("ack='{}': ", name);
    constexpr std::string_view kSame = "the same";
    const std::size_t at = text.find(begin);
    if (at == std::string::npos) return text;
    const std::size_t from = at + begin.size();
    const std::string clause = text.substr(from, text.find("; ack='", from) - from);
    if (ack == Ack::cache || !clause.starts_with(kSame)) return clause;
    return clause_of(text, Ack::cache) + clause.substr(kSame.size());
}

class ViewsTarget final : public Target {
  public:
    ViewsTarget(const TrialSettings& settings, std::shared_ptr<sql::Database> database,
                StoreHandle store, std::shared_ptr<WriteBehindCounter> views, Ack ack,
                std::filesystem::path file)
        : settings_(settings),
          database_(std::move(database)),
          store_(std::move(store)),
          views_(views),
          file_(std::move(file)),
          ack_(ack),
          driver_(std::move(views), ack, settings.timeout) {}

    Result<void> set_up() {
        HOTCOUNT_TRY(views_->create_tables(kSetUpTimeout));
        HOTCOUNT_TRY_ASSIGN(const auto found, totals());
        if (!found.empty()) {
            return make_error(ErrorCode::config,
                              fmt::format("table {} of {} holds counts already: the audit could "
                                          "not tell them from the run's own; name a fresh database",
                                          views_->options().table, database_->name()));
        }
        HOTCOUNT_TRY_ASSIGN(place_, describe_database(*database_, file_));
        place_ += "; adds wait in " + store_.place();
        return {};
    }

    Driver& driver() override { return driver_; }
    Contract contract() const override {
        Contract contract = views_->contract();
        contract.acknowledged = clause_of(contract.acknowledged, ack_);
        contract.may_lose = clause_of(contract.may_lose, ack_);
        return contract;
    }
    std::string place() const override { return place_; }
    UnvoteValue unvote() const override { return UnvoteValue::add_minus_one; }
    TargetStats stats() const override {
        const sql::Database::Stats stats = database_->stats();
        return {stats.transactions, stats.statements, stats.busy_waits};
    }

    Result<void> begin() override {
        HOTCOUNT_TRY_ASSIGN(auto worker, views_->sync_worker());
        worker_ = run_in_thread(std::move(worker));
        return {};
    }

    /// Until SQL has all that it takes. What is left behind is missing in the totals.
    Result<void> settle() override {
        worker_ = {};
        HOTCOUNT_TRY(views_->flush(kSetUpTimeout));
        HOTCOUNT_TRY_ASSIGN(const auto worker, views_->sync_worker());
        const Deadline deadline = Deadline::after(kSetUpTimeout);
        SyncRound round{};
        do {
            HOTCOUNT_TRY_ASSIGN(round, worker->run_once(deadline.remaining()));
        } while (round.scanned > round.unsettled);
        return {};
    }

    Result<AuditResult> audit(const Ledger& ledger) override {
        HOTCOUNT_TRY(settle());
        HOTCOUNT_TRY_ASSIGN(const auto found, totals());
        std::vector<std::int64_t> values;
        for (std::uint64_t item = 1; item <= settings_.traffic.items; ++item) {
            const auto total = found.find(item_key(static_cast<std::int64_t>(item)));
            values.push_back(total == found.end() ? 0 : total->second);
        }
        return audit_counters(ledger, values, false);
    }

    std::optional<AnswerRules> answer_rules(const Ledger& /*ledger*/) const override {
        return rules_for(find_strategy(settings_.strategy).value(), settings_.traffic.items);
    }

    Result<void> clean_up() override {
        if (!settings_.leaves_keys()) HOTCOUNT_TRY(store_.remove_keys());
        if (!file_.empty() || settings_.leaves_tables()) return {};
        std::string script;
        for (const char* const suffix : {"", "_cell", "_meta"}) {
            script += "DROP TABLE IF EXISTS " +
                      sql::quote_identifier(views_->options().table + suffix) + ";\n";
        }
        HOTCOUNT_TRY_ASSIGN(const sql::Lease writer,
                            database_->writer(Deadline::after(kSetUpTimeout)));
        return writer->run_script(script);
    }

  private:
    /// By key, with a statement of the audit's own.
    Result<std::map<std::string, std::int64_t>> totals() const {
        const sql::Statement statement(fmt::format("SELECT {}, total FROM {}",
                                                   sql::quote_identifier("key"),
                                                   sql::quote_identifier(views_->options().table)));
        HOTCOUNT_TRY_ASSIGN(const sql::Lease reader,
                            database_->reader(Deadline::after(kSetUpTimeout)));
        std::map<std::string, std::int64_t> found;
        const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
            found[std::string{row.text(0)}] = row.integer(1);
            return {};
        };
        HOTCOUNT_TRY(reader->query(statement, {}, read));
        return found;
    }

    TrialSettings settings_;
    std::shared_ptr<sql::Database> database_;
    StoreHandle store_;
    std::shared_ptr<WriteBehindCounter> views_;
    std::filesystem::path file_;  // Empty on a server.
    Ack ack_;
    ViewsDriver driver_;
    std::string place_{};
    std::jthread worker_{};  // Last: it ends before what it works on.
};

}  // namespace

Result<std::unique_ptr<Target>> make_views_target(const TrialSettings& settings,
                                                  const Strategy& strategy,
                                                  const std::filesystem::path& folder, bool fresh) {
    const bool on_server = on_database_server(settings.database_url);
    std::string url =
        settings.database_url.empty() ? sqlite_url(folder / kDatabaseFile) : settings.database_url;
    WriteBehindOptions options;
    // A cell for each item and all those that outlive an id.
    options.max_cells = std::max<std::size_t>(options.max_cells, 2 * settings.traffic.items);
    if (on_server) {
        options.table = table_name(settings.key_prefix, "views");
    } else {
        url += fresh ? "?mode=rwc" : "?mode=rw";
    }
    HOTCOUNT_TRY_ASSIGN(auto store, StoreHandle::open(settings, strategy.store));
    HOTCOUNT_TRY_ASSIGN(auto database, sql::open_database(url));
    HOTCOUNT_TRY_ASSIGN(auto views, WriteBehindCounter::make(database, store.client(), options));
    HOTCOUNT_TRY_ASSIGN(const Url parsed, parse_url(url));
    auto target = std::make_unique<ViewsTarget>(settings, std::move(database), std::move(store),
                                                std::move(views), ack_of(strategy),
                                                on_server ? "" : parsed.path.substr(1));
    if (fresh) HOTCOUNT_TRY(target->set_up());
    return std::unique_ptr<Target>(std::move(target));
}

}  // namespace hotcount::loadtest
