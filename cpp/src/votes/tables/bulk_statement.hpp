// Statements over many rows or items, with as few different texts as possible, because a connection
// keeps each text prepared. Thread-safe.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <hotcount/sql.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sql/statements.hpp"

namespace hotcount {

struct VoteNames;
struct VotesOptions;
class VoteDialect;

/// One statement over any number of rows.
class BulkStatement {
  public:
    /// `text` has rows in --each (sql/statements.hpp).
    explicit BulkStatement(std::string text) : text_(std::move(text)) {}

    /// How many of `left` rows to give to the next statement, if each may stand in it once:
    /// batches of up to 64 callers are one statement of just that many.
    static std::size_t portion(std::size_t left) {
        if (left <= kExact) return left;
        return std::min(kMost, std::size_t{1} << (std::bit_width(left) - 1));
    }
    /// As portion(), if rows may be repeated to fill the statement up to padded().
    static std::size_t padded_portion(std::size_t left) { return std::min(kMost, left); }
    static std::size_t padded(std::size_t rows) { return std::bit_ceil(rows); }

    /// If a row is one id: runs it over all of them, repeating the last one to fill up. `head`:
    /// values of the head's own placeholders.
    Result<void> run_padded(sql::Connection& connection, std::span<const sql::Id> ids,
                            const sql::RowVisitor* visit, std::span<const sql::Value> head = {}) {
        while (!ids.empty()) {
            const auto part = ids.first(padded_portion(ids.size()));
            ids = ids.subspan(part.size());
            HOTCOUNT_TRY(connection.run(of(padded(part.size())), padded_values(part, head), visit));
        }
        return {};
    }
    /// The values of a statement of padded() rows.
    static std::vector<sql::Value> padded_values(std::span<const sql::Id> ids,
                                                 std::span<const sql::Value> head = {}) {
        std::vector<sql::Value> values{head.begin(), head.end()};
        const std::size_t size = padded(ids.size());
        values.reserve(head.size() + size);
        for (std::size_t i = 0; i < size; ++i) {
            values.push_back(sql::to_value(ids[std::min(i, ids.size() - 1)]));
        }
        return values;
    }

    const sql::Statement& of(std::size_t rows) {
        std::lock_guard lock(mutex_);
        auto& statement = made_[rows];
        if (statement == nullptr) {
            statement = std::make_unique<const sql::Statement>(sql::repeat_rows(text_, rows));
        }
        return *statement;
    }

  private:
    static constexpr std::size_t kExact = 64;
    static constexpr std::size_t kMost = 512;

    const std::string text_;
    std::mutex mutex_;
    std::unordered_map<std::size_t, std::unique_ptr<const sql::Statement>> made_;
};

/// One SELECT for each of many items: whole batches cross the link at once.
class NumberedReads {
  public:
    /// The SELECT of one item, `item` being SQL for its id.
    using Select = std::function<std::string(const std::string& item, const std::string& number)>;
    /// `index` is of the items that were given. Not called for an item that the SELECT finds nothing
    /// for.
    using Visit = std::function<Result<void>(std::size_t index, const sql::Row& row)>;

    /// The statement of that name reads item {1}. Its first column is the number {2}, the others
    /// are the caller's. `sql` has votes/sql/parts.sql.
    NumberedReads(const VotesOptions& options, const VoteDialect& dialect,
                  const sql::Statements& sql, std::string_view name);

    /// One statement where the dialect has arrays, else one for each kMost items (without a server
    /// for each item). Of one snapshot if the transaction is.
    Result<void> run(sql::Connection& connection, std::span<const sql::Id> items,
                     const Visit& visit);

  private:
    const VoteDialect& dialect_;
    const std::optional<sql::Statement> of_array_;
    BulkStatement of_each_;
};

/// The rows of items that are not there yet.
class NewItems {
  public:
    NewItems(const VotesOptions& options, const VoteNames& names, const VoteDialect& dialect);

    /// Inserts the items that do not exist. `items` are sorted and distinct: otherwise two
    /// transactions that insert the same items could deadlock. One statement where the dialect has
    /// arrays, else one or two for each 512 items. Locks no existing item, unless it exists as
    /// another text that the database takes for the same id.
    Result<void> add(sql::Connection& connection, std::span<const sql::Id> items);

  private:
    NewItems(const VoteDialect& dialect, std::optional<sql::Statement> of_array,
             const sql::Statements& sql);
    Result<std::vector<sql::Id>> missing(sql::Connection& connection,
                                         std::span<const sql::Id> items);

    const VoteDialect& dialect_;
    const std::optional<sql::Statement> of_array_;
    BulkStatement there_;
    BulkStatement insert_;
};

}  // namespace hotcount
