// The part that all strategies share: the tables, reading, reconciling. A strategy adds how votes
// are written and where they are counted.
#pragma once

#include <atomic>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/worker_pool.hpp>
#include <hotcount/votes.hpp>
#include <memory>
#include <string>
#include <vector>

#include "call_times.hpp"
#include "votes/journal/cell_journal.hpp"
#include "votes/journal/folder.hpp"
#include "votes/tables/audit.hpp"
#include "votes/tables/bulk_statement.hpp"
#include "votes/tables/count_reader.hpp"
#include "votes/tables/joined_reads.hpp"
#include "votes/tables/layout.hpp"
#include "votes/tables/opening.hpp"
#include "votes/tables/replica.hpp"
#include "votes/tables/vote_reader.hpp"
#include "votes/tables/vote_removal.hpp"
#include "votes/tables/vote_writer.hpp"

namespace hotcount {

class Adoption;
struct FoundTriggers;

class SqlVotes : public Votes, public std::enable_shared_from_this<SqlVotes> {
  public:
    /// `publish` is called with each fold's counts, if the strategy has a journal.
    SqlVotes(std::shared_ptr<sql::Database> database, VotesOptions options,
             Folder::Publish publish = {}, std::shared_ptr<Replica> replica = {});

    Result<void> create_tables(ExistingCounts existing, OutsideWrites outside,
                               Timeout timeout) override;
    std::string schema() const override;
    Result<std::string> migration(ExistingCounts existing, OutsideWrites outside,
                                  Timeout timeout) override;
    Result<void> add_items(std::span<const sql::Id> items, Timeout timeout) override;
    Result<Count> count(const sql::Id& item, Consistency consistency, Timeout timeout) override;
    Result<std::vector<Count>> count_many(std::span<const sql::Id> items, Consistency consistency,
                                          Timeout timeout) override;
    Result<std::int64_t> get(const sql::Id& item, const sql::Id& user, Timeout timeout) override;
    Result<std::vector<std::int64_t>> get_many(std::span<const sql::Id> items, const sql::Id& user,
                                               Timeout timeout) override;
    Result<std::vector<Voter>> voters(const sql::Id& item, const std::optional<sql::Id>& after,
                                      std::size_t limit, Consistency consistency,
                                      Timeout timeout) override;
    Result<Tally> tally(const sql::Id& item, Consistency consistency, Timeout timeout) override;
    Result<std::vector<ItemCount>> top(std::size_t n, Consistency consistency,
                                       Timeout timeout) override;
    using Votes::toggle;
    Result<Cast> toggle(const Ballot& ballot, Timeout timeout) final;
    Result<std::int64_t> remove_item(const sql::Id& item, bool delete_row,
                                     Timeout timeout) override;
    Result<Erased> erase_user(const sql::Id& user, Timeout timeout) override;
    Result<std::int64_t> prune(std::int64_t before, Timeout timeout) override;
    using Votes::reconcile;
    Result<std::vector<Drift>> reconcile(std::optional<std::span<const sql::Id>> items,
                                         const ReconcileOptions& how, Timeout timeout) override;
    Result<FlushReport> flush(Timeout timeout) override;
    void note_appended(std::size_t rows) override;
    Result<VotesStats> stats(Timeout timeout) override;
    std::optional<VotesEvent> take_event() override;
    Result<std::shared_ptr<SyncWorker>> sync_worker() override;
    const VotesOptions& options() const override { return options_; }
    // Ids are checked first, so that an id that no database accepts does not fail other votes.
    Result<Cast> cast(const Ballot& ballot, Timeout timeout) final;
    std::vector<Result<Cast>> cast_many(std::span<const Ballot> ballots, Timeout timeout) final;
    void cast_async(const Ballot& ballot, Completion<Cast> done, Timeout timeout) final;
    void cast_many_async(std::span<const Ballot> ballots,
                         std::function<void(std::vector<Result<Cast>>)> done,
                         Timeout timeout) final;
    void count_async(const sql::Id& item, Completion<Count> done, Timeout timeout,
                     Consistency consistency) override;
    void run_async(Deadline deadline, std::function<void(Votes&)> work,
                   std::function<void(Error)> refuse) override;

