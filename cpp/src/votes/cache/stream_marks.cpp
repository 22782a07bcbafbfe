#include "stream_marks.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/sql/transaction.hpp>

#include "count_cache.hpp"
#include "hotcount_embedded/votes/sql.hpp"
#include "votes/tables/count_place.hpp"
#include "votes/tables/vote_dialect.hpp"

namespace hotcount {
namespace {

// By how many milliseconds stream_floor is ahead of the votes: it is written once in this time.
// After an erasure the streams' ids are ahead of Redis's clock by as much. A Redis that restarts
// from a copy within this time may give these ids again.
constexpr std::int64_t kAhead = 250;
// The highest version with which streams begin. As milliseconds it is a time in 2109; callers may
// have given versions of their own.
constexpr std::int64_t kHighest = std::int64_t{1} << 62;

// The most names that fit into a mark.
constexpr std::size_t kMostFormerNames = 30;

// In base 36 the versions of all shards fit into a mark.
constexpr int kFenceBase = 36;

StreamMarks::Fence parse_fence(const std::string& text) {
    StreamMarks::Fence fence{text};
    const char* at = text.data() + std::min(text.find(' '), text.size() - 1) + 1;
    const char* const end = text.data() + text.size();
    for (std::int64_t& version : fence.versions) {
        at = std::from_chars(at, end, version, kFenceBase).ptr;
        if (at != end) ++at;
    }
    return fence;
}

std::string format_fence(const std::string& space,
                         const std::array<std::int64_t, VoteStream::kShards>& versions) {
    std::string text = space;
    for (const std::int64_t version : versions) {
        std::array<char, 16> digits{};
        const auto done =
            std::to_chars(digits.data(), digits.data() + digits.size(), version, kFenceBase);
        text += " " + std::string{digits.data(), done.ptr};
    }
    return text;
}

std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> words;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find(' ', at), text.size());
        words.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return words;
}

sql::Statements stream_statements(const VotesOptions& options, const sql::Grammar& grammar) {
    return vote_statements(vote_sql::kMarksSql, VoteNames{options, grammar}, grammar);
}

Error streams_are_gone() {
    return make_error(
        ErrorCode::config,
        "the tables were created again, and their streams in the cache have another name now; "
        "nothing was applied");
}

}  // namespace

StreamMarks::StreamMarks(std::shared_ptr<sql::Database> database,
                         std::shared_ptr<const Layout> layout, const VotesOptions& options)
    : StreamMarks(std::move(database), layout, options,
                  stream_statements(options, layout->vote_dialect().grammar())) {}

StreamMarks::StreamMarks(std::shared_ptr<sql::Database> database,
                         std::shared_ptr<const Layout> layout, const VotesOptions& options,
                         const sql::Statements& sql)
    : database_(std::move(database)),
      layout_(std::move(layout)),
      options_(options),
      read_(sql["read_streams"]),
      lock_open_(sql["lock_stream_open"]),
      lock_floor_(sql["lock_stream_floor"]),
      lock_fence_(sql["lock_stream_fence"]),
      highest_(sql["highest_version"]),
      insert_(sql["begin_streams"]),
      set_(sql["set"]) {}

