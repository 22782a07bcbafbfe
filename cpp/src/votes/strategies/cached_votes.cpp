// cached: the vote is committed in SQL, in one transaction with those of other callers, and counted
// in memory or Redis; workers bring the counts to item.vote_count. cached_counts.hpp has the steps
// and why they are safe.
#include <algorithm>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/interrupt.hpp>
#include <hotcount/detail/base/portions.hpp>
#include <hotcount/detail/sql/transaction.hpp>

#include "group_writer.hpp"
#include "votes/tables/vote_writer.hpp"

namespace hotcount {
namespace {

// How often a reader looks again while a hash is being filled.
constexpr int kMaxLooks = 3;
// How long a reader waits for the cache: half of its time, at most this for each 2,000 items. It needs
// the rest for SQL.
constexpr Duration kReadPatience = std::chrono::seconds{1};
Duration patience(Deadline deadline, std::size_t items) {
    const auto parts = static_cast<Duration::rep>(1 + items / 2'000);
    return std::min(Duration{deadline.remaining()} / 2, kReadPatience * parts);
}

class CachedVotes final : public SqlVotes {
  public:
    CachedVotes(std::shared_ptr<sql::Database> votes_database, VotesOptions votes_options,
                std::unique_ptr<CountCache> cache)
        : SqlVotes(votes_database, votes_options),
          cached_(std::make_shared<CachedCounts>(std::move(votes_database),
                                                 std::move(votes_options), std::move(cache))),
          commit_([this] {
              return std::make_unique<sql::GroupCommit>(
                  shared_database(), std::make_shared<CachedWriter>(layout(), cached_),
                  options().commit);
          }) {}

    Result<Cast> write(const Ballot& ballot, Timeout timeout) override {
        return std::move(write_many({&ballot, 1}, timeout).front());
    }

    std::vector<Result<Cast>> write_many(std::span<const Ballot> ballots,
                                         Timeout timeout) override {
        const Deadline deadline = database().deadline(timeout);
        const Deadline until = time_to_send(deadline, ballots.size());
        std::vector<Result<Cast>> casts;
        auto writes = to_writes<QueuedCachedVote>(ballots, ids_are_apart(ballots, deadline), casts);
        // The writer has counted the committed votes; failed ones are added here.
        Increments increments{*cached_};
        bool failed = false;
        writes.settle = [&, settle = std::move(writes.settle)](std::size_t i,
                                                               const sql::QueuedWrite* write,
                                                               const Result<void>& result) {
            settle(i, write, result);
            if (result || write == nullptr) return;
            increments.add_failed(static_cast<const QueuedCachedVote&>(*write), result.error());
            failed = true;
        };
        commit_.get().submit_all(writes, deadline);
        if (failed) increments.count_and_finish(until);
        return casts;
    }

    void write_async(const Ballot& ballot, Completion<Cast> done, Timeout timeout) override {
        const auto write = std::make_shared<QueuedCachedVote>(ballot);
        commit_.get().submit_async(
            write, database().deadline(timeout),
            [self = shared_from_this(), write = write.get(),
             done = std::move(done)](Result<void> result) {
                done(result ? Result<Cast>{write->cast} : std::move(result).error());
            });
    }

    void write_many_async(std::span<const Ballot> ballots,
                          std::function<void(std::vector<Result<Cast>>)> done,
                          Timeout timeout) override {
        submit_votes<QueuedCachedVote>(commit_.get(), ballots, ids_are_apart(ballots, std::nullopt),
                                       database().deadline(timeout),
                                       [self = shared_from_this(), done = std::move(done)](
                                           auto casts) { done(std::move(casts)); });
    }

    Result<Count> count(const sql::Id& item, Consistency consistency, Timeout timeout) override {
        HOTCOUNT_TRY_ASSIGN(auto counts, count_many({&item, 1}, consistency, timeout));
        return std::move(counts.front());
    }

    Result<std::vector<Count>> count_many(std::span<const sql::Id> items, Consistency consistency,
                                          Timeout timeout) override {
        HOTCOUNT_TRY(check_items(items));
        const Deadline deadline = database().deadline(timeout);
        if (consistency == Consistency::exact) return sums(items, deadline);
        return cached_counts(items, deadline);
    }

    using SqlVotes::reconcile;
    Result<std::vector<Drift>> reconcile(std::optional<std::span<const sql::Id>> items,
                                         const ReconcileOptions& how, Timeout timeout) override {
        if (items && how.after) return bad_option("after", "is for a reconcile of all items");
        if (items) HOTCOUNT_TRY(check_items(*items));
        if (how.after) HOTCOUNT_TRY(check_id(*how.after, options().item_type, "after"));
        Reconciling run{how, timeout};
        auto done = reconcile_pages(items, run);
        if (!done) return run.stopped(std::move(done).error());
        return std::move(run.found.drifts);
    }

    Result<FlushReport> flush(Timeout timeout) override {
        const Deadline deadline = database().deadline(timeout);
        const auto worker = make_sync_worker(cached_);
        FlushReport report{0, 0, 0};
        while (true) {
            HOTCOUNT_TRY_ASSIGN(const SyncRound round, worker->run_once(deadline.remaining()));
            report.acked += round.saved + round.recounted;
            report.pending = round.unsettled;
            report.at_risk = round.at_risk;
            // The round has saved the unsaved counts that it found, or reports them: votes that
            // came meanwhile are not waited for.
            if (round.unsettled == 0 || deadline.passed()) return report;
            // Usually a hash was filled, which the next round saves; at worst no round can settle
            // it.
            sleep_or_interrupt(std::chrono::milliseconds{1});
        }
    }

    Result<std::shared_ptr<SyncWorker>> sync_worker() override { return make_sync_worker(cached_); }

    Contract contract() const override {
        return Contract{
            "cached",
            "the vote is committed in SQL, in one transaction with the votes of other callers, "
            "and its item's count in the cache was moved, or is noted in SQL for a recount",
            "nothing acknowledged: votes are in SQL. Counts may: a process that dies, or is held "
            "up, "
            "between commit and increment, or a cache that loses data, leaves item.vote_count and "
            "count() wrong by no more than the votes concerned, until it goes on, or a worker that "
            "noticed or reconcile() recounts; item.vote_count lags until a worker or flush() saves "
            "it",
            true, false};
    }

  private:
    // As the writer of batches does: the vote, the epoch that it belongs to; then the cache.
    Result<Cast> write_toggled(const Ballot& ballot, Deadline deadline) override {
        using Hold = SyncTable::Hold;
        QueuedCachedVote write{ballot};
        const SyncTable& table = cached_->table();
        auto done =
            sql::transact(database(), deadline, [&](sql::Connection& connection) -> Result<void> {
                HOTCOUNT_TRY_ASSIGN(std::string id, table.cache_id(connection, true));
                write.space = std::make_shared<const std::string>(std::move(id));
                HOTCOUNT_TRY_ASSIGN(write.cast, toggle_row(connection, ballot));
                HOTCOUNT_TRY_ASSIGN(const CountedByTriggers triggers,
                                    layout()->counted_by_triggers(connection));
                if (triggers.has(ballot)) {
                    HOTCOUNT_TRY(table.take_back_asks(connection, ballot.item, 1));
                }
                HOTCOUNT_TRY_ASSIGN(auto state, table.read(connection, ballot.item, Hold::shared));
                if (state && state->wide) {
                    HOTCOUNT_TRY_ASSIGN(state, table.read(connection, ballot.item, Hold::alone));
                    HOTCOUNT_TRY(table.sum(connection, ballot.item));
                }
                if (!state) return unknown_item(ballot.item);
                write.epoch = state->epoch;
                write.item = state->item;
                return {};
            });
        Increments increments{*cached_};
        if (done) {
            increments.add(write);
        } else {
            increments.add_failed(write, done.error());
        }
        increments.count_and_finish(deadline);
        if (!done) return std::move(done).error();
        return write.cast;
    }

    // A cache cannot join the transaction; a request for a recount can.
    Result<void> note_removed(sql::Connection& connection,
                              std::span<const sql::Id> items) override {
        return cached_->table().ask_recounts(connection, items);
    }
    void after_removal(Deadline deadline) override {
        const auto space = cached_->space(deadline);
        SilentShards silent;
        while (space && !deadline.passed()) {
            const auto recounted = cached_->recount(*space, options().page, silent, deadline);
            if (!recounted || recounted->done == 0 || recounted->left == 0) return;
        }
    }

    void add_stats(VotesStats& stats) const override {
        const sql::GroupCommit::Stats commits = commit_.get().stats();
        stats.batches = commits.batches;
        stats.batched_votes = commits.writes;
        stats.waiting = commits.waiting;
        stats.held_votes = commits.held;
        stats.held_votes_for = commits.held_for;
    }

    std::string more_schema(const std::string& item_type) const override {
        return cached_->table().schema(item_type);
    }
    std::vector<std::string> more_tables() const override { return {"_sync", "_recount"}; }

    Result<void> take_over(sql::Connection& connection) override {
        return cached_->table().renew(connection);
    }

    Result<std::vector<Count>> sums(std::span<const sql::Id> items, Deadline deadline) {
        const auto read = [&](sql::Connection& connection) -> Result<std::vector<Count>> {
            HOTCOUNT_TRY(cached_->table().cache_id(connection));
            std::vector<Count> counts;
            counts.reserve(items.size());
            const WallTime now = options().clock->wall_now();
            HOTCOUNT_TRY_ASSIGN(const std::vector<std::int64_t> values,
                                cached_->table().sums(connection, items));
            for (const std::int64_t value : values) {
                counts.push_back(Count{value, true, now, "sql", 0});
            }
            return counts;
        };
        return sql::read_snapshot(database(), deadline, read);
    }

    // The id of the tables, as known for at most max_age.
    Result<std::string> known_space(Deadline deadline) {
        const SteadyTime now = options().clock->steady_now();
        KnownSpace& known = known_.get();
        {
            std::lock_guard lock(known.mutex);
            if (!known.id.empty() && now < known.until) return known.id;
        }
        HOTCOUNT_TRY_ASSIGN(std::string id, cached_->space(deadline));
        std::lock_guard lock(known.mutex);
        known.id = id;
        known.until = now + options().max_age;
        return id;
    }

    Result<std::vector<Count>> cached_counts(std::span<const sql::Id> items, Deadline deadline) {
        HOTCOUNT_TRY_ASSIGN(const std::string space, known_space(deadline));
        std::vector<std::optional<Count>> counts(items.size());
        std::vector<std::optional<CacheEntry>> unfilled(items.size());
        std::vector<InSql> in_sql(items.size());
        std::vector<sql::Id> known_as{items.begin(), items.end()};  // As State::item, once read.
        for (int look = 0; look < kMaxLooks; ++look) {
            std::vector<std::size_t> open;
            std::vector<std::string> texts;
            for (std::size_t i = 0; i < items.size(); ++i) {
                if (counts[i]) continue;
                open.push_back(i);
                texts.push_back(cached_->to_text(known_as[i]));
            }
            if (open.empty()) break;
            const auto entries =
                cached_->cache().read(space, texts, patience(deadline, texts.size()));
            std::vector<std::size_t> from_sql;
            for (std::size_t k = 0; k < open.size(); ++k) {
                const std::size_t i = open[k];
                if (!entries[k] && entries[k].error().code == ErrorCode::wrong_type) {
                    return entries[k].error();
                }
                const auto entry = entries[k] ? *entries[k] : std::optional<CacheEntry>{};
                if (entry && entry->filled()) {
                    counts[i] = counted(known_as[i], entry->value, "cache");
                } else if (entry && unfilled[i] && unfilled[i]->token == entry->token) {
                    // Unfilled before and after SQL was read, so nothing was saved between.
                    counts[i] = counted(known_as[i], shown(in_sql[i], &*entry), "sql");
                } else {
                    // A cache that does not answer is as good as empty: readers go on.
                    unfilled[i] = entry;
                    from_sql.push_back(i);
                }
            }
            const std::vector<sql::Id> looked_for{known_as};
            HOTCOUNT_TRY(read_counts(known_as, from_sql, in_sql, deadline));
            for (const std::size_t i : from_sql) {
                // The cache was asked for another spelling of it.
                if (known_as[i] != looked_for[i] && look + 1 < kMaxLooks) {
                    unfilled[i].reset();
                    continue;
                }
                if (!unfilled[i] || look + 1 == kMaxLooks) {
                    counts[i] = counted(known_as[i], in_sql[i].count, "sql");
                }
            }
        }
        std::vector<Count> result;
        result.reserve(counts.size());
        for (auto& count : counts) result.push_back(std::move(*count));
        return result;
    }

    Count counted(const sql::Id& item, std::int64_t value, const char* source) {
        return Count{value, false, options().clock->wall_now(), source, cached_->in_doubt(item)};
    }

    struct InSql {
        std::int64_t count{0};
        std::int64_t epoch{0};
    };

    // The answer of count(). A recount has counted the votes of lower epochs in an unfilled hash.
    static std::int64_t shown(const InSql& in_sql, const CacheEntry* entry) {
        if (entry == nullptr) return in_sql.count;
        if (entry->filled()) return entry->value;
        if (entry->epoch < in_sql.epoch) return in_sql.count;
        return checked_add(in_sql.count, entry->value).value_or(in_sql.count);
    }

    // Each of `items` that has a row is then as the row has it.
    Result<void> read_counts(std::span<sql::Id> items, std::span<const std::size_t> which,
                             std::vector<InSql>& in_sql, Deadline deadline) {
        if (which.empty()) return {};
        std::vector<sql::Id> asked;
        asked.reserve(which.size());
        for (const std::size_t i : which) asked.push_back(items[i]);
        const auto read = [&](sql::Connection& connection) -> Result<void> {
            HOTCOUNT_TRY(cached_->table().cache_id(connection));
            HOTCOUNT_TRY_ASSIGN(const auto found, cached_->table().read_stored(connection, asked));
            for (std::size_t k = 0; k < which.size(); ++k) {
                const auto& stored = found[k];
                in_sql[which[k]] = stored ? InSql{stored->count, stored->epoch} : InSql{};
                if (stored) items[which[k]] = stored->item;
            }
            return {};
        };
        return sql::read_snapshot(database(), deadline, read);
    }

    // An item's counts as one snapshot of SQL has them.
    struct Stored {
        sql::Id item;
        InSql in_sql;
        std::int64_t votes;
    };

    Result<void> reconcile_pages(std::optional<std::span<const sql::Id>> named, Reconciling& run) {
        const auto deadline = [&] { return database().deadline(run.timeout); };
        HOTCOUNT_TRY_ASSIGN(const std::string space, cached_->space(deadline()));
        HOTCOUNT_TRY(cached_->hand_over(deadline()));
        std::span<const sql::Id> left = named.value_or(std::span<const sql::Id>{});
        const std::size_t most = std::min(options().page, Audit::kMost);
        while (!named || !left.empty()) {
            const Deadline until = deadline();
            std::vector<sql::Id> page{left.begin(),
                                      left.begin() + std::ptrdiff_t(std::min(most, left.size()))};
            left = left.subspan(page.size());
            Findings here;
            HOTCOUNT_TRY_ASSIGN(const std::vector<Stored> found,
                                read_stored(page, named ? 0 : most, run.after, here, until));
            if (page.empty()) break;
            HOTCOUNT_TRY(compare(space, found, run.how.dry_run, here.drifts, until));
            const auto last = named ? std::nullopt : std::optional{page.back()};
            if (!run.take(std::move(here), page.size(), last)) return {};
        }
        if (!named) HOTCOUNT_TRY(reconcile_orphans(run));
        return {};
    }

    // Of `items`; if `most` is not 0, of the next items after `after`, to which `items` is set.
    // `orphans`: the items without a row.
    Result<std::vector<Stored>> read_stored(std::vector<sql::Id>& items, std::size_t most,
                                            const std::optional<sql::Id>& after, Findings& orphans,
                                            Deadline deadline) {
        const auto read = [&](sql::Connection& connection) -> Result<std::vector<Stored>> {
            HOTCOUNT_TRY(cached_->table().cache_id(connection));
            if (most > 0) {
                HOTCOUNT_TRY_ASSIGN(items, audit().items(connection, after, most));
            }
            HOTCOUNT_TRY_ASSIGN(const auto stored, cached_->table().read_stored(connection, items));
            HOTCOUNT_TRY_ASSIGN(const std::vector<std::int64_t> votes,
                                cached_->table().sums(connection, items));
            std::vector<Stored> found;
            std::vector<sql::Id> missing;
            for (std::size_t i = 0; i < items.size(); ++i) {
                if (stored[i]) {
                    found.push_back(
                        {stored[i]->item, {stored[i]->count, stored[i]->epoch}, votes[i]});
                } else {
                    missing.push_back(items[i]);
                }
            }
            HOTCOUNT_TRY_ASSIGN(orphans, find_drifts(connection, missing, true));
            return found;
        };
        return sql::read_snapshot(database(), deadline, read);
    }

    Result<void> compare(const std::string& space, std::span<const Stored> found, bool dry_run,
                         std::vector<Drift>& drifts, Deadline deadline) {
        std::vector<std::string> texts;
        texts.reserve(found.size());
        for (const Stored& each : found) texts.push_back(cached_->to_text(each.item));
        const auto entries = cached_->cache().read(space, texts, deadline.remaining());
        std::vector<sql::Id> wrong;
        std::vector<CountCache::Outdated> outdated;
        for (std::size_t i = 0; i < found.size(); ++i) {
            const Stored& each = found[i];
            const CacheEntry* const entry =
                entries[i] && entries[i]->has_value() ? &**entries[i] : nullptr;
            const bool void_hash = entry != nullptr && entry->epoch < each.in_sql.epoch;
            if (void_hash) outdated.push_back({texts[i], each.in_sql.epoch});
            const std::int64_t count = shown(each.in_sql, entry);
            if (count != each.votes) drifts.push_back({each.item, count, each.votes});
            if ((void_hash ? each.in_sql.count : count) != each.votes) wrong.push_back(each.item);
        }
        if (dry_run) return {};
        // Left by a recount of a worker over another cache, or by one whose drop was lost with a
        // server. Workers look in SQL only for unsaved counts.
        if (!outdated.empty()) {
            HOTCOUNT_TRY(cached_->cache().drop(space, outdated, deadline.remaining()));
        }
        if (wrong.empty()) return {};
        for (const sql::Id& item : wrong) cached_->doubt(item, 0);
        HOTCOUNT_TRY(cached_->hand_over(deadline));
        SilentShards silent;
        CachedCounts::Recounted recounted;
        do {
            HOTCOUNT_TRY_ASSIGN(recounted,
                                cached_->recount(space, options().page, silent, deadline));
        } while (recounted.done > 0 && recounted.left > 0);
        if (const auto error = silent.error()) return *error;
        return {};
    }

    struct KnownSpace {
        std::mutex mutex;
        std::string id;
        SteadyTime until{};
    };

    std::shared_ptr<CachedCounts> cached_;
    mutable ForkLocal<sql::GroupCommit> commit_;
    ForkLocal<KnownSpace> known_{[] { return std::make_unique<KnownSpace>(); }};
};

}  // namespace

std::shared_ptr<Votes> make_cached_votes(std::shared_ptr<sql::Database> database,
                                         VotesOptions options, VoteCache cache) {
    std::unique_ptr<CountCache> counts;
    if (auto* const memory = std::get_if<std::shared_ptr<memory::Store>>(&cache)) {
        counts = make_memory_count_cache(std::move(*memory), options.retention);
    } else {
        counts = make_redis_count_cache(std::get<std::shared_ptr<redis::Client>>(std::move(cache)),
                                        options.retention);
    }
    return std::make_shared<CachedVotes>(std::move(database), std::move(options),
                                         std::move(counts));
}

}  // namespace hotcount