  protected:
    sql::Database& database() const { return *database_; }
    const std::shared_ptr<sql::Database>& shared_database() const { return database_; }
    const std::shared_ptr<const Layout>& layout() const { return layout_; }

    // The strategy's own part of the calls above.
    virtual Result<Cast> write(const Ballot& ballot, Timeout timeout) = 0;
    virtual std::vector<Result<Cast>> write_many(std::span<const Ballot> ballots,
                                                 Timeout timeout) = 0;
    virtual void write_async(const Ballot& ballot, Completion<Cast> done, Timeout timeout) = 0;
    virtual void write_many_async(std::span<const Ballot> ballots,
                                  std::function<void(std::vector<Result<Cast>>)> done,
                                  Timeout timeout) = 0;

    /// A transaction of a toggle's own.
    virtual Result<Cast> write_toggled(const Ballot& ballot, Deadline deadline);
    /// Toggles the vote in the caller's transaction; its count is the caller's to move.
    Result<Cast> toggle_row(sql::Connection& connection, const Ballot& ballot);
    VoteWriter& writer() const { return *writer_; }

    /// Strategies that count in a cache: votes for these items are being deleted in this transaction.
    virtual Result<void> note_removed(sql::Connection& connection, std::span<const sql::Id> items) {
        (void)connection;
        (void)items;
        return {};
    }
    /// In the transaction that deletes these votes of an item, once they are locked.
    virtual void note_deleted(std::span<const VoteRemoval::Row> votes) { (void)votes; }
    /// The highest version that an item's votes may have to be deleted; empty: any.
    using VersionOfItem = std::function<std::int64_t(const sql::Id& item)>;
    /// erase_user() and remove_item() of votes up to a version, or VoteRemoval::kAll. Later votes stay
    /// and count.
    Result<Erased> erase_until(const sql::Id& user, const VersionOfItem& until, Timeout timeout);
    Result<std::int64_t> remove_until(const sql::Id& item, bool delete_row, std::int64_t until,
                                      Timeout timeout);
    /// The error after a page failed that followed committed ones.
    static Error after_pages(Error error, std::int64_t votes, const char* what);
    /// Called after the commit. Work that fails here is done later by other calls.
    virtual void after_removal(Deadline deadline) { (void)deadline; }

    /// The place of this strategy's counts in this database.
    CountPlace place() const { return layout_->place(); }
    /// `contract` with the changes for a replica that answers too.
    Contract with_replica(Contract contract) const;
    /// True if different ids of `ballots` are different items to the tables, so that votes for one
    /// may be written before votes for another. Texts may be equal to the tables: the first large
    /// call asks the database until `deadline`. A call that must not wait has no deadline; it
    /// starts a question whose answer is for later calls.
    bool ids_are_apart(std::span<const Ballot> ballots, std::optional<Deadline> deadline);
    /// A vote has changed a cell of the item: its own count follows with a fold, if it has one.
    void note_cell(const sql::Id& item);
    /// Null if the strategy has no journal.
    const std::shared_ptr<Folder>& folder() const { return folder_; }
    /// Each call that votes, or reads votes or counts, calls it: see Folder::watch().
    void watch_journal() const {
        if (folder_ != nullptr) folder_->watch();
    }

    /// The findings of a reconcile in a page.
    struct Findings {
        std::vector<Drift> drifts{};
        std::vector<Audit::Difference>
            differences{};               ///< To add to the counts; sorted as `drifts`.
        std::vector<sql::Id> refused{};  ///< Items whose numbers exceed 64 bits.
    };
    /// The findings and the progress of one reconcile.
    class Reconciling {
      public:
        Reconciling(const ReconcileOptions& options, Timeout page_timeout)
            : how(options), timeout(page_timeout), after(options.after) {}
        /// Adds a page, and reports it to the caller's callback. False: the caller ends the
        /// reconcile.
        bool take(Findings&& page, std::size_t looked_at, std::optional<sql::Id> last);
        /// Says in an error where to go on.
        Error stopped(Error error) const;

