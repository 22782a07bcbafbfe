// The waiters of a limiter's key: a queue for each object in this process, first come first served.
// Its head asks the store and the others sleep, so many waiters cost what one costs. When the store
// fails two heads in a row, the others get that error and send nothing: a store that is away costs
// each two timeouts, and one that is late is not asked by all at once. For a second those that come
// again are a queue from the start, and the failure of its head is everyone's. An interrupt (base/interrupt.hpp) ends a wait as its `ends` does; a hit that its head was admitted
// ahead goes to the waiter behind, or to the next caller until the hit is due. The queues of threads
// and tasks in Python follow the same law: acquire_soon() in python/hotcount/_line.py.
//
// Thread-safe. A forked child begins without waiters.
#pragma once

#include <functional>
#include <hotcount/limiter.hpp>
#include <optional>
#include <string_view>

namespace hotcount {

/// What a waiter does in its turn.
struct Waiting {
    std::function<Result<Decision>()> ask;
    /// For how long to sleep after a refusal, with waiters behind this one or not, or before a hit
    /// that was admitted ahead may be used. None: the decision is the answer.
    std::function<std::optional<Duration>(const Decision& decision, bool has_followers)> pause;
    /// When it gives up its place in the queue. None: never.
    std::optional<SteadyTime> ends{};
    /// Whether there is no room before a refusal says so: then some give up at once.
    bool knows_when{true};
    std::int64_t cost{1};
};

/// What `ask` answers when it admits, or the last refusal; an error of the heads before it says that
/// its own hit was not sent. `owner`: the object.
Result<Decision> wait_in_line(const void* owner, std::string_view key, const Waiting& waiting);
/// How many wait now.
std::size_t waiters_in_line(const void* owner, std::string_view key);

}  // namespace hotcount
