// Adds to many keys over any channel.
#pragma once

#include <cstdint>
#include <hotcount/detail/base/column.hpp>
#include <hotcount/detail/redis/channel.hpp>
#include <string>
#include <vector>

namespace hotcount::redis {

/// An element's error, with its key in it.
using AboutKey = Error (*)(const std::string& key, const Error& error);

/// INCRBY for each key, which may repeat; `done` gets the value after each, in order per key.
/// Goes in portions of 1,000 elements, one after the other: between them single calls pass. In a
/// portion the adds of one key travel as one command. What a portion meets is what its elements
/// are told; the next is sent all the same. `server` is what errors call it.
void submit_adds(Channel& channel, std::string server, AboutKey about,
                 std::vector<std::string> keys, std::vector<std::int64_t> amounts,
                 Deadline deadline, Completion<Column<std::int64_t>> done,
                 const Cancelled* cancelled = nullptr);

}  // namespace hotcount::redis
