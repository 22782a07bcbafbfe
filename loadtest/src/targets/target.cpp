#include "target.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "checkers/audit.hpp"
#include "driver_session.hpp"
#include "load/run_folder.hpp"
#include "plain_votes.hpp"
#include "sql_place.hpp"
#include "store_handle.hpp"
#include "store_target.hpp"

namespace hotcount::loadtest {
namespace {

constexpr std::uint64_t kItemsAtOnce = 100'000;

// Strategy cached without group commit.
constexpr std::string_view kCachedAlone = "cached_alone";

Result<VoteStrategy> library_strategy(const Strategy& driven) {
    const std::string& name = driven.way;
    if (name == kCachedAlone) return VoteStrategy::cached;
    // Plain strategies use the tables of naive, which counts in cast() alone: they do not call it.
    if (driven.plain) return VoteStrategy::naive;
    for (const VoteStrategy strategy :
         {VoteStrategy::naive, VoteStrategy::slotted, VoteStrategy::batched, VoteStrategy::cached,
          VoteStrategy::write_behind}) {
        if (to_string(strategy) == name) return strategy;
    }
    return make_error(ErrorCode::config, fmt::format("strategy '{}' is not known", name));
}

/// Maps the load's items 1, 2, ... to rows of the user's own item table.
class RowsOfTable final : public Driver {
  public:
    RowsOfTable(Driver& inner, const std::vector<std::int64_t>& ids) : inner_(inner), ids_(ids) {}
    Answer apply(const Operation& operation) override { return inner_.apply(of_row(operation)); }
    void start(const Operation& operation, Done done) override {
        inner_.start(of_row(operation), std::move(done));
    }

  private:
    Operation of_row(Operation operation) const {
        operation.item = ids_[static_cast<std::size_t>(operation.item - 1)];
        return operation;
    }
    Driver& inner_;
    const std::vector<std::int64_t>& ids_;
};

/// A private database of several MariaDB hosts is a Galera cluster: all nodes take writes. Returns
/// for each node but the first a URL that begins with that node.
std::vector<std::string> urls_of_other_nodes(const TrialSettings& settings) {
    const std::string& url = settings.database_url;
    std::vector<std::string> urls;
    if (!settings.managed_database || !url.starts_with("mariadb://")) return urls;
    const std::size_t from = url.find('@') + 1;
    const std::size_t end = url.find('/', from);
    std::string hosts = url.substr(from, end - from);
    const auto count = std::count(hosts.begin(), hosts.end(), ',');
    for (auto node = count; node > 0; --node) {
        const std::size_t comma = hosts.find(',');
        hosts = hosts.substr(comma + 1) + "," + hosts.substr(0, comma);
        urls.push_back(url.substr(0, from) + hosts + url.substr(end));
    }
    return urls;
}

/// Votes on several nodes in turn.
class VotesOnNodes final : public Driver {
  public:
    VotesOnNodes(const std::vector<std::shared_ptr<Votes>>& nodes, Timeout timeout) {
        for (const auto& votes : nodes) {
            nodes_.push_back(std::make_unique<VotesDriver>(votes, timeout));
        }
    }
    Answer apply(const Operation& operation) override { return next().apply(operation); }
    void start(const Operation& operation, Done done) override {
        next().start(operation, std::move(done));
    }

  private:
    Driver& next() { return *nodes_[turn_.fetch_add(1) % nodes_.size()]; }

