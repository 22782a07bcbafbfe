// batched on MariaDB and MySQL: a transaction of a few statements, however many votes it holds.
#include <algorithm>
#include <array>
#include <hotcount/base/check.hpp>

#include "mysql_vote_rows.hpp"
#include "sql_votes.hpp"

namespace hotcount {
namespace {

// As in batched_votes.cpp.
constexpr std::int64_t kSlot = 0;

std::string placeholder(std::size_t first) { return "?" + std::to_string(first); }

class MysqlBatchWriter final : public sql::BatchWriter {
  public:
    MysqlBatchWriter(std::shared_ptr<const Layout> layout, const VoteNames& n,
                     const VotesOptions& options)
        : layout_(std::move(layout)),
          options_(options),
          rows_(make_vote_rows(layout_, options)),
          keys_(options),
          lock_items_("SELECT " + n.id + ", (SELECT value FROM " + n.meta +
                          " WHERE name = 'counted_in' LOCK IN SHARE MODE) FROM " + n.item +
                          " WHERE " + n.id + " IN (",
                      placeholder, 1, ", ", ") ORDER BY " + n.id + " FOR UPDATE"),
          add_to_cells_(
              "INSERT INTO " + n.cell + " (item, slot, n, ver) VALUES ",
              [](std::size_t first) {
                  return "(" + placeholder(first) + ", " + std::to_string(kSlot) + ", " +
                         placeholder(first + 1) + ", 1)";
              },
              2, ", ", " ON DUPLICATE KEY UPDATE n = n + VALUES(n), ver = ver + 1"),
          // The rows are locked since lock_items_, so these sums are of this very moment.
          fold_("UPDATE " + n.item + " SET " + n.count + " = (SELECT COALESCE(SUM(n), 0) FROM " +
                    n.cell + " WHERE " + n.cell + ".item = " + n.item + "." + n.id + ") WHERE " +
                    n.id + " IN (",
                placeholder, 1, ", ", ")") {}

    Result<void> write(sql::Connection& connection,
                       std::span<const std::shared_ptr<sql::Ticket>> batch) override {
        std::vector<VoteTicket*> votes = sorted_votes(batch);
        std::vector<sql::Id> items;
        for (const VoteTicket* vote : votes) {
            if (items.empty() || items.back() != vote->ballot.item) {
                items.push_back(vote->ballot.item);
            }
        }
        HOTCOUNT_TRY_ASSIGN(const std::vector<sql::Id> missing, lock(connection, items));
        if (!missing.empty()) {
            HOTCOUNT_TRY(supply(connection, missing));
            if (options_.missing_item == MissingItem::refuse) refuse(votes, missing);
        }
        if (votes.empty()) return {};
        HOTCOUNT_TRY(rows_->set_all(connection, votes));
        return count(connection, votes);
    }

  private:
    // Also holds the place that the counts are kept in. Returns the items that are not there.
    Result<std::vector<sql::Id>> lock(sql::Connection& connection,
                                      const std::vector<sql::Id>& items) {
        HOTCOUNT_TRY_ASSIGN(const bool at_once, keys_.are_bytes(connection));
        std::vector<sql::Id> found;
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            found.push_back(row.id(0));
            if (row.text(1) != to_string(CountPlace::cells)) {
                return wrong_place(options_.vote_table, row.text(1), options_.strategy,
                                   sql::Dialect::mysql);
            }
            return {};
        };
        std::vector<sql::Id> missing;
        if (!at_once) {
            for (const sql::Id& item : items) {
                found.clear();
                auto locked = connection.query(lock_items_.of(1), {sql::to_value(item)}, see);
                if (!locked) return explain_missing_table(std::move(locked).error());
                if (found.empty()) missing.push_back(item);
            }
            if (missing.size() < items.size()) return missing;
            HOTCOUNT_TRY(check_place(connection, *layout_, options_, true));
            return missing;
        }
        if (auto locked = lock_items_.run_padded(connection, items, &see); !locked) {
            return explain_missing_table(std::move(locked).error());
        }
        if (found.empty()) HOTCOUNT_TRY(check_place(connection, *layout_, options_, true));
        std::sort(found.begin(), found.end());
        std::set_difference(items.begin(), items.end(), found.begin(), found.end(),
                            std::back_inserter(missing));
        return missing;
    }

