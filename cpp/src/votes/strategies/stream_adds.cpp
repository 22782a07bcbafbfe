#include "stream_adds.hpp"

#include <algorithm>
#include <array>
#include <hotcount/detail/base/check.hpp>
#include <iterator>
#include <set>
#include <utility>

namespace hotcount {
namespace {

using Added = VoteStream::Added;
using Casts = std::vector<Result<Cast>>;

// A stream that is gone again each time that it was made, because Redis loses its data, or that has
// another primary each time.
constexpr int kMostAttempts = 3;

Cast waiting_cast(const Ballot& ballot) {
    return Cast{ballot.value != 0, false, 0, ballot.value, true};
}

// All of them share the error.
void fill_up(Casts& casts, std::size_t size, Error why) {
    std::fill_n(std::back_inserter(casts), size - casts.size(), Result<Cast>{std::move(why)});
}

Error versions_are_ours() {
    return bad_option(
        "version",
        "must be None for strategy 'write_behind', which orders votes by the ids that "
        "Redis gives them");
}

// Of a stream. Of the vote it is certain that it is not.
Error not_applied(Error error) {
    if (error.code != ErrorCode::outcome_unknown) return error;
    error.code = ErrorCode::deadline;
    error.message += "; that is about the stream, and the vote was not applied";
    return error;
}

}  // namespace

// Votes on their way to Redis.
struct StreamAdds::Call {
    Call(std::span<const Ballot> votes, Deadline until) : ballots(votes), deadline(until) {
        casts.reserve(ballots.size());
        for (std::size_t i = 0; i < ballots.size(); ++i) {
            if (ballots[i].version && !ballots[i].by_op_id) {
                casts.emplace_back(versions_are_ours());
            } else {
                casts.emplace_back(waiting_cast(ballots[i]));
                open.push_back(i);
            }
        }
    }
    // A vote that was added before may be applied, whatever its later attempt ended with.
    Error of_vote(Error error) const {
        if (!behind) return error;
        error.code = ErrorCode::outcome_unknown;
        error.message +=
            "; the item's stream has another primary, and the vote may or may not be applied";
        return error;
    }
    void fail(const Error& error) {
        const Result<Cast> failed{of_vote(error)};
        for (const std::size_t i : open) casts[i] = failed;
        open.clear();
    }

    // In a cluster, the streams of the votes that are open, if their terms are not those of `terms`.
    std::set<std::size_t> unsettled(std::string_view space, const VoteStream& stream) const {
        std::set<std::size_t> shards;
        if (!stream.in_cluster()) return shards;
        for (const std::size_t i : open) {
            shards.insert(VoteStream::shard_of(space, ballots[i].item));
        }
        std::erase_if(shards,
                      [&](std::size_t shard) { return stream.term(space, shard) == terms[shard]; });
        return shards;
    }

    // Keeps `open` the votes that are to be added again, because their stream was missing, or has a
    // primary that this process has not settled, whose ids may be behind: a vote twice in a stream is
    // one vote. A stream is settled after a first vote, not before: open() would hold the marks in SQL,
    // and the votes of other nodes, until a primary that is away answers.
    void end_attempt(std::string_view space, const VoteStream& stream) {
        const std::set<std::size_t> moved = unsettled(space, stream);
        for (std::size_t at = 0; at < open.size(); ++at) {
            if (added[at] != Added::unborn && (added[at] != Added::added || moved.empty()))
                continue;
            const std::size_t shard = VoteStream::shard_of(space, ballots[open[at]].item);
            if (added[at] == Added::added && !moved.contains(shard)) continue;
            unborn.insert(shard);
            behind = behind || added[at] == Added::added;
        }
        // All votes of such a stream again, also those added after another process made it: they
        // keep their order.
        std::erase_if(open, [&](std::size_t i) {
            return unborn.count(VoteStream::shard_of(space, ballots[i].item)) == 0;
        });
        if (++attempts < kMostAttempts) return;
        fail(make_error(ErrorCode::unavailable,
                        behind ? "the stream of the item has moved again and again"
                               : "Redis has lost the stream of the item again and again; nothing "
                                 "was applied"));
    }