    std::vector<std::unique_ptr<VotesDriver>> nodes_{};
    std::atomic<std::size_t> turn_{0};
};

class VotesTarget final : public SqlTarget {
  public:
    /// `fresh`: makes the database's file; otherwise the file must exist.
    static Result<std::unique_ptr<VotesTarget>> open(const TrialSettings& settings,
                                                     const Strategy& strategy,
                                                     const std::filesystem::path& folder,
                                                     bool fresh) {
        VotesOptions options;
        HOTCOUNT_TRY_ASSIGN(options.strategy, library_strategy(strategy));
        if (strategy.way == kCachedAlone) options.commit.max_batch = 1;
        const bool makes_tables = settings.tables.empty();
        for (const auto& [option, member] : table_options()) {
            const auto name = settings.tables.find(option);
            if (name != settings.tables.end()) options.*member = name->second;
        }
        if (makes_tables && on_database_server(settings.database_url)) {
            options.item_table = table_name(settings.key_prefix, "item");
            options.vote_table = table_name(settings.key_prefix, "vote");
        }
        std::optional<StoreHandle> store;
        if (strategy.store != StrategyStore::sql) {
            HOTCOUNT_TRY_ASSIGN(store, StoreHandle::open(settings, strategy.store));
        }
        // A connection for each caller: some strategies have a transaction for each vote.
        HOTCOUNT_TRY_ASSIGN(SqlPlace sql,
                            open_place(settings, folder, fresh && makes_tables, settings.workers));
        const bool plain = strategy.plain;
        const VoteCache cache = store && !plain ? store->cache() : VoteCache{};
        std::vector<std::shared_ptr<Votes>> nodes(1);
        HOTCOUNT_TRY_ASSIGN(nodes[0], Votes::make(sql.database, options, cache));
        TrialSettings at_node = settings;
        for (const std::string& url : urls_of_other_nodes(settings)) {
            at_node.database_url = url;
            HOTCOUNT_TRY_ASSIGN(const SqlPlace node,
                                open_place(at_node, folder, fresh, settings.workers));
            HOTCOUNT_TRY_ASSIGN(nodes.emplace_back(), Votes::make(node.database, options, cache));
            sql.nodes.push_back(node.database);
        }
        std::unique_ptr<PlainVotes> own;
        if (plain) {
            own = std::make_unique<PlainVotes>(sql.database, nodes[0]->options(),
                                               store ? store->client() : nullptr, settings.timeout);
        }
        return std::unique_ptr<VotesTarget>(new VotesTarget(settings, strategy, std::move(sql),
                                                            std::move(nodes), std::move(store),
                                                            std::move(own)));
    }

    Result<void> set_up() {
        const std::uint64_t items = settings_.traffic.items;
        if (!settings_.tables.empty()) HOTCOUNT_TRY(look_for_tables());
        HOTCOUNT_TRY(
            votes_->create_tables(ExistingCounts::refuse, OutsideWrites::leave, kSetUpTimeout));
        auto usable = refuse_used_tables(*sql_.database, votes_->options());
        if (usable && !settings_.tables.empty()) usable = find_rows();
        if (!usable) {
            HOTCOUNT_TRY(run_script(drops_));
            return usable;
        }
        for (std::uint64_t first = 1; ids_.empty() && first <= items; first += kItemsAtOnce) {
            std::vector<sql::Id> ids;
            for (std::uint64_t id = first; id <= items && id < first + kItemsAtOnce; ++id) {
                ids.emplace_back(static_cast<std::int64_t>(id));
            }
            HOTCOUNT_TRY(votes_->add_items(ids, kSetUpTimeout));
        }
        const bool waits = votes_->options().strategy == VoteStrategy::write_behind;
        return describe_place(
            store_ ? (waits ? "; votes wait in " : "; counted in ") + store_->place() : "");
    }

    Driver& driver() override {
        if (plain_) return *plain_;
        if (!ids_.empty()) return rows_;
        return driver_;
    }
    Contract contract() const override { return plain_ ? plain_->contract() : votes_->contract(); }
    UnvoteValue unvote() const override { return UnvoteValue::set_zero; }

    /// During the load a worker saves the counts of a cache, or writes the votes that wait there,
    /// as in production.
    Result<void> begin() override {
        if (plain_) return plain_->begin();
        if (!store_) return {};
        HOTCOUNT_TRY_ASSIGN(auto worker, votes_->sync_worker());
        worker_ = run_in_thread(std::move(worker));
        return {};
    }

    Result<void> settle() override {
        worker_ = {};
        if (plain_) HOTCOUNT_TRY(plain_->settle());
        HOTCOUNT_TRY(votes_->flush(kSetUpTimeout));
        return {};
    }
    Result<AuditResult> audit(const Ledger& ledger) override {
        HOTCOUNT_TRY(settle());
        HOTCOUNT_TRY_ASSIGN(AuditResult result,
                            audit_votes(ledger, *sql_.database, *votes_, kMostAttempts, ids_));
        if (plain_) plain_->excuse(result);
        if (callers_died(ledger)) excuse_unanswered(result);
        return result;
    }
    std::optional<AnswerRules> answer_rules(const Ledger& ledger) const override {
        AnswerRules rules = rules_for(strategy_, settings_.traffic.items);
        rules.step_by_step = votes_->options().strategy == VoteStrategy::cached;
        const bool drifts = strategy_.racy || rules.step_by_step;
        rules.may_be_wrong = drifts && (plain_ || callers_died(ledger));
        return rules;
    }
    Result<void> clean_up() override {
        if (plain_) HOTCOUNT_TRY(plain_->clean_up());
        if (store_ && !settings_.leaves_keys()) HOTCOUNT_TRY(store_->remove_keys());
        const VotesOptions& options = votes_->options();
        if (!settings_.tables.empty()) return take_votes_out();
        HOTCOUNT_TRY(drop(options.vote_table, {std::begin(kTables), std::end(kTables)},
                          {std::begin(kViews), std::end(kViews)}));
        return drop(options.item_table, {""});
    }

