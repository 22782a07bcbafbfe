// What a call that does not wait hands its outcome to.
#pragma once

#include <functional>
#include <hotcount/result.hpp>

namespace hotcount {

/// Called exactly once, with the value or what is known. The call says in which thread, and
/// whether it may be called before the call returns. It must not throw.
template <class T>
using Completion = std::function<void(Result<T>)>;

/// Lives while its thread calls completions one after the other.
///
/// What they would do once for all of them, such as waking the thread that takes their results,
/// they hand to after_completions(). Nests: the outermost counts.
class CompletionBatch {
  public:
    CompletionBatch();
    CompletionBatch(const CompletionBatch&) = delete;
    CompletionBatch& operator=(const CompletionBatch&) = delete;
    ~CompletionBatch();
};

/// Runs `work` at the end of this thread's batch; at once where there is none. It must not throw.
void after_completions(std::function<void()> work);

}  // namespace hotcount
