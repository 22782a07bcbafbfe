#include "agent.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <vector>

#include "link.hpp"
#include "load/say.hpp"
#include "session.hpp"

namespace hotcount::loadtest {
namespace {

constexpr Duration kAcceptWithin = std::chrono::milliseconds{100};
// Connections at once: one with a load, the others to be told that it is busy.
constexpr std::size_t kMostConnections = 8;

void collect(std::vector<pid_t>& children) {
    std::erase_if(children, [](pid_t child) { return waitpid(child, nullptr, WNOHANG) != 0; });
}

[[noreturn]] void serve(int socket, const std::string& from, const AgentSettings& settings,
                        int busy, pid_t agent, const std::atomic<bool>& interrupt, std::FILE* log) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != agent) _exit(1);
    {
        Link link(socket);
        serve_coordinator(link, from, settings.token, busy, interrupt, log);
    }
    std::fflush(log);
    _exit(0);
}

}  // namespace

Result<void> run_agent(const AgentSettings& settings, const std::atomic<bool>& interrupt,
                       std::FILE* out, std::FILE* log) {
    HOTCOUNT_TRY_ASSIGN(const Address wanted, parse_address(settings.listen));
    if (settings.token.empty() && !is_loopback(wanted)) {
        return make_error(
            ErrorCode::config,
            fmt::format(
                "--listen {}: others than this machine reach it, and whoever does may start "
                "loads with its rights; name a secret with --token-file",
                settings.listen));
    }
    HOTCOUNT_TRY_ASSIGN(const auto listener, Listener::open(wanted));
    // Locked by the process that has a load; the lock goes with it.
    const int busy = memfd_create("hotcount-load-agent", MFD_CLOEXEC);
    if (busy < 0) {
        return make_error(ErrorCode::capacity,
                          fmt::format("no lock can be made: {}", std::strerror(errno)));
    }
    say(out, "hotcount-load agent: listening at {}\n", format_address(listener->address()));
    std::fflush(out);
    if (settings.token.empty()) {
        say(log,
            "hotcount-load agent: no --token-file, so every user of this machine may start "
            "loads with its rights\n");
    }
    std::fflush(log);
    std::vector<pid_t> children;
    const pid_t self = getpid();
    while (!interrupt.load(std::memory_order_relaxed)) {
        const auto accepted = listener->accept(kAcceptWithin);
        collect(children);
        if (!accepted) continue;
        const auto& [socket, from] = *accepted;
        const pid_t child = children.size() < kMostConnections ? fork() : -1;
        if (child == 0) {
            listener->close();
            serve(socket, from, settings, busy, self, interrupt, log);
        }
        if (child > 0) children.push_back(child);
        close(socket);
    }
    // A load that is under way ends early, and its coordinator gets what there is.
    for (const pid_t child : children) kill(child, SIGTERM);
    for (const pid_t child : children) waitpid(child, nullptr, 0);
    close(busy);
    return {};
}

}  // namespace hotcount::loadtest
