#include "view_tables.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/hash.hpp>
#include <hotcount/detail/base/random.hpp>
#include <hotcount/detail/sql/transaction.hpp>
#include <limits>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "hotcount_embedded/views/sql.hpp"
#include "sql/dialect.hpp"

namespace hotcount {
namespace {

constexpr std::size_t kPurgePage = 500;
__extension__ using Wide = __int128;
using Second = std::chrono::seconds;

std::int64_t seconds_of(Duration time) { return std::chrono::duration_cast<Second>(time).count(); }

std::string in_hex(std::uint64_t number, std::size_t digits) {
    std::string text(digits, '0');
    for (std::size_t at = digits; at > 0 && number > 0; number >>= 4U) {
        text[--at] = "0123456789abcdef"[number & 15U];
    }
    return text;
}

Error leaves_64_bits(std::string_view key) {
    return make_error(ErrorCode::overflow,
                      "the total of " + printable(key) + " would leave signed 64 bits")
        .about(&ErrorFacts::key, key);
}

Error no_forgotten() {
    return make_error(ErrorCode::database,
                      "the row 'forgotten' is missing: create_tables() makes it");
}

std::vector<sql::Value> pairs_of(std::span<const ViewCell> cells) {
    std::vector<sql::Value> values;
    values.reserve(2 * cells.size());
    for (const ViewCell& each : cells) {
        values.emplace_back(std::string_view{each.key});
        values.emplace_back(std::string_view{each.writer});
    }
    return values;
}

std::vector<sql::Value> values_of(std::span<const ViewCell> cells) {
    std::vector<sql::Value> values;
    values.reserve(4 * cells.size());
    for (const ViewCell& each : cells) {
        values.emplace_back(std::string_view{each.key});
        values.emplace_back(std::string_view{each.writer});
        values.emplace_back(each.sum.up);
        values.emplace_back(each.sum.down);
    }
    return values;
}

// A database does not say whose total it refuses; known if all are of one key.
Error named(Error error, std::string_view first, std::string_view last) {
    if (error.code != ErrorCode::overflow || first != last) return error;
    Error known = leaves_64_bits(first);
    known.message += ": " + error.message;
    known.server_code = std::move(error.server_code);
    return known;
}

// Runs a statement over all of these rows, in as few parts as it takes.
template <class Row, class ToValues>
Result<void> run_over(sql::Connection& connection, BulkStatement& statement,
                      std::span<const Row> rows, const sql::RowVisitor* visit,
                      const ToValues& to_values) {
    while (!rows.empty()) {
        const auto part = rows.first(BulkStatement::portion(rows.size()));
        rows = rows.subspan(part.size());
        const std::vector<sql::Value> values = to_values(part);
        HOTCOUNT_TRY(connection.run(statement.of(part.size()), values, visit));
    }
    return {};
}

sql::Statements statements_of(const WriteBehindOptions& options, const sql::Grammar& g) {
    const auto beside = [&](const char* suffix) {
        return sql::quote_identifier(options.table + suffix);
    };
    return {{sql::views::kViewsSql, g.words()},
            {{"table", beside("")},
             {"cell", beside("_cell")},
             {"meta", beside("_meta")},
             {"by_writer", beside("_by_writer")},
             {"purge_page", std::to_string(kPurgePage)},
             {"indexes_apart", sql::flag(g.creates_indexes_apart())},
             {"returns", sql::flag(g.has_returning())}}};
}

}  // namespace

std::string first_writer_of(std::int64_t second) {
    return in_hex(static_cast<std::uint64_t>(std::max<std::int64_t>(second, 0)), 10);
}

std::int64_t second_of(std::string_view writer) {
    std::int64_t second = 0;
    const std::string_view digits = writer.substr(0, writer.find('-'));
    (void)std::from_chars(digits.data(), digits.data() + digits.size(), second, 16);
    return second;
}

std::string new_writer(const Clock& clock) {
    const std::int64_t now = seconds_of(clock.wall_now().time_since_epoch());
    return first_writer_of(now) + "-" + in_hex(thread_random().next(), 16);
}

void sort_and_merge(std::vector<ViewCell>& cells) {
    std::sort(cells.begin(), cells.end(), [](const ViewCell& a, const ViewCell& b) {
        return std::tie(a.key, a.writer) < std::tie(b.key, b.writer);
    });
    std::vector<ViewCell> merged;
    merged.reserve(cells.size());
    for (ViewCell& each : cells) {
        if (!merged.empty() && merged.back().key == each.key &&
            merged.back().writer == each.writer) {
            merged.back().sum = larger(merged.back().sum, each.sum);
        } else {
            merged.push_back(std::move(each));
        }
    }
    cells = std::move(merged);
}

ViewTables::ViewTables(const WriteBehindOptions& options, sql::Dialect dialect)
    : ViewTables(statements_of(options, dialect.grammar()), dialect.grammar()) {}

ViewTables::ViewTables(const sql::Statements& sql, const sql::Grammar& g)
    : schema_(sql["schema"]),
      hold_forgotten_(sql["hold_forgotten"]),
      read_forgotten_(sql["read_forgotten"]),
      raise_forgotten_(sql["raise_forgotten"]),
      now_(sql["now"]),
      hold_total_(sql["hold_total"]),
      old_cells_(sql["old_cells"]),
      returns_(g.has_returning()),
      at_once_(g.writes_in_queries()),
      raise_and_add_(sql["raise_and_add"]),
      raise_(sql["raise"]),
      differences_(sql["differences"]),
      applied_(sql["applied"]),
      add_(sql["add"]),
      read_(sql["read"]),
      totals_(sql["totals"]),
      remove_(sql["remove"]) {}

Result<std::optional<std::int64_t>> ViewTables::number(sql::Connection& connection,
                                                       const sql::Statement& how) {
    std::optional<std::int64_t> found;
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        found = row.integer(0);
        return {};
    };
    HOTCOUNT_TRY(connection.query(how, {}, read));
    return found;
}

