// The waiters of a limiter's key: a queue for each object in this process, first come first served.
// The head asks the store and the other waiters sleep, so the store's load is that of one waiter.
//
// - When the store fails two heads in a row, the other waiters get that error and send nothing: an
//   unreachable store costs each two timeouts, and a late one does not get all hits at once. In the
//   second after that, new callers queue before they ask, and one failure of the head fails all.
// - An interrupt (base/interrupt.hpp) ends a wait as `ends` does. If the head was admitted ahead,
//   its hit goes to the next waiter, or to the next caller until the hit is due.
//
// The Python queues of threads and tasks follow the same law (python/hotcount/_line.py).
//
// Thread-safe. A forked child begins without waiters.
#pragma once

#include <functional>
#include <hotcount/limiter.hpp>
#include <optional>
#include <string_view>

namespace hotcount {

/// The functions and bounds of a waiter.
struct Waiting {
    std::function<Result<Decision>()> ask;
    /// The time to sleep after a refusal, or before a hit that was admitted ahead may be used.
    /// Null: the decision is the answer.
    std::function<std::optional<Duration>(const Decision& decision, bool has_followers)> pause;
    /// When the waiter leaves the queue. Null: never.
    std::optional<SteadyTime> ends{};
    /// Whether a refusal's retry_after is certain: a waiter that ends before it gives up at once.
    bool knows_when{true};
    std::int64_t cost{1};
};

/// Returns the decision of `ask` that admits, or the last refusal. If the store failed the heads
/// before this waiter, the error says that its hit was not sent. `owner`: the object.
Result<Decision> wait_in_line(const void* owner, std::string_view key, const Waiting& waiting);
/// For the destructor of an owner: a queue may keep an admitted hit or a failure for a while, and the
/// next object at this address must not find them.
void forget_lines_of(const void* owner);
/// The number of waiters.
std::size_t waiters_in_line(const void* owner, std::string_view key);

}  // namespace hotcount
