// Adoption of the application's own tables: what they lack for votes, and what makes them unusable.
//
// Nothing here changes a table. create_tables() makes tables that are missing and never alters one;
// migration() prints the statements that do.
#pragma once

#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <optional>
#include <string>
#include <vector>

#include "adopter.hpp"
#include "layout.hpp"

namespace hotcount {

class VoteDialect;

/// A config error about an existing table: `what`, and that nothing was changed.
Error refuse_table(const std::string& what);

class Adoption {
  public:
    Adoption(const VotesOptions& options, const VoteDialect& dialect);

    /// Reads the definitions of both tables.
    Result<void> read(sql::Connection& connection);
    /// As read(). A config error, which names table and column and the remedy, if a table has a
    /// fault that no added column or key mends.
    Result<void> look(sql::Connection& connection);
    /// A config error if this role does not see all rows, or the rows are in no transaction.
    Result<void> check_fit() const;

    /// The parts that the existing tables lack, for a message; empty if votes can be stored there.
    std::string lacking() const;
    /// The statements that add these parts, and further ones for speed and integrity; empty if none is
    /// needed.
    std::string alterations() const;
    /// The vote table's reference to the items, if it is missing and can be added.
    std::string reference() const;
    /// Triggers or checks, which try_rules() tries when nothing is lacking.
    bool votes_have_rules() const { return votes_.has_rules; }
    /// Casts a user's first vote for an item, retracts one that is there and casts it again, and
    /// reads each: a config error if a check refuses it, or a trigger makes it another or counts it.
    /// In a transaction that the caller rolls back.
    Result<void> try_rules(sql::Connection& connection) const;
    bool votes_have_values() const { return votes_.find(options_.vote_value) != nullptr; }
    bool items_have_counts() const { return items_.find(options_.item_count) != nullptr; }

  private:
    sql::Statements statements() const;
    Result<void> check_items() const;
    Result<void> check_votes() const;
    Result<void> check_columns() const;
    Result<void> check_keys() const;
    Result<void> check_references() const;
    Result<void> check_ids(const FoundColumn* column, const std::string& table,
                           const std::string& name, IdType type, const char* option) const;
    Result<void> check_rows(sql::Connection& connection) const;
    Result<void> check_ours(sql::Connection& connection) const;
    Result<void> check_orphans(sql::Connection& connection) const;
    Result<void> try_vote(sql::Connection& connection, const sql::Id& item, const sql::Id& user,
                          std::int64_t value) const;
    bool lacks_reference() const;
    std::optional<std::string> unchecked_reference() const;
    bool has_column_of_ours(const std::string& name) const;
    bool lacks_key() const;
    std::vector<std::string> missing_columns() const;

    const VotesOptions& options_;
    const VoteNames names_;
    const VoteDialect& dialect_;
    const Adopter& adopter_;
    const sql::TableName item_table_, vote_table_;
    FoundTable items_{}, votes_{};
};

/// The counts of tables that hotcount has not counted before, moved to the journal beside the
/// application's voters; `keeps`: a count that is not the sum of its votes stays, as an opening
/// balance.
std::string fill_text(const VoteNames& names, const VoteDialect& dialect, VoteStrategy strategy,
                      bool keeps);

}  // namespace hotcount