  private:
    // Suffixes to the vote table's name, in the order in which the tables can be dropped.
    static constexpr const char* kViews[] = {"_live", "_count"};
    static constexpr const char* kTables[] = {"_cell",    "_journal",   "_meta", "_sync",
                                              "_recount", "_anonymous", ""};

    /// Checks that the user's tables exist. Fills `drops_` with the tables that the run adds to
    /// them.
    Result<void> look_for_tables() {
        const VotesOptions& options = votes_->options();
        HOTCOUNT_TRY_ASSIGN(const sql::Lease reader,
                            sql_.database->reader(Deadline::after(kSetUpTimeout)));
        const auto is_there = [&](const std::string& table) -> Result<bool> {
            const sql::Statement nothing(fmt::format("SELECT 1 FROM {} WHERE 1 = 0", table));
            const auto seen =
                reader->query(nothing, {}, [](const sql::Row&) { return Result<void>{}; });
            if (seen) return true;
            if (seen.error().condition == SqlCondition::undefined_table) return false;
            return seen.error();
        };
        const auto refuse = [&](std::string_view option, const std::string& table) {
            return make_error(ErrorCode::config, fmt::format("--{}: {} has no table {}", option,
                                                             sql_.database->name(), table));
        };
        HOTCOUNT_TRY_ASSIGN(const bool has_items, is_there(quoted_table(options.item_table)));
        if (!has_items) return refuse("item-table", options.item_table);
        for (const char* const suffix : kViews) {
            const std::string view = quoted_table(options.vote_table, suffix);
            HOTCOUNT_TRY_ASSIGN(const bool seen, is_there(view));
            if (!seen) drops_ += fmt::format("DROP VIEW IF EXISTS {};\n", view);
        }
        for (const char* const suffix : kTables) {
            const std::string table = quoted_table(options.vote_table, suffix);
            HOTCOUNT_TRY_ASSIGN(const bool seen, is_there(table));
            const bool is_votes = *suffix == '\0';
            if (!seen && is_votes && settings_.tables.contains("vote-table")) {
                return refuse("vote-table", options.vote_table);
            }
            if (!seen) drops_ += fmt::format("DROP TABLE IF EXISTS {};\n", table);
        }
        return {};
    }
    /// The first rows of the user's item table, which are the items of the load.
    Result<void> find_rows() {
        const VotesOptions& options = votes_->options();
        const std::string id = sql::quote_identifier(options.item_id);
        const sql::Statement select(fmt::format("SELECT {0} FROM {1} ORDER BY {0} LIMIT ?1", id,
                                                quoted_table(options.item_table)));
        HOTCOUNT_TRY_ASSIGN(const sql::Lease reader,
                            sql_.database->reader(Deadline::after(kSetUpTimeout)));
        const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
            ids_.push_back(row.integer(0));
            return {};
        };
        const std::uint64_t items = settings_.traffic.items;
        HOTCOUNT_TRY(reader->query(select, {static_cast<std::int64_t>(items)}, read));
        if (ids_.size() == items) return {};
        return make_error(
            ErrorCode::config,
            ids_.empty()
                ? fmt::format("table {} has no rows: insert the items that the load votes on",
                              options.item_table)
                : fmt::format("table {} has {} rows, and the load votes on {}: take --items {}",
                              options.item_table, ids_.size(), items, ids_.size()));
    }
    /// Deletes only rows that the load may have written: the user's tables may have other writers.
    Result<void> take_votes_out() const {
        if (ids_.empty()) return {};
        const VotesOptions& options = votes_->options();
        // A recorded stream may name any user.
        const std::string of_users =
            settings_.traffic.trace
                ? ""
                : fmt::format(" AND {} BETWEEN 1 AND {}", sql::quote_identifier(options.vote_user),
                              settings_.traffic.users);
        HOTCOUNT_TRY(run_script(fmt::format(
            "DELETE FROM {} WHERE {} BETWEEN {} AND {}{};", quoted_table(options.vote_table),
            sql::quote_identifier(options.vote_item), ids_.front(), ids_.back(), of_users)));
        const auto counts = votes_->reconcile(std::nullopt, false, kSetUpTimeout);
        if (!counts) return counts.error();
        return run_script(drops_);
    }
    Result<void> run_script(const std::string& script) const {
        if (script.empty()) return {};
        HOTCOUNT_TRY_ASSIGN(const sql::Lease writer,
                            sql_.database->writer(Deadline::after(kSetUpTimeout)));
        return writer->run_script(script);
    }

