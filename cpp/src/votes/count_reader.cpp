#include "count_reader.hpp"

#include <algorithm>
#include <array>

#include "postgres_ballots.hpp"
#include "sql_votes.hpp"

namespace hotcount {
namespace {

// A SELECT of an item's number, its count and the place, `item` being SQL for its id.
std::string select_count(const VoteNames& n, CountPlace place, const std::string& item,
                         const std::string& number) {
    std::string count = sum_over(n.cell, "item", item, "n");
    if (place == CountPlace::item) {
        count = sum_over(n.item, n.id, item, n.count);
    } else if (place == CountPlace::journal) {
        count = journal_sum(n, item);
    }
    return "SELECT " + number + ", " + count + ", (SELECT value FROM " + n.meta +
           " WHERE name = 'counted_in')";
}

}  // namespace

CountReader::CountReader(const VotesOptions& options, sql::Dialect dialect)
    : CountReader(options, VoteNames{options, sql::Grammar{dialect}}, sql::Grammar{dialect}) {}

CountReader::CountReader(const VotesOptions& options, const VoteNames& n, const sql::Grammar& g)
    : options_(options),
      dialect_(g.dialect()),
      place_(to_string(count_place(options.strategy, dialect_))),
      of_each_(
          "",
          [n, place = count_place(options.strategy, dialect_)](std::size_t first) {
              const std::string number = std::to_string(first);
              return select_count(n, place, "?" + number, number);
          },
          1, " UNION ALL ", "") {
    if (dialect_ != sql::Dialect::postgres) return;
    of_array_.emplace(
        select_count(n, count_place(options.strategy, dialect_), "hc_b.item", "hc_b.number") +
        " FROM unnest(" + array_of(options.item_type, "?1") +
        ") WITH ORDINALITY AS hc_b (item, number)");
}

Result<std::vector<std::int64_t>> CountReader::read(sql::Connection& connection,
                                                    std::span<const sql::Id> items) {
    std::vector<std::int64_t> counts(items.size(), 0);
    std::span<const sql::Id> part;
    std::size_t done = 0;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        const auto index = static_cast<std::size_t>(row.integer(0)) - 1;
        const std::string_view found = row.is_null(2) ? std::string_view{} : row.text(2);
        if (found != place_) {
            return wrong_place(options_.vote_table, found, options_.strategy, dialect_);
        }
        if (index >= part.size()) return {};  // Repeated, to fill the statement up.
        if (!row.is_integer(1)) {
            return make_error(ErrorCode::overflow, "the count of item " +
                                                       sql::to_string(part[index]) +
                                                       " is not a signed 64-bit integer");
        }
        counts[done + index] = row.integer(1);
        return {};
    };
    const auto run = [&](const sql::Statement& statement,
                         std::span<const sql::Value> values) -> Result<void> {
        auto asked = connection.run(statement, values, &see);
        return asked ? Result<void>{} : explain_missing_table(std::move(asked).error());
    };
    if (of_array_) {
        part = items;
        const std::string array = array_literal(items);
        HOTCOUNT_TRY(run(*of_array_, std::array<sql::Value, 1>{std::string_view{array}}));
        return counts;
    }
    // A server's trip is worth a longer text. SQLite has none, and one text is enough there.
    const std::size_t most = dialect_ == sql::Dialect::sqlite ? 1 : 64;
    std::vector<sql::Value> values;
    for (; done < items.size(); done += part.size()) {
        part = items.subspan(done, std::min(most, items.size() - done));
        values.clear();
        for (std::size_t i = 0; i < BulkStatement::padded(part.size()); ++i) {
            values.push_back(sql::to_value(part[std::min(i, part.size() - 1)]));
        }
        HOTCOUNT_TRY(run(of_each_.of(values.size()), values));
    }
    return counts;
}

}  // namespace hotcount
