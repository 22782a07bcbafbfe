// strategy cached on MariaDB and MySQL: pages of items as lists, each in one or two statements.
#include "votes/tables/sync_pages.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <map>

#include "sql/dialect.hpp"
#include "vote_rows.hpp"

namespace hotcount {
namespace {

std::string parameter(std::size_t first) { return "?" + std::to_string(first); }

class MysqlSyncPages final : public SyncPages {
  public:
    MysqlSyncPages(const VoteNames& n, const VotesOptions& options)
        : keys_(options),
          is_ours_(ours_text(n)),
          read_("SELECT " + sync_columns(n) + " FROM " + sync_tables(n) + " WHERE hc_i." + n.id +
                    " IN (",
                parameter, 1, ", ", ")"),
          // A read that locks sees what is committed when it has the lock.
          read_alone_("SELECT " + sync_columns(n) + " FROM " + sync_tables(n) + " WHERE hc_i." +
                          n.id + " IN (",
                      parameter, 1, ", ", ") ORDER BY hc_i." + n.id + " FOR UPDATE"),
          mark_(
              "INSERT INTO " + n.sync + " (item, saved_gen, saved_version) VALUES ",
              [](std::size_t first) {
                  return "(" + parameter(first) + ", " + parameter(first + 1) + ", " +
                         parameter(first + 2) + ")";
              },
              3, ", ",
              " ON DUPLICATE KEY UPDATE saved_gen = VALUES(saved_gen), saved_version = "
              "VALUES(saved_version)"),
          sum_("SELECT hc_i." + n.id + ", " + counted_sum(n, "hc_i." + n.id) + " FROM " + n.item +
                   " AS hc_i WHERE hc_i." + n.id + " IN (",
               parameter, 1, ", ", ")") {
        for (std::size_t items = 1; items <= kMost; items *= 2) {
            const FenceSteps steps = fence_steps(n, items);
            fence_.emplace_back("BEGIN NOT ATOMIC IF EXISTS (" + ours_text(n) + ") THEN " +
                                steps[0] + "; " + steps[1] + "; " + steps[2] + "; " + steps[3] +
                                "; COMMIT; ELSE ROLLBACK; END IF; END");
            for (std::size_t i = 0; i < steps.size(); ++i) {
                fence_steps_[i].emplace_back(steps[i]);
            }
            count_.emplace_back(mysql_set_counts(n, items));
        }
    }

    Result<bool> tells_ids_apart(sql::Connection& connection) override {
        return keys_.are_bytes(connection);
    }

    Result<std::vector<std::optional<SyncState>>> read(sql::Connection& connection,
                                                       std::span<const sql::Id> items,
                                                       bool alone) override {
        std::vector<std::optional<SyncState>> states(items.size());
        const std::map<sql::Id, std::size_t> index = by_id(items);
        const sql::RowVisitor visit = [&](const sql::Row& row) -> Result<void> {
            SyncState state = read_sync_state(row, 0);
            const auto found = index.find(state.item);
            if (found != index.end()) states[found->second] = std::move(state);
            return {};
        };
        HOTCOUNT_TRY(run(connection, alone ? read_alone_ : read_, items, visit));
        return states;
    }

    Result<bool> fences_at_once(sql::Connection& connection) override {
        return keys_.are_bytes(connection);
    }

    Result<std::vector<Fenced>> fence(sql::Connection& connection, std::span<const sql::Id> items,
                                      const std::string& holder, const std::string& space,
                                      Deadline deadline) override {
        std::vector<Fenced> fenced(items.size());
        const std::map<sql::Id, std::size_t> index = by_id(items);
        const sql::RowVisitor visit = [&](const sql::Row& row) -> Result<void> {
            const auto found = index.find(row.id(0));
            if (found == index.end()) return {};
            fenced[found->second] =
                SyncFence{row.id(0), row.integer(1), row.integer(2), row.integer(3)};
            return {};
        };
        std::vector<sql::Value> values{std::string_view{holder}, std::string_view{space}};
        for (std::size_t i = 0; i < std::bit_ceil(items.size()); ++i) {
            values.push_back(sql::to_value(items[std::min(i, items.size() - 1)]));
        }
        const auto size = static_cast<std::size_t>(std::bit_width(items.size() - 1));
        HOTCOUNT_TRY_ASSIGN(const bool compound, compound_.known_to(connection));
        if (compound) {
            HOTCOUNT_TRY(connection.run_alone(fence_[size], values, &visit, sql::Alone{deadline}));
            return fenced;
        }
        HOTCOUNT_TRY(connection.begin(deadline));
        bool ours = false;
        const sql::RowVisitor see = [&](const sql::Row&) -> Result<void> {
            ours = true;
            return {};
        };
        HOTCOUNT_TRY(connection.run(is_ours_, values, &see));
        for (const auto& steps : fence_steps_) {
            if (ours) HOTCOUNT_TRY(connection.run(steps[size], values, &visit));
        }
        HOTCOUNT_TRY(connection.commit());
        return fenced;
    }