    Result<void> supply(sql::Connection& connection, const std::vector<sql::Id>& missing) {
        for (const sql::Id& item : missing) {
            HOTCOUNT_TRY(ensure_item(connection, *layout_, options_.missing_item, item));
        }
        if (options_.missing_item == MissingItem::refuse) return {};
        // A row of one's own is not locked until somebody else comes for it, and the foreign key's
        // shared lock would then be in the way of the fold.
        for (const sql::Id& item : missing) {
            HOTCOUNT_TRY(
                connection.run(lock_items_.of(1), std::array{sql::to_value(item)}, nullptr));
        }
        return {};
    }

    // Their votes fail alone; the others go on.
    static void refuse(std::vector<VoteTicket*>& votes, const std::vector<sql::Id>& missing) {
        std::erase_if(votes, [&](VoteTicket* vote) {
            const sql::Id& item = vote->ballot.item;
            if (!std::binary_search(missing.begin(), missing.end(), item)) return false;
            vote->error = explain_refusal(
                make_error(ErrorCode::integrity, "the vote was refused; nothing was applied"),
                vote->ballot, true);
            return true;
        });
    }

    Result<void> count(sql::Connection& connection, std::span<VoteTicket* const> votes) {
        std::vector<sql::Id> moved;
        std::vector<std::int64_t> differences;
        for (auto first = votes.begin(); first != votes.end();) {
            const sql::Id& item = (*first)->ballot.item;
            std::int64_t difference = 0;
            for (; first != votes.end() && (*first)->ballot.item == item; ++first) {
                const Cast& cast = (*first)->cast;
                const auto change = checked_subtract(cast.value, cast.previous);
                const auto sum = change ? checked_add(difference, *change) : std::nullopt;
                if (!sum) return count_overflow(item);
                difference = *sum;
            }
            if (difference == 0) continue;
            moved.push_back(item);
            differences.push_back(difference);
        }
        std::vector<sql::Value> values;
        for (std::size_t done = 0; done < moved.size();) {
            const std::size_t end = done + BulkStatement::portion(moved.size() - done);
            const std::size_t size = end - done;
            values.clear();
            for (; done < end; ++done) {
                values.push_back(sql::to_value(moved[done]));
                values.emplace_back(differences[done]);
            }
            if (auto added = connection.run(add_to_cells_.of(size), values, nullptr); !added) {
                return explain_count(std::move(added).error(), moved);
            }
        }
        if (moved.empty()) return {};
        if (auto folded = fold_.run_padded(connection, moved, nullptr); !folded) {
            return explain_count(std::move(folded).error(), moved);
        }
        return {};
    }

    static Error explain_count(Error error, const std::vector<sql::Id>& items) {
        if (error.code == ErrorCode::overflow && items.size() == 1) {
            return count_overflow(items.front());
        }
        return error;
    }

    const std::shared_ptr<const Layout> layout_;
    const VotesOptions options_;
    const std::unique_ptr<VoteRows> rows_;
    KeyColumns keys_;
    BulkStatement lock_items_;
    BulkStatement add_to_cells_;
    BulkStatement fold_;
};

}  // namespace

std::shared_ptr<sql::BatchWriter> make_mysql_batch_writer(std::shared_ptr<const Layout> layout,
                                                          const VotesOptions& options) {
    const VoteNames names{options, sql::Grammar{sql::Dialect::mysql}};
    return std::make_shared<MysqlBatchWriter>(std::move(layout), names, options);
}

}  // namespace hotcount
