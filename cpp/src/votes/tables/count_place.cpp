#include "count_place.hpp"

#include <hotcount/detail/base/check.hpp>

#include "layout.hpp"
#include "vote_dialect.hpp"

namespace hotcount {
namespace {

constexpr std::string_view kThroughStreams = "streams, then ";

}  // namespace

CountPlace count_place(const VotesOptions& options, sql::Dialect dialect) {
    // With one writer at a time, a batch that counts in the item's row waits for no other
    // transaction.
    const bool one_writer = !vote_dialect(dialect).is_server();
    switch (options.strategy) {
        case VoteStrategy::naive:
            return CountPlace::item;
        case VoteStrategy::cached:
            return CountPlace::cache;
        case VoteStrategy::slotted:
            return one_writer ? CountPlace::cells : CountPlace::journal;
        case VoteStrategy::batched:
        case VoteStrategy::write_behind:
            break;
    }
    if (!one_writer) return CountPlace::journal;
    return options.item_count.empty() ? CountPlace::cells : CountPlace::item;
}

std::string vote_route(CountPlace place, VoteStrategy strategy) {
    const std::string direct{to_string(place)};
    return strategy == VoteStrategy::write_behind ? std::string{kThroughStreams} + direct : direct;
}

std::string vote_route(const VotesOptions& options, sql::Dialect dialect) {
    return vote_route(count_place(options, dialect), options.strategy);
}

std::string_view to_string(CountPlace place) {
    switch (place) {
        case CountPlace::item:
            return "item";
        case CountPlace::cells:
            return "cells";
        case CountPlace::journal:
            return "journal";
        case CountPlace::cache:
            break;
    }
    return "cache";
}

Result<std::string> read_mark(sql::Connection& connection, const sql::Statement& statement) {
    std::string mark;
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        mark = row.text(0);
        return {};
    };
    HOTCOUNT_TRY(connection.query(statement, {}, read));
    return mark;
}

Result<bool> is_counted(sql::Connection& connection, const Layout& layout) {
    HOTCOUNT_TRY_ASSIGN(const std::string place, read_mark(connection, layout.read_place));
    return !place.empty();
}

Result<void> check_place(sql::Connection& connection, const Layout& layout,
                         const VotesOptions& options, PlaceCheck check) {
    const bool counts = check == PlaceCheck::counts;
    const std::string wanted = counts
                                   ? std::string{to_string(count_place(options, layout.dialect()))}
                                   : vote_route(options, layout.dialect());
    auto mark = read_mark(connection, counts                       ? layout.read_place
                                      : check == PlaceCheck::route ? layout.read_route
                                                                   : layout.hold_route);
    if (!mark) return explain_missing_table(std::move(mark).error());
    if (*mark == wanted) return {};
    if (mark->empty() && !counts) {
        HOTCOUNT_TRY_ASSIGN(const std::string place, read_mark(connection, layout.read_place));
        if (!place.empty()) return removed_format(options, place);
    }
    return wrong_place(options, *mark, layout.dialect());
}

bool is_removed_format(std::string_view place, std::string_view route, sql::Dialect dialect) {
    if (place == to_string(CountPlace::cells) && vote_dialect(dialect).is_server()) return true;
    return !place.empty() && route.empty();
}

Error removed_format(const VotesOptions& options, std::string_view place) {
    return make_error(ErrorCode::config,
                      "table " + options.vote_table +
                          " is in a removed format, with 'counted_in' = '" + std::string{place} +
                          "' and without 'vote_route' in its marks; " + std::string{kLastReader} +
                          ", and its create_tables() brings the table over. Nothing was changed");
}

