// batched: the votes of concurrent callers share a transaction, and each item in it one update.
#include <algorithm>
#include <hotcount/base/check.hpp>
#include <hotcount/base/fork.hpp>

#include "sql_votes.hpp"

namespace hotcount {
namespace {

// batched writes all of an item's votes to one cell: within a database it is the only writer of
// that cell at a time, so more cells would only cost more rows.
constexpr std::int64_t kSlot = 0;

struct VoteTicket final : sql::Ticket {
    explicit VoteTicket(const Ballot& to_cast) : ballot(to_cast) {}
    const Ballot ballot;  // A copy: the caller may be gone when its deadline passed in mid-commit.
    Cast cast{};
};

class VoteWriter final : public sql::BatchWriter {
  public:
    VoteWriter(std::shared_ptr<const Layout> layout, VotesOptions options)
        : layout_(std::move(layout)), options_(std::move(options)) {}

    Result<void> write(sql::Connection& connection,
                       std::span<const std::shared_ptr<sql::Ticket>> batch) override {
        HOTCOUNT_TRY(check_place(connection, *layout_, options_));
        // By item, so that each is counted once; by user, so that pages are visited in order; and
        // stable, so that two votes of one user stay in the order in which they came.
        std::vector<VoteTicket*> votes;
        votes.reserve(batch.size());
        for (const auto& ticket : batch) votes.push_back(static_cast<VoteTicket*>(ticket.get()));
        std::stable_sort(votes.begin(), votes.end(), [](const auto* a, const auto* b) {
            return std::tie(a->ballot.item, a->ballot.user) <
                   std::tie(b->ballot.item, b->ballot.user);
        });
        for (auto first = votes.begin(); first != votes.end();) {
            const sql::Id& item = (*first)->ballot.item;
            const auto last = std::find_if(
                first, votes.end(), [&](const auto* vote) { return vote->ballot.item != item; });
            HOTCOUNT_TRY(write_item(connection, item, std::span{first, last}));
            first = last;
        }
        return {};
    }

  private:
    Result<void> write_item(sql::Connection& connection, const sql::Id& item,
                            std::span<VoteTicket* const> votes) {
        HOTCOUNT_TRY(ensure_item(connection, *layout_, options_.missing_item, item));
        std::int64_t difference = 0;
        for (VoteTicket* vote : votes) {
            auto cast = write_vote(connection, *layout_, vote->ballot);
            if (!cast) {
                // SQLite undoes the one statement and keeps the transaction, except where the
                // whole of it failed (a full disk, the deadline).
                if (!connection.in_transaction() || cast.error().code != ErrorCode::integrity) {
                    return std::move(cast).error();
                }
                vote->error = std::move(cast).error();
                continue;
            }
            vote->cast = *cast;
            const auto change = checked_subtract(cast->value, cast->previous);
            const auto sum = change ? checked_add(difference, *change) : std::nullopt;
            if (!sum) {
                return count_overflow(item);
            }
            difference = *sum;
        }
        if (difference == 0) return {};
        HOTCOUNT_TRY(bump_cell(connection, *layout_, item, kSlot, difference));
        HOTCOUNT_TRY(connection.execute(layout_->fold_item, {sql::to_value(item)}));
        return {};
    }

    const std::shared_ptr<const Layout> layout_;
    const VotesOptions options_;
};

class BatchedVotes final : public SqlVotes {
  public:
    BatchedVotes(std::shared_ptr<sql::Database> votes_database, VotesOptions votes_options)
        : SqlVotes(std::move(votes_database), std::move(votes_options)), commit_([this] {
              return std::make_unique<sql::GroupCommit>(
                  shared_database(), std::make_shared<VoteWriter>(layout(), options()),
                  options().commit);
          }) {}

    Result<Cast> cast(const Ballot& ballot, Timeout timeout) override {
        const Deadline deadline = database().deadline(timeout);
        const auto ticket = std::make_shared<VoteTicket>(ballot);
        HOTCOUNT_TRY(commit_.get().submit(ticket, deadline));
        return ticket->cast;
    }

    std::vector<Result<Cast>> cast_many(std::span<const Ballot> ballots, Timeout timeout) override {
        const Deadline deadline = database().deadline(timeout);
        std::vector<Result<Cast>> casts;
        casts.reserve(ballots.size());
        std::vector<std::shared_ptr<sql::Ticket>> tickets;
        tickets.reserve(ballots.size());
        for (const Ballot& ballot : ballots) {
            tickets.push_back(std::make_shared<VoteTicket>(ballot));
        }
        const auto results = commit_.get().submit_all(tickets, deadline);
        for (std::size_t i = 0; i < tickets.size(); ++i) {
            if (results[i]) {
                casts.emplace_back(static_cast<VoteTicket&>(*tickets[i]).cast);
            } else {
                casts.emplace_back(results[i].error());
            }
        }
        return casts;
    }

    Contract contract() const override {
        return Contract{"batched",
                        "the vote, its cell and the item's count are committed in SQL, in one "
                        "transaction with the votes of other callers",
                        "nothing acknowledged", true, true};
    }

  private:
    ForkLocal<sql::GroupCommit> commit_;
};

}  // namespace

std::shared_ptr<Votes> make_batched_votes(std::shared_ptr<sql::Database> database,
                                          VotesOptions options) {
    return std::make_shared<BatchedVotes>(std::move(database), std::move(options));
}

}  // namespace hotcount
