// batched on PostgreSQL: a batch's votes, their items' cells and counts in one statement.
//
//   locked    the items, in order: batches that share one stand in line here, holding nothing else
//   written   the votes that change, with what they were
//   changed   by how much each item's count moves
//   counted   its cell 0, moved: added to as it is found, whatever the statement's snapshot had
//   folded    the item's own count: that cell as it is now, and the others, which only strategy
//             slotted writes to, as the snapshot has them. Their ids stand there twice because a
//             plan for a table that was small would read all of it to join
//
// What is not among `written` is asked for in a second statement, which
// batches of fresh votes do without. Votes without a user are written by a statement of their own;
// a batch of both kinds takes its items first, in order, or two of them could each hold what the
// other's second statement waits for.
#include "postgres_ballots.hpp"
#include "sql_votes.hpp"

namespace hotcount {
namespace {

std::string write_text(const VoteNames& n, const VotesOptions& options) {
    const std::string place{to_string(CountPlace::cells)};
    const std::string rows =
        "SELECT b.item, b.voter, b.val, 0, b.version FROM " + ballot_table(options) +
        " JOIN locked AS l ON l.id = b.item WHERE EXISTS (SELECT FROM " + n.meta +
        " WHERE name = 'counted_in' AND value = '" + place + "') ORDER BY b.number";
    return "WITH locked AS MATERIALIZED (SELECT " + n.id + " AS id FROM " + n.item + " WHERE " +
           n.id + " = ANY (" + array_of(options.item_type, "?5") + ") ORDER BY " + n.id +
           " FOR NO KEY UPDATE), written AS (" + upsert_votes(n, rows) + " RETURNING " +
           n.vote_item + " AS item, " + n.vote_user +
           " AS voter, prev, val), changed AS MATERIALIZED (SELECT item, SUM(val - prev) AS "
           "difference FROM written GROUP BY item HAVING SUM(val - prev) <> 0), counted AS (INSERT "
           "INTO " +
           n.cell +
           " (item, slot, n, ver) SELECT item, 0, difference, 1 FROM changed ORDER BY item" +
           " ON CONFLICT (item, slot) DO UPDATE SET n = " + n.cell +
           ".n + excluded.n, ver = " + n.cell + ".ver + 1 RETURNING item, n), folded AS (UPDATE " +
           n.item + " AS i SET " + n.count + " = c.n + COALESCE((SELECT SUM(o.n) FROM " + n.cell +
           " AS o WHERE o.item = c.item AND o.slot <> 0), 0) FROM counted AS c WHERE i." + n.id +
           " = c.item AND i." + n.id + " = ANY (" + array_of(options.item_type, "?5") +
           ")) SELECT item, voter, prev, val FROM written";
}

class PostgresBatchWriter final : public sql::BatchWriter {
  public:
    PostgresBatchWriter(std::shared_ptr<const Layout> layout, const VoteNames& n,
                        const VotesOptions& options)
        : layout_(std::move(layout)),
          options_(options),
          create_(create_items(n, options)),
          lock_("SELECT " + n.id + " FROM " + n.item + " WHERE " + n.id + " = ANY (" +
                array_of(options.item_type, "?1") + ") ORDER BY " + n.id + " FOR NO KEY UPDATE"),
          of_users_(n, options),
          anonymous_(n.anonymous(sql::Grammar{sql::Dialect::postgres}),
                     anonymous_options(options)) {}

    Result<void> write(sql::Connection& connection,
                       std::span<const std::shared_ptr<sql::Ticket>> batch) override {
        const std::vector<VoteTicket*> votes = sorted_votes(batch);
        const auto [of_users, anonymous] = by_table(votes);
        if (!of_users.empty() && !anonymous.empty()) {
            const PostgresBallots both{votes};
            if (options_.missing_item == MissingItem::create) {
                HOTCOUNT_TRY(connection.execute(create_, {both.distinct_items}));
            }
            const sql::RowVisitor ignore = [](const sql::Row&) -> Result<void> { return {}; };
            auto locked = connection.query(lock_, {both.distinct_items}, ignore);
            if (!locked) return explain_missing_table(std::move(locked).error());
        }
        HOTCOUNT_TRY(write_table(connection, of_users_, of_users));
        return write_table(connection, anonymous_, anonymous);
    }

