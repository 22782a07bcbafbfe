#include "vote_rows.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>

#include "dialect.hpp"
#include "hotcount_embedded/dialects/mysql/sql.hpp"
#include "votes/tables/count_place.hpp"

namespace hotcount {

sql::Statements mysql_statements(std::string_view file, const VoteNames& n,
                                 const VotesOptions& options) {
    const sql::Grammar& g = sql::mysql_grammar();
    // Without a look the foreign key finds a missing item.
    const bool looks = !options.foreign_key || options.missing_item == MissingItem::create;
    return vote_statements(file, n, g,
                           {{"wait_ms", std::to_string(sql::kHeldRowWait.count())},
                            {"wanted_route", literal(vote_route(options, g.dialect()))},
                            {"slotted", sql::flag(options.strategy == VoteStrategy::slotted)},
                            {"looks_for_item", sql::flag(looks)}});
}

Cast mysql_cast(std::int64_t previous, std::int64_t value) {
    return Cast{value != 0, previous != value, previous, value};
}

Error mysql_missing_item(const Ballot& ballot) {
    return explain_refusal(
        make_error(ErrorCode::integrity, "the vote was refused; nothing was applied"), ballot,
        "item");
}

Error explain_mysql_vote(Error error, const VotesOptions& options, const Ballot& ballot) {
    // The vote table may have other foreign keys.
    const auto is_of = [&](const std::string& column) {
        const auto names = [&](const std::string& quote) {
            return error.message.find("FOREIGN KEY (" + quote + column + quote + ")") !=
                   std::string::npos;
        };
        return error.server_code == "1452" && (names("\"") || names("`"));
    };
    const char* const missing = is_of(options.vote_item)   ? "item"
                                : is_of(options.vote_user) ? "user"
                                                           : "";
    return explain_refusal(explain_missing_table(std::move(error)), ballot, missing);
}

Result<std::vector<sql::Id>> mysql_find(sql::Connection& connection, BulkStatement& statement,
                                        std::span<const sql::Id> items, bool at_once) {
    std::vector<sql::Id> found;
    if (at_once) {
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            found.push_back(row.id(0));
            return {};
        };
        HOTCOUNT_TRY(statement.run_padded(connection, items, &see));
        std::sort(found.begin(), found.end());
        return found;
    }
    for (const sql::Id& item : items) {
        bool there = false;
        const sql::RowVisitor see = [&](const sql::Row&) -> Result<void> {
            there = true;
            return {};
        };
        HOTCOUNT_TRY(connection.query(statement.of(1), {sql::to_value(item)}, see));
        if (there) found.push_back(item);
    }
    return found;
}

// -- held votes ---------------------------------------------------------------------------------

HeldVotes::HeldVotes(sql::Statements sql, const VotesOptions& options)
    : sql_(std::move(sql)),
      item_(options.vote_item),
      user_(options.vote_user),
      keys_(sql_["keys"]) {}

Result<void> HeldVotes::lock(sql::Connection& connection, std::span<QueuedVote* const> votes) {
    HOTCOUNT_TRY_ASSIGN(const auto lock, statement(connection));
    std::vector<sql::Value> values;
    while (!votes.empty()) {
        const auto part = votes.first(BulkStatement::padded_portion(votes.size()));
        votes = votes.subspan(part.size());
        const std::size_t size = BulkStatement::padded(part.size());
        values.clear();
        for (std::size_t i = 0; i < size; ++i) {
            const Ballot& ballot = part[std::min(i, part.size() - 1)]->ballot;
            values.push_back(sql::to_value(ballot.item));
            values.push_back(sql::to_value(ballot.user));
        }
        auto ran = connection.run(lock->of(size), values, nullptr);
        if (!ran) return forget_key(std::move(ran).error());
    }
    return {};
}

// The key was renamed, replaced or hidden (ER_KEY_DOES_NOT_EXITS): the batch is written again, with
// the key that there is then.
Error HeldVotes::forget_key(Error error) {
    if (error.server_code != "1176") return error;
    const std::lock_guard guard(mutex_);
    lock_.reset();
    error.code = ErrorCode::deadline;
    error.condition = SqlCondition::transaction_conflict;
    return error;
}

