// strategy cached on PostgreSQL: pages of items as arrays, each in one statement.
#include "votes/tables/sync_pages.hpp"

#include <array>

#include "ballots.hpp"
#include "hotcount_embedded/dialects/postgres/sql.hpp"
#include "sql/dialect.hpp"
#include "votes/tables/count_place.hpp"

namespace hotcount {
namespace {

class PostgresSyncPages final : public SyncPages {
  public:
    explicit PostgresSyncPages(const sql::Statements& sql)
        : lock_(sql["lock"]),
          read_(sql["read"]),
          fence_(sql["fence"]),
          save_past_held_(sql.with("save", {{"waits", ""}})),
          save_and_wait_(sql.with("save", {{"waits", "1"}})),
          count_(sql["set_counts"]),
          sum_(sql["sums"]) {}

    Result<bool> tells_ids_apart(sql::Connection&) override { return true; }

    Result<std::vector<std::optional<SyncState>>> read(sql::Connection& connection,
                                                       std::span<const sql::Id> items,
                                                       bool alone) override {
        const std::string ids = array_literal(items);
        if (alone) {
            // A statement of its own: one that waited for a lock has read the rest before it waited.
            HOTCOUNT_TRY(connection.query(lock_, {ids}, sql::kIgnoreRows));
        }
        std::vector<std::optional<SyncState>> states(items.size());
        const sql::RowVisitor visit = [&](const sql::Row& row) -> Result<void> {
            HOTCOUNT_TRY_ASSIGN(const std::size_t index, index_of(row, items));
            states[index] = read_sync_state(row, 1);
            return {};
        };
        HOTCOUNT_TRY(connection.query(read_, {ids}, visit));
        return states;
    }

    Result<bool> fences_at_once(sql::Connection&) override { return true; }

    Result<std::vector<Fenced>> fence(sql::Connection& connection, std::span<const sql::Id> items,
                                      const std::string& holder, const std::string& space,
                                      Deadline deadline) override {
        std::vector<Fenced> fenced(items.size());
        const sql::RowVisitor visit = [&](const sql::Row& row) -> Result<void> {
            HOTCOUNT_TRY_ASSIGN(const std::size_t index, index_of(row, items));
            if (row.integer(5) == 0) {
                fenced[index] = Again{};
            } else {
                fenced[index] =
                    SyncFence{row.id(1), row.integer(2), row.integer(3), row.integer(4)};
            }
            return {};
        };
        const std::string ids = array_literal(items);
        const std::array<sql::Value, 3> values{std::string_view{ids}, std::string_view{holder},
                                               std::string_view{space}};
        HOTCOUNT_TRY(connection.run_alone(fence_, values, &visit, sql::Alone{deadline}));
        return fenced;
    }

    std::size_t saves_at_once() const override { return 250; }

    Result<std::vector<Found>> save_at_once(sql::Connection& connection,
                                            std::span<const Save> saves, bool waits,
                                            const std::string& space, Deadline deadline) override {
        std::vector<Found> found(saves.size());
        bool there = true;
        const sql::RowVisitor visit = [&](const sql::Row& row) -> Result<void> {
            const auto index = static_cast<std::size_t>(row.integer(0)) - 1;
            if (index >= saves.size()) return unasked_row();
            there = row.integer(1) != 0;
            found[index].held = row.integer(8) != 0;
            if (row.is_null(2)) return {};
            found[index].state = SyncState{row.integer(4), row.integer(5), row.integer(6),
                                           row.integer(7), row.integer(3), {},
                                           false,          row.id(2)};
            return {};
        };
        const Arrays arrays{saves};
        const std::array<sql::Value, 6> values{
            std::string_view{arrays.items},  std::string_view{arrays.counts},
            std::string_view{arrays.gens},   std::string_view{arrays.versions},
            std::string_view{arrays.epochs}, std::string_view{space}};
        const sql::Statement& statement = waits ? save_and_wait_ : save_past_held_;
        HOTCOUNT_TRY(connection.run_alone(statement, values, &visit, sql::Alone{deadline}));
        if (there) return found;
        return make_error(ErrorCode::unavailable,
                          "the tables were taken over by another strategy meanwhile");
    }

    Result<void> set_counts(sql::Connection& connection, std::span<const Save> counts) override {
        return write(connection, count_, counts);
    }

    Result<std::vector<std::optional<std::int64_t>>> sums(sql::Connection& connection,
                                                          std::span<const sql::Id> items) override {
        std::vector<std::optional<std::int64_t>> sums(items.size());
        const sql::RowVisitor visit = [&](const sql::Row& row) -> Result<void> {
            HOTCOUNT_TRY_ASSIGN(const std::size_t index, index_of(row, items));
            if (row.is_integer(1)) sums[index] = row.integer(1);
            return {};
        };
        const std::string ids = array_literal(items);
        HOTCOUNT_TRY(connection.query(sum_, {ids}, visit));
        return sums;
    }

  private:
    static Result<std::size_t> index_of(const sql::Row& row, std::span<const sql::Id> items) {
        const auto index = static_cast<std::size_t>(row.integer(0)) - 1;
        if (index >= items.size()) return unasked_row();
        return index;
    }

    static Result<void> write(sql::Connection& connection, const sql::Statement& statement,
                              std::span<const Save> rows) {
        const Arrays arrays{rows};
        HOTCOUNT_TRY(connection.execute(
            statement, {arrays.items, arrays.counts, arrays.gens, arrays.versions}));
        return {};
    }

    struct Arrays {
        explicit Arrays(std::span<const Save> rows) {
            std::vector<sql::Id> ids;
            ids.reserve(rows.size());
            for (const Save& row : rows) {
                ids.push_back(row.item);
                const char* const between = ids.size() > 1 ? "," : "{";
                counts += between + std::to_string(row.count);
                gens += between + std::to_string(row.gen);
                versions += between + std::to_string(row.version);
                epochs += between + std::to_string(row.epoch);
            }
            for (std::string* array : {&counts, &gens, &versions, &epochs}) *array += '}';
            items = array_literal(ids);
        }
        std::string items{}, counts{}, gens{}, versions{}, epochs{};
    };

    const sql::Statement lock_;
    const sql::Statement read_;
    const sql::Statement fence_;
    const sql::Statement save_past_held_;
    const sql::Statement save_and_wait_;
    const sql::Statement count_;
    const sql::Statement sum_;
};

}  // namespace

std::unique_ptr<SyncPages> make_postgres_sync_pages(const VotesOptions& options,
                                                    const VoteNames& names) {
    return std::make_unique<PostgresSyncPages>(
        postgres_statements(sql::postgres::kSyncPagesSql, names, options));
}

}  // namespace hotcount
