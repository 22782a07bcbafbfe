// Threads of the library's own, which nobody joins.
#pragma once

#include <functional>
#include <hotcount/result.hpp>

namespace hotcount {

/// Runs `work` in a new thread that takes no signals: a process's signals are for its own threads.
/// A capacity error where the system starts no more threads (RLIMIT_NPROC, memory, a cgroup's
/// pids.max); `work` was not run then. The caller's signal mask is as before, either way.
[[nodiscard]] Result<void> spawn_background_thread(std::function<void()> work);

}  // namespace hotcount