    Result<void> save(sql::Connection& connection, std::span<const Save> saves) override {
        HOTCOUNT_TRY(set_counts(connection, saves));
        std::vector<sql::Value> values;
        for (std::size_t i = 0; i < std::bit_ceil(saves.size()); ++i) {
            const Save& save = saves[std::min(i, saves.size() - 1)];
            values.insert(values.end(), {sql::to_value(save.item), save.gen, save.version});
        }
        HOTCOUNT_TRY(connection.run(mark_.of(std::bit_ceil(saves.size())), values, nullptr));
        return {};
    }

    Result<void> set_counts(sql::Connection& connection, std::span<const Save> counts) override {
        std::vector<sql::Value> values;
        for (std::size_t i = 0; i < std::bit_ceil(counts.size()); ++i) {
            const Save& each = counts[std::min(i, counts.size() - 1)];
            values.insert(values.end(), {sql::to_value(each.item), each.count});
        }
        const auto size = static_cast<std::size_t>(std::bit_width(counts.size() - 1));
        HOTCOUNT_TRY(connection.run(count_[size], values, nullptr));
        return {};
    }

    Result<std::vector<std::optional<std::int64_t>>> sums(sql::Connection& connection,
                                                          std::span<const sql::Id> items) override {
        std::vector<std::optional<std::int64_t>> sums(items.size());
        const std::map<sql::Id, std::size_t> index = by_id(items);
        const sql::RowVisitor visit = [&](const sql::Row& row) -> Result<void> {
            const auto found = index.find(row.id(0));
            if (found != index.end() && row.is_integer(1)) sums[found->second] = row.integer(1);
            return {};
        };
        HOTCOUNT_TRY(run(connection, sum_, items, visit));
        return sums;
    }

  private:
    using FenceSteps = std::array<std::string, 4>;

    static std::string ours_text(const VoteNames& n) {
        return "SELECT 1 FROM " + n.meta + " WHERE name = 'cache_id' AND value = ?2";
    }

    // ?1 holder, ?2 space, ?3 and on the items. The first statement locks the rows of vote_sync;
    // whoever writes a count has them alone, so what the last one reads holds until the COMMIT.
    static FenceSteps fence_steps(const VoteNames& n, std::size_t items) {
        std::string ids;
        for (std::size_t i = 0; i < items; ++i) ids += (i > 0 ? ", " : "") + parameter(3 + i);
        return {"INSERT INTO " + n.sync + " (item, gen, holder) SELECT hc_i." + n.id +
                    ", 1, ?1 FROM " + n.item + " AS hc_i WHERE hc_i." + n.id + " IN (" + ids +
                    ") ORDER BY hc_i." + n.id + " ON DUPLICATE KEY UPDATE " + n.sync +
                    ".gen = " + n.sync + ".gen + 1",
                "INSERT INTO " + n.recount + " (item, asked) SELECT hc_s.item, 1 FROM " + n.sync +
                    " AS hc_s WHERE hc_s.item IN (" + ids +
                    ") AND hc_s.holder <> '' AND hc_s.holder <> ?1 ORDER BY hc_s.item ON "
                    "DUPLICATE KEY UPDATE " +
                    n.recount + ".asked = " + n.recount + ".asked + 1",
                "UPDATE " + n.sync + " SET holder = ?1 WHERE item IN (" + ids +
                    ") AND (holder IS NULL OR holder <> ?1)",
                "SELECT hc_i." + n.id + ", hc_s.gen, hc_s.epoch, COALESCE(hc_i." + n.count +
                    ", 0) FROM " + n.item + " AS hc_i JOIN " + n.sync +
                    " AS hc_s ON hc_s.item = hc_i." + n.id + " WHERE hc_i." + n.id + " IN (" + ids +
                    ")"};
    }

    static std::map<sql::Id, std::size_t> by_id(std::span<const sql::Id> items) {
        std::map<sql::Id, std::size_t> index;
        for (std::size_t i = 0; i < items.size(); ++i) index.emplace(items[i], i);
        return index;
    }

    static Result<void> run(sql::Connection& connection, BulkStatement& statement,
                            std::span<const sql::Id> items, const sql::RowVisitor& visit) {
        std::vector<sql::Value> values;
        for (std::size_t i = 0; i < std::bit_ceil(items.size()); ++i) {
            values.push_back(sql::to_value(items[std::min(i, items.size() - 1)]));
        }
        HOTCOUNT_TRY(connection.run(statement.of(values.size()), values, &visit));
        return {};
    }

    KeyColumns keys_;
    CompoundStatements compound_;
    const sql::Statement is_ours_;
    // Of 1, 2, 4 ... items: one compound statement, or one after the other.
    std::vector<sql::Statement> fence_{};
    std::array<std::vector<sql::Statement>, 4> fence_steps_{};
    BulkStatement read_;
    BulkStatement read_alone_;
    BulkStatement mark_;
    BulkStatement sum_;
    // Of 1, 2, 4 ... items: each compares a row with half of them, 1,000 rows in some 10 ms.
    std::vector<sql::Statement> count_;
};

}  // namespace

std::unique_ptr<SyncPages> make_mysql_sync_pages(const VotesOptions& options,
                                                 const VoteNames& names) {
    return std::make_unique<MysqlSyncPages>(names, options);
}

}  // namespace hotcount