Error wrong_place(const VotesOptions& options, std::string_view found, sql::Dialect dialect) {
    if (found.empty()) {
        return make_error(ErrorCode::config,
                          "table " + options.vote_table +
                              " is there, and what its items count is not known yet; "
                              "create_tables() finds out, also where schema() made the tables");
    }
    if (is_removed_format(found, found, dialect)) return removed_format(options, found);
    if (found.starts_with(kThroughStreams)) {
        return make_error(ErrorCode::config,
                          "votes for table " + options.vote_table +
                              " go through the streams of strategy 'write_behind', where some may "
                              "wait; strategy '" +
                              std::string{to_string(options.strategy)} +
                              "' cannot write beside them. create_tables() switches over once "
                              "flush() has left none; nothing was applied");
    }
    return make_error(ErrorCode::config,
                      "table " + options.vote_table + " was last counted in its " +
                          std::string{found} + ", strategy " +
                          std::string{to_string(options.strategy)} + " counts in its " +
                          std::string{to_string(count_place(options, dialect))} +
                          "; create_tables() reconciles and switches over");
}

Error explain_missing_table(Error error) {
    if (error.code == ErrorCode::database && error.condition == SqlCondition::undefined_table) {
        error.message +=
            "; create_tables() makes what is missing, and the options vote_table and item_table "
            "(--vote-table, --item-table) name tables of other names";
    }
    return error;
}

Result<void> ensure_item(sql::Connection& connection, const Layout& layout, MissingItem missing,
                         const sql::Id& item) {
    if (missing == MissingItem::refuse) return {};
    if (layout.vote_dialect().grammar().or_nothing_locks()) {
        bool there = false;
        const sql::RowVisitor see = [&](const sql::Row&) -> Result<void> {
            there = true;
            return {};
        };
        HOTCOUNT_TRY(connection.query(layout.count_in_item, {sql::to_value(item)}, see));
        if (there) return {};
    }
    auto added = connection.execute(layout.add_item, {sql::to_value(item)});
    return added ? Result<void>{} : narrow_column(std::move(added).error());
}

Result<void> require_item(sql::Connection& connection, const Layout& layout, const sql::Id& item) {
    bool there = false;
    const sql::RowVisitor see = [&](const sql::Row&) -> Result<void> {
        there = true;
        return {};
    };
    HOTCOUNT_TRY(connection.query(layout.count_in_item, {sql::to_value(item)}, see));
    return there ? Result<void>{} : unknown_item(item);
}

Result<void> bump_cell(sql::Connection& connection, const Layout& layout, const sql::Id& item,
                       std::int64_t slot, std::int64_t difference) {
    const sql::Value id = sql::to_value(item);
    HOTCOUNT_TRY_ASSIGN(std::int64_t changed,
                        connection.execute(layout.bump_cell, {id, slot, difference}));
    if (changed == 0) {
        HOTCOUNT_TRY_ASSIGN(changed,
                            connection.execute(layout.insert_cell, {id, slot, difference}));
    }
    if (changed == 0) {
        // Another transaction has created the cell meanwhile; or the count would overflow.
        HOTCOUNT_TRY_ASSIGN(changed, connection.execute(layout.bump_cell, {id, slot, difference}));
    }
    if (changed == 0) return count_overflow(item);
    return {};
}

Result<void> bump_item(sql::Connection& connection, const Layout& layout, const sql::Id& item,
                       std::int64_t difference) {
    const auto bump = [&] {
        return connection.execute(layout.bump_item, {difference, sql::to_value(item)});
    };
    HOTCOUNT_TRY_ASSIGN(std::int64_t changed, bump());
    if (changed != 0) return {};
    // The item is missing (a table without a foreign key), its count would overflow, or it was
    // deleted and created again.
    HOTCOUNT_TRY(require_item(connection, layout, item));
    HOTCOUNT_TRY_ASSIGN(changed, bump());
    if (changed != 0) return {};
    return count_overflow(item);
}

Error count_overflow(const sql::Id& item) {
    return make_error(ErrorCode::overflow, "the count of item " + sql::to_string(item) +
                                               " would leave signed 64 bits; nothing was applied")
        .about(&ErrorFacts::item, item);
}

Error narrow_column(Error error) {
    const bool narrow = error.condition == SqlCondition::narrow_column;
    if (error.code == ErrorCode::overflow && narrow) error.code = ErrorCode::database;
    return error;
}

Error unknown_item(const sql::Id& item) {
    return make_error(ErrorCode::integrity,
                      "item " + sql::to_string(item) + " does not exist; nothing was applied")
        .about(&ErrorFacts::item, item)
        .about(&ErrorFacts::missing, "item");
}

}  // namespace hotcount
