// The ways of the seeds to add to a counter that expires, step by step, holes included (counter.hpp
// says which). What happens between two steps, and whether the next one ever happens, is where the
// holes are.
#pragma once

#include "counter/backend.hpp"

namespace hotcount {

/// Adds by options().method, which is not script.
Result<std::int64_t> add_by_seed(CounterBackend& steps, const std::string& key, std::int64_t n,
                                 Timeout timeout);

}  // namespace hotcount
