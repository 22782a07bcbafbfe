// Checks of a call's ids before anything is queued or sent. They refuse what no database takes, what
// would fail a transaction of many votes, and what another database would take for another id.
#pragma once

#include <cstddef>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/votes/session_statements.hpp>
#include <hotcount/votes.hpp>
#include <span>
#include <utility>
#include <vector>

namespace hotcount {

/// A config error for an id that is not of its type, or is text with a NUL, no UTF-8, or longer than
/// `most` bytes. `what` names it: "item".
Result<void> check_id(const sql::Id& id, IdType type, const char* what,
                      std::size_t most = kMaxKeyBytes);

/// A call's ballots: the good ones, and the errors of the others.
class CheckedBallots {
  public:
    CheckedBallots(std::span<const Ballot> ballots, const VotesOptions& options);

    bool all_good() const { return refused_.empty(); }
    /// The others, if some are refused.
    const std::vector<Ballot>& good() const { return good_; }
    /// What the good ones came to, with the refusals in their places.
    std::vector<Result<Cast>> merge(std::vector<Result<Cast>> results) const;

  private:
    std::size_t size_;
    std::vector<Ballot> good_{};  // Empty if all are.
    std::vector<std::pair<std::size_t, Error>> refused_{};
};

}  // namespace hotcount
