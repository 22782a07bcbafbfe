// strategy cached on MariaDB and MySQL: pages of items as lists, each in one or two statements.
#include "votes/tables/sync_pages.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <map>

#include "hotcount_embedded/dialects/mysql/sql.hpp"
#include "vote_rows.hpp"

namespace hotcount {
namespace {

class MysqlSyncPages final : public SyncPages {
  public:
    MysqlSyncPages(const sql::Statements& sql, const VotesOptions& options)
        : keys_(options),
          is_ours_(sql["is_ours"]),
          fence_(sql["fence"]),
          fence_steps_{BulkStatement{sql["fence_lock"]}, BulkStatement{sql["fence_recount"]},
                       BulkStatement{sql["fence_take"]}, BulkStatement{sql["fence_read"]}},
          read_(sql.with("read", {{"alone", ""}})),
          read_alone_(sql.with("read", {{"alone", sql::flag(true)}})),
          mark_(sql["mark_saved"]),
          sum_(sql["sums"]),
          set_counts_(sql["set_counts"]) {}

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
        const std::array head{sql::Value{std::string_view{holder}},
                              sql::Value{std::string_view{space}}};
        const auto values = BulkStatement::padded_values(items, head);
        const std::size_t size = BulkStatement::padded(items.size());
        HOTCOUNT_TRY_ASSIGN(const bool compound, compound_.known_to(connection));
        if (compound) {
            HOTCOUNT_TRY(
                connection.run_alone(fence_.of(size), values, &visit, sql::Alone{deadline}));
            return fenced;
        }
        HOTCOUNT_TRY(connection.begin(deadline));
        bool ours = false;
        const sql::RowVisitor see = [&](const sql::Row&) -> Result<void> {
            ours = true;
            return {};
        };
        HOTCOUNT_TRY(connection.run(is_ours_, values, &see));
        for (BulkStatement& step : fence_steps_) {
            if (ours) HOTCOUNT_TRY(connection.run(step.of(size), values, &visit));
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
        HOTCOUNT_TRY(connection.run(set_counts_.of(std::bit_ceil(counts.size())), values, nullptr));
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
    static std::map<sql::Id, std::size_t> by_id(std::span<const sql::Id> items) {
        std::map<sql::Id, std::size_t> index;
        for (std::size_t i = 0; i < items.size(); ++i) index.emplace(items[i], i);
        return index;
    }

    static Result<void> run(sql::Connection& connection, BulkStatement& statement,
                            std::span<const sql::Id> items, const sql::RowVisitor& visit) {
        const auto values = BulkStatement::padded_values(items);
        HOTCOUNT_TRY(connection.run(statement.of(values.size()), values, &visit));
        return {};
    }

    KeyColumns keys_;
    CompoundStatements compound_;
    const sql::Statement is_ours_;
    BulkStatement fence_;
    std::array<BulkStatement, 4> fence_steps_;
    BulkStatement read_;
    BulkStatement read_alone_;
    BulkStatement mark_;
    BulkStatement sum_;
    BulkStatement set_counts_;
};

}  // namespace

std::unique_ptr<SyncPages> make_mysql_sync_pages(const VotesOptions& options,
                                                 const VoteNames& names) {
    return std::make_unique<MysqlSyncPages>(
        mysql_statements(sql::mysql::kSyncPagesSql, names, options), options);
}

}  // namespace hotcount