        const ReconcileOptions& how;
        const Timeout timeout;  ///< Of a page.
        Findings found{};
        std::size_t items{0};
        std::size_t appended{0};       ///< Journal rows that no fold was told of.
        std::optional<sql::Id> after;  ///< All items up to it are done.
    };
    /// How many items the next page has: as many as take a tenth of a second.
    class PageSize {
      public:
        explicit PageSize(std::size_t most) : most_(most) {}
        std::size_t now() const { return now_; }
        void note(Duration took);

      private:
        const std::size_t most_;
        std::size_t now_{64};
    };
    /// Orphans of all tables, reported after all items. Counts of orphans that are kept in SQL are
    /// set right. False: the caller ends the reconcile.
    Result<bool> reconcile_orphans(Reconciling& run);
    Result<Findings> find_drifts(sql::Connection& connection, std::span<const sql::Id> items,
                                 bool dry_run);
    /// Finds the drifts of these items again while no other reconcile runs, and sets them right.
    Result<Findings> settle_drifts(std::span<const Drift> drifts, Deadline deadline);
    Audit& audit() { return audit_; }

    /// Whether a sum of hotcount's counts may be called exact: no uncounted cascade and no
    /// difference is known.
    bool counts_agree() const { return !uncounted_.load() && !differs_.load(); }
    /// Finds the triggers, and updates counts_agree().
    Result<FoundTriggers> find_triggers(sql::Connection& connection);
    /// True if no vote can be written, because triggers run with rights that their account has
    /// lost.
    bool have_lost_rights(const FoundTriggers& found, Deadline deadline) const;

    /// Adds the statistics of votes that share transactions.
    virtual void add_stats(VotesStats& stats) const { (void)stats; }

    /// As check_id().
    Result<void> check_items(std::span<const sql::Id> items) const;

    /// The statements that create the strategy's own tables; more_tables() are the endings of their
    /// names after the vote table's. `item_type`: of columns that hold an item's id, if it is not
    /// the type of the options.
    virtual std::string more_schema(const std::string& item_type) const {
        (void)item_type;
        return {};
    }
    virtual std::vector<std::string> more_tables() const { return {}; }
    /// Called in the transaction of create_tables if these tables were counted by another strategy,
    /// or not at all; item.vote_count is right by then.
    virtual Result<void> take_over(sql::Connection& connection);

  private:
    std::atomic<bool> ids_are_apart_{false};  // Known of texts.
    std::atomic<bool> uncounted_{false};      // There are cascades that are not counted.
    std::atomic<bool> differs_{false};        // The last reconcile left a difference.

    // reconcile.cpp
    Findings compare(const Audit::Page& page, bool dry_run) const;
    void compare_orphan(const AuditedItem& row, Findings& found) const;
    Result<void> repair(sql::Connection& connection, Findings& found);
    Result<Findings> reconcile_page(Reconciling& run,
                                    const std::function<Result<Findings>(sql::Connection&)>& look);
    Result<void> reconcile_named(std::span<const sql::Id> items, Reconciling& run);
    Result<void> reconcile_all(Reconciling& run);

    /// Called after the commit: reads the counts that ballots ask for and the strategy has not set.
    /// If the read fails, the vote is returned without a count.
    void tell_counts(std::span<const Ballot> ballots, std::span<Result<Cast>> casts,
                     Deadline deadline);

    // asking.cpp
    Result<void> move_count(sql::Connection& connection, const sql::Id& item,
                            std::int64_t difference);

