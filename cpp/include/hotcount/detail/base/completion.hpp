// Completions: the functions that receive the outcomes of asynchronous calls.
#pragma once

#include <functional>
#include <hotcount/result.hpp>
#include <optional>
#include <utility>

namespace hotcount {

/// Called exactly once, with the value or the error. Each asynchronous call documents which thread
/// calls its completion, and whether before the call returns. A completion must not throw.
template <class T>
using Completion = std::function<void(Result<T>)>;

/// The outcome of a call that calls its completion before it returns (AsyncCall::waits).
template <class T, class Call>
Result<T> wait_for(Call&& call) {
    std::optional<Result<T>> outcome;
    call([&](Result<T> result) { outcome.emplace(std::move(result)); });
    return std::move(*outcome);
}

/// Exists while its thread calls several completions one after the other.
///
/// Completions pass work that is needed once for the whole batch, such as waking the thread that
/// takes their results, to after_completions(). Batches nest; the outermost one runs the work.
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
