// Votes without this library's bookkeeping, to compare with: one INSERT for a vote, and nothing else, or
// the count in Redis by the scripts of the first description in docs/explanation/systems.md.
//
//   insert_only   a vote is a row; a count is COUNT(*)
//   seed_cached   RACY: a vote is a row, then its item's key in Redis is incremented; a key that is
//                 absent is filled from item.vote_count. A worker reads keys, saves, marks and
//                 deletes them. Its holes: tests/races/test_cached_votes_holes.py
//
// The keys of seed_cached have no prefix, because its scripts make their names: it takes a Redis of its
// own. No vote counts twice here, because the row of a user and item is unique.
#pragma once

#include <cstdint>
#include <hotcount/redis.hpp>
#include <hotcount/result.hpp>
#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <memory>
#include <optional>
#include <thread>

#include "checkers/checker.hpp"
#include "load/driver.hpp"

namespace hotcount::loadtest {

class PlainVotes final : public Driver {
  public:
    /// Without a client: insert_only. The tables are those of `options`.
    PlainVotes(std::shared_ptr<sql::Database> database, const VotesOptions& options,
               std::shared_ptr<redis::Client> client, Duration timeout);

    Answer apply(const Operation& operation) override;
    Contract contract() const;
    /// Empties the Redis and starts the worker, if there is one.
    Result<void> begin();
    /// Ends the worker, after a last pass that saves every key.
    Result<void> settle();
    /// Takes its keys away: they have no prefix, and the Redis is the generator's own.
    Result<void> clean_up();
    /// Removes findings that the contract allows: counts that are not kept, or that drift.
    void excuse(AuditResult& result) const;

  private:
    Result<bool> write_row(const Operation& operation, Deadline deadline);
    Result<void> count(const Operation& operation, std::int64_t change, Deadline deadline);
    Result<std::int64_t> read(const Operation& operation, Deadline deadline);
    Result<std::int64_t> read_database(const sql::Statement& statement, std::int64_t item,
                                       Deadline deadline);
    Result<bool> pass(bool deletes);

    std::shared_ptr<sql::Database> database_;
    std::shared_ptr<redis::Client> client_;
    const Duration timeout_;
    const sql::Statement insert_;
    const sql::Statement update_;
    const sql::Statement count_rows_;
    const sql::Statement stored_;
    const sql::Statement save_;
    std::jthread worker_;  // Last: it ends before what it uses.
};

}  // namespace hotcount::loadtest