    // cleaning.cpp
    struct RemovedPage {
        std::int64_t votes{0};
        bool full{false};
        bool there{false};  // The item's row, if its count is there.
    };
    bool item_first() const;
    Result<void> erase_pages(const sql::Id& user, const VersionOfItem& until, Erased& erased,
                             Timeout timeout);
    Result<std::int64_t> remove_pages(const sql::Id& item, bool delete_row, std::int64_t until,
                                      std::int64_t& removed, Timeout timeout);
    Result<RemovedPage> remove_rest(sql::Connection& connection, const sql::Id& item,
                                    bool delete_row, std::int64_t until, std::int64_t& ver);
    Result<RemovedPage> remove_votes(sql::Connection& connection, const sql::Id& item,
                                     bool delete_row, std::int64_t until);
    Result<void> prune_pages(std::int64_t before, std::int64_t& pruned, Timeout timeout);
    Result<std::int64_t> erase_page(sql::Connection& connection, const sql::Id& user,
                                    const VersionOfItem& until, std::span<const sql::Id> items);
    Result<void> uncount(sql::Connection& connection, const sql::Id& user,
                         std::span<const VoteRemoval::Row> votes, std::span<const sql::Id> held);

    Replica* replica_for(Consistency consistency) const {
        return consistency == Consistency::cached ? replica_.get() : nullptr;
    }
    template <class Ask>
    auto ask_votes(Consistency consistency, Deadline deadline, const Ask& ask);

    JoinedReads::Counts read_counts(std::span<const sql::Id> items, Deadline deadline);
    Result<std::int64_t> flush_at_once(Deadline deadline);
    Result<std::int64_t> flush_pages(Deadline deadline);

    // create_tables.cpp
    /// Of tables and views, as they stand in SQL.
    Result<std::vector<std::string>> missing_tables(sql::Connection& connection) const;
    Result<void> count_votes_of_other_nodes(const std::string& move, Deadline deadline);
    static Result<void> refuse_incomplete(const Adoption& adoption);
    Result<void> try_rules(const Adoption& adoption, Deadline deadline) const;
    Result<void> try_without_triggers(const Adoption& adoption, sql::Connection& connection) const;
    // migration.cpp
    std::string count_text(bool counted, bool empty_cells, ExistingCounts existing) const;
    Result<bool> is_marked(sql::Connection& connection) const;
    std::shared_ptr<sql::Database> database_;
    VotesOptions options_;
    std::shared_ptr<const Layout> layout_;
    const Openings openings_;
    CountReader count_reader_;
    VoteReader vote_reader_;
    VoteRemoval removal_;
    Audit audit_;
    NewItems new_items_;
    const std::unique_ptr<VoteWriter> writer_;  // For votes that share no transaction.
    const Folder::Publish publish_;
    const std::shared_ptr<Replica> replica_;  // Null without read_url.
    ForkLocal<JoinedReads> joined_reads_;
    std::shared_ptr<Journal> journal_{};
    std::shared_ptr<CellJournal> cells_{};  // The journal of strategy slotted.
    std::shared_ptr<Folder> folder_{};
    ForkLocal<WaitingCalls> waiting_calls_;  // Calls outside of group commits.
    mutable ForkLocal<CallTimes> times_{[] { return std::make_unique<CallTimes>(); }};
};

/// For contract(), if there is a journal: how far item.vote_count lags.
std::string lag_of_item_count(const VotesOptions& options);

std::shared_ptr<Votes> make_single_votes(std::shared_ptr<sql::Database> database,
                                         VotesOptions options, std::shared_ptr<Replica> replica);
std::shared_ptr<Votes> make_batched_votes(std::shared_ptr<sql::Database> database,
                                          VotesOptions options, VoteCache cache,
                                          std::shared_ptr<Replica> replica);
std::shared_ptr<Votes> make_cached_votes(std::shared_ptr<sql::Database> database,
                                         VotesOptions options, VoteCache cache);
std::shared_ptr<Votes> make_write_behind_votes(std::shared_ptr<sql::Database> database,
                                               VotesOptions options,
                                               std::shared_ptr<redis::Client> client);

}  // namespace hotcount
