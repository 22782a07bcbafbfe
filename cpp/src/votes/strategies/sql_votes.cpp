#include "sql_votes.hpp"

#include <algorithm>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/portions.hpp>
#include <hotcount/detail/sql/transaction.hpp>

#include "sql/dialect.hpp"
#include "votes/tables/outside_triggers.hpp"
#include "votes/tables/vote_dialect.hpp"
#include "votes/tables/vote_writer.hpp"

namespace hotcount {
namespace {

// Votes of one call from which on their order makes a difference to folds.
constexpr std::size_t kLargeCall = 1'000;

bool ask_for_counts(std::span<const Ballot> ballots) {
    return std::any_of(ballots.begin(), ballots.end(),
                       [](const Ballot& ballot) { return ballot.with_count; });
}

}  // namespace

SqlVotes::SqlVotes(std::shared_ptr<sql::Database> database, VotesOptions options,
                   Folder::Publish publish, std::shared_ptr<Replica> replica)
    : database_(std::move(database)),
      options_(std::move(options)),
      layout_(std::make_shared<const Layout>(options_, database_->dialect())),
      openings_(options_, database_->dialect()),
      count_reader_(options_, database_->dialect()),
      vote_reader_(options_, database_->dialect()),
      removal_(options_, database_->dialect()),
      audit_(options_, database_->dialect()),
      new_items_(options_, VoteNames{options_, layout_->vote_dialect().grammar()},
                 layout_->vote_dialect()),
      writer_(layout_->vote_dialect().vote_writer(layout_, options_, {})),
      publish_(std::move(publish)),
      replica_(std::move(replica)),
      joined_reads_([this] {
          return std::make_unique<JoinedReads>(
              [this](std::span<const sql::Id> items, Deadline deadline) {
                  return read_counts(items, deadline);
              },
              database_->options().max_readers);
      }),
      waiting_calls_([this] {
          return std::make_unique<WaitingCalls>(database_->name(), options_.commit.workers,
                                                options_.commit.max_queue);
      }) {
    const VoteDialect& dialect = layout_->vote_dialect();
    if (place() != CountPlace::journal) return;
    auto journal = dialect.journal(database_, options_);
    if (options_.strategy == VoteStrategy::slotted && layout_->counts_in_items) {
        cells_ = std::make_shared<CellJournal>(std::move(journal));
        journal_ = cells_;
    } else {
        journal_ = std::move(journal);
    }
    folder_ = std::make_shared<Folder>(
        journal_, options_,
        std::max<Duration>(database_->options().timeout, std::chrono::seconds{10}), publish_);
}

std::string lag_of_item_count(const VotesOptions& options) {
    const std::string pause = std::to_string(microseconds_of(options.fold_interval) / 1000);
    const std::string exact = "count(), count_many() and the view " +
                              sql::TableName::of(options.vote_table).beside("_count").text() +
                              " are exact";
    if (options.item_count.empty()) return "item_count is None: " + exact;
    return options.item_table + "." + options.item_count +
           " is brought up to date by folds: a plain reader of it sees a vote usually after the "
           "longer of fold_interval (" +
           pause +
           " ms) and 20 times what the last fold took (60 s at most), and one fold more; later "
           "while another session holds the item's row, and, once all processes that voted have "
           "ended, after another process's fold; a row that outside_writes counts after " +
           std::to_string(microseconds_of(look_pause(options)) / 1000) +
           " ms, up to a tenth more and one fold, while a process is open that has voted or read "
           "counts; "
           "stats() has the age of the oldest. " +
           exact;
}

Contract SqlVotes::with_replica(Contract contract) const {
    if (replica_ == nullptr) return contract;
    const auto most = std::chrono::duration_cast<std::chrono::milliseconds>(options_.read_max_lag);
    contract.exact = false;
    contract.may_lose +=
        "; read_url: what is read with consistency 'cached' may come from the replica, and then "
        "lacks votes of the last " +
        std::to_string(most.count()) +
        " ms (read_max_lag) at most, a voter's own too; it may be less than one read before";
    return contract;
}

std::optional<VotesEvent> SqlVotes::take_event() {
    if (replica_ != nullptr) {
        if (auto warning = replica_->take_warning()) return VotesEvent{true, *std::move(warning)};
    }
    return folder_ != nullptr ? folder_->take_event() : std::nullopt;
}

Result<void> SqlVotes::take_over(sql::Connection&) { return {}; }

Result<void> SqlVotes::check_items(std::span<const sql::Id> items) const {
    for (const sql::Id& item : items) HOTCOUNT_TRY(check_id(item, options_.item_type, "item"));
    return {};
}

// -- votes --------------------------------------------------------------------------------------

Result<Cast> SqlVotes::cast(const Ballot& ballot, Timeout timeout) {
    HOTCOUNT_TRY(check_ballot(ballot, options_));
    watch_journal();
    const Timed timed{times_.get()};
    const Deadline deadline = database_->deadline(timeout);
    auto result = write(ballot, timeout);
    timed.end(result);
    if (ballot.with_count) tell_counts({&ballot, 1}, {&result, 1}, deadline);
    return result;
}

std::vector<Result<Cast>> SqlVotes::cast_many(std::span<const Ballot> ballots, Timeout timeout) {
    const CheckedBallots checked{ballots, options_};
    watch_journal();
    const Timed timed{times_.get()};
    const Deadline deadline = database_->deadline(timeout);
    auto results = write_many(checked.all_good() ? ballots : checked.good(), timeout);
    timed.end(results);
    if (!checked.all_good()) results = checked.merge(std::move(results));
    if (ask_for_counts(ballots)) tell_counts(ballots, results, deadline);
    return results;
}

bool SqlVotes::ids_are_apart(std::span<const Ballot> ballots, std::optional<Deadline> deadline) {
    if (options_.item_type == IdType::integer || ids_are_apart_.load(std::memory_order_relaxed)) {
        return true;
    }
    if (ballots.size() < kLargeCall) return false;
    const auto ask = [this](Deadline until) {
        const auto apart = sql::read_snapshot(*database_, until, [&](sql::Connection& connection) {
            return layout_->vote_dialect().tells_ids_apart(connection, options_);
        });
        if (apart && *apart) ids_are_apart_.store(true, std::memory_order_relaxed);
        return apart && *apart;
    };
    if (deadline) return ask(time_to_send(*deadline, ballots.size()));
    const Deadline later = database_->deadline({});
    run_async(
        later, [ask, later](Votes&) { ask(later); }, [](const Error&) {});
    return false;
}

void SqlVotes::tell_counts(std::span<const Ballot> ballots, std::span<Result<Cast>> casts,
                           Deadline deadline) {
    std::vector<sql::Id> items;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < ballots.size(); ++i) {
        if (!ballots[i].with_count || !casts[i] || casts[i]->count) continue;
        items.push_back(ballots[i].item);
        places.push_back(i);
    }
    if (items.empty()) return;
    auto counts = count_many(items, Consistency::exact, deadline.remaining());
    if (!counts) return;
    for (std::size_t i = 0; i < places.size(); ++i) {
        casts[places[i]]->count = std::make_shared<const Count>(std::move((*counts)[i]));
    }
}

