// strategy cached on PostgreSQL: pages of items as arrays, each in one statement.
#include "votes/tables/sync_pages.hpp"

#include <array>

#include "ballots.hpp"
#include "sql/dialect.hpp"
#include "votes/tables/count_place.hpp"

namespace hotcount {
namespace {

class PostgresSyncPages final : public SyncPages {
  public:
    PostgresSyncPages(const VoteNames& n, const VotesOptions& options)
        :  // Not FOR UPDATE, which also waits for those who have inserted a vote: two of them would
          // wait for each other.
          lock_("WITH hc_items AS MATERIALIZED (SELECT " + n.id + " AS id FROM " + n.item +
                " WHERE " + n.id + " = ANY (" + array_of(options.item_type, "?1") + ") ORDER BY " +
                n.id + " FOR NO KEY UPDATE), " + marks_locked(n, "1") +
                " SELECT count(*) FROM hc_marks"),
          read_("SELECT hc_p.number, " + sync_columns(n) + " FROM unnest(" +
                array_of(options.item_type, "?1") +
                ") WITH ORDINALITY AS hc_p (item, number) JOIN (" + sync_tables(n) + ") ON hc_i." +
                n.id + " = hc_p.item"),
          fence_(fence_text(n, options)),
          save_past_held_(save_text(n, options, " SKIP LOCKED")),
          save_and_wait_(save_text(n, options, "")),
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
    // ?1 to ?4, arrays of a SyncPages::Save's members.
    static std::string page(const VotesOptions& options) {
        return "unnest(" + array_of(options.item_type, "?1") +
               ", CAST(?2 AS bigint[]), CAST(?3 AS bigint[]), CAST(?4 AS bigint[])) AS hc_p "
               "(item, n, gen, version)";
    }
    // Rows of vote_sync of the items in hc_items, which come first, as they are once they are locked.
    static std::string marks_locked(const VoteNames& n, const std::string& columns) {
        return "hc_marks AS MATERIALIZED (SELECT " + columns + " FROM " + n.sync +
               " WHERE item = ANY (ARRAY(SELECT id FROM hc_items)) ORDER BY item FOR NO KEY "
               "UPDATE)";
    }
    // ?1 items, ?2 holder, ?3 space. The snapshot is older than the locks. What has vote_count from
    // it is right if nothing was saved or recounted between: whoever writes that count writes
    // vote_sync's row with it.
    static std::string fence_text(const VoteNames& n, const VotesOptions& options) {
        return "WITH hc_items AS MATERIALIZED (SELECT hc_p.number, hc_i." + n.id +
               " AS id, COALESCE(hc_i." + n.count +
               ", 0) AS stored, COALESCE(hc_s.epoch, 0) AS epoch, COALESCE(hc_s.saved_gen, 0) AS "
               "saved_gen, COALESCE(hc_s.saved_version, 0) AS saved_version FROM unnest(" +
               array_of(options.item_type, "?1") +
               ") WITH ORDINALITY AS hc_p (item, number) JOIN (" + sync_tables(n) + ") ON hc_i." +
               n.id + " = hc_p.item WHERE EXISTS (SELECT FROM " + n.meta +
               " WHERE name = 'cache_id' AND value = ?3)), " + marks_locked(n, "item, holder") +
               ", hc_fenced AS (INSERT INTO " + n.sync +
               " AS hc_t (item, gen, holder) SELECT i.id, 1, ?2 FROM hc_items AS i LEFT JOIN "
               "hc_marks AS m ON m.item = i.id ORDER BY i.id ON CONFLICT (item) DO UPDATE SET gen "
               "= hc_t.gen + 1, holder = excluded.holder RETURNING item, gen, epoch, saved_gen, "
               "saved_version), "
               // Of a row that came after the snapshot nobody knows whose it was.
               "hc_asked AS (INSERT INTO " +
               n.recount +
               " AS hc_r (item, asked) SELECT f.item, 1 FROM hc_fenced AS f LEFT JOIN hc_marks AS "
               "m ON m.item = f.item WHERE CASE WHEN m.item IS NULL THEN f.gen > 1 ELSE m.holder "
               "<> '' AND m.holder <> ?2 END ORDER BY f.item ON CONFLICT (item) DO UPDATE SET "
               "asked = hc_r.asked + 1) SELECT i.number, i.id, f.gen, i.epoch, i.stored, CAST("
               "f.epoch = i.epoch AND f.saved_gen = i.saved_gen AND f.saved_version = "
               "i.saved_version AS int) FROM hc_items AS i JOIN hc_fenced AS f ON f.item = i.id";
    }
    // ?1 to ?5 arrays of a SyncPages::Save's members, ?6 space. Locks the mark, the items, then their
    // rows of vote_sync, each as they are by then. As SyncTable::outcome_of() has it.
    static std::string save_text(const VoteNames& n, const VotesOptions& options,
                                 const std::string& past) {
        return "WITH hc_place AS MATERIALIZED (SELECT name, value FROM " + n.meta +
               " WHERE name IN ('counted_in', 'cache_id') ORDER BY name FOR SHARE), hc_there AS "
               "MATERIALIZED (SELECT count(*) = 2 AS ok FROM hc_place WHERE (name = 'counted_in' "
               "AND value = '" +
               std::string{to_string(CountPlace::cache)} +
               "') OR (name = 'cache_id' AND value = ?6)), hc_p AS MATERIALIZED (SELECT * FROM "
               "unnest(" +
               array_of(options.item_type, "?1") +
               ", CAST(?2 AS bigint[]), CAST(?3 AS bigint[]), CAST(?4 AS bigint[]), CAST(?5 AS "
               "bigint[])) WITH ORDINALITY AS hc_u (item, n, gen, version, epoch, number)), "
               "hc_items AS MATERIALIZED (SELECT " +
               n.id + " AS id, COALESCE(" + n.count + ", 0) AS stored FROM " + n.item + " WHERE " +
               n.id + " = ANY (" + array_of(options.item_type, "?1") +
               ") AND (SELECT ok FROM hc_there) ORDER BY " + n.id + " FOR NO KEY UPDATE" + past +
               "), " + marks_locked(n, "item, epoch, gen, saved_gen, saved_version") +
               ", hc_taken AS MATERIALIZED (SELECT p.item, p.n, p.gen, p.version FROM hc_p AS p "
               "JOIN hc_items AS i ON i.id = p.item JOIN hc_marks AS m ON m.item = p.item WHERE "
               "m.epoch = p.epoch AND m.gen = p.gen AND NOT (m.saved_gen = p.gen AND "
               "m.saved_version >= p.version)), hc_counted AS (" +
               count_text(n, "hc_taken AS hc_p") + "), hc_saved AS (UPDATE " + n.sync +
               " AS hc_s SET saved_gen = t.gen, saved_version = t.version FROM hc_taken AS t WHERE "
               "hc_s.item = t.item) SELECT p.number, CAST(h.ok AS int), i.id, i.stored, "
               "COALESCE(m.epoch, 0), COALESCE(m.gen, 0), COALESCE(m.saved_gen, 0), "
               "COALESCE(m.saved_version, 0), CAST(i.id IS NULL AND EXISTS (SELECT FROM " +
               n.item + " AS o WHERE o." + n.id +
               " = p.item) AS int) FROM hc_p AS p CROSS JOIN hc_there AS h LEFT JOIN "
               "hc_items AS i ON i.id = p.item LEFT JOIN hc_marks AS m ON m.item = p.item";
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
    return std::make_unique<PostgresSyncPages>(names, options);
}

}  // namespace hotcount