    const std::span<const Ballot> ballots;
    const Deadline deadline;
    Casts casts{};
    std::vector<std::size_t> open{};            // Without an outcome.
    std::vector<std::optional<Added>> added{};  // Of those in `open`, in this attempt.
    std::set<std::size_t> unborn{};  // Shards of all in `open` that were tried before, ...
    SteadyTime sent{};               // ... then.
    VoteStream::Terms terms{};       // WaitingVotes::settled_terms(), then.
    bool behind{false};              // Some were added in another term.
    int attempts{0};
};

struct StreamAdds::KeptVotes {
    std::vector<Ballot> kept;
};

// A call for which no thread waits.
struct StreamAdds::LateCall : KeptVotes, Call {
    LateCall(std::span<const Ballot> votes, Deadline until, std::function<void(Casts)> told)
        : KeptVotes{{votes.begin(), votes.end()}}, Call(kept, until), done(std::move(told)) {}
    std::function<void(Casts)> done;
};

// Many votes, a LateCall for each portion.
struct StreamAdds::LargeCall : KeptVotes {
    LargeCall(std::span<const Ballot> votes, Deadline to_send, std::function<void(Casts)> told)
        : KeptVotes{{votes.begin(), votes.end()}}, until(to_send), done(std::move(told)) {
        casts.reserve(kept.size());
    }
    const Deadline until;
    const std::function<void(Casts)> done;
    Casts casts{};
    std::atomic<int> open{0};  // Until a portion is answered, and until it was handed in.
};

StreamAdds::StreamAdds(std::shared_ptr<WaitingVotes> waiting, const std::string& database)
    : waiting_(std::move(waiting)), late_([this, database] {
          return std::make_unique<Late>(database, waiting_->options.commit.max_queue);
      }) {}

Deadline StreamAdds::begin(std::size_t ballots, Deadline deadline) {
    if (!portion_.is_large(ballots)) portion_.note_other();
    return time_to_send(deadline, ballots);
}

Casts StreamAdds::add(std::span<const Ballot> ballots, Deadline deadline) {
    const Deadline until = begin(ballots.size(), deadline);
    if (!portion_.is_large(ballots.size())) return add_portion(ballots, until);
    Casts casts;
    casts.reserve(ballots.size());
    while (casts.size() < ballots.size() && !until.passed()) {
        const std::size_t size = portion_.next(ballots.size() - casts.size());
        auto told = add_portion(ballots.subspan(casts.size(), size), until);
        std::move(told.begin(), told.end(), std::back_inserter(casts));
    }
    if (casts.size() < ballots.size()) fill_up(casts, ballots.size(), late());
    return casts;
}

void StreamAdds::add_async(std::span<const Ballot> ballots, Deadline deadline,
                           std::function<void(Casts)> done) {
    const Deadline until = begin(ballots.size(), deadline);
    if (!portion_.is_large(ballots.size())) {
        return add_portion_async(ballots, until, std::move(done));
    }
    go_on(std::make_shared<LargeCall>(ballots, until, std::move(done)));
}

// Sends the next portion, and further ones as long as each is answered at once.
void StreamAdds::go_on(const std::shared_ptr<LargeCall>& call) {
    const std::size_t all = call->kept.size();
    do {
        const std::size_t begun = call->casts.size();
        if (begun < all && call->until.passed()) {
            fill_up(call->casts, all, late());
        }
        if (call->casts.size() == all) return call->done(std::move(call->casts));
        call->open.store(2, std::memory_order_relaxed);
        const auto portion = std::span{call->kept}.subspan(begun, portion_.next(all - begun));
        add_portion_async(portion, call->until, [self = shared_from_this(), call](Casts told) {
            std::move(told.begin(), told.end(), std::back_inserter(call->casts));
            if (call->open.fetch_sub(1, std::memory_order_acq_rel) == 1) self->go_on(call);
        });
    } while (call->open.fetch_sub(1, std::memory_order_acq_rel) == 1);
}

Error StreamAdds::late() const {
    return make_error(ErrorCode::deadline,
                      waiting_->stream.client().options().address() +
                          ": the deadline passed before it was sent; nothing was applied");
}

Casts StreamAdds::add_portion(std::span<const Ballot> ballots, Deadline deadline) {
    Call call{ballots, deadline};
    while (!call.open.empty()) {
        const std::string space = prepare(call);
        if (call.open.empty()) break;
        send(call, space, waiting_->stream.client().waiting(), [] {});
        call.end_attempt(space, waiting_->stream);
    }
    return std::move(call.casts);
}

void StreamAdds::add_portion_async(std::span<const Ballot> ballots, Deadline deadline,
                                   std::function<void(Casts)> done) {
    const auto call = std::make_shared<LateCall>(ballots, deadline, std::move(done));
    const std::string space = waiting_->known_space();
    // Calls that need SQL first run one after the other; later calls queue behind them.
    if (space.empty() || late_.get().calls.load() > 0 || call->open.size() != ballots.size() ||
        ballots.empty()) {
        return send_late(call);
    }
    send_async(call, space);
}

// Makes the missing streams, and moves those of new primaries, of votes that were tried before.
// Returns the streams' name; votes that cannot be added get an error.
std::string StreamAdds::prepare(Call& call) {
    auto space = waiting_->space(call.deadline);
    if (!space) {
        call.fail(not_applied(std::move(space).error()));
        return {};
    }
    for (const std::size_t shard : std::exchange(call.unborn, {})) {
        const auto opened = waiting_->open(*space, shard, call.sent, call.deadline);
        if (opened) continue;
        if (opened.error().code == ErrorCode::config) {
            // The tables may have been switched to another strategy and back.
            auto now = waiting_->streams(call.deadline);
            if (now && now->space != *space) return std::move(now->space);
        }
        std::erase_if(call.open, [&](std::size_t i) {
            const bool refused = VoteStream::shard_of(*space, call.ballots[i].item) == shard;
            if (refused) call.casts[i] = call.of_vote(not_applied(opened.error()));
            return refused;
        });
    }
    return *std::move(space);
}

// `call` must live until `done`.
void StreamAdds::send(Call& call, std::string_view space, redis::Channel& channel,
                      std::function<void()> done) {
    std::vector<Ballot> some;
    if (call.open.size() != call.ballots.size()) {
        for (const std::size_t i : call.open) some.push_back(call.ballots[i]);
    }
    call.added.assign(call.open.size(), std::nullopt);
    call.sent = waiting_->now();
    call.terms = waiting_->settled_terms();
    waiting_->stream.add(
        space, some.empty() ? call.ballots : std::span<const Ballot>{some}, channel, call.deadline,
        [this, &call](std::size_t at, Result<Added> added) {
            const std::size_t i = call.open[at];
            if (added) call.added[at] = *added;
            note(call.ballots[i], std::move(added), call.casts[i]);
            if (!call.casts[i]) call.casts[i] = call.of_vote(call.casts[i].error());
        },
        std::move(done));
}

void StreamAdds::note(const Ballot& ballot, Result<Added> added, Result<Cast>& cast) const {
    if (!added) {
        cast = failed_as<Cast>(added);
    } else if (*added == Added::full) {
        cast = make_error(ErrorCode::capacity,
                          std::to_string(waiting_->options.max_pending) +
                              " votes wait in the stream of item " + sql::to_string(ballot.item) +
                              " (max_pending): do workers run? Nothing was applied");
    } else {
        cast = waiting_cast(ballot);
    }
}

void StreamAdds::send_async(const std::shared_ptr<LateCall>& call, std::string_view space) {
    send(*call, space, waiting_->stream.client().without_waiting(),
         [self = shared_from_this(), call, space = std::string{space}] {
             call->end_attempt(space, self->waiting_->stream);
             if (call->open.empty()) return call->done(std::move(call->casts));
             self->send_late(call);
         });
}

// Runs in the thread for calls that need SQL. It waits for SQL, not for Redis: one call per round
// trip would be slower than a caller that sends in a loop, so the queue would never become empty.
void StreamAdds::send_late(const std::shared_ptr<LateCall>& call) {
    Late& late = late_.get();
    late.calls.fetch_add(1);
    late.thread.run(
        call->deadline,
        [self = shared_from_this(), &late, call] {
            const std::string space = self->prepare(*call);
            const bool open = !call->open.empty();
            // Before the next one, and before it is counted out: votes keep their order.
            if (open) self->send_async(call, space);
            late.calls.fetch_sub(1);
            if (!open) call->done(std::move(call->casts));
        },
        [self = shared_from_this(), &late, call](const Error& error) {
            late.calls.fetch_sub(1);
            call->fail(error);
            call->done(std::move(call->casts));
        });
}

}  // namespace hotcount