// The completion keeps this object alive: a call under way holds it.
void SqlVotes::cast_async(const Ballot& ballot, Completion<Cast> done, Timeout timeout) {
    if (auto checked = check_ballot(ballot, options_); !checked)
        return done(std::move(checked).error());
    watch_journal();
    if (ballot.with_count) {
        // Reading waits, which a thread that writes votes must not do.
        const Deadline deadline = database_->deadline(timeout);
        done = [self = shared_from_this(), ballot, deadline, done](Result<Cast> cast) {
            if (!cast || cast->count) return done(std::move(cast));
            self->run_async(
                deadline,
                [self = self.get(), ballot, deadline, done, cast](Votes&) {
                    Result<Cast> told{cast};
                    self->tell_counts({&ballot, 1}, {&told, 1}, deadline);
                    done(std::move(told));
                },
                [done, cast](const Error&) { done(cast); });
        };
    }
    write_async(
        ballot,
        [timed = Timed{times_.get()}, done = std::move(done)](Result<Cast> result) {
            timed.end(result);
            done(std::move(result));
        },
        timeout);
}

void SqlVotes::cast_many_async(std::span<const Ballot> ballots,
                               std::function<void(std::vector<Result<Cast>>)> done,
                               Timeout timeout) {
    CheckedBallots checked{ballots, options_};
    watch_journal();
    if (ask_for_counts(ballots)) {
        const Deadline deadline = database_->deadline(timeout);
        done = [self = shared_from_this(), deadline, done,
                kept = std::vector<Ballot>(ballots.begin(), ballots.end())](
                   const std::vector<Result<Cast>>& casts) {
            self->run_async(
                deadline,
                [self = self.get(), kept, deadline, done, casts](Votes&) {
                    auto told = casts;
                    self->tell_counts(kept, told, deadline);
                    done(std::move(told));
                },
                [done, casts](const Error&) { done(casts); });
        };
    }
    auto told = [timed = Timed{times_.get()},
                 done = std::move(done)](std::vector<Result<Cast>> results) {
        timed.end(results);
        done(std::move(results));
    };
    if (checked.all_good()) return write_many_async(ballots, std::move(told), timeout);
    const auto kept = std::make_shared<const CheckedBallots>(std::move(checked));
    write_many_async(
        kept->good(),
        [kept, told = std::move(told)](std::vector<Result<Cast>> results) {
            told(kept->merge(std::move(results)));
        },
        timeout);
}

