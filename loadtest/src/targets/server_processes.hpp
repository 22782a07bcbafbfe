// The processes of a private server: PostgreSQL has one for each connection.
#pragma once

#include <sys/types.h>

#include <optional>
#include <vector>

namespace hotcount::loadtest {

/// Those that `parent` started and that have not ended, in the order of their ids.
std::vector<pid_t> children_of(pid_t parent);

/// SIGKILL to `server` and to its children; returns when none of them runs. The caller reaps `server`.
void kill_with_children(pid_t server);

/// Processor time of `server` and of all processes that it has started, those that ended included, in
/// seconds; none if it is not there.
std::optional<double> cpu_seconds(pid_t server);

/// Stops all processes of a server from here to the end of its life.
///
/// The kernel kills the server when this program is killed, but a stopped child cannot see that its
/// parent is gone: so a process beside this one lets the children go on then, and they end.
class PausedServer {
  public:
    explicit PausedServer(pid_t server);
    ~PausedServer();
    PausedServer(const PausedServer&) = delete;
    PausedServer& operator=(const PausedServer&) = delete;

  private:
    std::vector<pid_t> stopped_;
    pid_t guard_;  ///< -1: it could not be started.
};

}  // namespace hotcount::loadtest
