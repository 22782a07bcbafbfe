#include <hotcount/detail/base/completion.hpp>
#include <utility>
#include <vector>

namespace hotcount {
namespace {

thread_local int depth = 0;
thread_local std::vector<std::function<void()>> waiting;

}  // namespace

CompletionBatch::CompletionBatch() { ++depth; }

CompletionBatch::~CompletionBatch() {
    if (--depth > 0) return;
    for (const auto& work : std::exchange(waiting, {})) work();
}

void after_completions(std::function<void()> work) {
    if (depth > 0) {
        waiting.push_back(std::move(work));
    } else {
        work();
    }
}

}  // namespace hotcount
