// What strategy write_behind does before a call that must not overlook votes that wait, or that deletes
// votes. Thread-safe; waits in the caller's thread.
#pragma once

#include <array>
#include <hotcount/detail/base/fork.hpp>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "stream_worker.hpp"

namespace hotcount {

/// 0 to VoteStream::kShards - 1.
const std::vector<std::size_t>& all_shards();
std::int64_t all_votes(std::span<const VoteStream::State> states);

class StreamDrain {
  public:
    explicit StreamDrain(std::shared_ptr<WaitingVotes> waiting)
        : waiting_(waiting),
          visitor_([waiting = std::move(waiting)] { return make_stream_visitor(waiting); }) {}

    struct Drained {
        std::int64_t before{0};   ///< Votes that waited when it began.
        std::int64_t left{0};     ///< Of them, at the deadline.
        std::int64_t at_risk{0};  ///< All that waited at the last look.
    };
    /// Writes what was cast before, or waits for workers that have taken it. What other streams have
    /// keeps nobody waiting.
    Result<Drained> drain(std::string_view space, std::span<const std::size_t> shards,
                          Deadline deadline);
    /// The same; a deadline error if any of it is left.
    Result<void> write(std::string_view space, std::span<const std::size_t> shards,
                       Deadline deadline);

    struct Fenced {
        StreamMarks::Streams streams;
        /// Every vote up to it has been dealt with, by shard; of the item's alone if one was named.
        std::array<std::int64_t, VoteStream::kShards> versions{};
        std::int64_t lowest{0};  ///< Of the shards that are meant.
        std::int64_t of(const sql::Id& item) const {
            return versions[VoteStream::shard_of(streams.space, item)];
        }
    };
    /// Before votes are deleted, of an item or of all: writes what waits, and sees to it that none of
    /// it is written ever again.
    Result<Fenced> settle(const sql::Id* item, Deadline deadline);

  private:
    const std::shared_ptr<WaitingVotes> waiting_;
    ForkLocal<StreamVisitor> visitor_;
};

}  // namespace hotcount
