// strategy cached on PostgreSQL: pages of items as arrays, each in one statement.
#include "votes/tables/sync_pages.hpp"

#include "ballots.hpp"
#include "sql/dialect.hpp"

namespace hotcount {
namespace {

class PostgresSyncPages final : public SyncPages {
  public:
    PostgresSyncPages(const VoteNames& n, const VotesOptions& options)
        :  // Not FOR UPDATE, which also waits for those who have inserted a vote: two of them would
          // wait for each other.
          lock_("SELECT 1 FROM " + n.item + " WHERE " + n.id + " = ANY (" +
                array_of(options.item_type, "?1") + ") ORDER BY " + n.id + " FOR NO KEY UPDATE"),
          read_("SELECT hc_p.number, " + sync_columns(n) + " FROM unnest(" +
                array_of(options.item_type, "?1") +
                ") WITH ORDINALITY AS hc_p (item, number) JOIN (" + sync_tables(n) + ") ON hc_i." +
                n.id + " = hc_p.item"),
          save_("WITH hc_p AS MATERIALIZED (SELECT * FROM " + page(options) + "), hc_counted AS (" +
                count_text(n, "hc_p") + ") UPDATE " + n.sync +
                " AS hc_s SET saved_gen = hc_p.gen, saved_version = hc_p.version FROM hc_p WHERE "
                "hc_s.item = hc_p.item"),
          count_(count_text(n, page(options))),
          sum_("SELECT hc_p.number, " + counted_sum(n, "hc_p.item") + " FROM unnest(" +
               array_of(options.item_type, "?1") + ") WITH ORDINALITY AS hc_p (item, number)") {}

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

    Result<void> save(sql::Connection& connection, std::span<const Save> saves) override {
        return write(connection, save_, saves);
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
    // ?1 to ?4, arrays of a SyncPages::Save's members.
    static std::string page(const VotesOptions& options) {
        return "unnest(" + array_of(options.item_type, "?1") +
               ", CAST(?2 AS bigint[]), CAST(?3 AS bigint[]), CAST(?4 AS bigint[])) AS hc_p "
               "(item, n, gen, version)";
    }
    static std::string count_text(const VoteNames& n, const std::string& rows) {
        return "UPDATE " + n.item + " AS hc_i SET " + n.count + " = hc_p.n FROM " + rows +
               " WHERE hc_i." + n.id + " = hc_p.item";
    }

    static Result<std::size_t> index_of(const sql::Row& row, std::span<const sql::Id> items) {
        const auto index = static_cast<std::size_t>(row.integer(0)) - 1;
        if (index >= items.size()) return unasked_row();
        return index;
    }

    static Result<void> write(sql::Connection& connection, const sql::Statement& statement,
                              std::span<const Save> rows) {
        std::vector<sql::Id> ids;
        ids.reserve(rows.size());
        std::string counts, gens, versions;
        for (const Save& row : rows) {
            ids.push_back(row.item);
            const char* const between = ids.size() > 1 ? "," : "{";
            counts += between + std::to_string(row.count);
            gens += between + std::to_string(row.gen);
            versions += between + std::to_string(row.version);
        }
        for (std::string* array : {&counts, &gens, &versions}) *array += '}';
        const std::string items = array_literal(ids);
        HOTCOUNT_TRY(connection.execute(statement, {items, counts, gens, versions}));
        return {};
    }

    const sql::Statement lock_;
    const sql::Statement read_;
    const sql::Statement save_;
    const sql::Statement count_;
    const sql::Statement sum_;
};

}  // namespace

std::unique_ptr<SyncPages> make_postgres_sync_pages(const VotesOptions& options,
                                                    const VoteNames& names) {
    return std::make_unique<PostgresSyncPages>(names, options);
}

}  // namespace hotcount
