#include "managed_server.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

namespace hotcount::loadtest {
namespace {

constexpr std::chrono::seconds kGone{10};
constexpr std::chrono::milliseconds kLookAgain{2};

/// Fields of /proc/PID/stat after the name, from the state on; empty if there is no such process.
std::vector<std::string> stat_of(pid_t pid) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string line;
    std::getline(file, line);
    // The name may hold blanks and parentheses.
    const std::size_t end = line.rfind(')');
    if (end == std::string::npos) return {};
    std::vector<std::string> fields;
    std::string_view rest = std::string_view{line}.substr(std::min(end + 2, line.size()));
    while (!rest.empty()) {
        const std::size_t blank = rest.find(' ');
        fields.emplace_back(rest.substr(0, blank));
        rest = blank == std::string_view::npos ? "" : rest.substr(blank + 1);
    }
    return fields;
}

// Indexes into the fields that stat_of() returns.
constexpr std::size_t kState = 0;
constexpr std::size_t kParent = 1;
constexpr std::size_t kChildrenUser = 13;
constexpr std::size_t kChildrenSystem = 14;

std::int64_t number_of(const std::vector<std::string>& fields, std::size_t at) {
    std::int64_t number = 0;
    if (at < fields.size()) {
        const std::string& text = fields[at];
        std::from_chars(text.data(), text.data() + text.size(), number);
    }
    return number;
}

bool runs(pid_t pid) {
    const auto fields = stat_of(pid);
    return !fields.empty() && fields[kState] != "Z" && fields[kState] != "X";
}

/// CPU seconds to the nanosecond: the ticks of /proc would lose up to 20 ms of each process.
std::optional<double> clock_of(pid_t pid) {
    clockid_t clock{};
    timespec used{};
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0) return {};
    return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

/// The child calls only async-signal-safe functions, because this program has threads.
pid_t start_guard(const std::vector<pid_t>& stopped) {
    const pid_t parent = getpid();
    const pid_t guard = fork();
    if (guard != 0) return guard;
    // A Ctrl-C at the terminal is for the parent.
    setpgid(0, 0);
    constexpr timespec kNap{0, 50'000'000};
    while (getppid() == parent) nanosleep(&kNap, nullptr);
    for (const pid_t pid : stopped) kill(pid, SIGCONT);
    _exit(0);
}

}  // namespace

Result<void> ManagedServer::launch(std::vector<std::string> words) {
    const int at_our_death = options_.keep.empty() ? SIGKILL : SIGTERM;
    // All that allocates comes before the fork.
    std::vector<char*> arguments;
    arguments.reserve(words.size() + 1);
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const std::string log = folder_ / kLogName;
    const std::string home = folder_;
    const pid_t parent = getpid();
    // Only a bootstrap reads its input. A read from the terminal would stop a server (SIGTTIN).
    const std::filesystem::path script = folder_ / kBootstrapName;
    const bool reads = std::find(words.begin(), words.end(), "--bootstrap") != words.end();
    const int input = open(reads ? script.c_str() : "/dev/null", O_RDONLY | O_CLOEXEC);
    const int output = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (output >= 0 && user_ != 0 && fchown(output, user_, group_) != 0) errno = 0;
    const pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        if (user_ != 0 && (setgroups(0, nullptr) != 0 || setgid(group_) != 0 ||
                           setuid(user_) != 0 || chdir(home.c_str()) != 0)) {
            _exit(126);
        }
        // After the change of user, which resets it.
        prctl(PR_SET_PDEATHSIG, at_our_death);
        if (getppid() != parent) _exit(127);  // The parent died before prctl().
        std::signal(SIGINT, SIG_DFL);
        std::signal(SIGTERM, SIG_DFL);
        std::signal(SIGPIPE, SIG_DFL);
        if (input >= 0) dup2(input, STDIN_FILENO);
        for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
            if (output >= 0) dup2(output, stream);
        }
        execv(arguments[0], arguments.data());
        _exit(127);
    }
    const int error = errno;
    if (input >= 0) close(input);
    if (output >= 0) close(output);
    if (child < 0) {
        return make_error(ErrorCode::unavailable,
                          fmt::format("{} cannot be started: {}", words[0], std::strerror(error)));
    }
    pid_ = child;
    return {};
}

std::vector<pid_t> children_of(pid_t parent) {
    std::vector<pid_t> children;
    std::error_code failed;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", failed)) {
        const std::string name = entry.path().filename();
        pid_t pid = 0;
        const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
        if (error != std::errc{} || end != name.data() + name.size()) continue;
        const auto fields = stat_of(pid);
        if (fields.empty() || number_of(fields, kParent) != parent) continue;
        if (fields[kState] != "Z" && fields[kState] != "X") children.push_back(pid);
    }
    std::sort(children.begin(), children.end());
    return children;
}

void kill_with_children(pid_t server) {
    kill(server, SIGSTOP);  // It starts no more children.
    const std::vector<pid_t> children = children_of(server);
    for (const pid_t child : children) kill(child, SIGKILL);
    kill(server, SIGKILL);
    // Shared memory and locks are released with the last process, and a new server needs them.
    const auto until = std::chrono::steady_clock::now() + kGone;
    const auto any_runs = [&] {
        return runs(server) || std::any_of(children.begin(), children.end(), runs);
    };
    while (any_runs() && std::chrono::steady_clock::now() < until) {
        std::this_thread::sleep_for(kLookAgain);
    }
}

std::optional<double> cpu_seconds(pid_t server) {
    if (server <= 0) return {};
    auto sum = clock_of(server);
    const auto fields = stat_of(server);
    if (!sum || fields.empty()) return {};
    for (const pid_t child : children_of(server)) *sum += clock_of(child).value_or(0);
    const auto ended = number_of(fields, kChildrenUser) + number_of(fields, kChildrenSystem);
    return *sum + static_cast<double>(ended) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

PausedServer::PausedServer(pid_t server) {
    kill(server, SIGSTOP);  // First, so that it starts no more children.
    stopped_ = children_of(server);
    guard_ = start_guard(stopped_);
    for (const pid_t pid : stopped_) kill(pid, SIGSTOP);
    stopped_.push_back(server);
}

PausedServer::~PausedServer() {
    for (const pid_t pid : stopped_) kill(pid, SIGCONT);
    if (guard_ <= 0) return;
    kill(guard_, SIGKILL);
    while (waitpid(guard_, nullptr, 0) < 0 && errno == EINTR) {
    }
}

}  // namespace hotcount::loadtest
