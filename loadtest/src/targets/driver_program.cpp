#include "driver_session.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <string_view>
#include <thread>

namespace hotcount::loadtest {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{5};
// The end of the program's output that a message quotes, in bytes.
constexpr std::streamoff kLastWords = 600;

/// The environment of this process with `more` in it, as execvpe takes it.
std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& more) {
    std::vector<std::string> all;
    for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
        const std::string_view entry = *at;
        const std::string_view name = entry.substr(0, entry.find('='));
        const bool replaced = std::any_of(more.begin(), more.end(),
                                          [&](const auto& each) { return each.first == name; });
        if (!replaced) all.emplace_back(entry);
    }
    for (const auto& [name, value] : more) all.push_back(name + "=" + value);
    return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
    std::vector<char*> pointers;
    pointers.reserve(texts.size() + 1);
    for (std::string& text : texts) pointers.push_back(text.data());
    pointers.push_back(nullptr);
    return pointers;
}

}  // namespace

Result<std::vector<std::string>> words_of_command(const std::string& command) {
    constexpr const char* kSpaces = " \t\n\r";
    std::vector<std::string> words;
    for (std::size_t from = command.find_first_not_of(kSpaces); from != std::string::npos;) {
        const std::size_t until = std::min(command.find_first_of(kSpaces, from), command.size());
        words.push_back(command.substr(from, until - from));
        from = command.find_first_not_of(kSpaces, until);
    }
    if (!words.empty()) return words;
    return make_error(ErrorCode::config,
                      "exec: names no program; it takes exec:./driver ARGUMENTS");
}

Result<std::unique_ptr<DriverProgram>> DriverProgram::start(
    const std::string& command, const std::vector<std::pair<std::string, std::string>>& environment,
    std::filesystem::path log) {
    // Allocations come before the fork.
    HOTCOUNT_TRY_ASSIGN(std::vector<std::string> words, words_of_command(command));
    std::vector<char*> arguments = pointers_to(words);
    std::vector<std::string> entries = environment_with(environment);
    std::vector<char*> variables = pointers_to(entries);
    const int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int output = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    // A successful exec closes it; a failed one writes errno.
    int told[2];
    if (input < 0 || output < 0 || pipe2(told, O_CLOEXEC) != 0) {
        const int error = errno;
        for (const int file : {input, output}) {
            if (file >= 0) close(file);
        }
        return make_error(ErrorCode::config, fmt::format("{} cannot be written: {}", log.string(),
                                                         std::strerror(error)));
    }
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(127);  // The parent died before the line above.
        std::signal(SIGINT, SIG_DFL);
        std::signal(SIGTERM, SIG_DFL);
        std::signal(SIGXFSZ, SIG_DFL);
        std::signal(SIGPIPE, SIG_DFL);
        dup2(input, STDIN_FILENO);
        for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) dup2(output, stream);
        execvpe(arguments[0], arguments.data(), variables.data());
        const int why = errno;
        (void)!write(told[1], &why, sizeof(why));
        _exit(127);
    }
    int error = child < 0 ? errno : 0;
    for (const int file : {input, output, told[1]}) close(file);
    ssize_t received = -1;
    while (child > 0 && (received = read(told[0], &error, sizeof(error))) < 0 && errno == EINTR) {
    }
    close(told[0]);
    if (child > 0 && received == 0) {
        return std::unique_ptr<DriverProgram>(new DriverProgram(child, std::move(log)));
    }
    if (child > 0) {
        while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
        }
    }
    return make_error(ErrorCode::config,
                      fmt::format("{} cannot be started: {}", words[0], std::strerror(error)));
}

DriverProgram::~DriverProgram() { end(Duration{0}); }

bool DriverProgram::wait(Duration patience) {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (!status_) {
        siginfo_t ended{};
        // WNOWAIT does not reap it, so its id, which names its process group, is not reused.
        const bool looked =
            waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0;
        if (looked && ended.si_pid == pid_) {
            kill(-pid_, SIGKILL);  // Ends the children that it left behind.
            int status = 0;
            while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
            }
            status_ = status;
            break;
        }
        if (std::chrono::steady_clock::now() >= until) return false;
        std::this_thread::sleep_for(kBetweenLooks);
    }
    return true;
}

void DriverProgram::end(Duration patience) {
    if (wait(Duration{0})) return;
    if (patience > Duration{0}) {
        kill(-pid_, SIGTERM);
        kill(-pid_, SIGCONT);  // A stopped process does not handle SIGTERM.
        if (wait(patience)) return;
    }
    kill(-pid_, SIGKILL);
    // SIGKILL cannot be ignored, so this wait ends.
    while (!wait(std::chrono::seconds{1})) {
    }
}

std::string DriverProgram::describe() const {
    const std::string words = last_words();
    const std::string wrote = words.empty() ? "; it wrote nothing" : "; it wrote: " + words;
    if (!status_) return "it still runs" + wrote;
    if (WIFSIGNALED(*status_)) {
        const int signal = WTERMSIG(*status_);
        return fmt::format("it was killed by signal {} ({}){}", signal, strsignal(signal), wrote);
    }
    return fmt::format("it ended with exit code {}{}", WEXITSTATUS(*status_), wrote);
}

std::string DriverProgram::last_words() const {
    std::ifstream file(log_, std::ios::ate);
    if (!file) return {};
    const auto size = static_cast<std::streamoff>(file.tellg());
    file.seekg(std::max<std::streamoff>(0, size - kLastWords));
    std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    // A message is one line of printable text, and a log may hold anything.
    for (char& c : text) {
        if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = ' ';
    }
    text.erase(0, text.find_first_not_of(' '));
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
}

}  // namespace hotcount::loadtest