Result<FoundTriggers> SqlVotes::find_triggers(sql::Connection& connection) {
    const OutsideTriggers& triggers = layout_->vote_dialect().outside_triggers();
    HOTCOUNT_TRY_ASSIGN(FoundTriggers found, triggers.find(connection, options_));
    // The truth of cached is the votes themselves.
    uncounted_ =
        place() != CountPlace::cache && !uncounted_keys(found, triggers, found.form).empty();
    return found;
}

Result<VotesStats> SqlVotes::stats(Timeout timeout) {
    const Deadline deadline = database_->deadline(timeout);
    VotesStats stats;
    const CallTimes& times = times_.get();
    stats.votes = times.good();
    stats.failed = times.failed();
    stats.median = times.at(0.5);
    stats.p99 = times.at(0.99);
    stats.longest = times.at(1.0);
    stats.retries = database_->stats().retries;
    add_stats(stats);
    if (replica_ != nullptr) replica_->add_stats(stats);
    const auto triggers =
        sql::read_snapshot(*database_, deadline,
                           [&](sql::Connection& connection) { return find_triggers(connection); });
    if (triggers) {
        stats.outside_writes = to_string(triggers->form);
        stats.uncounted_cascades =
            uncounted_keys(*triggers, layout_->vote_dialect().outside_triggers(), triggers->form);
    }
    if (folder_ == nullptr) return stats;
    const Folder::Stats folds = folder_->stats();
    stats.folds = folds.folds;
    stats.folded_rows = folds.rows;
    stats.failed_folds = folds.failed;
    stats.failing_folds = folds.failing;
    stats.failing_for = folds.failing_for;
    stats.fold_error = folds.last_error;
    stats.fold_took = folds.took;
    stats.held_items = folds.held;
    stats.refused_items = folds.refused;
    auto backlog = journal_->backlog(deadline);
    if (!backlog) {
        // An error of the database must not hide the statistics that are known here.
        if (backlog.error().code == ErrorCode::closed) return std::move(backlog).error();
        stats.pending_error = backlog.error().message;
        return stats;
    }
    stats.pending_rows = backlog->rows;
    stats.pending_items = backlog->items;
    if (backlog->rows > 0) stats.oldest = std::max(backlog->since_folded, folds.held_for);
    return stats;
}

Result<void> SqlVotes::add_items(std::span<const sql::Id> items, Timeout timeout) {
    HOTCOUNT_TRY(check_items(items));
    // Sorted, or two calls that add the same items would wait for each other.
    std::vector<sql::Id> sorted{items.begin(), items.end()};
    std::sort(sorted.begin(), sorted.end());
    sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
    const auto add = [&](sql::Connection& connection) -> Result<void> {
        auto added = new_items_.add(connection, sorted);
        return added ? Result<void>{} : explain_missing_table(std::move(added).error());
    };
    return sql::transact(*database_, database_->deadline(timeout), add);
}

Result<std::vector<Count>> SqlVotes::count_many(std::span<const sql::Id> items,
                                                Consistency consistency, Timeout timeout) {
    HOTCOUNT_TRY(check_items(items));
    watch_journal();
    std::vector<Count> counts;
    if (items.empty()) return counts;
    const Deadline deadline = database_->deadline(timeout);
    if (Replica* const replica = replica_for(consistency)) {
        std::vector<std::int64_t> values;
        const auto read = [&](sql::Connection& connection) -> Result<void> {
            std::size_t rows = 0;
            HOTCOUNT_TRY_ASSIGN(values, count_reader_.read_in(connection, items, rows));
            return {};
        };
        if (const auto as_of = replica->read(deadline, read)) {
            counts.reserve(items.size());
            for (const std::int64_t value : values) {
                counts.push_back(Count{value, false, *as_of, "replica", 0});
            }
            return counts;
        }
    }
    const WallTime now = options_.clock->wall_now();
    // Without a server there is no round trip to share: as many threads read as have connections.
    HOTCOUNT_TRY_ASSIGN(const std::vector<std::int64_t> values,
                        layout_->vote_dialect().is_server()
                            ? joined_reads_.get().read(items, deadline)
                            : read_counts(items, deadline));
    counts.reserve(items.size());
    for (const std::int64_t value : values) {
        counts.push_back(Count{value, counts_agree(), now, "sql", 0});
    }
    return counts;
}

JoinedReads::Counts SqlVotes::read_counts(std::span<const sql::Id> items, Deadline deadline) {
    std::size_t rows = 0;
    auto counts = count_reader_.read(*database_, items, deadline, rows);
    if (folder_ != nullptr) folder_->note_read(rows);
    return counts;
}

