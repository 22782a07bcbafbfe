// Asking PostgreSQL to stop a statement. libpq's call for it blocks, on a connection of its own, so
// it runs in a thread of its own; nobody waits for it.
#pragma once

#include "libpq.hpp"

namespace hotcount::sql {

/// Best effort: if too many such threads are stuck already, does nothing.
void cancel_in_background(const Libpq& pq, pg_conn* connection);

}  // namespace hotcount::sql