Result<std::int64_t> ViewTables::forgotten(sql::Connection& connection,
                                           const sql::Statement& how) const {
    HOTCOUNT_TRY_ASSIGN(const auto second, number(connection, how));
    if (second) return *second;
    return no_forgotten();
}

// For as many cells as one statement takes. Two statements would lock the totals of the first
// before the cells of the second.
Result<std::vector<bool>> ViewTables::apply_at_once(sql::Connection& connection,
                                                    std::span<const ViewCell> cells) {
    std::optional<std::int64_t> before;
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        before = row.integer(0);
        return {};
    };
    auto done = connection.run(raise_and_add_.of(cells.size()), values_of(cells), &read);
    if (!done) return named(std::move(done).error(), cells.front().key, cells.back().key);
    if (!before) return no_forgotten();
    const std::string first = first_writer_of(*before);
    std::vector<bool> refused;
    refused.reserve(cells.size());
    for (const ViewCell& each : cells) refused.push_back(each.writer < first);
    return refused;
}

Result<std::vector<bool>> ViewTables::apply(sql::Connection& connection,
                                            std::span<const ViewCell> cells) {
    if (at_once_ && !cells.empty() && BulkStatement::portion(cells.size()) == cells.size()) {
        return apply_at_once(connection, cells);
    }
    HOTCOUNT_TRY_ASSIGN(const std::int64_t before, forgotten(connection, hold_forgotten_));
    const std::string first = first_writer_of(before);
    std::vector<bool> refused(cells.size(), false);
    std::vector<ViewCell> good;
    good.reserve(cells.size());
    for (std::size_t i = 0; i < cells.size(); ++i) {
        refused[i] = cells[i].writer < first;
        if (!refused[i]) good.push_back(cells[i]);
    }

    // By key, which is in order; the database returns rows in any.
    std::vector<std::pair<std::string, Wide>> sums;
    for (const ViewCell& each : good) {
        if (sums.empty() || sums.back().first != each.key) sums.emplace_back(each.key, 0);
    }
    const sql::RowVisitor add = [&](const sql::Row& row) -> Result<void> {
        const std::string_view key = row.text(0);
        const auto at = std::lower_bound(
            sums.begin(), sums.end(), key,
            [](const auto& sum, std::string_view than) { return sum.first < than; });
        if (at != sums.end() && at->first == key) at->second += row.integer(2);
        return {};
    };
    HOTCOUNT_TRY(
        run_over<ViewCell>(connection, raise_, good, returns_ ? &add : nullptr, values_of));
    if (!returns_) {
        HOTCOUNT_TRY(run_over<ViewCell>(connection, differences_, good, &add, pairs_of));
    }
    std::vector<std::pair<std::string, std::int64_t>> totals;
    for (auto& [key, sum] : sums) {
        const auto n = static_cast<std::int64_t>(sum);
        if (n != sum) return leaves_64_bits(key);
        if (n != 0) totals.emplace_back(std::move(key), n);
    }
    HOTCOUNT_TRY(add_to_totals(connection, totals));
    return refused;
}

Result<void> ViewTables::add_to_totals(sql::Connection& connection,
                                       std::span<const std::pair<std::string, std::int64_t>> sums) {
    using Sum = std::pair<std::string, std::int64_t>;
    auto added = run_over<Sum>(connection, add_, sums, nullptr, [](std::span<const Sum> part) {
        std::vector<sql::Value> values;
        values.reserve(2 * part.size());
        for (const auto& [key, n] : part) {
            values.emplace_back(std::string_view{key});
            values.emplace_back(n);
        }
        return values;
    });
    if (!added && !sums.empty()) {
        return named(std::move(added).error(), sums.front().first, sums.back().first);
    }
    return added;
}

