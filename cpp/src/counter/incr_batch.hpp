// INCRBY of many keys over any channel of a Redis client: what add_many() of a counter sends.
#pragma once

#include <cstdint>
#include <hotcount/detail/redis/channel.hpp>
#include <hotcount/result.hpp>
#include <string>
#include <vector>

namespace hotcount {

struct IncrBatch {
    std::string server;  ///< What errors call the server.
    /// Makes the error of an element, with its key in it.
    Error (*about)(const std::string& key, const Error& error);
    std::vector<std::string> keys;  ///< A key may occur more than once.
    std::vector<std::int64_t> amounts;
};

/// Sends the batch; `done` gets the value after each add, in order for each key. The adds travel in
/// portions of 1,000, one portion after the other, so that calls of others pass in between. In a
/// portion the adds of one key travel as one command. When a portion fails its elements get its
/// error, and the next portion is sent all the same.
void submit_incr_batch(redis::Channel& channel, IncrBatch batch, Deadline deadline,
                       Completion<BatchResult<std::int64_t>> done,
                       const redis::Cancelled* cancelled = nullptr);

}  // namespace hotcount
