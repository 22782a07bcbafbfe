// A redis-server of this program's own: in a temporary folder, on a unix socket, without
// persistence; stopped by its pid.
//
// It stands in a process group of its own, so that a Ctrl-C at the terminal ends the load and not
// the server that the audit still has to ask; and the kernel kills it should this program die
// first, also by kill -9.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <filesystem>
#include <hotcount/base/result.hpp>
#include <memory>
#include <string>

namespace hotcount::loadtest {

class ManagedRedis {
  public:
    /// The path of redis-server or valkey-server; a config error that names the package where
    /// neither is installed.
    static Result<std::filesystem::path> find();
    /// Returns when it answers, or with what it said. Call it from the thread that lives longest:
    /// the server goes with the thread that started it.
    static Result<std::unique_ptr<ManagedRedis>> start(const std::atomic<bool>& interrupt);
    ~ManagedRedis();
    ManagedRedis(const ManagedRedis&) = delete;
    ManagedRedis& operator=(const ManagedRedis&) = delete;

    const std::string& url() const { return url_; }
    pid_t pid() const { return pid_; }

  private:
    explicit ManagedRedis(std::filesystem::path folder);
    Result<void> launch(const std::filesystem::path& program);
    Result<void> wait_until_ready(const std::atomic<bool>& interrupt);
    bool ended();

    std::filesystem::path folder_;
    std::filesystem::path socket_;
    std::string url_;
    pid_t pid_{0};  ///< 0: not running.
};

}  // namespace hotcount::loadtest
