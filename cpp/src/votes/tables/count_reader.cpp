#include "count_reader.hpp"

#include <algorithm>
#include <array>
#include <hotcount/detail/sql/transaction.hpp>
#include <unordered_map>

#include "hotcount_embedded/votes/sql.hpp"
#include "sync_pages.hpp"
#include "vote_dialect.hpp"

namespace hotcount {
namespace {

sql::Statements reads_of(const VoteNames& n, const sql::Grammar& g, CountPlace place) {
    return vote_statements(vote_sql::kReadsSql, n, g,
                           {{"in_item", sql::flag(place == CountPlace::item)},
                            {"in_journal", sql::flag(place == CountPlace::journal)}});
}

}  // namespace

std::string select_count(const VoteNames& n, const sql::Grammar& g, CountPlace place,
                         const std::string& item, const std::string& number) {
    return reads_of(n, g, place).call("count_of_item", {item, number});
}

std::string select_counts(const VoteNames& n, const sql::Grammar& g, CountPlace place) {
    return reads_of(n, g, place).call("for_each_row", {select_count(n, g, place, "?1", "#1")});
}

CountReader::CountReader(const VotesOptions& options, sql::Dialect dialect)
    : CountReader(options, VoteNames{options, dialect.grammar()}, vote_dialect(dialect)) {}

CountReader::CountReader(const VotesOptions& options, const VoteNames& n, const VoteDialect& d)
    : options_(options),
      dialect_(d),
      place_(to_string(count_place(options, d.grammar().dialect()))),
      of_array_(d.read_counts_of_array(options, n)),
      of_each_(d.read_counts(options, n)),
      grouped_(reads_of(n, d.grammar(),
                        count_place(options, d.grammar().dialect()))["grouped_counts"]) {}

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
        return read_in(connection, items, summed);
    });
}

Result<std::vector<std::int64_t>> CountReader::read_in(sql::Connection& connection,
                                                       std::span<const sql::Id> items,
                                                       std::size_t& summed) {
    return read(
        [&](const auto& statement, auto values, const auto& visit) -> Result<void> {
            HOTCOUNT_TRY(connection.run(statement, values, &visit));
            return {};
        },
        items, summed);
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
    // A server is worth it, and two texts may be one id to it.
    const bool in_groups = most > 1 && items.size() > most && options_.item_type != IdType::text;
    for (; done < items.size(); done += part.size()) {
        if (in_groups) {
            part = items.subspan(done, BulkStatement::padded_portion(items.size() - done));
            HOTCOUNT_TRY_ASSIGN(const auto found, read_grouped(run_one, part, summed));
            if (found) {
                std::copy(found->begin(), found->end(), counts.begin() + std::ptrdiff_t(done));
                continue;
            }
        }
        part = items.subspan(done, std::min(most, items.size() - done));
        const auto values = BulkStatement::padded_values(part);
        HOTCOUNT_TRY(run(of_each_.of(values.size()), values));
    }
    return counts;
}

Result<std::optional<std::vector<std::int64_t>>> CountReader::read_grouped(
    const Run& run_one, std::span<const sql::Id> items, std::size_t& summed) {
    std::unordered_map<sql::Id, std::int64_t> found;
    for (const sql::Id& item : items) found.try_emplace(item, 0);
    bool all_known = true;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        const std::string_view place = row.is_null(2) ? std::string_view{} : row.text(2);
        if (place != place_) return wrong_place(options_, place, dialect_.grammar().dialect());
        if (row.is_null(0)) return {};
        summed += static_cast<std::size_t>(row.integer(3));
        const auto item = found.find(row.id(0));
        if (item == found.end()) {
            all_known = false;
            return {};
        }
        if (!row.is_integer(1)) {
            return make_error(ErrorCode::overflow, "the count of item " +
                                                       sql::to_string(item->first) +
                                                       " is not a signed 64-bit integer");
        }
        item->second = row.integer(1);
        return {};
    };
    const auto values = BulkStatement::padded_values(items);
    auto asked = run_one(grouped_.of(values.size()), values, see);
    if (!asked) return explain_missing_table(std::move(asked).error());
    if (!all_known) return std::optional<std::vector<std::int64_t>>{};
    std::vector<std::int64_t> counts;
    counts.reserve(items.size());
    for (const sql::Id& item : items) counts.push_back(found[item]);
    return std::optional{std::move(counts)};
}

// -- defaults of VoteDialect ----------------------------------------------------------------------

std::string VoteDialect::fold_lagging(const VoteNames& n) const {
    return vote_statements(vote_sql::kCountsSql, n, grammar())["fold_lagging"];
}

BulkStatement VoteDialect::read_counts(const VotesOptions& options, const VoteNames& n) const {
    return BulkStatement{select_counts(n, grammar(), count_place(options, grammar().dialect()))};
}

std::unique_ptr<SyncPages> VoteDialect::sync_pages(const VotesOptions&, const VoteNames&) const {
    return nullptr;
}

}  // namespace hotcount