Result<std::shared_ptr<BulkStatement>> HeldVotes::statement(sql::Connection& connection) {
    {
        const std::lock_guard guard(mutex_);
        if (lock_) return lock_;
    }
    constexpr int kNonUnique = 1;
    constexpr int kKey = 2;
    constexpr int kColumn = 4;
    constexpr int kVisible = 13;
    std::map<std::string, std::vector<std::string>> keys;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        if (row.integer(kNonUnique) == 0 && row.text(kVisible) == "YES") {
            keys[std::string{row.text(kKey)}].emplace_back(row.text(kColumn));
        }
        return {};
    };
    HOTCOUNT_TRY(connection.query(keys_, {}, see));
    std::string unique;
    for (const auto& [key, columns] : keys) {
        if (columns == std::vector{item_, user_} || columns == std::vector{user_, item_}) {
            unique = sql::quote_identifier(key);
        }
    }
    auto lock = std::make_shared<BulkStatement>(sql_.with("lock_held", {{"key", unique}}));
    const std::lock_guard guard(mutex_);
    lock_ = lock;
    return lock;
}

// -- rows ---------------------------------------------------------------------------------------

MysqlVoteRows::MysqlVoteRows(const VoteNames& names, const VotesOptions& options)
    : MysqlVoteRows(mysql_statements(sql::mysql::kVoteRowsSql, names, options), options) {}

MysqlVoteRows::MysqlVoteRows(const sql::Statements& sql, const VotesOptions& options)
    : options_(options),
      keys_(options),
      held_(sql, options),
      upsert_(sql.with("upsert", {{"waits", sql::flag(true)}})),
      upsert_unless_held_(sql.with("upsert", {{"waits", ""}})),
      read_(sql["read"]),
      read_of_item_(sql["read_of_item"]),
      alone_(sql["vote_alone"]) {}

BulkStatement& MysqlVoteRows::upsert(IfHeld if_held) {
    return if_held == IfHeld::wait ? upsert_ : upsert_unless_held_;
}

Result<Cast> MysqlVoteRows::set(sql::Connection& connection, const Ballot& ballot, IfHeld if_held) {
    const sql::Value item = sql::to_value(ballot.item);
    const sql::Value user = sql::to_value(ballot.user);
    const sql::Value version = ballot.version ? sql::Value{*ballot.version} : sql::Value{};
    auto written = connection.execute(upsert(if_held).of(1), {item, user, ballot.value, version});
    if (!written) return explain_mysql_vote(std::move(written).error(), options_, ballot);
    // 1: the row is new. Otherwise 2, or 0 if all stayed as it was.
    if (*written == 1) return mysql_cast(0, ballot.value);
    Cast cast{};
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        cast = mysql_cast(row.integer(2), row.integer(3));
        return {};
    };
    HOTCOUNT_TRY(connection.query(read_.of(1), {item, user}, read));
    return cast;
}

Result<void> MysqlVoteRows::set_all(sql::Connection& connection, std::span<QueuedVote* const> votes,
                                    IfHeld if_held, bool compound) {
    if (votes.empty()) return {};
    HOTCOUNT_TRY_ASSIGN(const bool at_once, keys_.are_bytes(connection));
    if (!compound && if_held == IfHeld::fail) {
        if (auto locked = held_.lock(connection, votes); !locked) {
            return explain_missing_table(std::move(locked).error());
        }
    }
    if (!at_once || votes.size() == 1) {
        // In the order in which they came: two spellings may be one user's, for one item.
        std::vector<QueuedVote*> came{votes.begin(), votes.end()};
        std::sort(came.begin(), came.end(),
                  [](const auto* a, const auto* b) { return a->place < b->place; });
        for (QueuedVote* vote : came) {
            HOTCOUNT_TRY_ASSIGN(vote->cast, set(connection, vote->ballot, if_held));
        }
        return {};
    }
    // The second vote of one user for one item goes into the next wave: a row that one
    // statement updates twice would remember only the first of the two old values.
    std::vector<QueuedVote*> wave{votes.begin(), votes.end()};
    while (!wave.empty()) {
        std::vector<QueuedVote*> next;
        std::size_t kept = 1;
        for (std::size_t i = 1; i < wave.size(); ++i) {
            const Ballot& last = wave[kept - 1]->ballot;
            const Ballot& ballot = wave[i]->ballot;
            if (ballot.item == last.item && ballot.user == last.user) {
                next.push_back(wave[i]);
            } else {
                wave[kept++] = wave[i];
            }
        }
        wave.resize(kept);
        HOTCOUNT_TRY(set_wave(connection, wave, if_held));
        wave = std::move(next);
    }
    return {};
}