Result<StreamMarks::Marks> StreamMarks::read(sql::Connection& connection,
                                             const sql::Statement& statement) {
    Marks marks;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        const std::string value{row.text(1)};
        if (row.text(0) == "stream_id") {
            marks.id = value;
        } else if (row.text(0) == "stream_open") {
            marks.open = value == "1";
        } else if (row.text(0) == "stream_fence") {
            marks.fence = value;
        } else if (row.text(0) == "stream_names") {
            marks.former_names = split(value);
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
    // This lock comes first, as in a change of the strategy.
    HOTCOUNT_TRY(connection.query(lock_open_, {}, sql::kIgnoreRows));
    HOTCOUNT_TRY(check_place(connection, *layout_, options_, PlaceCheck::hold_route));
    return read(connection, read_);
}

Result<StreamMarks::Marks> StreamMarks::make(sql::Connection& connection) {
    // One transaction at a time: two would each give the streams a name.
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
    HOTCOUNT_TRY_ASSIGN(const bool tells_apart,
                        layout_->vote_dialect().tells_ids_apart(connection, options_));
    const std::string name = random_name() + std::string{tells_apart ? "" : VoteStream::kOneStream};
    const std::string floor = std::to_string(marks.floor);
    const std::string fence = format_fence(name, {});
    HOTCOUNT_TRY(connection.execute(insert_, {std::string_view{name}, floor, fence}));
    return read(connection, read_);
}

Result<StreamMarks::Streams> StreamMarks::streams(Deadline deadline) {
    const auto look = [&](sql::Connection& connection) -> Result<Marks> {
        HOTCOUNT_TRY(check_place(connection, *layout_, options_, PlaceCheck::route));
        return read(connection, read_);
    };
    HOTCOUNT_TRY_ASSIGN(Marks marks, sql::read_snapshot(*database_, deadline, look));
    if (marks.id.empty()) {
        HOTCOUNT_TRY_ASSIGN(
            marks, sql::transact(*database_, deadline,
                                 [&](sql::Connection& connection) { return make(connection); }));
    }
    if (marks.fence.empty()) {
        return make_error(ErrorCode::config,
                          "the streams of table " + options_.vote_table +
                              " are in a removed format, without the mark 'stream_fence'; " +
                              std::string{kLastReader} + ". Nothing was changed");
    }
    return Streams{std::move(marks.id),   marks.life,
                   marks.floor,           marks.open,
                   fence_of(marks.fence), std::move(marks.former_names)};
}

std::shared_ptr<const StreamMarks::Fence> StreamMarks::fence_of(const std::string& text) {
    Reserved& reserved = reserved_.get();
    const std::lock_guard lock(reserved.mutex);
    if (reserved.fence == nullptr || reserved.fence->text != text) {
        reserved.fence = std::make_shared<const Fence>(parse_fence(text));
    }
    return reserved.fence;
}

Result<std::optional<StreamMarks::Versions>> StreamMarks::raise_fence(
    const Streams& streams, std::span<const std::size_t> shards,
    std::span<const VoteStream::Advanced> advanced, const Advance& advance, Deadline deadline) {
    const auto raise = [&](sql::Connection& connection) -> Result<std::optional<Versions>> {
        HOTCOUNT_TRY_ASSIGN(const Marks floor, read(connection, lock_floor_));
        // Waits for the transactions of workers that write under the present fence.
        HOTCOUNT_TRY_ASSIGN(const Marks held, read(connection, lock_fence_));
        HOTCOUNT_TRY_ASSIGN(const Marks marks, read(connection, read_));
        if (marks.id != streams.space || held.fence.empty()) return streams_are_gone();
        if (marks.life != streams.life) return std::optional<Versions>{};
        Versions versions{};
        std::vector<std::size_t> missing;
        for (std::size_t i = 0; i < shards.size(); ++i) {
            versions[shards[i]] = advanced[i].last;
            if (!advanced[i].there && advanced[i].last < floor.floor) missing.push_back(shards[i]);
        }
        if (!missing.empty()) {
            HOTCOUNT_TRY_ASSIGN(const auto now, advance(missing, floor.floor));
            for (std::size_t i = 0; i < missing.size(); ++i) {
                // A late call has created it.
                if (now[i].there) return std::optional<Versions>{};
                versions[missing[i]] = now[i].last;
            }
        }
        Versions fence = parse_fence(held.fence).versions;
        for (const std::size_t shard : shards) {
            fence[shard] = std::max(fence[shard], versions[shard]);
        }
        const std::int64_t highest = *std::max_element(versions.begin(), versions.end());
        if (floor.floor < highest) {
            HOTCOUNT_TRY(set(connection, "stream_floor", std::to_string(highest)));
        }
        HOTCOUNT_TRY(set(connection, "stream_fence", format_fence(marks.id, fence)));
        return std::optional{versions};
    };
    return sql::transact(*database_, deadline, raise);
}

Result<bool> StreamMarks::reserve(const Streams& streams, std::int64_t version, Deadline deadline) {
    Reserved& reserved = reserved_.get();
    {
        // Votes of a stream that was created since then begin above this version.
        const std::lock_guard lock(reserved.mutex);
        if (reserved.space == streams.space && reserved.life == streams.life &&
            version <= reserved.version) {
            return true;
        }
    }
    // At most kAhead beyond the clock, even if the ids are ahead of it: otherwise repeated erasures
    // would move the ids further with each vote between them.
    const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
        options_.clock->wall_now().time_since_epoch());
    const std::int64_t from = std::min<std::int64_t>(milliseconds_of(version), now.count());
    const std::int64_t wanted = std::max(version, version_of(from + kAhead, 0));
    const auto raise = [&](sql::Connection& connection) -> Result<std::int64_t> {
        HOTCOUNT_TRY_ASSIGN(const Marks floor, read(connection, lock_floor_));
        HOTCOUNT_TRY_ASSIGN(const Marks marks, read(connection, read_));
        if (marks.id != streams.space) return streams_are_gone();
        // Checked before the floor, which a newer stream may have raised.
        if (marks.life != streams.life) return std::int64_t{0};
        if (floor.floor >= version) return floor.floor;
        HOTCOUNT_TRY(set(connection, "stream_floor", std::to_string(wanted)));
        return wanted;
    };
    HOTCOUNT_TRY_ASSIGN(const std::int64_t floor, sql::transact(*database_, deadline, raise));
    if (floor < version) return false;
    const std::lock_guard lock(reserved.mutex);
    reserved.space = streams.space;
    reserved.life = streams.life;
    reserved.version = floor;
    return true;
}

