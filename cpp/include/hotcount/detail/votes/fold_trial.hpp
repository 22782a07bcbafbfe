// One fold of the journal that is rolled back: whether folds work for this login, for
// `hotcount doctor`.
#pragma once

#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/result.hpp>
#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <memory>
#include <string>
#include <string_view>

namespace hotcount {

struct FoldTrial {
    enum class Outcome : std::uint8_t {
        absent,   ///< There are no such tables, or their counts are not in a journal.
        works,    ///< A fold ran to its end.
        fails,    ///< The database refuses a fold.
        waits,    ///< Until the deadline another session had what a fold locks.
        untried,  ///< The login may not vote, or the item table has another name or other columns.
    };
    Outcome outcome{Outcome::absent};
    std::string why{};  ///< The database's words; empty with absent and works.
};
std::string_view to_string(FoldTrial::Outcome outcome);

/// Appends a journal row for the first item and folds a page of the journal, as every process that
/// votes does, in a transaction that is rolled back. It holds the fold's lock and the rows of the
/// page's items for as long as one fold takes. Fails only if the database cannot be asked.
Result<FoldTrial> try_fold(const std::shared_ptr<sql::Database>& database,
                           const VotesOptions& options, Deadline deadline);

}  // namespace hotcount
