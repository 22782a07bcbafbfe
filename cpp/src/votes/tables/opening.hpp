// Opening balances: counts that stood in the item table before hotcount knew of the votes behind
// them.
//
// An item's is the cell of slot kOpeningSlot, with every strategy. create_tables() writes it once,
// when it meets tables that hotcount has not counted before, and nothing writes it after that.
// Sums over cells have it by themselves; everything that compares a count with the votes, or sets
// it to their sum, adds it ({owed} in votes/sql/parts.sql).
#pragma once

#include <cstdint>
#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <optional>
#include <string>

#include "layout.hpp"

namespace hotcount {

/// Every function runs inside the transaction of create_tables().
class Openings {
  public:
    Openings(const VotesOptions& options, sql::Dialect dialect);

    /// For dialects in which every change of the schema commits: called before the first change,
    /// refuses as settle() would, whichever of the tables exist.
    Result<void> refuse_early(sql::Connection& connection, const Layout& layout,
                              ExistingCounts existing) const;
    /// As refuse_early(), for tables that may lack columns: `have_values` says whether the votes
    /// have values; without, each counts 1.
    Result<void> check(sql::Connection& connection, ExistingCounts existing,
                       bool have_values) const;
    /// The statement that writes the balances; it writes each once.
    const std::string& keep_text() const { return keep_.text(); }
    /// To be called when all tables exist, votes are blocked, and hotcount has not counted them
    /// before.
    Result<void> settle(sql::Connection& connection, ExistingCounts existing) const;

  private:
    // Statements that find items whose count is not the sum of their votes and the balance.
    struct Differing {
        sql::Statement count;  ///< -> how many
        sql::Statement first;  ///< -> id, count, votes: of the first by id
    };
    struct Tables {
        bool item, vote, anonymous, cell, meta;
    };
    static Differing differing(const VoteNames& names, const sql::Grammar& grammar,
                               const Tables& tables);
    Openings(const VotesOptions& options, const VoteNames& names, const VoteDialect& dialect);
    Openings(const VotesOptions& options, const VoteNames& names, const VoteDialect& dialect,
             const sql::Statements& sql);
    Result<Tables> find_tables(sql::Connection& connection) const;
    Result<void> refuse(sql::Connection& connection, const Differing& differing) const;

    const VotesOptions options_;
    const VoteNames names_;
    const VoteDialect& dialect_;
    const Differing differing_;
    const sql::Statement tables_;
    const std::string lock_marks_;     ///< A script.
    const sql::Statement lock_items_;  ///< Servers only.
    const sql::Statement keep_;
    const sql::Statement too_large_;  ///< -> the item of a balance beyond 64 bits
};

}  // namespace hotcount
