// How a call that nobody waits for gives its outcome: it calls a Completion.
#pragma once

#include <functional>
#include <hotcount/result.hpp>
#include <optional>
#include <utility>

namespace hotcount {

/// Called exactly once, with the value or the error. Each call documents which thread calls it, and
/// whether that may happen before the call returns. It must not throw.
template <class T>
using Completion = std::function<void(Result<T>)>;

/// The outcome of a call that calls its completion before it returns (AsyncCall::waits).
template <class T, class Call>
Result<T> wait_for(Call&& call) {
    std::optional<Result<T>> outcome;
    call([&](Result<T> result) { outcome.emplace(std::move(result)); });
    return std::move(*outcome);
}

/// Lives while its thread calls completions one after the other.
///
/// What the completions want done once for all of them, such as to wake the thread that takes their
/// results, they give to after_completions(). Batches nest; the outermost counts.
class CompletionBatch {
  public:
    CompletionBatch();
    CompletionBatch(const CompletionBatch&) = delete;
    CompletionBatch& operator=(const CompletionBatch&) = delete;
    ~CompletionBatch();
};

/// Runs `work` at the end of this thread's batch, or at once if there is none. It must not throw.
void after_completions(std::function<void()> work);

}  // namespace hotcount