Result<void> StreamMarks::open(
    std::string_view space, Deadline deadline,
    const std::function<Result<void>(std::int64_t, std::int64_t)>& open) {
    // Two transactions: stream_open is committed before a stream is created, so that it is right
    // even if this process dies in between.
    bool opened = false;
    while (!opened) {
        const auto note = [&](sql::Connection& connection) -> Result<void> {
            HOTCOUNT_TRY(hold(connection));
            // Either a worker has raised the floor before this lock, and the stream begins above
            // it, or the worker finds the new life and does not raise it.
            HOTCOUNT_TRY(connection.query(lock_floor_, {}, sql::kIgnoreRows));
            HOTCOUNT_TRY_ASSIGN(const Marks marks, read(connection, read_));
            HOTCOUNT_TRY(set(connection, "stream_life", std::to_string(marks.life + 1)));
            return set(connection, "stream_open", "1");
        };
        HOTCOUNT_TRY(sql::transact(*database_, deadline, note));
        const auto make_stream = [&](sql::Connection& connection) -> Result<void> {
            HOTCOUNT_TRY(hold(connection));
            HOTCOUNT_TRY(connection.query(lock_floor_, {}, sql::kIgnoreRows));
            HOTCOUNT_TRY_ASSIGN(const Marks marks, read(connection, read_));
            if (marks.id != space) return streams_are_gone();
            opened = marks.open;
            if (!opened) return {};
            // Raised again: since then another caller may have created the stream, and a worker may
            // have begun to write from it.
            HOTCOUNT_TRY(set(connection, "stream_life", std::to_string(marks.life + 1)));
            // The committed life, not the raised one. If this caller dies, flush() closes the streams
            // under the committed number, and a delayed script that has it makes no stream.
            return open(marks.floor, marks.life);
        };
        HOTCOUNT_TRY(sql::transact(*database_, deadline, make_stream));
    }
    return {};
}

Result<void> StreamMarks::close(std::string_view space, Deadline deadline,
                                const std::function<Result<bool>(std::int64_t)>& close) {
    return sql::transact(*database_, deadline, [&](sql::Connection& connection) -> Result<void> {
        HOTCOUNT_TRY_ASSIGN(const Marks marks, hold(connection));
        if (marks.id != space) return streams_are_gone();
        // Streams from a restored copy exist although the mark says that none is open.
        HOTCOUNT_TRY_ASSIGN(const bool closed, close(marks.life));
        if (closed != marks.open) return {};
        return set(connection, "stream_open", closed ? "0" : "1");
    });
}

Result<void> refuse_waiting_votes(sql::Connection& connection, const VotesOptions& options,
                                  const sql::Grammar& grammar, bool holds) {
    const sql::Statements sql = stream_statements(options, grammar);
    const sql::Statement look{sql[holds ? "lock_stream_open" : "read_stream_open"]};
    bool open = false;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        open = row.text(1) == "1";
        return {};
    };
    HOTCOUNT_TRY(connection.query(look, {}, see));
    if (!open) return {};
    return make_error(
        ErrorCode::config,
        "votes of strategy 'write_behind' may wait in Redis: stop voting, call flush() "
        "with that strategy, and then repeat this call. Nothing was changed");
}

Result<void> forget_streams(sql::Connection& connection, const VotesOptions& options,
                            const sql::Grammar& grammar) {
    const sql::Statements sql = stream_statements(options, grammar);
    const sql::Statement find{sql["read_stream_names"]};
    std::vector<std::string> former;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        for (std::string& name : split(std::string{row.text(0)})) {
            former.push_back(std::move(name));
        }
        return {};
    };
    HOTCOUNT_TRY(connection.query(find, {}, see));
    // The latest name comes first.
    former.resize(std::min(former.size(), kMostFormerNames));
    std::string list;
    for (const std::string& name : former) list += (list.empty() ? "" : " ") + name;
    const sql::Statement forget{sql["forget_streams"]};
    const sql::Statement keep{sql["keep_stream_names"]};
    HOTCOUNT_TRY(connection.execute(forget, {}));
    if (former.empty()) return {};
    HOTCOUNT_TRY(connection.execute(keep, {std::string_view{list}}));
    return {};
}

}  // namespace hotcount
