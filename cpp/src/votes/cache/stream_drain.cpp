#include "stream_worker.hpp"

#include <algorithm>
#include <array>
#include <hotcount/detail/base/interrupt.hpp>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

namespace hotcount {
namespace {

// The part of a flush's time that is reserved for the last look.
constexpr Duration kLastLook = std::chrono::milliseconds{250};

// Votes that wait and were cast no later than `fences`, which has the last version of each shard.
std::int64_t waiting_until(std::span<const VoteStream::State> now,
                           std::span<const VoteStream::State> fences) {
    std::int64_t votes = 0;
    for (std::size_t i = 0; i < now.size(); ++i) {
        if (now[i].votes > 0 && now[i].first <= fences[i].last) votes += now[i].votes;
    }
    return votes;
}

bool has_failed(const Result<SyncRound>& round) {
    return !round && round.error().code != ErrorCode::deadline &&
           round.error().code != ErrorCode::outcome_unknown;
}

}  // namespace

const std::vector<std::size_t>& all_shards() {
    static const std::vector<std::size_t> kAll = [] {
        std::vector<std::size_t> shards(VoteStream::kShards);
        std::iota(shards.begin(), shards.end(), 0);
        return shards;
    }();
    return kAll;
}

std::int64_t all_votes(std::span<const VoteStream::State> states) {
    std::int64_t votes = 0;
    for (const VoteStream::State& state : states) votes += state.votes;
    return votes;
}

Result<StreamDrain::Drained> StreamDrain::drain(std::string_view space,
                                                std::span<const std::size_t> shards,
                                                Deadline deadline) {
    HOTCOUNT_TRY_ASSIGN(const auto begun, waiting_->stream.states(space, shards, deadline));
    Drained drained{all_votes(begun), all_votes(begun), all_votes(begun)};
    // Rounds end before it: there is time for a last look.
    const Duration left = deadline.remaining();
    const Deadline rounds = Deadline::after(left - std::min<Duration>(left / 4, kLastLook));
    while (drained.left > 0 && !rounds.passed()) {
        auto round = visitor_.get().visit(shards, rounds.remaining());
        // A vote of another stream that is written may show that the error is of one vote alone.
        if (has_failed(round) && shards.size() < VoteStream::kShards) {
            round = visitor_.get().visit(all_shards(), rounds.remaining());
        }
        auto now = waiting_->stream.states(space, shards, deadline);
        // No answer in time: the result of the previous look is the latest one.
        if (!now && now.error().code == ErrorCode::deadline) break;
        if (!now) return std::move(now).error();
        drained.left = std::min(waiting_until(*now, begun), drained.before);
        drained.at_risk = all_votes(*now);
        // The time of a round is up a little before `rounds`: the next one does the rest.
        if (has_failed(round) && drained.left > 0 && !rounds.passed()) return round.error();
        if (drained.left > 0) sleep_or_interrupt(std::chrono::milliseconds{2});
    }
    return drained;
}

Result<void> StreamDrain::write(std::string_view space, std::span<const std::size_t> shards,
                                Deadline deadline) {
    HOTCOUNT_TRY_ASSIGN(const Drained drained, drain(space, shards, deadline));
    if (drained.left == 0) return {};
    return make_error(
        ErrorCode::deadline,
        std::to_string(drained.left) +
            " votes that were cast before are still on their way to SQL: a worker "
            "has them (one that was killed leaves them to others after 30 s); nothing "
            "was applied");
}

Result<StreamDrain::Fenced> StreamDrain::settle(const sql::Id* item, Deadline deadline) {
    while (true) {
        HOTCOUNT_TRY_ASSIGN(StreamMarks::Streams streams, waiting_->streams(deadline));
        const std::vector<std::size_t> shards =
            item != nullptr ? std::vector{VoteStream::shard_of(streams.space, *item)}
                            : all_shards();
        // The fence must exceed every version that workers may have written, and the previous fence, even
        // if Redis has restored an old copy of its data or its clock is behind.
        auto beyond = streams.fence->versions;
        for (std::int64_t& version : beyond) version = std::max(version, streams.floor);
        HOTCOUNT_TRY_ASSIGN(const auto advanced,
                            waiting_->stream.advance(streams.space, shards, beyond, deadline));
        HOTCOUNT_TRY(write(streams.space, shards, deadline));
        const auto again = [&](std::span<const std::size_t> gone, std::int64_t floor) {
            beyond.fill(floor);
            return waiting_->stream.advance(streams.space, gone, beyond, deadline);
        };
        HOTCOUNT_TRY_ASSIGN(const auto fence, waiting_->marks.raise_fence(streams, shards, advanced,
                                                                          again, deadline));
        if (!fence) continue;
        std::int64_t lowest = std::numeric_limits<std::int64_t>::max();
        for (const std::size_t shard : shards) lowest = std::min(lowest, (*fence)[shard]);
        return Fenced{std::move(streams), *fence, lowest};
    }
}

}  // namespace hotcount
