// A server of this program's own: in a temporary folder, on a unix socket; stopped by its pid.
//
//   redis     redis-server or valkey-server, without persistence unless ManagedOptions want it
//   postgres  PostgreSQL as it comes: fsync, synchronous_commit and full_page_writes are on
//   mariadb   MariaDB, innodb_flush_log_at_trx_commit=1, no binary log
//   mysql     MySQL, the same; its mysqld is on PATH or in the folder that HOTCOUNT_MYSQL names
//
// It has a process group of its own, so that a Ctrl-C at the terminal ends the load and not the
// server, which the audit still has to ask. If this program dies first, also by kill -9, the kernel
// kills the server; a Redis that is kept for an audit gets SIGTERM, saves what it has and ends.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <hotcount/result.hpp>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "load/run_folder.hpp"
#include "load/settings.hpp"

namespace hotcount::loadtest {

/// Of a Redis; the databases have none.
struct ManagedOptions {
    /// An existing folder for its data. If this program dies, the server saves a dump there. Empty:
    /// its temporary folder, and nothing is saved.
    std::filesystem::path keep{};
    /// Writes are on disk before they are answered (appendfsync always), so it may be killed.
    bool durable{false};
    /// What it starts with: another Redis's dump, which is only read.
    std::filesystem::path dump{};
};

class ManagedServer {
  public:
    /// The path of its program; a config error that names the package if it is not installed.
    static Result<std::filesystem::path> find(ServerKind kind);
    /// Returns when the server answers, or an error with what it said. Call it from the thread that
    /// lives longest: the server ends with the thread that started it.
    static Result<std::unique_ptr<ManagedServer>> start(ServerKind kind,
                                                        const std::atomic<bool>& interrupt,
                                                        const ManagedOptions& options = {});
    ~ManagedServer();
    ManagedServer(const ManagedServer&) = delete;
    ManagedServer& operator=(const ManagedServer&) = delete;

    const std::string& url() const { return url_; }
    pid_t pid() const { return pid_; }
    /// How often it was started.
    std::uint64_t starts() const { return 1 + starters_.size(); }
    /// Where a Redis saves.
    const std::filesystem::path& data_folder() const {
        return options_.keep.empty() ? folder_ : options_.keep;
    }

    /// SIGKILL to all its processes; returns when they have ended. One thread at a time calls this and
    /// restart().
    void kill9();
    /// After kill9(): starts it again, at the same URL, on what it left. Returns when it answers.
    Result<void> restart();

  private:
    ManagedServer(ServerKind kind, OwnedFolder folder, ManagedOptions options);
    Result<void> own_folder();
    Result<void> prepare(const std::filesystem::path& program, const std::atomic<bool>& interrupt);
    Result<void> write_bootstrap() const;
    Result<void> launch(std::vector<std::string> words);
    Result<void> wait_until_ready(const std::atomic<bool>& interrupt);
    void save_when_terminated() const;
    bool answers() const;
    bool ended();
    std::string said() const;

    ServerKind kind_;
    OwnedFolder own_;
    std::filesystem::path folder_;
    ManagedOptions options_;
    std::string url_;
    std::vector<std::string> words_{};  ///< What starts it.
    uid_t user_{0};                     ///< Whom it runs as; 0: as this process.
    gid_t group_{0};                    ///< The same.
    pid_t pid_{0};                      ///< 0: not running.
    int status_{0};                     ///< How it ended.
    /// Those that restarted it: a server ends with the thread that started it.
    std::vector<std::jthread> starters_{};
};

/// The one with this URL; null: there is none.
ManagedServer* find_server(const std::vector<ManagedServer*>& servers, const std::string& url);

// -- its processes (server_processes.cpp) ---------------------------------------------------------
//
// The processes of a private server: PostgreSQL has one for each connection.

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

// -- its dump (redis_dump.cpp) --------------------------------------------------------------------
//
// What a private Redis holds, kept in the run's folder, so that a later audit finds it.
//
//   the run ended        save_dump() wrote it into the run's folder, as redis.rdb
//   the run was killed   the server got SIGTERM and wrote it into its own, redis/dump.rdb
//
// An audit starts a server on a copy. It refuses, and says why, if there is no dump, if the server
// finds it damaged, and if it is another run's.

/// Before the load: leaves the run's name in the server, which the dump then tells.
Result<void> mark_run(const ManagedServer& redis, const TrialSettings& settings);
/// After the load, when nobody writes: into `folder`, which is on the disk of the server's own.
Result<void> save_dump(const ManagedServer& redis, const std::filesystem::path& folder);
/// A server with what the run in `folder` left.
Result<std::unique_ptr<ManagedServer>> start_on_dump(const std::filesystem::path& folder,
                                                     const TrialSettings& settings);

}  // namespace hotcount::loadtest
