// Asks for votes, and sets one to the other of its two states. Votes are in SQL with every strategy.
#include <algorithm>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/sql/transaction.hpp>

#include "sql_votes.hpp"
#include "votes/tables/vote_writer.hpp"

namespace hotcount {
namespace {

// One answer, in memory.
constexpr std::size_t kMostRows = 10'000;

Result<void> check_rows(const char* option, std::size_t rows) {
    if (rows >= 1 && rows <= kMostRows) return {};
    return bad_value(option, static_cast<std::int64_t>(rows),
                     "it takes 1 to " + std::to_string(kMostRows));
}

}  // namespace

Result<std::int64_t> SqlVotes::get(const sql::Id& item, const sql::Id& user, Timeout timeout) {
    HOTCOUNT_TRY(check_id(item, options_.item_type, "item"));
    HOTCOUNT_TRY(check_id(user, options_.user_type, "user"));
    watch_journal();
    return vote_reader_.get(*database_, item, user, database_->deadline(timeout));
}

Result<std::vector<std::int64_t>> SqlVotes::get_many(std::span<const sql::Id> items,
                                                     const sql::Id& user, Timeout timeout) {
    HOTCOUNT_TRY(check_items(items));
    HOTCOUNT_TRY(check_id(user, options_.user_type, "user"));
    watch_journal();
    return vote_reader_.get_many(*database_, items, user, database_->deadline(timeout));
}

// ask(run) -> Result<T>: on the replica if it may and can answer, else on the primary.
template <class Ask>
auto SqlVotes::ask_votes(Consistency consistency, Deadline deadline, const Ask& ask) {
    using Answer = decltype(ask(VoteReader::Run{}));
    watch_journal();
    if (Replica* const replica = replica_for(consistency)) {
        std::optional<Answer> answer;
        const auto read = [&](sql::Connection& connection) -> Result<void> {
            answer = ask(VoteReader::in(connection));
            return *answer ? Result<void>{} : answer->error();
        };
        if (replica->read(deadline, read)) return *std::move(answer);
    }
    return ask(VoteReader::alone(*database_, deadline));
}

Result<std::vector<Voter>> SqlVotes::voters(const sql::Id& item,
                                            const std::optional<sql::Id>& after, std::size_t limit,
                                            Consistency consistency, Timeout timeout) {
    HOTCOUNT_TRY(check_id(item, options_.item_type, "item"));
    if (after) HOTCOUNT_TRY(check_id(*after, options_.user_type, "after"));
    HOTCOUNT_TRY(check_rows("limit", limit));
    return ask_votes(consistency, database_->deadline(timeout), [&](const VoteReader::Run& run) {
        return vote_reader_.voters(run, item, after, limit);
    });
}

Result<Tally> SqlVotes::tally(const sql::Id& item, Consistency consistency, Timeout timeout) {
    HOTCOUNT_TRY(check_id(item, options_.item_type, "item"));
    return ask_votes(consistency, database_->deadline(timeout),
                     [&](const VoteReader::Run& run) { return vote_reader_.tally(run, item); });
}

Result<std::vector<ItemCount>> SqlVotes::top(std::size_t n, Consistency consistency,
                                             Timeout timeout) {
    HOTCOUNT_TRY(check_rows("n", n));
    if (!layout_->counts_in_items) {
        return bad_option("item_count", "is None: top() finds items by that column");
    }
    const Deadline deadline = database_->deadline(timeout);
    std::vector<ItemCount> top;
    const auto sorted = [&] {
        std::stable_sort(top.begin(), top.end(),
                         [](const auto& a, const auto& b) { return a.count > b.count; });
        return std::move(top);
    };
    if (Replica* const replica = replica_for(consistency)) {
        const auto read = [&](sql::Connection& connection) -> Result<void> {
            HOTCOUNT_TRY_ASSIGN(const std::vector<sql::Id> items,
                                vote_reader_.top(VoteReader::in(connection), n));
            std::size_t rows = 0;
            HOTCOUNT_TRY_ASSIGN(const auto counts, count_reader_.read_in(connection, items, rows));
            top.clear();
            for (std::size_t i = 0; i < items.size(); ++i) top.push_back({items[i], counts[i]});
            return {};
        };
        if (replica->read(deadline, read)) return sorted();
        top.clear();
    }
    HOTCOUNT_TRY_ASSIGN(const std::vector<sql::Id> items,
                        vote_reader_.top(VoteReader::alone(*database_, deadline), n));
    HOTCOUNT_TRY_ASSIGN(const std::vector<Count> counts,
                        count_many(items, Consistency::exact, deadline.remaining()));
    top.reserve(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) top.push_back({items[i], counts[i].value});
    return sorted();
}

// -- toggle ---------------------------------------------------------------------------------------

Result<Cast> SqlVotes::toggle(const Ballot& ballot, Timeout timeout) {
    HOTCOUNT_TRY(check_ballot(ballot, options_));
    if (ballot.value == 0) {
        return bad_option("value", "is 0: a toggle sets the vote to it, or to 0");
    }
    if (ballot.by_op_id) return bad_option("op_id", "is for cast(): a toggle is a user's");
    if (ballot.version)
        return bad_option("version", "is for cast(): a toggle follows what it finds");
    const Timed timed{times_.get()};
    const Deadline deadline = database_->deadline(timeout);
    watch_journal();
    auto cast = write_toggled(ballot, deadline);
    timed.end(cast);
    if (ballot.with_count) tell_counts({&ballot, 1}, {&cast, 1}, deadline);
    if (!cast && cast.error().code == ErrorCode::outcome_unknown) {
        Error error = std::move(cast).error();
        error.message +=
            "; a toggle that is done again may undo itself: get() says what the vote is";
        return error;
    }
    return cast;
}

Result<Cast> SqlVotes::write_toggled(const Ballot& ballot, Deadline deadline) {
    HOTCOUNT_TRY_ASSIGN(
        const Cast cast,
        sql::transact(*database_, deadline, [&](sql::Connection& connection) -> Result<Cast> {
            HOTCOUNT_TRY_ASSIGN(const Cast toggled, toggle_row(connection, ballot));
            HOTCOUNT_TRY_ASSIGN(const CountedByTriggers triggers,
                                layout_->counted_by_triggers(connection));
            if (triggers.has(ballot)) {
                HOTCOUNT_TRY(require_item(connection, *layout_, ballot.item));
            } else {
                HOTCOUNT_TRY(move_count(connection, ballot.item, toggled.value - toggled.previous));
            }
            return toggled;
        }));
    note_appended(1);
    return cast;
}

// The old vote is known for certain only once its row is locked, which a write does. So the vote is
// written first, and retracted if it had the same value before.
Result<Cast> SqlVotes::toggle_row(sql::Connection& connection, const Ballot& ballot) {
    HOTCOUNT_TRY(ensure_item(connection, *layout_, options_.missing_item, ballot.item));
    if (!options_.foreign_key || place() == CountPlace::cells) {
        bool there = false;
        const sql::RowVisitor see = [&](const sql::Row&) -> Result<void> {
            there = true;
            return {};
        };
        HOTCOUNT_TRY(connection.query(layout_->keep_item, {sql::to_value(ballot.item)}, see));
        if (!there) return unknown_item(ballot.item);
    }
    HOTCOUNT_TRY_ASSIGN(const Cast cast, writer_->set(connection, ballot));
    if (cast.previous != ballot.value) return cast;
    Ballot retraction{ballot};
    retraction.value = 0;
    return writer_->set(connection, retraction);
}

Result<void> SqlVotes::move_count(sql::Connection& connection, const sql::Id& item,
                                  std::int64_t difference) {
    switch (place()) {
        case CountPlace::journal: {
            auto appended = connection.execute(layout_->append, {sql::to_value(item), difference});
            return appended ? Result<void>{} : std::move(appended).error();
        }
        case CountPlace::item:
            return bump_item(connection, *layout_, item, difference);
        case CountPlace::cells:
            return bump_cell(connection, *layout_, item, 0, difference);
        case CountPlace::cache:
            break;
    }
    return {};  // The strategy's own.
}

}  // namespace hotcount
