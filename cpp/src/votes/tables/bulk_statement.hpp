// One statement over any number of rows, as few texts as that takes: a connection keeps each one
// prepared. Thread-safe.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <hotcount/sql.hpp>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sql/statements.hpp"

namespace hotcount {

/// A row that is one parameter, for BulkStatement.
inline std::string placeholder(std::size_t number) { return "?" + std::to_string(number); }

class BulkStatement {
  public:
    /// `row` makes the text of one row from the number of its first placeholder; `head` has used
    /// `before` of them.
    using Row = std::function<std::string(std::size_t first)>;

    BulkStatement(std::string head, Row row, std::size_t placeholders, std::string between,
                  std::string tail, std::size_t before = 0)
        : head_(std::move(head)),
          row_(std::move(row)),
          placeholders_(placeholders),
          between_(std::move(between)),
          tail_(std::move(tail)),
          before_(before) {}

    /// `text` has one --each (sql/statements.hpp). The placeholders of its row follow each other and
    /// the head's.
    explicit BulkStatement(const std::string& text) : BulkStatement(Parts{text}) {}

    /// How many of `left` rows to give to the next statement, if each may stand in it once:
    /// batches of up to 64 callers are one statement of just that many.
    static std::size_t portion(std::size_t left) {
        if (left <= kExact) return left;
        return std::min(kMost, std::size_t{1} << (std::bit_width(left) - 1));
    }
    /// The same if rows may be repeated, to fill the statement up to padded().
    static std::size_t padded_portion(std::size_t left) { return std::min(kMost, left); }
    static std::size_t padded(std::size_t rows) { return std::bit_ceil(rows); }

    /// If a row is one id: runs it over all of them, repeating the last one to fill up. `head`: what
    /// the head's own placeholders stand for.
    Result<void> run_padded(sql::Connection& connection, std::span<const sql::Id> ids,
                            const sql::RowVisitor* visit, std::span<const sql::Value> head = {}) {
        std::vector<sql::Value> values;
        while (!ids.empty()) {
            const auto part = ids.first(padded_portion(ids.size()));
            ids = ids.subspan(part.size());
            const std::size_t size = padded(part.size());
            values.assign(head.begin(), head.end());
            for (std::size_t i = 0; i < size; ++i) {
                values.push_back(sql::to_value(part[std::min(i, part.size() - 1)]));
            }
            HOTCOUNT_TRY(connection.run(of(size), values, visit));
        }
        return {};
    }

    const sql::Statement& of(std::size_t rows) {
        std::lock_guard lock(mutex_);
        auto& statement = made_[rows];
        if (statement == nullptr) {
            std::string text = head_;
            for (std::size_t i = 0; i < rows; ++i) {
                if (i > 0) text += between_;
                text += row_(1 + before_ + i * placeholders_);
            }
            statement = std::make_unique<const sql::Statement>(text + tail_);
        }
        return *statement;
    }

  private:
    struct Parts {
        explicit Parts(const std::string& text) {
            const std::size_t first = text.find(sql::kRowsMark);
            const std::size_t second = text.find(sql::kRowsMark, first + 1);
            const std::size_t third = text.find(sql::kRowsMark, second + 1);
            head = text.substr(0, first);
            between = text.substr(first + 1, second - first - 1);
            row = text.substr(second + 1, third - second - 1);
            tail = text.substr(third + 1);
            renumbered([this](std::size_t number) {
                lowest = std::min(lowest, number);
                highest = std::max(highest, number);
                return number;
            });
        }
        // The row with another number for that of each ?1 and #1 outside quotes.
        template <class Number>
        std::string renumbered(const Number& number) const {
            std::string text;
            char quote = '\0';
            for (std::size_t i = 0; i < row.size(); ++i) {
                const char c = row[i];
                const bool quoted = quote != '\0';
                if (quoted ? c == quote : c == '\'' || c == '"') quote = quoted ? '\0' : c;
                if (c != '#' || quoted) text += c;
                if ((c != '?' && c != '#') || quoted) continue;
                std::size_t digits = 0;
                text += std::to_string(number(std::stoul(row.substr(i + 1), &digits)));
                i += digits;
            }
            return text;
        }
        std::string numbered(std::size_t first) const {
            return renumbered([&](std::size_t number) { return number - lowest + first; });
        }
        std::string head, between, row, tail;
        std::size_t lowest{std::string::npos};
        std::size_t highest{0};
    };
    explicit BulkStatement(Parts parts)
        : head_(parts.head),
          row_([parts](std::size_t first) { return parts.numbered(first); }),
          placeholders_(parts.highest - parts.lowest + 1),
          between_(parts.between),
          tail_(parts.tail),
          before_(parts.lowest - 1) {}

    static constexpr std::size_t kExact = 64;
    static constexpr std::size_t kMost = 512;

    const std::string head_;
    const Row row_;
    const std::size_t placeholders_;
    const std::string between_;
    const std::string tail_;
    const std::size_t before_;
    std::mutex mutex_;
    std::unordered_map<std::size_t, std::unique_ptr<const sql::Statement>> made_;
};

/// A text for each number of rows, if BulkStatement's form does not do: made once, padded as there.
class SizedStatement {
  public:
    explicit SizedStatement(std::function<std::string(std::size_t rows)> text)
        : text_(std::move(text)) {}

    /// The most rows of one statement.
    static constexpr std::size_t kMost = 512;

    /// `step`: a row has so many placeholders, of which this lists the first: "?1, ?3, ?5".
    static std::string list(std::size_t rows, std::size_t step = 1) {
        std::string text;
        for (std::size_t i = 0; i < rows; ++i) {
            text += (i > 0 ? ", ?" : "?") + std::to_string(1 + i * step);
        }
        return text;
    }

    /// `rows` as BulkStatement::padded() says.
    const sql::Statement& of(std::size_t rows) {
        std::lock_guard lock(mutex_);
        auto& statement = made_[rows];
        if (statement == nullptr) statement = std::make_unique<const sql::Statement>(text_(rows));
        return *statement;
    }

    /// If a row is one id: runs it over at most kMost of them, the last one repeated to fill up.
    Result<void> run(sql::Connection& connection, std::span<const sql::Id> ids,
                     const sql::RowVisitor& visit) {
        if (ids.empty()) return {};
        const std::size_t size = BulkStatement::padded(ids.size());
        std::vector<sql::Value> values;
        values.reserve(size);
        for (std::size_t i = 0; i < size; ++i) {
            values.push_back(sql::to_value(ids[std::min(i, ids.size() - 1)]));
        }
        HOTCOUNT_TRY(connection.run(of(size), values, &visit));
        return {};
    }

  private:
    const std::function<std::string(std::size_t rows)> text_;
    std::mutex mutex_;
    std::unordered_map<std::size_t, std::unique_ptr<const sql::Statement>> made_;
};

}  // namespace hotcount
