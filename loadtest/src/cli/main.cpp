// hotcount-load: see cli.cpp for what it takes, cli.hpp for what it returns.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <string>
#include <variant>
#include <vector>

#include "cli.hpp"
#include "report/progress.hpp"

namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set from a signal handler");

// Ends the load early; what was done is still audited and reported. A second signal kills.
extern "C" void on_signal(int signal) {
    interrupted.store(true, std::memory_order_relaxed);
    std::signal(signal, SIG_DFL);
}

}  // namespace

#ifdef HOTCOUNT_LOAD_IN_EXTENSION
// For starter.c: the program of a wheel.
extern "C" __attribute__((visibility("default"))) int hotcount_load_main(int argc, char** argv) {
#else
int main(int argc, char** argv) {
#endif
    // A stream that the caller has closed must not become the file that is opened next: the results
    // would silently go there. With this, writing to the stream stays an error.
    for (int stream = open("/dev/null", O_RDONLY); stream >= 0;) {
        if (stream > STDERR_FILENO) {
            close(stream);
            break;
        }
        stream = open("/dev/null", O_RDONLY);
    }
    std::signal(SIGINT, &on_signal);
    std::signal(SIGTERM, &on_signal);
    // A terminal that is closed ends the load as Ctrl-C does; nohup has it ignored, and it stays so.
    if (std::signal(SIGHUP, &on_signal) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
    // A closed pipe on stdout is an error to report, and the folder is kept.
    std::signal(SIGPIPE, SIG_IGN);
    // A file that may not grow any more is an error to report, not the end of this process.
    std::signal(SIGXFSZ, SIG_IGN);
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    const auto parsed = hotcount::loadtest::parse_command_line(arguments);
    if (const auto* message = std::get_if<hotcount::loadtest::ExitMessage>(&parsed)) {
        hotcount::loadtest::say(message->code == 0 ? stdout : stderr, "{}", message->text);
        return message->code;
    }
    return hotcount::loadtest::run_program(std::get<hotcount::loadtest::Settings>(parsed),
                                           interrupted, stdout, stderr);
}