    bool callers_died(const Ledger& ledger) const {
        if (settings_.kill_every > Duration{0}) return true;
        for (std::uint64_t i = 0; i < ledger.planned(); ++i) {
            // A write that is still `sent` belongs to a run that was killed.
            if (ledger[i].load_status() == Status::sent) return true;
        }
        return false;
    }

    /// A caller that died between commit and increment leaves its item's count one too low until
    /// reconcile(), or one too high after a retracted vote. The contract of the cached strategies
    /// allows both.
    void excuse_unanswered(AuditResult& result) const {
        const VoteStrategy strategy = votes_->options().strategy;
        if (plain_ || strategy != VoteStrategy::cached) return;
        const std::uint64_t off = std::max(capped_sum(result.stored_low, result.stored_high),
                                           capped_sum(result.counted_low, result.counted_high));
        if (off == 0 || off > result.unknown) return;
        result.drift = off;
        result.allowed_breaches += off;
        result.forget_counts();
    }

    VotesTarget(const TrialSettings& settings, Strategy strategy, SqlPlace sql,
                std::vector<std::shared_ptr<Votes>> nodes, std::optional<StoreHandle> store,
                std::unique_ptr<PlainVotes> plain)
        : SqlTarget(settings, std::move(sql)),
          strategy_(std::move(strategy)),
          votes_(nodes.front()),
          store_(std::move(store)),
          plain_(std::move(plain)),
          driver_(nodes, settings.timeout) {}

    Strategy strategy_;
    std::shared_ptr<Votes> votes_;
    std::optional<StoreHandle> store_;
    std::unique_ptr<PlainVotes> plain_;  // Null: the strategy is one of hotcount's.
    VotesOnNodes driver_;
    std::vector<std::int64_t> ids_{};  ///< The ids of items 1, 2, ... in the user's own table.
    RowsOfTable rows_{driver_, ids_};
    std::string drops_{};    ///< Statements that drop the tables that the run added.
    std::jthread worker_{};  // Last: it ends before the members that it uses.
};

/// Acknowledges every operation and stores nothing: a run of it measures the load generator.
class IdleTarget final : public Target, private Driver {
  public:
    Driver& driver() override { return *this; }
    Contract contract() const override {
        return {kNothing, "nothing has happened", "everything", false, false};
    }
    std::string place() const override { return "nothing"; }
    UnvoteValue unvote() const override { return UnvoteValue::add_minus_one; }
    TargetStats stats() const override { return {}; }
    Result<AuditResult> audit(const Ledger& /*ledger*/) override { return AuditResult{}; }

  private:
    Answer apply(const Operation& /*operation*/) override { return {}; }
};

}  // namespace

AnswerRules rules_for(const Strategy& strategy, std::uint64_t items) {
    AnswerRules rules;
    rules.items = items;
    rules.adds = strategy.workload == WorkloadKind::counters;
    const ReadPromise promise = strategy.reads;
    if (promise.kind == ReadPromise::Kind::exact) rules.reads_within = Duration{0};
    if (promise.kind == ReadPromise::Kind::within) rules.reads_within = promise.time;
    return rules;
}

namespace {

Result<std::unique_ptr<Target>> open_target(const TrialSettings& settings,
                                            const std::filesystem::path& folder, bool fresh) {
    HOTCOUNT_TRY_ASSIGN(const Strategy strategy, find_strategy(settings.strategy));
    if (strategy.exec) return make_exec_target(settings, strategy, folder, fresh);
    if (strategy.workload != WorkloadKind::votes) {
        if (strategy.on_sql()) return make_sql_counters_target(settings, strategy, folder, fresh);
        return fresh ? make_store_target(settings, strategy)
                     : reopen_store_target(settings, strategy, folder);
    }
    HOTCOUNT_TRY_ASSIGN(auto votes, VotesTarget::open(settings, strategy, folder, fresh));
    if (fresh) HOTCOUNT_TRY(votes->set_up());
    return std::unique_ptr<Target>(std::move(votes));
}

}  // namespace

Result<std::unique_ptr<Target>> make_target(const TrialSettings& settings,
                                            const std::filesystem::path& folder) {
    if (settings.strategy == kNothing) {
        return std::unique_ptr<Target>(std::make_unique<IdleTarget>());
    }
    return open_target(settings, folder, true);
}

Result<std::unique_ptr<Target>> reopen_target(const TrialSettings& settings,
                                              const std::filesystem::path& folder) {
    return open_target(settings, folder, false);
}

}  // namespace hotcount::loadtest
