#include "report.hpp"

#include <fmt/core.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <vector>

namespace hotcount::loadtest {
namespace {

namespace fs = std::filesystem;

/// Runs a program, looked up on PATH if it has no folder; what it says on stderr is this one's.
Result<void> run_to_its_end(std::vector<std::string> words) {
    std::vector<char*> arguments;
    arguments.reserve(words.size() + 1);
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_t pid = 0;
    if (const int error =
            posix_spawnp(&pid, arguments[0], nullptr, nullptr, arguments.data(), environ);
        error != 0) {
        return make_error(ErrorCode::config,
                          fmt::format("{} cannot be started: {}", words[0], std::strerror(error)));
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
    return make_error(ErrorCode::config, fmt::format("{} {} failed", words[0], words[1]));
}

}  // namespace

Result<fs::path> find_drawer(const fs::path& file) {
    std::error_code failed;
    const fs::path parent = file.has_parent_path() ? file.parent_path() : fs::path{"."};
    if (access(parent.c_str(), W_OK | X_OK) != 0 || fs::is_directory(file, failed)) {
        return make_error(ErrorCode::config,
                          fmt::format("--html {}: it cannot be written there", file.string()));
    }
    fs::path drawer = fs::read_symlink("/proc/self/exe", failed).parent_path() / "hotcount";
    if (failed || access(drawer.c_str(), X_OK) != 0) drawer = "hotcount";
    if (auto can = run_to_its_end({drawer.string(), "report", "--check"}); !can) {
        return make_error(ErrorCode::config,
                          fmt::format("--html: {}; it needs the Python package with its extra, "
                                      "hotcount[report]",
                                      can.error().message));
    }
    return drawer;
}

Result<void> write_html(const fs::path& drawer, const fs::path& folder, const fs::path& file) {
    return run_to_its_end({drawer.string(), "report", folder.string(), "-o", file.string()});
}

}  // namespace hotcount::loadtest
