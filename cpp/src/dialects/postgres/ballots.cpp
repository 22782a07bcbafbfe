#include "ballots.hpp"

#include "dialect.hpp"
#include "hotcount_embedded/dialects/postgres/sql.hpp"
#include "sql/dialect.hpp"

namespace hotcount {
namespace {

// The columns of a vote's row. From old_val on they are NULL if the vote was written.
enum Column : std::uint8_t {
    number,
    item_free,
    prev,
    val,
    old_val,
    old_version,
    there,
    mark,
    level
};
static_assert(number == kNumberColumn && level + 1 == kOutcomeColumns);

// True if the upsert leaves the row unchanged.
bool leaves_row_unchanged(const sql::Row& row, const Ballot& ballot) {
    if (row.is_null(old_val)) return false;
    if (!ballot.version) return row.integer(old_val) == ballot.value;
    return !row.is_null(old_version) && row.integer(old_version) >= *ballot.version;
}

void append_element(std::string& array, const sql::Id& id) {
    if (!array.empty()) array += ',';
    if (const auto* integer = std::get_if<std::int64_t>(&id)) {
        array += std::to_string(*integer);
        return;
    }
    array += '"';
    for (const char c : std::get<std::string>(id)) {
        if (c == '"' || c == '\\') array += '\\';
        array += c;
    }
    array += '"';
}

void append_element(std::string& array, std::optional<std::int64_t> value) {
    if (!array.empty()) array += ',';
    array += value ? std::to_string(*value) : "NULL";
}

void close_array(std::string& array) { array = "{" + array + "}"; }

bool is(const sql::Row& row, int column, const sql::Id& id) {
    if (const auto* integer = std::get_if<std::int64_t>(&id)) {
        return row.integer(column) == *integer;
    }
    return row.text(column) == std::get<std::string>(id);
}

bool same_row(const Ballot& a, const Ballot& b) { return a.item == b.item && a.user == b.user; }

}  // namespace

sql::Statements postgres_statements(std::string_view file, const VoteNames& n,
                                    const VotesOptions& options, sql::Names more) {
    const auto element = [](IdType type) {
        return std::string{sql::Grammar::parameter_type(column_type(type))};
    };
    more.insert({{"item_element", element(options.item_type)},
                 {"user_element", element(options.user_type)},
                 {"route", literal(vote_route(options, sql::postgres_grammar().dialect()))},
                 {"cached", sql::flag(options.strategy == VoteStrategy::cached)},
                 {"fenced", sql::flag(options.strategy == VoteStrategy::write_behind)},
                 {"in_slot", sql::flag(options.strategy == VoteStrategy::slotted)},
                 {"serializable", ""},
                 {"level", literal("read committed")},
                 {"journal_literal", literal(n.journal)},
                 {"journal_index_literal", literal(n.journal_index)}});
    return vote_statements(file, n, sql::postgres_grammar(), std::move(more));
}

sql::Statements postgres_catalog() { return {sql::postgres::kCatalogSql, {}}; }

PostgresBallots::PostgresBallots(std::vector<QueuedVote*> of) : votes(std::move(of)) {
    const sql::Id* last = nullptr;
    bool has_versions = false;
    for (const QueuedVote* vote : votes) {
        const Ballot& ballot = vote->ballot;
        append_element(items, ballot.item);
        append_element(users, ballot.user);
        append_element(values, std::optional{ballot.value});
        append_element(versions, ballot.version);
        has_versions = has_versions || ballot.version;
        if (last == nullptr || *last != ballot.item) append_element(distinct_items, ballot.item);
        last = &ballot.item;
    }
    // unnest() fills a shorter array up with NULLs, also with array_nulls = off.
    if (!has_versions) versions.clear();
    for (std::string* array : {&items, &users, &values, &versions, &distinct_items}) {
        close_array(*array);
    }
}

std::vector<PostgresBallots> in_waves(std::span<QueuedVote* const> votes) {
    std::vector<std::vector<QueuedVote*>> waves;
    std::size_t wave = 0;
    for (std::size_t i = 0; i < votes.size(); ++i) {
        wave = i > 0 && same_row(votes[i - 1]->ballot, votes[i]->ballot) ? wave + 1 : 0;
        if (wave == waves.size()) waves.emplace_back();
        waves[wave].push_back(votes[i]);
    }
    std::vector<PostgresBallots> ballots;
    ballots.reserve(waves.size());
    for (auto& of : waves) ballots.emplace_back(std::move(of));
    return ballots;
}

std::string array_literal(std::span<const sql::Id> ids) {
    std::string array;
    for (const sql::Id& id : ids) append_element(array, id);
    close_array(array);
    return array;
}

Cast cast_of(const sql::Row& row, int column) {
    const std::int64_t previous = row.integer(column);
    const std::int64_t value = row.integer(column + 1);
    return Cast{value != 0, value != previous, previous, value};
}

Cast unchanged_cast(std::int64_t value) { return Cast{value != 0, false, value, value}; }

VoteOutcome read_outcome(const sql::Row& row, const Ballot& ballot, std::string_view route,
                         std::string_view wanted_level) {
    using Kind = VoteOutcome::Kind;
    if (!row.is_null(val)) return {Kind::cast, cast_of(row, prev)};
    if (row.text(level) != wanted_level) return {Kind::other_level};
    const std::string found{row.is_null(mark) ? "" : row.text(mark)};
    if (found != route) return {Kind::elsewhere, {}, found};
    if (row.text(there) != "t") return {Kind::missing};
    if (row.text(item_free) != "t") return {Kind::held};
    if (leaves_row_unchanged(row, ballot))
        return {Kind::cast, unchanged_cast(row.integer(old_val))};
    return {Kind::overtaken};
}

Error unasked_row() {
    return make_error(ErrorCode::database,
                      "the vote table gave back an item or a user that differs from the one it was "
                      "given: do item_type and user_type say what its columns are?");
}

QueuedVote* BallotReader::find(const sql::Row& row) {
    while (next_ < ballots_.votes.size()) {
        QueuedVote* const vote = ballots_.votes[next_++];
        if (is(row, 0, vote->ballot.item) && is(row, 1, vote->ballot.user)) return vote;
        unanswered_.push_back(vote);
    }
    return nullptr;
}

std::vector<QueuedVote*> BallotReader::unanswered() {
    while (next_ < ballots_.votes.size()) unanswered_.push_back(ballots_.votes[next_++]);
    return std::move(unanswered_);
}

}  // namespace hotcount
