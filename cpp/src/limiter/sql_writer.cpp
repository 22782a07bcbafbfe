#include "sql_writer.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <chrono>

#include "backends.hpp"
#include "hotcount_embedded/limiter/sql.hpp"

namespace hotcount {
namespace {

sql::Statements limit_statements(const sql::TableName& table, const sql::Grammar& g) {
    // An index stands in its table's schema.
    return {{sql::limiter::kLimitsSql, g.words()},
            {{"table", table.sql()},
             {"index", sql::quote_identifier(table.name + std::string{LimitTable::kIndexSuffix})},
             {"indexes_apart", sql::flag(g.creates_indexes_apart())},
             {"locks_rows", sql::flag(g.locks_rows())}}};
}

std::vector<LimitStatement> in_sizes(const std::string& text) {
    std::vector<LimitStatement> sizes;
    for (const std::size_t rows : {64U, 16U, 4U, 1U}) {
        sizes.push_back({rows, sql::Statement{sql::repeat_rows(text, rows)}});
    }
    return sizes;
}

// Runs a statement over all keys, in the sizes there are; the last key fills a statement up.
Result<void> run_for(sql::Connection& connection, std::span<const LimitStatement> sizes,
                     std::span<const std::string_view> keys, const sql::RowVisitor* visit) {
    while (!keys.empty()) {
        const auto fits = std::find_if(sizes.rbegin(), sizes.rend(), [&](const auto& sized) {
            return sized.rows >= keys.size();
        });
        const LimitStatement& sized = fits == sizes.rend() ? sizes.front() : *fits;
        const std::size_t taken = std::min(sized.rows, keys.size());
        std::vector<sql::Value> parameters(keys.begin(),
                                           keys.begin() + static_cast<std::ptrdiff_t>(taken));
        parameters.resize(sized.rows, keys[taken - 1]);
        HOTCOUNT_TRY(connection.run(sized.statement, parameters, visit));
        keys = keys.subspan(taken);
    }
    return {};
}

}  // namespace

LimitTable::LimitTable(std::string_view name, sql::Dialect dialect)
    : LimitTable(limit_statements(sql::TableName::of(name), dialect.grammar()),
                 !dialect.grammar().locks_rows()) {}

LimitTable::LimitTable(const sql::Statements& sql, bool one_writer)
    : schema(sql["schema"]),
      lock(in_sizes(sql["lock"])),
      insert(in_sizes(sql["insert"])),
      write(in_sizes(sql["write"])),
      update(sql["update"]),
      look(sql["look"]),
      remove(sql["remove"]),
      expired(sql["expired"]),
      one_writer_(one_writer) {}

std::int64_t wall_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               system_clock()->wall_now().time_since_epoch())
        .count();
}

std::int64_t rounded_expiry(std::int64_t now_us, std::int64_t ends_us) {
    constexpr std::uint64_t kMinute = std::uint64_t{1} << 26;  // 67 s.
    const auto left = static_cast<std::uint64_t>(ends_us > now_us ? ends_us - now_us : 0);
    const auto grid = static_cast<std::int64_t>(std::bit_ceil(std::max(kMinute, left / 8)));
    return (ends_us / grid + 1) * grid;
}

// -- states as text -------------------------------------------------------------------------------

Error too_much_stored(const LimiterOptions& options, std::int64_t most) {
    return make_error(ErrorCode::config, "over a database " +
                                             std::string{to_string(options.algorithm)} +
                                             " takes limits up to " + std::to_string(most) +
                                             ": it writes its whole log with each hit");
}

std::string text_of(std::span<const std::int64_t> numbers) {
    std::string text;
    std::array<char, 24> digits{};
    for (const std::int64_t number : numbers) {
        if (!text.empty()) text += ' ';
        const auto end = std::to_chars(digits.begin(), digits.end(), number).ptr;
        text.append(digits.begin(), end);
    }
    return text;
}

std::vector<std::int64_t> numbers_of(std::string_view text) {
    std::vector<std::int64_t> numbers;
    const char* at = text.data();
    const char* const end = at + text.size();
    while (true) {
        std::int64_t number = 0;
        const auto [behind, wrong] = std::from_chars(at, end, number);
        if (wrong != std::errc{} || number < 0 || number > kExact) return {};
        numbers.push_back(number);
        if (behind == end) return numbers;
        if (*behind != ' ') return {};
        at = behind + 1;
    }
}

// -- the writer -----------------------------------------------------------------------------------

Error explain_missing_limits(Error error) {
    if (error.code == ErrorCode::database && error.condition == SqlCondition::undefined_table) {
        error.message += "; create_table() makes it";
    }
    return error;
}

