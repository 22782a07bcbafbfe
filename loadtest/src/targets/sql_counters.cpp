#include <fmt/core.h>

#include <algorithm>
#include <hotcount/slotted_counter.hpp>
#include <hotcount/write_behind_counter.hpp>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checkers/audit.hpp"
#include "sql_place.hpp"
#include "store_handle.hpp"

namespace hotcount::loadtest {
namespace {

/// Adds are told no values, and the audit reads the table with a statement of its own.
class SqlCounters : public SqlTarget {
  public:
    /// Makes the tables.
    Result<void> set_up(const std::string& more) {
        HOTCOUNT_TRY(create_tables());
        HOTCOUNT_TRY_ASSIGN(const auto found, sums());
        if (!found.empty()) {
            return make_error(ErrorCode::config,
                              fmt::format("table {} of {} holds counts already: the audit could "
                                          "not tell them from the run's own; name a fresh database",
                                          table_, sql_.database->name()));
        }
        return describe_place(more);
    }
    UnvoteValue unvote() const override { return UnvoteValue::add_minus_one; }
    Result<AuditResult> audit(const Ledger& ledger) override {
        HOTCOUNT_TRY(settle());
        HOTCOUNT_TRY_ASSIGN(const auto found, sums());
        std::vector<std::int64_t> values;
        for (std::uint64_t item = 1; item <= settings_.traffic.items; ++item) {
            const auto sum = found.find(item_key(static_cast<std::int64_t>(item)));
            values.push_back(sum == found.end() ? 0 : sum->second);
        }
        return audit_counters(ledger, values, false);
    }
    std::optional<AnswerRules> answer_rules(const Ledger& /*ledger*/) const override {
        return rules_for(find_strategy(settings_.strategy).value(), settings_.traffic.items);
    }

  protected:
    SqlCounters(const TrialSettings& settings, SqlPlace sql, std::string table, std::string key,
                std::string count)
        : SqlTarget(settings, std::move(sql)),
          table_(std::move(table)),
          key_(std::move(key)),
          count_(std::move(count)) {}
    virtual Result<void> create_tables() = 0;
    const std::string& table() const { return table_; }

  private:
    Result<std::map<std::string, std::int64_t>> sums() const {
        const sql::Statement statement(
            fmt::format("SELECT {}, {} FROM {}", sql::quote_identifier(key_),
                        sql::quote_identifier(count_), sql::quote_identifier(table_)));
        HOTCOUNT_TRY_ASSIGN(const sql::Lease reader,
                            sql_.database->reader(Deadline::after(kSetUpTimeout)));
        std::map<std::string, std::int64_t> found;
        const sql::RowVisitor add = [&](const sql::Row& row) -> Result<void> {
            found[std::string{row.text(0)}] += row.integer(1);
            return {};
        };
        HOTCOUNT_TRY(reader->query(statement, {}, add));
        return found;
    }

    const std::string table_;
    const std::string key_;  // Columns.
    const std::string count_;
};

class SlotsTarget final : public SqlCounters {
  public:
    SlotsTarget(const TrialSettings& settings, SqlPlace sql,
                std::shared_ptr<SlottedCounter> counter)
        : SqlCounters(settings, std::move(sql), counter->options().table,
                      counter->options().key_column, counter->options().count_column),
          counter_(counter),
          driver_(make_driver(std::move(counter), settings.timeout)) {}

    Driver& driver() override { return *driver_; }
    Contract contract() const override {
        const SlottedCounterOptions& options = counter_->options();
        return {settings_.strategy,
                fmt::format("the add is committed in one of {}{} rows of its key",
                            options.adaptive ? "up to " : "", options.slots),
                "nothing", true, true};
    }
    Result<void> clean_up() override { return drop(table(), {"", "_op"}); }

  private:
    Result<void> create_tables() override { return counter_->create_table(kSetUpTimeout); }

    std::shared_ptr<SlottedCounter> counter_;
    std::unique_ptr<Driver> driver_;
};

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

class ViewsTarget final : public SqlCounters {
  public:
    ViewsTarget(const TrialSettings& settings, SqlPlace sql, StoreHandle store,
                std::shared_ptr<WriteBehindCounter> views, Ack ack)
        : SqlCounters(settings, std::move(sql), views->options().table, "key", "total"),
          store_(std::move(store)),
          views_(views),
          ack_(ack),
          driver_(make_driver(std::move(views), ack, settings.timeout)) {}

    Driver& driver() override { return *driver_; }
    Contract contract() const override {
        Contract contract = views_->contract();
        contract.acknowledged = clause_of(contract.acknowledged, ack_);
        contract.may_lose = clause_of(contract.may_lose, ack_);
        return contract;
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

    Result<void> clean_up() override {
        if (!settings_.leaves_keys()) HOTCOUNT_TRY(store_.remove_keys());
        return drop(table(), {"", "_cell", "_meta"});
    }

  private:
    Result<void> create_tables() override { return views_->create_tables(kSetUpTimeout); }

    StoreHandle store_;
    std::shared_ptr<WriteBehindCounter> views_;
    Ack ack_;
    std::unique_ptr<Driver> driver_;
    std::jthread worker_{};  // Last: it ends before what it works on.
};

Result<std::unique_ptr<Target>> set_up_if(bool fresh, std::unique_ptr<SqlCounters> target,
                                          const std::string& more) {
    if (fresh) HOTCOUNT_TRY(target->set_up(more));
    return std::unique_ptr<Target>(std::move(target));
}

}  // namespace

Result<std::unique_ptr<Target>> make_sql_counters_target(const TrialSettings& settings,
                                                         const Strategy& strategy,
                                                         const std::filesystem::path& folder,
                                                         bool fresh) {
    const bool on_server = on_database_server(settings.database_url);
    if (!strategy.views) {
        SlottedCounterOptions options;
        options.slots = settings.slots;
        options.adaptive = strategy.way == "adaptive";
        options.slot_choice = strategy.way == "random" ? SlotChoice::random : SlotChoice::sticky;
        if (on_server) options.table = table_name(settings.key_prefix, "slot");
        HOTCOUNT_TRY_ASSIGN(SqlPlace sql, open_place(settings, folder, fresh, settings.workers));
        HOTCOUNT_TRY_ASSIGN(auto counter, SlottedCounter::make(sql.database, options));
        return set_up_if(
            fresh, std::make_unique<SlotsTarget>(settings, std::move(sql), std::move(counter)), "");
    }
    WriteBehindOptions options;
    // A cell for each item and all those that outlive an id.
    options.max_cells = std::max<std::size_t>(options.max_cells, 2 * settings.traffic.items);
    if (on_server) options.table = table_name(settings.key_prefix, "views");
    HOTCOUNT_TRY_ASSIGN(auto store, StoreHandle::open(settings, strategy.store));
    HOTCOUNT_TRY_ASSIGN(SqlPlace sql, open_place(settings, folder, fresh, 0));
    HOTCOUNT_TRY_ASSIGN(auto views,
                        WriteBehindCounter::make(sql.database, store.client(), options));
    const std::string waits = "; adds wait in " + store.place();
    return set_up_if(fresh,
                     std::make_unique<ViewsTarget>(settings, std::move(sql), std::move(store),
                                                   std::move(views), ack_of(strategy)),
                     waits);
}

}  // namespace hotcount::loadtest
