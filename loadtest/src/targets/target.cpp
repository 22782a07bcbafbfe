#include "target.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <hotcount/url.hpp>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "checkers/audit.hpp"
#include "exec_target.hpp"
#include "load/run_folder.hpp"
#include "plain_votes.hpp"
#include "slots_target.hpp"
#include "sql_place.hpp"
#include "store_handle.hpp"
#include "store_targets.hpp"
#include "sync_thread.hpp"
#include "views_target.hpp"

namespace hotcount::loadtest {
namespace {

constexpr std::uint64_t kItemsAtOnce = 100'000;

// cached without group commit.
constexpr std::string_view kCachedAlone = "cached_alone";

bool is_plain(std::string_view name) { return name == "insert_only" || name == "seed_cached"; }

Result<VoteStrategy> strategy_named(const std::string& name) {
    if (name == kCachedAlone) return VoteStrategy::cached;
    // Their tables are those of naive, which counts nothing until it is called.
    if (is_plain(name)) return VoteStrategy::naive;
    for (const VoteStrategy strategy :
         {VoteStrategy::naive, VoteStrategy::slotted, VoteStrategy::batched, VoteStrategy::cached,
          VoteStrategy::write_behind}) {
        if (to_string(strategy) == name) return strategy;
    }
    return make_error(ErrorCode::config, fmt::format("strategy '{}' is not known", name));
}

/// Takes a run's tables away, those of all strategies.
Result<void> drop_tables(sql::Database& database, const VotesOptions& options) {
    const auto quoted = [](const std::string& name) { return sql::quote_identifier(name); };
    std::string script;
    for (const char* const view : {"_live", "_count"}) {
        script += "DROP VIEW IF EXISTS " + quoted(options.vote_table + view) + ";\n";
    }
    for (const char* const suffix :
         {"_cell", "_journal", "_meta", "_sync", "_recount", "_anonymous", ""}) {
        script += "DROP TABLE IF EXISTS " + quoted(options.vote_table + suffix) + ";\n";
    }
    script += "DROP TABLE IF EXISTS " + quoted(options.item_table) + ";\n";
    HOTCOUNT_TRY_ASSIGN(const sql::Lease writer, database.writer(Deadline::after(kSetUpTimeout)));
    return writer->run_script(script);
}

class VotesTarget final : public Target {
  public:
    /// `mode`: rwc makes the database's file, rw wants it to be there.
    static Result<std::unique_ptr<VotesTarget>> open(const TrialSettings& settings,
                                                     const Strategy& strategy,
                                                     const std::filesystem::path& folder,
                                                     const char* mode) {
        const bool on_server = on_database_server(settings.database_url);
        std::string url = settings.database_url.empty() ? sqlite_url(folder / kDatabaseFile)
                                                        : settings.database_url;
        VotesOptions options;
        HOTCOUNT_TRY_ASSIGN(options.strategy, strategy_named(strategy.way));
        if (strategy.way == kCachedAlone) options.commit.max_batch = 1;
        sql::DatabaseOptions connections;
        if (on_server) {
            // Tables of the run's own; and a connection for each caller, as the strategies with a
            // transaction per vote want it.
            options.item_table = table_name(settings.key_prefix, "item");
            options.vote_table = table_name(settings.key_prefix, "vote");
            connections.max_writers = settings.workers;
        } else {
            url += std::string{"?mode="} + mode;
        }
        std::optional<StoreHandle> store;
        if (strategy.store != StoreKind::sql) {
            HOTCOUNT_TRY_ASSIGN(store, StoreHandle::open(settings, strategy.store));
        }
        HOTCOUNT_TRY_ASSIGN(auto database, sql::open_database(url, connections));
        const bool plain = is_plain(strategy.way);
        HOTCOUNT_TRY_ASSIGN(
            auto votes,
            Votes::make(database, options, store && !plain ? store->cache() : VoteCache{}));
        HOTCOUNT_TRY_ASSIGN(const Url parsed, parse_url(url));
        std::filesystem::path file = on_server ? "" : parsed.path.substr(1);
        std::unique_ptr<PlainVotes> own;
        if (plain) {
            own = std::make_unique<PlainVotes>(database, votes->options(),
                                               store ? store->client() : nullptr, settings.timeout);
        }
        return std::unique_ptr<VotesTarget>(
            new VotesTarget(strategy, std::move(database), std::move(votes), std::move(file),
                            std::move(store), std::move(own), settings));
    }

    Result<void> set_up(std::uint64_t items) {
        HOTCOUNT_TRY(votes_->create_tables(kSetUpTimeout));
        HOTCOUNT_TRY(refuse_used_tables(*database_, votes_->options()));
        for (std::uint64_t first = 1; first <= items; first += kItemsAtOnce) {
            std::vector<sql::Id> ids;
            for (std::uint64_t id = first; id <= items && id < first + kItemsAtOnce; ++id) {
                ids.emplace_back(static_cast<std::int64_t>(id));
            }
            HOTCOUNT_TRY(votes_->add_items(ids, kSetUpTimeout));
        }
        HOTCOUNT_TRY_ASSIGN(place_, describe_database(*database_, file_));
        if (store_) {
            const bool waits = votes_->options().strategy == VoteStrategy::write_behind;
            place_ += (waits ? "; votes wait in " : "; counted in ") + store_->place();
        }
        return {};
    }

