#include "stream_marks.hpp"

#include <charconv>
#include <hotcount/detail/sql/transaction.hpp>

#include "count_cache.hpp"
#include "vote_stream.hpp"
#include "votes/tables/count_place.hpp"
#include "votes/tables/vote_dialect.hpp"

namespace hotcount {
namespace {

// How far ahead stream_floor is: one write for the votes of so many milliseconds.
constexpr std::int64_t kAhead = 2'000;
// A version from the caller's own numbers above this leaves too little room: 2109.
constexpr std::int64_t kHighest = std::int64_t{1} << 62;

VoteNames names_of(const VotesOptions& options, const Layout& layout) {
    return VoteNames{options, layout.vote_dialect().grammar()};
}

std::string row_of(const VoteNames& n, const char* name) {
    return "SELECT name, value FROM " + n.meta + " WHERE name = '" + name + "'";
}

Error streams_are_gone() {
    return make_error(
        ErrorCode::config,
        "the tables were made anew: their streams in the cache have another name now; "
        "nothing was applied");
}

}  // namespace

StreamMarks::StreamMarks(std::shared_ptr<sql::Database> database,
                         std::shared_ptr<const Layout> layout, const VotesOptions& options)
    : database_(std::move(database)),
      layout_(std::move(layout)),
      options_(options),
      read_("SELECT name, value FROM " + names_of(options, *layout_).meta +
            " WHERE name IN ('stream_id', 'stream_floor', 'stream_life', 'stream_open')"),
      lock_open_(row_of(names_of(options, *layout_), "stream_open") +
                 layout_->vote_dialect().grammar().for_update()),
      lock_floor_(row_of(names_of(options, *layout_), "stream_floor") +
                  layout_->vote_dialect().grammar().for_update()),
      highest_("SELECT COALESCE(MAX(" + names_of(options, *layout_).version + "), 0) FROM " +
               names_of(options, *layout_).vote),
      insert_(
          "INSERT INTO " + names_of(options, *layout_).meta +
          " (name, value) VALUES ('stream_id', ?1), ('stream_floor', ?2), ('stream_life', '0'), "
          "('stream_open', '0')" +
          layout_->vote_dialect().grammar().or_nothing("name")),
      set_("UPDATE " + names_of(options, *layout_).meta + " SET value = ?2 WHERE name = ?1") {}

Result<StreamMarks::Marks> StreamMarks::read(sql::Connection& connection,
                                             const sql::Statement& statement) {
    Marks marks;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        const std::string value{row.text(1)};
        if (row.text(0) == "stream_id") {
            marks.id = value;
        } else if (row.text(0) == "stream_open") {
            marks.open = value == "1";
        } else {
            std::int64_t& number = row.text(0) == "stream_life" ? marks.life : marks.floor;
            std::from_chars(value.data(), value.data() + value.size(), number);
        }
        return {};
    };
    auto found = connection.query(statement, {}, see);
    if (!found) return explain_missing_table(std::move(found).error());
    return marks;
}

Result<void> StreamMarks::set(sql::Connection& connection, const char* name,
                              std::string_view value) {
    auto changed = connection.execute(set_, {std::string_view{name}, value});
    return changed ? Result<void>{} : std::move(changed).error();
}

Result<StreamMarks::Marks> StreamMarks::hold(sql::Connection& connection) {
    // First, as whoever changes the strategy does.
    HOTCOUNT_TRY(connection.query(lock_open_, {}, sql::kIgnoreRows));
    HOTCOUNT_TRY(check_place(connection, *layout_, options_, true));
    HOTCOUNT_TRY_ASSIGN(const std::string by, read_mark(connection, layout_->read_strategy));
    if (by != to_string(options_.strategy)) {
        return make_error(ErrorCode::config, "table " + options_.vote_table +
                                                 " is counted by strategy '" + by +
                                                 "'; create_tables() switches over to '" +
                                                 std::string{to_string(options_.strategy)} + "'");
    }
    return read(connection, read_);
}

Result<StreamMarks::Marks> StreamMarks::make(sql::Connection& connection) {
    // One at a time, or two would draw names.
    HOTCOUNT_TRY(connection.query(layout_->reconcile_alone, {}, sql::kIgnoreRows));
    HOTCOUNT_TRY_ASSIGN(Marks marks, hold(connection));
    if (!marks.id.empty()) return marks;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        marks.floor = row.integer(0);
        return {};
    };
    HOTCOUNT_TRY(connection.query(highest_, {}, see));
    if (marks.floor > kHighest) {
        return make_error(
            ErrorCode::config,
            "the votes have versions up to " + std::to_string(marks.floor) +
                ", and strategy 'write_behind' continues them; it takes at most 2^62");
    }
    marks.id = random_name();
    const std::string floor = std::to_string(marks.floor);
    HOTCOUNT_TRY(connection.execute(insert_, {std::string_view{marks.id}, floor}));
    return marks;
}

