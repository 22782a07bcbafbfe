#include "count_reader.hpp"

#include <algorithm>
#include <array>
#include <hotcount/detail/sql/transaction.hpp>

#include "vote_dialect.hpp"

namespace hotcount {
namespace {

std::string place_of_counts(const VoteNames& n) {
    return "(SELECT value FROM " + n.meta + " WHERE name = 'counted_in')";
}

}  // namespace

std::string select_count(const VoteNames& n, CountPlace place, const std::string& item,
                         const std::string& number) {
    const std::string cells = sum_over(n.cell, "item", item, "n");
    if (place == CountPlace::journal) {
        return "SELECT " + number + ", " + cells + " + COALESCE(SUM(diff), 0), " +
               place_of_counts(n) + ", COUNT(*) FROM " + n.journal + " WHERE item = " + item;
    }
    return "SELECT " + number + ", " +
           (place == CountPlace::item ? sum_over(n.item, n.id, item, n.count) : cells) + ", " +
           place_of_counts(n) + ", 0";
}

CountReader::CountReader(const VotesOptions& options, sql::Dialect dialect)
    : CountReader(options, VoteNames{options, dialect.grammar()}, vote_dialect(dialect)) {}

CountReader::CountReader(const VotesOptions& options, const VoteNames& n, const VoteDialect& d)
    : options_(options),
      dialect_(d),
      place_(to_string(count_place(options, d.grammar().dialect()))),
      of_array_(d.read_counts_of_array(options, n)),
      of_each_(d.read_counts(options, n)) {}

bool CountReader::takes_one_statement(std::size_t items) const {
    if (serializable_.load(std::memory_order_relaxed)) return false;
    return of_array_ || items <= dialect_.most_counts();
}

Result<std::vector<std::int64_t>> CountReader::read(sql::Database& database,
                                                    std::span<const sql::Id> items,
                                                    Deadline deadline, std::size_t& summed) {
    using Counts = Result<std::vector<std::int64_t>>;
    if (takes_one_statement(items.size())) {
        return sql::read_statement(database, deadline, [&](sql::Connection& connection) -> Counts {
            return read(
                [&](const auto& statement, auto values, const auto& visit) -> Result<void> {
                    HOTCOUNT_TRY(connection.read_alone(statement, values, &visit, deadline));
                    return {};
                },
                items, summed);
        });
    }
    return sql::read_snapshot(database, deadline, [&](sql::Connection& connection) -> Counts {
        return read(
            [&](const auto& statement, auto values, const auto& visit) -> Result<void> {
                HOTCOUNT_TRY(connection.run(statement, values, &visit));
                return {};
            },
            items, summed);
    });
}

Result<std::vector<std::int64_t>> CountReader::read(const Run& run_one,
                                                    std::span<const sql::Id> items,
                                                    std::size_t& summed) {
    std::vector<std::int64_t> counts(items.size(), 0);
    std::span<const sql::Id> part;
    std::size_t done = 0;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        const auto index = static_cast<std::size_t>(row.integer(0)) - 1;
        const std::string_view found = row.is_null(2) ? std::string_view{} : row.text(2);
        if (found != place_) {
            return wrong_place(options_, found, dialect_.grammar().dialect());
        }
        if (of_array_ && row.integer(4) != 0) serializable_.store(true, std::memory_order_relaxed);
        summed += static_cast<std::size_t>(row.integer(3));
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
        auto asked = run_one(statement, values, see);
        return asked ? Result<void>{} : explain_missing_table(std::move(asked).error());
    };
    if (of_array_ && items.size() > dialect_.most_counts()) {
        part = items;
        const std::string array = dialect_.id_array(items);
        HOTCOUNT_TRY(run(*of_array_, std::array<sql::Value, 1>{std::string_view{array}}));
        return counts;
    }
    const std::size_t most = dialect_.most_counts();
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
