#include "vote_writer.hpp"

#include <algorithm>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/hash.hpp>
#include <hotcount/detail/sql/transaction.hpp>
#include <limits>
#include <tuple>

#include "vote_dialect.hpp"

namespace hotcount {

Result<std::optional<Cast>> VoteWriter::cast(sql::Database&, const Ballot&, std::int64_t,
                                             Deadline) {
    return std::optional<Cast>{};
}

Result<void> VoteWriter::write(sql::Connection& connection, Batch batch, sql::BatchTurn&) {
    return set_all(connection, sorted_votes(batch));
}

void QueuedVote::refuse_outside_fence() {
    outside_fence = true;
    error = make_error(ErrorCode::unavailable,
                       "votes were erased after this one was taken from its stream; it was not "
                       "written",
                       {}, SqlCondition::transaction_conflict);
}

Result<void> keep_within_fence(sql::Connection& connection, const Layout& layout,
                               std::vector<QueuedVote*>& votes) {
    if (votes.empty() || votes.front()->fence == nullptr) return {};
    HOTCOUNT_TRY_ASSIGN(const std::string fence, read_mark(connection, layout.hold_fence));
    std::erase_if(votes, [&](QueuedVote* vote) {
        const bool outside = *vote->fence != fence;
        if (outside) vote->refuse_outside_fence();
        return outside;
    });
    return {};
}

namespace {

using Found = sql::BatchWriter::Found;

// Compares the vote with its row.
Found found_in(QueuedVote& vote, const sql::Row& row) {
    const Ballot& ballot = vote.ballot;
    const std::int64_t value = row.integer(0);
    const bool row_is_older =
        ballot.version && (row.is_null(2) || row.integer(2) < *ballot.version);
    if (row_is_older) return Found::nothing_applied;
    const bool row_is_newer = ballot.version && row.integer(2) > *ballot.version;
    if (value == ballot.value && !row_is_newer) {
        const std::int64_t previous = row.integer(1);
        vote.cast = Cast{value != 0, value != previous, previous, value};
        return Found::applied;
    }
    if (!ballot.version && !ballot.by_op_id) return Found::unknown;
    vote.cast = Cast{value != 0, false, value, value};
    return Found::applied;
}

}  // namespace

Result<std::vector<Found>> find_applied_votes(
    sql::Connection& connection, const Layout& layout,
    std::span<const std::shared_ptr<sql::QueuedWrite>> batch, const NoteAppended& appended) {
    std::vector<Found> found(batch.size(), Found::nothing_applied);
    // In the order in which voters lock them.
    const std::vector<QueuedVote*> votes = sorted_votes(batch);
    const auto [of_users, anonymous] = by_table(votes);
    const auto look = [&](const sql::Statement& statement,
                          std::span<QueuedVote* const> in_table) -> Result<void> {
        for (QueuedVote* const vote : in_table) {
            const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
                found[vote->place - 1] = found_in(*vote, row);
                return {};
            };
            HOTCOUNT_TRY(connection.query(
                statement, {sql::to_value(vote->ballot.item), sql::to_value(vote->ballot.user)},
                see));
        }
        return {};
    };
    HOTCOUNT_TRY(look(layout.lock_vote, of_users));
    HOTCOUNT_TRY(look(layout.lock_anonymous_vote, anonymous));
    const auto applied = std::count(found.begin(), found.end(), Found::applied);
    if (applied > 0 && appended) appended(static_cast<std::size_t>(applied));
    return found;
}

sql::RowKeys keys_of(const Ballot& ballot) {
    // Keyed, because users choose ids and must not choose their hashes.
    const auto hash = [](const sql::Id& id, char kind) {
        return keyed_hash(kind + sql::to_string(id));
    };
    const std::uint64_t item = hash(ballot.item, 'i');
    constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
    return {item, item * kOdd + hash(ballot.user, ballot.by_op_id ? 'o' : 'u')};
}

std::vector<QueuedVote*> sorted_votes(std::span<const std::shared_ptr<sql::QueuedWrite>> batch) {
    std::vector<QueuedVote*> votes;
    votes.reserve(batch.size());
    for (const auto& write : batch) {
        votes.push_back(static_cast<QueuedVote*>(write.get()));
        votes.back()->place = votes.size();
    }
    std::stable_sort(votes.begin(), votes.end(), [](const auto* a, const auto* b) {
        return std::tie(a->ballot.item, a->ballot.user) < std::tie(b->ballot.item, b->ballot.user);
    });
    return votes;
}