Result<StreamMarks::Streams> StreamMarks::streams(Deadline deadline) {
    const auto look = [&](sql::Connection& connection) -> Result<Marks> {
        HOTCOUNT_TRY(check_place(connection, *layout_, options_));
        return read(connection, read_);
    };
    HOTCOUNT_TRY_ASSIGN(Marks marks, sql::read_snapshot(*database_, deadline, look));
    if (marks.id.empty()) {
        HOTCOUNT_TRY_ASSIGN(
            marks, sql::transact(*database_, deadline,
                                 [&](sql::Connection& connection) { return make(connection); }));
    }
    return Streams{std::move(marks.id), marks.life};
}

Result<bool> StreamMarks::reserve(const Streams& streams, std::int64_t version, Deadline deadline) {
    Reserved& reserved = reserved_.get();
    {
        // A stream that was made since has begun behind it.
        const std::lock_guard lock(reserved.mutex);
        if (reserved.life == streams.life && version <= reserved.version) return true;
    }
    const std::int64_t wanted = version_of(milliseconds_of(version) + kAhead, 0);
    const auto raise = [&](sql::Connection& connection) -> Result<std::int64_t> {
        HOTCOUNT_TRY_ASSIGN(const Marks floor, read(connection, lock_floor_));
        HOTCOUNT_TRY_ASSIGN(const Marks marks, read(connection, read_));
        if (marks.id != streams.space) return streams_are_gone();
        // Whatever the floor says: a newer stream may have raised it.
        if (marks.life != streams.life) return std::int64_t{0};
        if (floor.floor >= version) return floor.floor;
        HOTCOUNT_TRY(set(connection, "stream_floor", std::to_string(wanted)));
        return wanted;
    };
    HOTCOUNT_TRY_ASSIGN(const std::int64_t floor, sql::transact(*database_, deadline, raise));
    if (floor < version) return false;
    const std::lock_guard lock(reserved.mutex);
    reserved.life = streams.life;
    reserved.version = floor;
    return true;
}

Result<void> StreamMarks::open(std::string_view space, Deadline deadline,
                               const std::function<Result<void>(std::int64_t)>& open) {
    // In two transactions: whoever dies between the stream and the commit has noted before that it may
    // be there.
    bool opened = false;
    while (!opened) {
        const auto note = [&](sql::Connection& connection) -> Result<void> {
            HOTCOUNT_TRY(hold(connection));
            // Who raises the floor does it before, and the stream begins behind it, or not at all.
            HOTCOUNT_TRY(connection.query(lock_floor_, {}, sql::kIgnoreRows));
            HOTCOUNT_TRY_ASSIGN(const Marks marks, read(connection, read_));
            HOTCOUNT_TRY(set(connection, "stream_life", std::to_string(marks.life + 1)));
            return set(connection, "stream_open", "1");
        };
        HOTCOUNT_TRY(sql::transact(*database_, deadline, note));
        const auto make_stream = [&](sql::Connection& connection) -> Result<void> {
            HOTCOUNT_TRY_ASSIGN(const Marks marks, hold(connection));
            if (marks.id != space) return streams_are_gone();
            opened = marks.open;
            return opened ? open(marks.floor) : Result<void>{};
        };
        HOTCOUNT_TRY(sql::transact(*database_, deadline, make_stream));
    }
    return {};
}

Result<void> StreamMarks::close(Deadline deadline, const std::function<Result<bool>()>& close) {
    return sql::transact(*database_, deadline, [&](sql::Connection& connection) -> Result<void> {
        HOTCOUNT_TRY_ASSIGN(const Marks marks, hold(connection));
        if (!marks.open) return {};
        HOTCOUNT_TRY_ASSIGN(const bool closed, close());
        return closed ? set(connection, "stream_open", "0") : Result<void>{};
    });
}

Result<void> refuse_waiting_votes(sql::Connection& connection, const VoteNames& names,
                                  const sql::Grammar& grammar) {
    const sql::Statement look{row_of(names, "stream_open") + grammar.for_update()};
    bool open = false;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        open = row.text(1) == "1";
        return {};
    };
    HOTCOUNT_TRY(connection.query(look, {}, see));
    if (!open) return {};
    return make_error(ErrorCode::config,
                      "votes of strategy 'write_behind' may wait in Redis: when nobody votes any "
                      "more, call flush() with that strategy, and then again. Nothing was changed");
}

}  // namespace hotcount
