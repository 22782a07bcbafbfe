// A server of this program's own: in a temporary folder, on a unix socket; stopped by its pid. Groups
// of them, in which one replaces another, are in managed_group.hpp.
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
#include <functional>
#include <hotcount/result.hpp>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "load/pacer.hpp"
#include "load/run_folder.hpp"
#include "load/settings.hpp"

namespace hotcount::loadtest {

struct ManagedOptions {
    /// Redis: an existing folder for its data. If this program dies, the server saves a dump there.
    /// Empty: its temporary folder, and nothing is saved.
    std::filesystem::path keep{};
    /// Redis: writes are on disk before they are answered (appendfsync always), so it may be killed.
    bool durable{false};
    /// The dump that a Redis starts with: another server's, which is only read.
    std::filesystem::path dump{};

    // Of a server in a group: a Redis, a PostgreSQL, a MariaDB.

    /// Its TCP port on 127.0.0.1, which url() names unless it is a MariaDB; 0: a unix socket only.
    std::uint16_t port{0};
    /// Behind the other words of its command line.
    std::vector<std::string> more{};
    /// Redis: the text of its configuration file, into which a Sentinel writes its own lines. MariaDB: the
    /// script that starts it, with the server's command line as arguments.
    std::string config{};
    /// The command that makes the data folder, which it is given; none: the kind's own.
    std::function<std::vector<std::string>(const std::filesystem::path& data)> prepare{};
};

/// A server, or a group of servers, that a run has started for itself.
class Managed {
  public:
    virtual ~Managed() = default;
    Managed(const Managed&) = delete;
    Managed& operator=(const Managed&) = delete;

    /// The URL for clients.
    const std::string& url() const { return url_; }
    /// Of the servers that hold data; 0 for one that does not run.
    virtual std::vector<pid_t> pids() const = 0;
    /// How often they were started, all together.
    virtual std::uint64_t starts() const = 0;

    struct Strike {
        SteadyTime away;  ///< When the server went away.
        /// Writes acknowledged before this time are on every server that may take its place.
        SteadyTime copied;
    };
    /// Begins a fault that these servers can have, and mend() ends it. One thread at a time calls them.
    virtual Result<Strike> strike(const Fault& fault) = 0;
    virtual Result<void> mend(const Fault& fault) = 0;
    /// Whether another server takes the writes of the one that the last strike took away.
    virtual bool replaced() { return false; }
    /// Whether that one acknowledges nothing any more.
    virtual bool refuses() { return true; }

  protected:
    explicit Managed(std::string url) : url_(std::move(url)) {}

    std::string url_;
};

/// Stops all processes of a server from here to the end of its life.
///
/// The kernel kills the server when this program is killed, but a stopped child cannot see that its
/// parent is gone: a guard process then sends the children SIGCONT, and they end.
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

class ManagedServer final : public Managed {
  public:
    static constexpr const char* kLogName = "server.log";
    static constexpr const char* kBootstrapName = "bootstrap.sql";

    /// The path of its program; a config error that names the package if it is not installed.
    static Result<std::filesystem::path> find(ServerKind kind);
    /// Returns when the server answers, or an error with what it said. Call it from the thread that
    /// lives longest: the server ends with the thread that started it.
    static Result<std::unique_ptr<ManagedServer>> start(ServerKind kind,
                                                        const std::atomic<bool>& interrupt,
                                                        const ManagedOptions& options = {});
    ~ManagedServer() override;

    pid_t pid() const { return pid_; }
    std::vector<pid_t> pids() const override { return {pid_}; }
    std::uint64_t starts() const override { return 1 + starters_.size(); }
    Result<Strike> strike(const Fault& fault) override;
    Result<void> mend(const Fault& fault) override;
    /// Its unix socket.
    std::filesystem::path socket() const;
    /// Where a Redis saves.
    const std::filesystem::path& data_folder() const {
        return options_.keep.empty() ? folder_ : options_.keep;
    }

    /// SIGKILL to all its processes; returns when they have ended. One thread at a time calls this and
    /// restart().
    void kill9();
    /// After kill9(): starts it again, at the same URL, on what it left. Returns when it answers.
    Result<void> restart();
    /// Ends it in order; returns when it has ended.
    void end();

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
    std::vector<std::string> words_{};  ///< Its command line.
    uid_t user_{0};                     ///< The user that it runs as; 0: that of this process.
    gid_t group_{0};                    ///< The group that it runs as; 0: that of this process.
    pid_t pid_{0};                      ///< 0: not running.
    int status_{0};                     ///< How it ended.
    /// Threads that restarted it: a server ends with the thread that started it.
    std::vector<std::jthread> starters_{};
    std::optional<PausedServer> paused_{};
};

// -- its processes (server_processes.cpp) ---------------------------------------------------------
//
// The processes of a private server: PostgreSQL has one for each connection.

/// The running children of `parent`, in the order of their ids.
std::vector<pid_t> children_of(pid_t parent);

/// SIGKILL to `server` and to its children; returns when none of them runs. The caller reaps `server`.
void kill_with_children(pid_t server);

/// Processor time of `server` and of all processes that it has started, those that ended included, in
/// seconds; none if it is not there.
std::optional<double> cpu_seconds(pid_t server);

// -- asking one Redis (redis_wire.cpp) ------------------------------------------------------------

/// A connection that asks one server, whatever it is at present: a replica, a Sentinel, a node of a
/// cluster. The library's client would leave it, or look for the primary. Not thread-safe.
class RedisWire {
  public:
    explicit RedisWire(std::filesystem::path socket) : socket_(std::move(socket)) {}
    ~RedisWire() { leave(); }
    RedisWire(const RedisWire&) = delete;
    RedisWire& operator=(const RedisWire&) = delete;

    /// The texts of the reply, those of its arrays one after another; numbers as text, nil as "". An
    /// error of the server's, or that it does not answer for a second, is unavailable.
    Result<std::vector<std::string>> ask(const std::vector<std::string>& words);
    /// Of what INFO or CLUSTER INFO answers; empty: it does not answer or does not say it.
    std::string field(const std::vector<std::string>& words, std::string_view name);

  private:
    Result<void> dial();
    Result<void> receive();
    Result<std::string> line();
    Result<void> take(std::vector<std::string>& texts);
    void leave();

    std::filesystem::path socket_;
    int fd_{-1};
    std::string received_{};
};

// -- its dump (redis_dump.cpp) --------------------------------------------------------------------
//
// The data of a private Redis, kept in the run's folder, so that a later audit finds it.
//
//   the run ended        save_dump() wrote it into the run's folder, as redis.rdb
//   the run was killed   the server got SIGTERM and wrote it into its own, redis/dump.rdb
//
// An audit starts a server on a copy. It refuses, and says why, if there is no dump, if the server
// finds it damaged, and if it is another run's.

/// Before the load: leaves the run's name in the server, which the dump then tells.
Result<void> mark_run(const ManagedServer& redis, const TrialSettings& settings);
/// Saves the dump into `folder`, which is on the disk of the server's own folder. Call it after the
/// load, without writers.
Result<void> save_dump(const ManagedServer& redis, const std::filesystem::path& folder);
/// A server with what the run in `folder` left.
Result<std::unique_ptr<ManagedServer>> start_on_dump(const std::filesystem::path& folder,
                                                     const TrialSettings& settings);

}  // namespace hotcount::loadtest
