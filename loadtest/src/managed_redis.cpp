#include "managed_redis.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <hotcount/redis/client.hpp>
#include <iterator>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "run_folder.hpp"

namespace hotcount::loadtest {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kStart = seconds{10};
constexpr Duration kStop = seconds{10};
constexpr Duration kLook = milliseconds{5};
constexpr const char* kSocketName = "redis.sock";
constexpr const char* kLogName = "redis.log";

std::string read_all(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// A unix socket's path has 108 bytes: what TMPDIR names may be longer.
Result<fs::path> make_folder() {
    for (const fs::path& parent : {temporary_parent(), fs::path{"/tmp"}}) {
        std::string pattern = (parent / "hotcount-redis-XXXXXX").string();
        if ((fs::path{pattern} / kSocketName).string().size() >= sizeof(sockaddr_un::sun_path)) {
            continue;
        }
        if (mkdtemp(pattern.data()) != nullptr) return fs::path{pattern};
    }
    return make_error(ErrorCode::config,
                      fmt::format("no temporary folder for a private redis-server in {} or /tmp: "
                                  "{}",
                                  temporary_parent().string(), std::strerror(errno)));
}

}  // namespace

Result<fs::path> ManagedRedis::find() {
    const char* const path = std::getenv("PATH");
    for (const char* const name : {"redis-server", "valkey-server"}) {
        std::string_view rest = path == nullptr ? "" : path;
        while (!rest.empty()) {
            const std::size_t colon = rest.find(':');
            const fs::path candidate = fs::path{rest.substr(0, colon)} / name;
            if (access(candidate.c_str(), X_OK) == 0 && fs::is_regular_file(candidate)) {
                return candidate;
            }
            rest = colon == std::string_view::npos ? "" : rest.substr(colon + 1);
        }
    }
    return make_error(ErrorCode::config,
                      "redis-server is not installed (Debian's package: redis-server)");
}

ManagedRedis::ManagedRedis(fs::path folder)
    : folder_(std::move(folder)),
      socket_(folder_ / kSocketName),
      url_("redis+unix://" + socket_.string()) {}

ManagedRedis::~ManagedRedis() {
    if (pid_ > 0) {
        kill(pid_, SIGTERM);
        const auto until = std::chrono::steady_clock::now() + kStop;
        while (!ended()) {
            if (std::chrono::steady_clock::now() > until) {
                kill(pid_, SIGKILL);
                while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
                }
                break;
            }
            std::this_thread::sleep_for(kLook);
        }
    }
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
}

bool ManagedRedis::ended() {
    const pid_t reaped = waitpid(pid_, nullptr, WNOHANG);
    if (reaped == 0 || (reaped < 0 && errno == EINTR)) return false;
    pid_ = 0;
    return true;
}

Result<void> ManagedRedis::launch(const fs::path& program) {
    // All that allocates comes before the fork.
    std::vector<std::string> words = {program.string(),
                                      "--port",
                                      "0",
                                      "--unixsocket",
                                      socket_.string(),
                                      "--dir",
                                      folder_,
                                      "--save",
                                      "",
                                      "--appendonly",
                                      "no",
                                      "--daemonize",
                                      "no",
                                      "--unixsocketperm",
                                      "700",
                                      "--logfile",
                                      folder_ / kLogName};
    std::vector<char*> arguments;
    arguments.reserve(words.size() + 1);
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const pid_t parent = getpid();
    const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    const pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(127);  // It died before the line above.
        std::signal(SIGINT, SIG_DFL);
        std::signal(SIGTERM, SIG_DFL);
        for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
            if (nowhere >= 0) dup2(nowhere, stream);
        }
        execv(arguments[0], arguments.data());
        _exit(127);
    }
    const int error = errno;
    if (nowhere >= 0) close(nowhere);
    if (child < 0) {
        return make_error(
            ErrorCode::unavailable,
            fmt::format("{} cannot be started: {}", program.string(), std::strerror(error)));
    }
    pid_ = child;
    return {};
}

Result<void> ManagedRedis::wait_until_ready(const std::atomic<bool>& interrupt) {
    HOTCOUNT_TRY_ASSIGN(redis::Options options, redis::parse_options(url_));
    HOTCOUNT_TRY_ASSIGN(const auto client, redis::Client::make(std::move(options)));
    const auto until = std::chrono::steady_clock::now() + kStart;
    while (!client->ping(Duration{seconds{1}})) {
        if (interrupt) return make_error(ErrorCode::unavailable, "it was interrupted");
        if (ended() || std::chrono::steady_clock::now() > until) {
            const std::string said = read_all(folder_ / kLogName);
            return make_error(ErrorCode::unavailable,
                              fmt::format("the private redis-server did not start; it said: {}",
                                          said.empty() ? "nothing" : said));
        }
        std::this_thread::sleep_for(kLook);
    }
    return {};
}

Result<std::unique_ptr<ManagedRedis>> ManagedRedis::start(const std::atomic<bool>& interrupt) {
    HOTCOUNT_TRY_ASSIGN(const fs::path program, find());
    HOTCOUNT_TRY_ASSIGN(fs::path folder, make_folder());
    std::unique_ptr<ManagedRedis> server(new ManagedRedis(std::move(folder)));
    HOTCOUNT_TRY(server->launch(program));
    HOTCOUNT_TRY(server->wait_until_ready(interrupt));
    return server;
}

}  // namespace hotcount::loadtest
