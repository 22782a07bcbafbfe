#include "slots_target.hpp"

#include <fmt/core.h>

#include <hotcount/slotted_counter.hpp>
#include <hotcount/url.hpp>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checkers/audit.hpp"
#include "load/run_folder.hpp"
#include "sql_place.hpp"

namespace hotcount::loadtest {
namespace {

class SlotsTarget final : public Target {
  public:
    SlotsTarget(const TrialSettings& settings, std::shared_ptr<sql::Database> database,
                std::shared_ptr<SlottedCounter> counter, std::filesystem::path file)
        : settings_(settings),
          database_(std::move(database)),
          counter_(counter),
          file_(std::move(file)),
          driver_(std::move(counter), settings.timeout) {}

    Result<void> set_up() {
        HOTCOUNT_TRY(counter_->create_table(kSetUpTimeout));
        HOTCOUNT_TRY_ASSIGN(const auto found, sums());
        if (!found.empty()) {
            return make_error(ErrorCode::config,
                              fmt::format("table {} of {} holds counts already: the audit could "
                                          "not tell them from the run's own; name a fresh database",
                                          counter_->options().table, database_->name()));
        }
        HOTCOUNT_TRY_ASSIGN(place_, describe_database(*database_, file_));
        return {};
    }

    Driver& driver() override { return driver_; }
    Contract contract() const override {
        const SlottedCounterOptions& options = counter_->options();
        return {settings_.strategy,
                fmt::format("the add is committed in one of {}{} rows of its key",
                            options.adaptive ? "up to " : "", options.slots),
                "nothing", true, true};
    }
    std::string place() const override { return place_; }
    UnvoteValue unvote() const override { return UnvoteValue::add_minus_one; }
    TargetStats stats() const override {
        const sql::Database::Stats stats = database_->stats();
        return {stats.transactions, stats.statements, stats.busy_waits};
    }

    Result<AuditResult> audit(const Ledger& ledger) override {
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

    Result<void> clean_up() override {
        if (!file_.empty() || settings_.leaves_tables()) return {};
        const std::string& table = counter_->options().table;
        std::string script;
        for (const char* const suffix : {"", "_op"}) {
            script += "DROP TABLE IF EXISTS " + sql::quote_identifier(table + suffix) + ";\n";
        }
        HOTCOUNT_TRY_ASSIGN(const sql::Lease writer,
                            database_->writer(Deadline::after(kSetUpTimeout)));
        return writer->run_script(script);
    }

  private:
    /// By key, with a statement of the audit's own.
    Result<std::map<std::string, std::int64_t>> sums() const {
        const SlottedCounterOptions& options = counter_->options();
        const sql::Statement statement(fmt::format(
            "SELECT {0}, {1} FROM {2}", sql::quote_identifier(options.key_column),
            sql::quote_identifier(options.count_column), sql::quote_identifier(options.table)));
        HOTCOUNT_TRY_ASSIGN(const sql::Lease reader,
                            database_->reader(Deadline::after(kSetUpTimeout)));
        std::map<std::string, std::int64_t> found;
        const sql::RowVisitor add = [&](const sql::Row& row) -> Result<void> {
            found[std::string{row.text(0)}] += row.integer(1);
            return {};
        };
        HOTCOUNT_TRY(reader->query(statement, {}, add));
        return found;
    }

    TrialSettings settings_;
    std::shared_ptr<sql::Database> database_;
    std::shared_ptr<SlottedCounter> counter_;
    std::filesystem::path file_;  // Empty on a server.
    SlotsDriver driver_;
    std::string place_{};
};

}  // namespace

Result<std::unique_ptr<Target>> make_slots_target(const TrialSettings& settings,
                                                  const Strategy& strategy,
                                                  const std::filesystem::path& folder, bool fresh) {
    const bool on_server = on_database_server(settings.database_url);
    std::string url =
        settings.database_url.empty() ? sqlite_url(folder / kDatabaseFile) : settings.database_url;
    SlottedCounterOptions options;
    options.slots = settings.slots;
    options.adaptive = strategy.way == "adaptive";
    options.slot_choice = strategy.way == "random" ? SlotChoice::random : SlotChoice::sticky;
    sql::DatabaseOptions connections;
    if (on_server) {
        options.table = table_name(settings.key_prefix, "slot");
        connections.max_writers = settings.workers;
    } else {
        url += fresh ? "?mode=rwc" : "?mode=rw";
    }
    HOTCOUNT_TRY_ASSIGN(auto database, sql::open_database(url, connections));
    HOTCOUNT_TRY_ASSIGN(auto counter, SlottedCounter::make(database, options));
    HOTCOUNT_TRY_ASSIGN(const Url parsed, parse_url(url));
    auto target = std::make_unique<SlotsTarget>(settings, std::move(database), std::move(counter),
                                                on_server ? "" : parsed.path.substr(1));
    if (fresh) HOTCOUNT_TRY(target->set_up());
    return std::unique_ptr<Target>(std::move(target));
}

}  // namespace hotcount::loadtest