std::pair<std::vector<QueuedVote*>, std::vector<QueuedVote*>> by_table(
    std::span<QueuedVote* const> votes) {
    std::pair<std::vector<QueuedVote*>, std::vector<QueuedVote*>> tables;
    tables.first.reserve(votes.size());
    for (QueuedVote* vote : votes) {
        (vote->ballot.by_op_id ? tables.second : tables.first).push_back(vote);
    }
    return tables;
}

Error explain_refusal(Error error, const Ballot& ballot, std::string_view missing) {
    error = narrow_column(std::move(error));
    if (error.code == ErrorCode::overflow || !sql::may_be_one_writes_fault(error)) return error;
    error.message += (ballot.by_op_id ? ": the vote " : ": a vote of user ") +
                     sql::to_string(ballot.user) + " for item " + sql::to_string(ballot.item);
    if (missing == "item") error.message += ", which does not exist";
    if (missing == "user") error.message += "; that user does not exist";
    if (!missing.empty()) error.about(&ErrorFacts::missing, missing);
    error.about(&ErrorFacts::item, ballot.item);
    if (!ballot.by_op_id) error.about(&ErrorFacts::user, ballot.user);
    return error;
}

// -- checks of ballots ----------------------------------------------------------------------------

namespace {

constexpr std::size_t kUuidLength = 36;

bool is_uuid(std::string_view text) {
    if (text.size() != kUuidLength) return false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        const bool hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
        if (dash ? c != '-' : !hex) return false;
    }
    return true;
}

}  // namespace

Result<void> check_id(const sql::Id& id, IdType type, const char* what, std::size_t most) {
    const auto* const text = std::get_if<std::string>(&id);
    if ((text == nullptr) != (type == IdType::integer)) {
        return make_error(ErrorCode::config, std::string{what} +
                                                 (text == nullptr ? " is an integer" : " is text") +
                                                 ", and the tables have ids of another type");
    }
    if (text == nullptr) return {};
    const auto refuse = [&](const std::string& why) {
        return make_error(ErrorCode::config,
                          std::string{what} + " " + why + ": '" + printable(*text) + "'");
    };
    if (type == IdType::uuid) {
        if (is_uuid(*text)) return {};
        return refuse("is not a UUID in lower-case hexadecimal with dashes");
    }
    if (text->find('\0') != std::string::npos) return refuse("has a NUL byte");
    if (text->size() > most) {
        return refuse("has " + std::to_string(text->size()) + " bytes, and takes at most " +
                      std::to_string(most));
    }
    if (!is_utf8(*text)) return refuse("is not valid UTF-8");
    return {};
}

Result<void> check_item(const sql::Id& item, const VotesOptions& options) {
    return check_id(item, options.item_type, "item");
}

Result<void> check_user(const sql::Id& user, const VotesOptions& options) {
    return check_id(user, options.user_type, "user");
}

Result<void> check_ballot(const Ballot& ballot, const VotesOptions& options) {
    // With this bound no sum of four billion votes leaves 64 bits, so no vote can stop a fold.
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    if (ballot.value > kMost || ballot.value < -kMost) {
        return bad_value("value", ballot.value, "it takes -2147483647 to 2147483647");
    }
    HOTCOUNT_TRY(check_item(ballot.item, options));
    // Ballot::anonymous() takes 255 characters.
    constexpr std::size_t kMostOfOpId = std::size_t{4} * 255;
    return ballot.by_op_id ? check_id(ballot.user, IdType::text, "op_id", kMostOfOpId)
                           : check_id(ballot.user, options.user_type, "user");
}

CheckedBallots::CheckedBallots(std::span<const Ballot> ballots, const VotesOptions& options)
    : size_(ballots.size()) {
    for (std::size_t i = 0; i < ballots.size(); ++i) {
        auto checked = check_ballot(ballots[i], options);
        if (checked) {
            if (!refused_.empty()) good_.push_back(ballots[i]);
            continue;
        }
        if (refused_.empty()) {
            good_.assign(ballots.begin(), ballots.begin() + static_cast<std::ptrdiff_t>(i));
        }
        refused_.emplace_back(i, std::move(checked).error());
    }
}

std::vector<Result<Cast>> CheckedBallots::merge(std::vector<Result<Cast>> results) const {
    std::vector<Result<Cast>> merged;
    merged.reserve(size_);
    auto next = results.begin();
    auto refused = refused_.begin();
    for (std::size_t i = 0; i < size_; ++i) {
        if (refused != refused_.end() && refused->first == i) {
            merged.emplace_back((refused++)->second);
        } else {
            merged.push_back(std::move(*next++));
        }
    }
    return merged;
}

}  // namespace hotcount
