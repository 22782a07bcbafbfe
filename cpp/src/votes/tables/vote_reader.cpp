#include "vote_reader.hpp"

#include <algorithm>
#include <array>
#include <hotcount/detail/sql/transaction.hpp>
#include <utility>

#include "count_place.hpp"
#include "hotcount_embedded/votes/sql.hpp"
#include "vote_dialect.hpp"

namespace hotcount {
namespace {

// Items in one statement: of an array, and where each has a placeholder.
constexpr std::size_t kArrayPage = 10'000;
constexpr std::size_t kPage = 512;

}  // namespace

VoteReader::VoteReader(const VotesOptions& options, sql::Dialect dialect)
    : VoteReader(options, VoteNames{options, dialect.grammar()}, vote_dialect(dialect)) {}

VoteReader::VoteReader(const VotesOptions& options, const VoteNames& n, const VoteDialect& dialect)
    : VoteReader(dialect, dialect.get_of_array(options, n),
                 vote_statements(vote_sql::kReadsSql, n, dialect.grammar())) {}

VoteReader::VoteReader(const VoteDialect& dialect, std::optional<sql::Statement> get_of_array,
                       const sql::Statements& sql)
    : dialect_(dialect),
      get_(sql["get"]),
      get_of_array_(std::move(get_of_array)),
      get_of_each_(sql["votes_of_user"]),
      first_voters_(sql.with("voters", {{"after", ""}})),
      next_voters_(sql.with("voters", {{"after", "1"}})),
      tally_(sql["tally"]),
      top_(sql["top"]) {}

VoteReader::Run VoteReader::alone(sql::Database& database, Deadline deadline) {
    return [&database, deadline](const auto& statement, auto values,
                                 const auto& visit) -> Result<void> {
        const auto read = [&](sql::Connection& connection) -> Result<void> {
            auto done = connection.read_alone(statement, values, &visit, deadline);
            return done ? Result<void>{} : explain_missing_table(std::move(done).error());
        };
        return sql::read_statement(database, deadline, read);
    };
}

VoteReader::Run VoteReader::in(sql::Connection& connection) {
    return [&connection](const auto& statement, auto values, const auto& visit) -> Result<void> {
        auto done = connection.run(statement, values, &visit);
        return done ? Result<void>{} : explain_missing_table(std::move(done).error());
    };
}

Result<std::int64_t> VoteReader::get(sql::Database& database, const sql::Id& item,
                                     const sql::Id& user, Deadline deadline) {
    std::int64_t vote = 0;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        vote = row.integer(0);
        return {};
    };
    HOTCOUNT_TRY(
        alone(database, deadline)(get_, std::array{sql::to_value(item), sql::to_value(user)}, see));
    return vote;
}

Result<void> VoteReader::read_page(const Run& run, std::span<const sql::Id> items,
                                   const sql::Id& user, std::vector<std::int64_t>& votes) {
    if (get_of_array_) {
        const std::string array = dialect_.id_array(items);
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            votes.push_back(row.is_null(0) ? 0 : row.integer(0));
            return {};
        };
        return run(*get_of_array_,
                   std::array{sql::Value{std::string_view{array}}, sql::to_value(user)}, see);
    }
    // Padded, so that few texts are prepared; the last item is repeated.
    const auto values = BulkStatement::padded_values(items, std::array{sql::to_value(user)});
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        for (int i = 0; i < static_cast<int>(items.size()); ++i) {
            votes.push_back(row.is_null(i) ? 0 : row.integer(i));
        }
        return {};
    };
    return run(get_of_each_.of(values.size() - 1), values, see);
}

Result<std::vector<std::int64_t>> VoteReader::get_many(sql::Database& database,
                                                       std::span<const sql::Id> items,
                                                       const sql::Id& user, Deadline deadline) {
    using Page = Result<std::vector<std::int64_t>>;
    const std::size_t page = get_of_array_ ? kArrayPage : kPage;
    if (items.empty()) return std::vector<std::int64_t>{};
    if (items.size() <= page) {
        return sql::read_statement(database, deadline, [&](sql::Connection& connection) -> Page {
            std::vector<std::int64_t> votes;
            const auto run = [&](const auto& statement, auto values,
                                 const auto& visit) -> Result<void> {
                auto done = connection.read_alone(statement, values, &visit, deadline);
                return done ? Result<void>{} : explain_missing_table(std::move(done).error());
            };
            HOTCOUNT_TRY(read_page(run, items, user, votes));
            return votes;
        });
    }
    return sql::read_snapshot(database, deadline, [&](sql::Connection& connection) -> Page {
        std::vector<std::int64_t> votes;
        votes.reserve(items.size());
        for (auto left = items; !left.empty();) {
            const auto part = left.first(std::min(page, left.size()));
            left = left.subspan(part.size());
            HOTCOUNT_TRY(read_page(in(connection), part, user, votes));
        }
        return votes;
    });
}

Result<std::vector<Voter>> VoteReader::voters(const Run& run, const sql::Id& item,
                                              const std::optional<sql::Id>& after,
                                              std::size_t limit) const {
    std::vector<Voter> page;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        page.push_back({row.id(0), row.integer(1)});
        return {};
    };
    std::vector<sql::Value> values{sql::to_value(item)};
    if (after) values.push_back(sql::to_value(*after));
    values.emplace_back(static_cast<std::int64_t>(limit));
    HOTCOUNT_TRY(run(after ? next_voters_ : first_voters_, values, see));
    return page;
}

Result<Tally> VoteReader::tally(const Run& run, const sql::Id& item) const {
    Tally tally{0, 0, 0};
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        tally = {row.integer(0), row.integer(1), row.integer(2)};
        return {};
    };
    HOTCOUNT_TRY(run(tally_, std::array{sql::to_value(item)}, see));
    return tally;
}

Result<std::vector<sql::Id>> VoteReader::top(const Run& run, std::size_t n) const {
    std::vector<sql::Id> items;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        items.push_back(row.id(0));
        return {};
    };
    HOTCOUNT_TRY(run(top_, std::array{sql::Value{static_cast<std::int64_t>(n)}}, see));
    return items;
}

}  // namespace hotcount
