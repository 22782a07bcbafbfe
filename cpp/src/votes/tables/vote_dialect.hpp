// The interface between votes and a SQL dialect beyond its grammar: the statements that differ as a
// whole, and the objects that work over the vote tables.
//
// Each dialect derives from VoteDialect, in dialects/NAME/vote_dialect.cpp. vote_dialect() is
// declared here and defined above, in dialects/registry.cpp. The objects are stateless, one per
// dialect, thread-safe. The base class has what most dialects need.
#pragma once

#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "bulk_statement.hpp"
#include "layout.hpp"
#include "sql/dialect.hpp"
#include "vote_writer.hpp"

namespace hotcount {

class Adopter;
class Journal;
class OutsideTriggers;
class SyncPages;

class VoteDialect {
  public:
    virtual ~VoteDialect() = default;
    virtual const sql::Grammar& grammar() const = 0;

    /// False for a database in this process, which has one writer at a time: batched counts in the
    /// item's row, reads have no round trip to share, and there is no journal.
    virtual bool is_server() const { return true; }

    /// For tables that are the application's own.
    virtual const Adopter& adopter() const = 0;
    virtual const OutsideTriggers& outside_triggers() const = 0;

    // -- text of the tables ---------------------------------------------------------------------
    /// The text after the item table's closing parenthesis.
    virtual std::string item_table_end() const { return grammar().table_end(); }
    /// CREATE TABLE of the journal with its indexes; each does nothing if it is done. Servers only.
    virtual std::string journal_table(const VoteNames& names) const = 0;
    /// Scripts: see Layout::lock_fold and lock_all. Empty if there is one writer.
    virtual std::string lock_fold(const VoteNames& names) const = 0;
    virtual std::string lock_all(const VoteNames& names) const = 0;
    /// Blocks changes of items by other transactions until this one ends. Servers only.
    virtual std::string lock_items(const VoteNames& names) const = 0;
    /// See Layout::fold_lagging.
    virtual std::string fold_lagging(const VoteNames& names) const;
    /// Whether fold_lagging() only finds the items, because an UPDATE would lock every cell that it
    /// sums.
    virtual bool folds_one_by_one() const { return false; }

    /// In a cluster whose nodes do not see each other's locks: writes, in the transaction that moves the
    /// counts, the mark of Layout::read_move.
    virtual Result<void> note_move(sql::Connection&, const VoteNames&) const { return {}; }
    /// There, and outside of a transaction: commits here what other nodes have begun to commit to the
    /// tables of votes and items, and has them refuse what they began before.
    virtual Result<void> pass_other_nodes(sql::Connection&, const VoteNames&) const { return {}; }

    // -- reading counts -------------------------------------------------------------------------
    /// The most items in one statement of read_counts(): a server's round trip is worth a longer
    /// text.
    std::size_t most_counts() const { return is_server() ? 64 : 1; }
    /// See CountReader: number, count, place, journal rows of each item.
    virtual BulkStatement read_counts(const VotesOptions& options, const VoteNames& names) const;
    /// The counts of any number of items, ?1 being id_array() of them, if the dialect has arrays.
    virtual std::optional<sql::Statement> read_counts_of_array(const VotesOptions&,
                                                               const VoteNames&) const {
        return {};
    }
    /// NumberedReads' SELECT of every item of the array ?1, if the dialect has arrays.
    virtual std::optional<sql::Statement> select_for_array(const VotesOptions&,
                                                           const NumberedReads::Select&) const {
        return {};
    }
    /// A SELECT of the votes of user ?2 for the items of the array ?1, in its order, NULL for no
    /// vote, if the dialect has arrays.
    virtual std::optional<sql::Statement> get_of_array(const VotesOptions&,
                                                       const VoteNames&) const {
        return {};
    }
    /// A SELECT of how many indexes over the whole table ?2 of schema ?1 (or '') begin with the
    /// column named ?3.
    virtual std::string find_index() const = 0;
    /// Deletes up to ?3 of votes_without_user().
    virtual std::string delete_without_user(const VoteNames& names) const = 0;
    /// Adds the items of the array ?1 that do not exist, if the dialect has arrays.
    virtual std::optional<sql::Statement> create_items(const VotesOptions&,
                                                       const VoteNames&) const {
        return {};
    }
    virtual std::string id_array(std::span<const sql::Id>) const { return {}; }

    // -- writing votes --------------------------------------------------------------------------
    /// A condition: the session checks foreign keys. Empty if locks_rows() is false, where nothing
    /// relies on them.
    virtual std::string_view checks_foreign_keys() const { return {}; }
    /// The type of the existing item table's ids, if other columns must have exactly this type;
    /// else empty. Refuses columns that the database cannot compare.
    virtual Result<std::string> item_type(sql::Connection&, const VotesOptions&) const {
        return std::string{};
    }
    /// Whether ids that differ are different items and users to the columns.
    virtual Result<bool> tells_ids_apart(sql::Connection&, const VotesOptions&) const {
        return true;
    }
    /// `appended`: for batches that are counted in the journal; else it may be empty.
    virtual std::unique_ptr<VoteWriter> vote_writer(std::shared_ptr<const Layout> layout,
                                                    const VotesOptions& options,
                                                    NoteAppended appended) const = 0;
    /// strategy cached. Null for a database in this process.
    virtual std::unique_ptr<SyncPages> sync_pages(const VotesOptions& options,
                                                  const VoteNames& names) const;
    /// Null if there is no journal.
    virtual std::unique_ptr<Journal> journal(std::shared_ptr<sql::Database> database,
                                             const VotesOptions& options) const = 0;
};

/// The dialect of that name.
const VoteDialect& vote_dialect(sql::Dialect dialect);

}  // namespace hotcount
