// Units of a limit that a process takes in advance and spends by itself (LimiterOptions::lease).
//
// The store counts them when they are taken. At most lease - 1 of a key are held when no hit is being
// decided, until the window in which they were taken ends or the shortest period has passed since the
// call that took them was sent. While a call takes units of a key, other hits of it ask the store for
// themselves, so no hit waits for another one.
//
// Thread-safe. A forked child begins with none.
#pragma once

#include <hotcount/limiter.hpp>
#include <memory>

#include "limiter/algorithm.hpp"

namespace hotcount {

class Leases;

/// Null if the options ask for none.
std::shared_ptr<Leases> make_leases(const LimiterOptions& options);
/// A backend that spends what is held. Without leases the same backend.
std::unique_ptr<LimiterBackend> with_leases(std::unique_ptr<LimiterBackend> backend,
                                            std::shared_ptr<Leases> leases,
                                            const LimiterOptions& options);

}  // namespace hotcount
