// Denials that this process remembers (LimiterOptions::deny_cache): a key that is denied for a minute
// need not be asked about for a minute.
//
// Thread-safe. A forked child begins with an empty cache.
#pragma once

#include <cstdint>
#include <hotcount/limiter.hpp>
#include <memory>
#include <string>

#include "limiter/algorithm.hpp"

namespace hotcount {

class DenyCache;

/// As large as the options say; null if they ask for none.
std::shared_ptr<DenyCache> make_deny_cache(const LimiterOptions& options);
/// A backend that answers a hit from the cache if the same hit was denied and its retry_after has not
/// passed since it was sent. Without a cache the same backend.
std::unique_ptr<LimiterBackend> with_deny_cache(std::unique_ptr<LimiterBackend> backend,
                                                std::shared_ptr<DenyCache> cache);

/// Forgets what all caches of this process know of a key: its state is about to change otherwise than
/// by hits and time, or has just changed so. Costs one load if there are no caches.
void forget_denials(const std::string& key);

}  // namespace hotcount