Result<void> HitWriter::write(sql::Connection& connection, Batch batch, sql::BatchTurn&) {
    Rows rows;
    for (const auto& write : batch) {
        const auto& hit = static_cast<const QueuedHit&>(*write);
        rows[hit.key].needed |= hit.needs_row;
    }
    inserted_ = 0;
    auto now = lock_rows(connection, rows);
    if (!now) return explain_missing_limits(std::move(now).error());
    decide(batch, rows, *now);
    HOTCOUNT_TRY(write_rows(connection, rows, *now));
    // Two for each one that came: the table shrinks while it is used.
    if (inserted_ > 0) HOTCOUNT_TRY(remove_expired(connection, *now, 2 * inserted_));
    return {};
}

Result<std::int64_t> HitWriter::lock_rows(sql::Connection& connection, Rows& rows) {
    Keys keys;
    for (const auto& [key, row] : rows) keys.push_back(key);
    std::int64_t now = 0;
    HOTCOUNT_TRY(read(connection, keys, rows, now));
    const auto missing = [&] {
        Keys absent;
        for (const auto& [key, row] : rows) {
            if (row.needed && !row.text) absent.push_back(key);
        }
        return absent;
    };
    keys = missing();
    inserted_ = keys.size();
    if (table_->one_writer()) return wall_us();
    if (keys.empty()) return now;
    HOTCOUNT_TRY(run_for(connection, table_->insert, keys, nullptr));
    HOTCOUNT_TRY(read(connection, keys, rows, now));
    if (missing().empty()) return now;
    // Another transaction removed a row between the two statements, as expired or by a reset.
    return make_error(ErrorCode::deadline, "a key's row was removed meanwhile; nothing was applied",
                      "", SqlCondition::transaction_conflict);
}

Result<void> HitWriter::read(sql::Connection& connection, const Keys& keys, Rows& rows,
                             std::int64_t& now) const {
    const sql::RowVisitor see = [&](const sql::Row& found) -> Result<void> {
        const auto row = rows.find(found.text(0));
        if (row == rows.end()) return {};
        row->second.text = found.text(1);
        now = std::max(now, found.integer(2));
        return {};
    };
    return run_for(connection, table_->lock, keys, &see);
}

void HitWriter::decide(std::span<const std::shared_ptr<sql::QueuedWrite>> batch, Rows& rows,
                       std::int64_t now) const {
    for (const auto& write : batch) {
        auto& hit = static_cast<QueuedHit&>(*write);
        Row& row = rows.find(hit.key)->second;
        if (!row.key) row.key = hit.law->open(row.text.value_or(""));
        // A reset also clears a text that is no state of the law.
        if (!row.key && !hit.apply) row.key = hit.law->open("");
        if (!row.key) {
            hit.error = no_limit_state(hit.key);
        } else if (!hit.apply) {
            row.key->forget();
        } else {
            hit.outcome = hit.apply(*row.key, now);
        }
    }
}

Result<void> HitWriter::write_rows(sql::Connection& connection, const Rows& rows,
                                   std::int64_t now) const {
    struct Written {
        std::string_view key;
        std::string text;
        std::int64_t expires;
    };
    std::vector<Written> written;
    for (const auto& [key, row] : rows) {
        if (!row.key || !row.key->changed()) continue;
        std::string text = row.key->text();
        if (!text.empty()) {
            written.push_back({key, std::move(text), rounded_expiry(now, row.key->expires_us())});
        } else if (row.text) {
            HOTCOUNT_TRY(connection.execute(table_->remove, {key}));
        }
    }
    std::span<const Written> left{written};
    if (left.size() == 1 && !table_->one_writer()) {
        const Written& only = left.front();
        HOTCOUNT_TRY(connection.execute(table_->update,
                                        {only.key, std::string_view{only.text}, only.expires}));
        return {};
    }
    for (const auto& [size, statement] : table_->write) {
        for (; left.size() >= size; left = left.subspan(size)) {
            std::vector<sql::Value> parameters;
            parameters.reserve(3 * size);
            for (const Written& row : left.first(size)) {
                parameters.insert(parameters.end(),
                                  {row.key, std::string_view{row.text}, row.expires});
            }
            HOTCOUNT_TRY(connection.run(statement, parameters, nullptr));
        }
    }
    return {};
}

Result<void> HitWriter::remove_expired(sql::Connection& connection, std::int64_t now,
                                       std::size_t most) const {
    std::vector<std::string> keys;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        keys.emplace_back(row.text(0));
        return {};
    };
    HOTCOUNT_TRY(connection.query(table_->expired, {now, static_cast<std::int64_t>(most)}, see));
    for (const std::string& key : keys) {
        HOTCOUNT_TRY(connection.execute(table_->remove, {std::string_view{key}}));
    }
    return {};
}

}  // namespace hotcount
