// The worker of a WriteBehindCounter: cells from Redis to SQL.
#pragma once

#include <hotcount/write_behind_counter.hpp>
#include <memory>

#include "view_writer.hpp"

namespace hotcount {

std::shared_ptr<SyncWorker> make_view_worker(std::shared_ptr<ViewSettings> settings);

}  // namespace hotcount
