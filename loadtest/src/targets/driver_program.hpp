// A strategy of the user's own: its program, started, watched and ended.
//
// The program has a process group of its own, so that Ctrl-C does not reach it before the audit, and
// is ended as a group: SIGTERM, and SIGKILL when it takes too long. It dies with the thread that
// started it (PDEATHSIG). What it writes goes to a file: stdout belongs to the report.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <hotcount/clock.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hotcount::loadtest {

class DriverProgram {
  public:
    /// `command`: a program, found as the shell finds it, and its arguments, with spaces between them.
    /// `environment`: what is set in it besides this program's own. `log`: the file for what it writes.
    static Result<std::unique_ptr<DriverProgram>> start(
        const std::string& command,
        const std::vector<std::pair<std::string, std::string>>& environment,
        std::filesystem::path log);
    /// Ends it at once: a program that is to end by itself is asked before, see wait().
    ~DriverProgram();
    DriverProgram(const DriverProgram&) = delete;
    DriverProgram& operator=(const DriverProgram&) = delete;

    /// Whether it has ended by itself after `patience` at most.
    bool wait(Duration patience);
    /// SIGTERM to all of its processes, SIGKILL after `patience`.
    void end(Duration patience);
    /// "it ended with exit code 3; it wrote: ...", or that it still runs.
    std::string describe() const;

  private:
    DriverProgram(pid_t pid, std::filesystem::path log) : pid_(pid), log_(std::move(log)) {}
    std::string last_words() const;

    const pid_t pid_;
    const std::filesystem::path log_;
    std::optional<int> status_{};  // As waitpid() has it; none: not reaped.
};

/// The words of a command; an error if there are none.
Result<std::vector<std::string>> words_of_command(const std::string& command);

}  // namespace hotcount::loadtest