Result<void> MysqlVoteRows::set_wave(sql::Connection& connection, std::span<QueuedVote* const> wave,
                                     IfHeld if_held) {
    std::vector<sql::Value> values;
    for (std::size_t done = 0; done < wave.size();) {
        const auto part = wave.subspan(done, BulkStatement::portion(wave.size() - done));
        done += part.size();
        values.clear();
        for (const QueuedVote* vote : part) {
            const Ballot& ballot = vote->ballot;
            values.push_back(sql::to_value(ballot.item));
            values.push_back(sql::to_value(ballot.user));
            values.emplace_back(ballot.value);
            values.push_back(ballot.version ? sql::Value{*ballot.version} : sql::Value{});
        }
        auto written = connection.run(upsert(if_held).of(part.size()), values, nullptr);
        if (!written) {
            if (part.size() > 1) return explain_missing_table(std::move(written).error());
            return explain_mysql_vote(std::move(written).error(), options_, part.front()->ballot);
        }
        // A new row counts 1, a changed one 2 and another one 0, so without changed ones the sum
        // says whether all are new. Most votes are.
        const bool changed = part.size() > 1 && connection.duplicates() != 0;
        if (!changed && *written == static_cast<std::int64_t>(part.size())) {
            for (QueuedVote* vote : part) vote->cast = mysql_cast(0, vote->ballot.value);
        } else {
            HOTCOUNT_TRY(read_back(connection, part));
        }
    }
    return {};
}

Result<void> MysqlVoteRows::read_back(sql::Connection& connection,
                                      std::span<QueuedVote* const> part) {
    // They are sorted, so if the first and the last are for one item, all are.
    const bool one_item = part.front()->ballot.item == part.back()->ballot.item;
    const std::size_t size = BulkStatement::padded(part.size());
    std::vector<sql::Value> values;
    values.reserve(2 * size);
    if (one_item) values.push_back(sql::to_value(part.front()->ballot.item));
    for (std::size_t i = 0; i < size; ++i) {
        const Ballot& ballot = part[std::min(i, part.size() - 1)]->ballot;
        if (!one_item) values.push_back(sql::to_value(ballot.item));
        values.push_back(sql::to_value(ballot.user));
    }
    std::size_t found = 0;
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        const sql::Id item = row.id(0);
        const sql::Id user = row.id(1);
        const auto key = std::tie(item, user);
        const auto place =
            std::lower_bound(part.begin(), part.end(), key, [](const auto* vote, const auto& k) {
                return std::tie(vote->ballot.item, vote->ballot.user) < k;
            });
        if (place == part.end() || std::tie((*place)->ballot.item, (*place)->ballot.user) != key) {
            return {};
        }
        (*place)->cast = mysql_cast(row.integer(2), row.integer(3));
        ++found;
        return {};
    };
    HOTCOUNT_TRY(connection.run((one_item ? read_of_item_ : read_).of(size), values, &read));
    if (found == part.size()) return {};
    return make_error(ErrorCode::database,
                      "table " + options_.vote_table + " gave " + std::to_string(found) + " of " +
                          std::to_string(part.size()) +
                          " votes back under the ids they were cast with; nothing was applied");
}

Result<bool> MysqlVoteRows::write_alone(sql::Connection& connection, const Ballot& ballot,
                                        std::int64_t slot, const sql::Alone& how,
                                        Cast& cast) const {
    bool written = true;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        written = !row.is_null(0);
        if (written) cast = mysql_cast(row.integer(0), row.integer(1));
        return {};
    };
    const std::array parameters{
        sql::to_value(ballot.item), sql::to_value(ballot.user), sql::Value{ballot.value},
        ballot.version ? sql::Value{*ballot.version} : sql::Value{}, sql::Value{slot}};
    auto ran = connection.run_alone(alone_, parameters, &see, how);
    if (!ran) return explain_mysql_vote(std::move(ran).error(), options_, ballot);
    return written;
}

}  // namespace hotcount
