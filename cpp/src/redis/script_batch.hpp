// Many calls of one combinable script, handed in as one.
#pragma once

#include <cstddef>
#include <functional>
#include <hotcount/detail/redis/channel.hpp>
#include <string>
#include <vector>

namespace hotcount::redis {

/// What the calls have in common, and what each has of its own, one after the other. The numbers of
/// keys and arguments are multiples of the number of calls, which is at least 1.
struct Calls {
    const Script& script;
    std::size_t calls;
    std::vector<std::string> keys;
    std::vector<std::string> shared;
    std::vector<std::string> arguments;
    Repeat repeat{Repeat::never};
};

/// `settle` gets each call's reply, an error where it failed, in any order; `done` comes after the
/// last. They go in portions of 256 keys, one after the other: between them single calls pass. A
/// portion that the server refuses for one of its keys, such as one that an ACL denies, is sent again
/// in 16 parts, and such a part call by call, so that only that key's calls fail.
void submit_calls(Channel& channel, std::string server, Calls calls, Deadline deadline,
                  std::function<void(std::size_t call, Result<Reply>)> settle,
                  std::function<void()> done, const Cancelled* cancelled = nullptr);

}  // namespace hotcount::redis