Result<Count> SqlVotes::count(const sql::Id& item, Consistency consistency, Timeout timeout) {
    HOTCOUNT_TRY_ASSIGN(auto counts, count_many(std::span{&item, 1}, consistency, timeout));
    return std::move(counts.front());
}

void SqlVotes::run_async(Deadline deadline, std::function<void(Votes&)> work,
                         std::function<void(Error)> refuse) {
    waiting_calls_.get().run(
        deadline, [self = shared_from_this(), work = std::move(work)] { work(*self); },
        std::move(refuse));
}

void SqlVotes::count_async(const sql::Id& item, Completion<Count> done, Timeout timeout,
                           Consistency consistency) {
    const Deadline deadline = database_->deadline(timeout);
    run_async(
        deadline,
        [item, done, deadline, consistency](Votes& votes) {
            done(votes.count(item, consistency, deadline.remaining()));
        },
        [done](Error error) { done(std::move(error)); });
}

Result<FlushReport> SqlVotes::flush(Timeout timeout) {
    const Deadline deadline = database_->deadline(timeout);
    FlushReport report{0, 0, 0};
    if (journal_ != nullptr) {
        HOTCOUNT_TRY(sql::read_snapshot(*database_, deadline, [&](sql::Connection& connection) {
            return check_place(connection, *layout_, options_);
        }));
        HOTCOUNT_TRY_ASSIGN(const FoldReport folded, folder_->fold_now(deadline));
        report = {folded.shown, folded.held + folded.failed + (folded.more ? 1 : 0), 0};
    }
    // Otherwise item.vote_count is brought up to date in every commit, or by folds.
    if (options_.strategy != VoteStrategy::slotted || !layout_->counts_in_items) return report;
    HOTCOUNT_TRY_ASSIGN(const std::int64_t shown, layout_->vote_dialect().folds_one_by_one()
                                                      ? flush_pages(deadline)
                                                      : flush_at_once(deadline));
    report.acked += shown;
    return report;
}

void SqlVotes::note_appended(std::size_t rows) {
    if (folder_ != nullptr) folder_->note_appended(rows);
    // The caller's COMMIT may end after the next fold: a look finds the rows that it has missed.
    watch_journal();
}

void SqlVotes::note_cell(const sql::Id& item) {
    if (cells_ != nullptr && cells_->note(item)) folder_->note_appended(1);
}

Result<std::int64_t> SqlVotes::flush_at_once(Deadline deadline) {
    const auto fold = [&](sql::Connection& connection) -> Result<std::int64_t> {
        // One settlement or fold at a time: one that waited for another would write older sums.
        if (!layout_->lock_fold.empty()) HOTCOUNT_TRY(connection.run_script(layout_->lock_fold));
        HOTCOUNT_TRY(connection.query(layout_->reconcile_alone, {}, sql::kIgnoreRows));
        HOTCOUNT_TRY(check_place(connection, *layout_, options_));
        return connection.execute(layout_->fold_lagging);
    };
    return sql::transact(*database_, deadline, fold);
}

// An UPDATE that locks every cell that it sums would keep the voters for all items waiting, or meet
// them in a deadlock. So the items that lag are found by reading, and folded in order.
Result<std::int64_t> SqlVotes::flush_pages(Deadline deadline) {
    std::vector<sql::Id> lagging;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        lagging.push_back(row.id(0));
        return {};
    };
    const auto find = [&](sql::Connection& connection) -> Result<void> {
        HOTCOUNT_TRY(check_place(connection, *layout_, options_));
        HOTCOUNT_TRY(connection.query(layout_->fold_lagging, {}, see));
        return {};
    };
    HOTCOUNT_TRY(sql::read_snapshot(*database_, deadline, find));
    constexpr std::size_t kPage = 100;
    for (std::size_t done = 0; done < lagging.size(); done += kPage) {
        const auto page = std::span{lagging}.subspan(done, std::min(kPage, lagging.size() - done));
        const auto fold = [&](sql::Connection& connection) -> Result<void> {
            HOTCOUNT_TRY(check_place(connection, *layout_, options_));
            for (const sql::Id& item : page) {
                // Summed once its row is held: of two that fold it the later has the later sum.
                HOTCOUNT_TRY(
                    connection.query(layout_->lock_item, {sql::to_value(item)}, sql::kIgnoreRows));
                HOTCOUNT_TRY(connection.execute(layout_->fold_item, {sql::to_value(item)}));
            }
            return {};
        };
        HOTCOUNT_TRY(sql::transact(*database_, deadline, fold));
    }
    return static_cast<std::int64_t>(lagging.size());
}

Result<std::shared_ptr<SyncWorker>> SqlVotes::sync_worker() {
    return make_error(ErrorCode::config, "strategy '" + std::string{to_string(options_.strategy)} +
                                             "' keeps no counts in a cache, so it has no sync "
                                             "worker; 'cached' has");
}

}  // namespace hotcount