    Driver& driver() override {
        if (plain_) return *plain_;
        return driver_;
    }
    Contract contract() const override { return plain_ ? plain_->contract() : votes_->contract(); }
    std::string place() const override { return place_; }
    UnvoteValue unvote() const override { return UnvoteValue::set_zero; }
    TargetStats stats() const override {
        const sql::Database::Stats stats = database_->stats();
        return {stats.transactions, stats.statements, stats.busy_waits};
    }

    /// A worker saves the counts of a cache, or writes the votes that wait there, during the load, as it
    /// would in service.
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
        HOTCOUNT_TRY_ASSIGN(AuditResult result, audit_votes(ledger, *database_, *votes_));
        if (plain_) plain_->excuse(result);
        if (callers_died(ledger)) excuse_unanswered(result);
        return result;
    }
    std::optional<AnswerRules> answer_rules(const Ledger& ledger) const override {
        AnswerRules rules = rules_for(strategy_, items_);
        rules.step_by_step = votes_->options().strategy == VoteStrategy::cached;
        const bool drifts = strategy_.way == "seed_cached" || rules.step_by_step;
        rules.may_be_wrong = drifts && (plain_ || callers_died(ledger));
        return rules;
    }
    Result<void> clean_up() override {
        if (plain_) HOTCOUNT_TRY(plain_->clean_up());
        if (store_ && !keep_keys_) HOTCOUNT_TRY(store_->remove_keys());
        if (!file_.empty() || keep_tables_) return {};
        return drop_tables(*database_, votes_->options());
    }

  private:
    bool callers_died(const Ledger& ledger) const {
        if (kills_callers_) return true;
        for (std::uint64_t i = 0; i < ledger.planned(); ++i) {
            // The run that this belongs to was killed.
            if (ledger[i].load_status() == Status::sent) return true;
        }
        return false;
    }

    /// A caller that died between commit and increment leaves its item's count one too low, or too high
    /// for a vote taken back, until reconcile(): so the contract of the cached strategies says.
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

    VotesTarget(Strategy strategy, std::shared_ptr<sql::Database> database,
                std::shared_ptr<Votes> votes, std::filesystem::path file,
                std::optional<StoreHandle> store, std::unique_ptr<PlainVotes> plain,
                const TrialSettings& settings)
        : strategy_(std::move(strategy)),
          items_(settings.traffic.items),
          database_(std::move(database)),
          votes_(votes),
          file_(std::move(file)),
          store_(std::move(store)),
          plain_(std::move(plain)),
          kills_callers_(settings.kill_every > Duration{0}),
          keep_keys_(settings.leaves_keys()),
          keep_tables_(settings.leaves_tables()),
          driver_(votes, settings.timeout) {}

    Strategy strategy_;
    std::uint64_t items_;
    std::shared_ptr<sql::Database> database_;
    std::shared_ptr<Votes> votes_;
    std::filesystem::path file_;  // Empty on a server.
    std::optional<StoreHandle> store_;
    std::unique_ptr<PlainVotes> plain_;  // Null: hotcount's own.
    bool kills_callers_;
    bool keep_keys_;
    bool keep_tables_;
    VotesDriver driver_;
    std::string place_{};
    std::jthread worker_{};  // Last: it ends before what it works on.
};

/// Acknowledges everything and keeps nothing: what a run of it measures is the generator.
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
    const ReadPromise promise = reads_of(strategy);
    if (promise.kind == ReadPromise::Kind::exact) rules.reads_within = Duration{0};
    if (promise.kind == ReadPromise::Kind::within) rules.reads_within = promise.time;
    return rules;
}

Result<std::unique_ptr<Target>> make_target(const TrialSettings& settings,
                                            const std::filesystem::path& folder) {
    HOTCOUNT_TRY_ASSIGN(const Strategy strategy, find_strategy(settings.strategy));
    if (is_exec(strategy)) return make_exec_target(settings, strategy, folder, true);
    if (strategy.name == kNothing) return std::unique_ptr<Target>(std::make_unique<IdleTarget>());
    const bool slots =
        strategy.workload == WorkloadKind::counters && strategy.store == StoreKind::sql;
    if (slots) return make_slots_target(settings, strategy, folder, true);
    if (is_views(strategy)) return make_views_target(settings, strategy, folder, true);
    if (strategy.workload != WorkloadKind::votes) return make_store_target(settings, strategy);
    HOTCOUNT_TRY_ASSIGN(auto votes, VotesTarget::open(settings, strategy, folder, "rwc"));
    HOTCOUNT_TRY(votes->set_up(settings.traffic.items));
    return std::unique_ptr<Target>(std::move(votes));
}

Result<std::unique_ptr<Target>> reopen_target(const TrialSettings& settings,
                                              const std::filesystem::path& folder) {
    HOTCOUNT_TRY_ASSIGN(const Strategy strategy, find_strategy(settings.strategy));
    if (is_exec(strategy)) return make_exec_target(settings, strategy, folder, false);
    if (is_views(strategy)) return make_views_target(settings, strategy, folder, false);
    if (strategy.workload == WorkloadKind::counters && strategy.store == StoreKind::sql) {
        return make_slots_target(settings, strategy, folder, false);
    }
    if (strategy.workload != WorkloadKind::votes) {
        return reopen_store_target(settings, strategy, folder);
    }
    HOTCOUNT_TRY_ASSIGN(auto votes, VotesTarget::open(settings, strategy, folder, "rw"));
    return std::unique_ptr<Target>(std::move(votes));
}

}  // namespace hotcount::loadtest
