// What a private Redis holds, kept in the run's folder, so that a later audit finds it.
//
//   the run ended        save_dump() wrote it into the run's folder, as redis.rdb
//   the run was killed   the server got SIGTERM and wrote it into its own, redis/dump.rdb
//
// An audit starts a server on a copy. It refuses, and says why, if there is no dump, if the server
// finds it damaged, and if it is another run's.
#pragma once

#include <atomic>
#include <filesystem>
#include <hotcount/result.hpp>
#include <memory>

#include "load/settings.hpp"
#include "managed_server.hpp"

namespace hotcount::loadtest {

/// Before the load: leaves the run's name in the server, which the dump then tells.
Result<void> mark_run(const ManagedServer& redis, const TrialSettings& settings);
/// After the load, when nobody writes: into `folder`, which is on the disk of the server's own.
Result<void> save_dump(const ManagedServer& redis, const std::filesystem::path& folder);
/// A server with what the run in `folder` left.
Result<std::unique_ptr<ManagedServer>> start_on_dump(const std::filesystem::path& folder,
                                                     const TrialSettings& settings);

}  // namespace hotcount::loadtest