  private:
    // The statements over one of the two vote tables.
    struct Table {
        Table(const VoteNames& n, const VotesOptions& options)
            : write(write_text(n, options)),
              read("SELECT b.item, b.voter, v.val FROM " + ballot_table(options) + " JOIN " +
                   n.item + " AS i ON i." + n.id + " = b.item LEFT JOIN " + n.vote + " AS v ON v." +
                   n.vote_item + " = b.item AND v." + n.vote_user + " = b.voter ORDER BY number") {}
        sql::Statement write;
        sql::Statement read;
    };

    Result<void> write_table(sql::Connection& connection, const Table& table,
                             std::span<VoteTicket* const> votes) const {
        for (const PostgresBallots& wave : in_waves(votes)) {
            HOTCOUNT_TRY(write_wave(connection, table, wave));
        }
        return {};
    }

    Result<void> write_wave(sql::Connection& connection, const Table& table,
                            const PostgresBallots& wave) const {
        if (options_.missing_item == MissingItem::create) {
            auto created = connection.execute(create_, {wave.distinct_items});
            if (!created) return explain(std::move(created).error(), wave);
        }
        BallotReader reader{wave};
        const sql::RowVisitor written = [&](const sql::Row& row) -> Result<void> {
            VoteTicket* const vote = reader.find(row);
            if (vote == nullptr) return unasked_row();
            vote->cast = cast_of(row, 2);
            return {};
        };
        auto done = connection.query(
            table.write, {wave.items, wave.users, wave.values, wave.versions, wave.distinct_items},
            written);
        if (!done) return explain(std::move(done).error(), wave);
        const PostgresBallots left{reader.unanswered()};
        if (left.votes.empty()) return {};
        return read_unwritten(connection, table, left);
    }

    // Why they were not written: as asked already, no such item, or counts that are kept elsewhere.
    Result<void> read_unwritten(sql::Connection& connection, const Table& table,
                                const PostgresBallots& ballots) const {
        HOTCOUNT_TRY(check_place(connection, *layout_, options_));
        BallotReader reader{ballots};
        const sql::RowVisitor found = [&](const sql::Row& row) -> Result<void> {
            VoteTicket* const vote = reader.find(row);
            if (vote == nullptr || row.is_null(2)) return unasked_row();
            vote->cast = unchanged_cast(row.integer(2));
            return {};
        };
        HOTCOUNT_TRY(connection.query(
            table.read, {ballots.items, ballots.users, ballots.values, ballots.versions}, found));
        for (VoteTicket* const vote : reader.unanswered()) {
            vote->error = explain_refusal(unknown_item(vote->ballot.item), vote->ballot, false);
        }
        return {};
    }

    static Error explain(Error error, const PostgresBallots& wave) {
        error = narrow_column(explain_missing_table(std::move(error)));
        if (wave.votes.size() != 1) return error;
        const Ballot& ballot = wave.votes.front()->ballot;
        if (error.code == ErrorCode::overflow) {
            error.message += "; " + count_overflow(ballot.item).message;
        }
        return explain_refusal(std::move(error), ballot, false);
    }

    const std::shared_ptr<const Layout> layout_;
    const VotesOptions options_;
    const sql::Statement create_;
    const sql::Statement lock_;
    const Table of_users_;
    const Table anonymous_;
};

}  // namespace

std::shared_ptr<sql::BatchWriter> make_postgres_batch_writer(std::shared_ptr<const Layout> layout,
                                                             const VotesOptions& options) {
    const VoteNames names{options, sql::Grammar{sql::Dialect::postgres}};
    return std::make_shared<PostgresBatchWriter>(std::move(layout), names, options);
}

}  // namespace hotcount