Error ViewTables::clock_is_behind() {
    return make_error(ErrorCode::config,
                      "this machine's clock is behind the database's by more than 7 days: "
                      "nothing was applied");
}

Result<std::int64_t> ViewTables::take_total(sql::Connection& connection, ViewCell by) {
    std::int64_t total = 0;
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        total = row.integer(0);
        return {};
    };
    HOTCOUNT_TRY(connection.query(hold_total_, {std::string_view{by.key}}, read));
    if (total == 0) return total;
    if (total == std::numeric_limits<std::int64_t>::min()) return leaves_64_bits(by.key);
    (total > 0 ? by.sum.down : by.sum.up) = std::abs(total);
    HOTCOUNT_TRY_ASSIGN(const auto refused, apply(connection, std::span{&by, 1}));
    if (refused.front()) return clock_is_behind();
    return total;
}

Result<std::vector<ViewCell>> ViewTables::applied(sql::Connection& connection,
                                                  std::span<const ViewCell> cells) {
    std::vector<ViewCell> found;
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        found.push_back(
            {std::string{row.text(0)}, std::string{row.text(1)}, {row.integer(2), row.integer(3)}});
        return {};
    };
    HOTCOUNT_TRY(run_over<ViewCell>(connection, applied_, cells, &read, pairs_of));
    return found;
}

Result<ViewTables::Known> ViewTables::read(sql::Connection& connection, std::string_view key,
                                           std::span<const ViewCell> cells) {
    Known known;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        const std::string_view writer = row.text(0);
        if (writer.empty()) {
            known.total = row.is_null(1) ? 0 : row.integer(1);
            known.first = first_writer_of(row.integer(2));
        } else {
            known.cells.push_back(
                {std::string{key}, std::string{writer}, {row.integer(1), row.integer(2)}});
        }
        return {};
    };
    // The last writer fills up; no writer has an empty id.
    std::vector<sql::Id> writers;
    for (const ViewCell& each : cells) writers.emplace_back(each.writer);
    if (writers.empty()) writers.emplace_back(std::string{});
    const std::array<sql::Value, 1> head{key};
    HOTCOUNT_TRY(read_.run_padded(connection, writers, &see, head));
    if (known.first.empty()) return no_forgotten();
    return known;
}

Result<std::vector<ViewTables::Known>> ViewTables::read_many(sql::Connection& connection,
                                                             std::span<const std::string> keys,
                                                             std::span<const ViewCell> cells) {
    HOTCOUNT_TRY_ASSIGN(const std::int64_t before, forgotten(connection, read_forgotten_));
    std::unordered_map<std::string_view, Known, KeyedHash> by_key;
    std::vector<sql::Id> ids;
    for (const std::string& key : keys) {
        if (by_key.try_emplace(key, Known{0, {}, first_writer_of(before)}).second) {
            ids.emplace_back(key);
        }
    }
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        by_key.at(row.text(0)).total = row.integer(1);
        return {};
    };
    HOTCOUNT_TRY(totals_.run_padded(connection, ids, &read));
    HOTCOUNT_TRY_ASSIGN(auto rows, applied(connection, cells));
    for (ViewCell& row : rows) by_key.at(row.key).cells.push_back(std::move(row));
    std::vector<Known> known;
    known.reserve(keys.size());
    for (const std::string& key : keys) known.push_back(by_key.at(key));
    return known;
}

Result<void> ViewTables::forget(sql::Connection& connection, std::int64_t before) {
    HOTCOUNT_TRY_ASSIGN(const auto now, number(connection, now_));
    const std::int64_t oldest = now.value_or(0) / 1'000'000 - seconds_of(kViewHorizon);
    HOTCOUNT_TRY(connection.execute(raise_forgotten_, {std::min(oldest, before)}));
    return {};
}

Result<std::size_t> ViewTables::purge(sql::Connection& connection) {
    HOTCOUNT_TRY_ASSIGN(const std::int64_t before, forgotten(connection, read_forgotten_));
    std::vector<ViewCell> old;
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        old.push_back({std::string{row.text(0)}, std::string{row.text(1)}, {}});
        return {};
    };
    const std::string first = first_writer_of(before);
    HOTCOUNT_TRY(connection.query(old_cells_, {std::string_view{first}}, read));
    sort_and_merge(old);
    HOTCOUNT_TRY(run_over<ViewCell>(connection, remove_, old, nullptr, pairs_of));
    return old.size();
}

}  // namespace hotcount
