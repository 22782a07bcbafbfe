#include "processes.hpp"

#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <type_traits>
#include <utility>

#include "settings.hpp"

namespace hotcount::loadtest {
namespace {

static_assert(std::is_trivially_copyable_v<Operation> && std::is_trivially_copyable_v<Answer>);

/// One message: SOCK_SEQPACKET keeps its bounds.
template <class T>
bool send_all(int socket, std::span<const T> items) {
    ssize_t sent = 0;
    do {
        sent = send(socket, items.data(), items.size_bytes(), MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == static_cast<ssize_t>(items.size_bytes());
}

/// How many items came; 0 when the other side is gone.
template <class T>
std::size_t receive(int socket, std::span<T> room) {
    ssize_t received = 0;
    do {
        received = recv(socket, room.data(), room.size_bytes(), 0);
    } while (received < 0 && errno == EINTR);
    return received <= 0 ? 0 : static_cast<std::size_t>(received) / sizeof(T);
}

void answer_calls(Driver& driver, int socket) {
    std::vector<Operation> room(kMostBatch);
    while (const std::size_t count = receive(socket, std::span{room})) {
        const std::vector<Answer> answers = driver.apply_many(std::span{room}.first(count));
        if (!send_all(socket, std::span{answers})) return;
    }
}

}  // namespace

Result<std::unique_ptr<Processes>> Processes::start(Driver& inner,
                                                    const ProcessSettings& settings) {
    std::unique_ptr<Processes> processes{new Processes(inner, settings)};
    processes->pids_.assign(settings.processes, -1);
    for (std::size_t process = 0; process < settings.processes; ++process) {
        HOTCOUNT_TRY(processes->fork_one(process));
    }
    if (settings.kill_every > Duration{0} || settings.stall > Duration{0}) {
        processes->disturber_ = std::jthread(
            [self = processes.get()](const std::stop_token& ended) { self->disturb(ended); });
    }
    return processes;
}

Processes::~Processes() {
    disturber_ = {};
    for (const Line& line : idle_) close(line.socket);
    for (const pid_t pid : pids_) {
        if (pid < 0) continue;
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
    }
}

Result<void> Processes::fork_one(std::size_t process) {
    // Enough that no worker ever waits for a line while all processes live.
    const std::size_t share = (settings_.workers + settings_.processes - 1) / settings_.processes;
    std::vector<int> here;
    std::vector<int> there;
    const auto fail = [&](const char* what) {
        const int why = errno;
        for (const int socket : here) close(socket);
        for (const int socket : there) close(socket);
        return make_error(ErrorCode::capacity, fmt::format("{}: {}", what, std::strerror(why)));
    };
    for (std::size_t i = 0; i < share; ++i) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
            return fail("a line to a process could not be made");
        }
        here.push_back(pair[0]);
        there.push_back(pair[1]);
    }
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) return fail("a process could not be forked");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        // Ctrl-C goes to the whole group: this process ends the load, and the callers go with it.
        (void)std::signal(SIGINT, SIG_IGN);
        (void)std::signal(SIGHUP, SIG_IGN);
        if (getppid() != parent) _exit(1);
        for (const int socket : here) close(socket);
        serve(std::move(there));
    }
    for (const int socket : there) close(socket);
    const std::lock_guard lock(mutex_);
    pids_[process] = pid;
    lines_ += share;
    for (const int socket : here) idle_.push_back({socket, process});
    free_line_.notify_all();
    return {};
}

void Processes::serve(std::vector<int> sockets) {
    std::vector<std::thread> threads;
    threads.reserve(sockets.size());
    for (const int socket : sockets) {
        threads.emplace_back([this, socket] { answer_calls(inner_, socket); });
    }
    for (std::thread& thread : threads) thread.join();
    _exit(0);
}

void Processes::kill_one(std::size_t process) {
    {
        const std::lock_guard lock(mutex_);
        replacing_ = true;
    }
    kill(pids_[process], SIGKILL);
    waitpid(pids_[process], nullptr, 0);
    ++kills_;
    {
        const std::lock_guard lock(mutex_);
        pids_[process] = -1;
        std::erase_if(idle_, [&](const Line& line) {
            if (line.process != process) return false;
            close(line.socket);
            --lines_;
            return true;
        });
    }
    // Without another one the load goes on with one process fewer.
    (void)fork_one(process);
    const std::lock_guard lock(mutex_);
    replacing_ = false;
    free_line_.notify_all();
}

void Processes::disturb(const std::stop_token& ended) {
    std::mutex mutex;
    std::condition_variable_any wake;
    const auto ends_within = [&](Duration pause) {
        std::unique_lock lock(mutex);
        wake.wait_for(lock, ended, pause, [] { return false; });
        return ended.stop_requested();
    };
    const bool kills = settings_.kill_every > Duration{0};
    // Twice as long as it was stopped, a process goes on before the next one is.
    const Duration pause = kills ? settings_.kill_every : 2 * settings_.stall;
    for (std::size_t turn = 0; !ends_within(pause); ++turn) {
        const std::size_t process = turn % pids_.size();
        if (pids_[process] <= 0) continue;  // The fork failed; kill(-1) would reach all processes.
        if (kills) {
            kill_one(process);
            continue;
        }
        kill(pids_[process], SIGSTOP);
        (void)ends_within(settings_.stall);
        kill(pids_[process], SIGCONT);
        ++stalls_;
    }
}

Processes::Line Processes::take() {
    std::unique_lock lock(mutex_);
    free_line_.wait(lock, [&] { return !idle_.empty() || (lines_ == 0 && !replacing_); });
    if (idle_.empty()) return {-1, 0};
    // The longest idle one, so that all processes get calls.
    const Line line = idle_.front();
    idle_.erase(idle_.begin());
    return line;
}

void Processes::give_back(Line line, bool broken) {
    const std::lock_guard lock(mutex_);
    if (broken) {
        close(line.socket);
        --lines_;
    } else {
        idle_.push_back(line);
    }
    free_line_.notify_all();
}

std::vector<Answer> Processes::apply_many(std::span<const Operation> operations) {
    std::vector<Answer> answers(operations.size(), Answer{Outcome::failed, ErrorCode::unavailable});
    const Line line = take();
    if (line.socket < 0) return answers;
    const bool sent = send_all(line.socket, operations);
    const bool answered = sent && receive(line.socket, std::span{answers}) == operations.size();
    give_back(line, !answered);
    if (!answered) {
        answers.assign(operations.size(), Answer{Outcome::unknown, ErrorCode::outcome_unknown});
    }
    return answers;
}

void Processes::prepare() {
    std::size_t lines = 0;
    {
        const std::lock_guard lock(mutex_);
        lines = lines_;
    }
    // The longest idle one is taken each time.
    for (std::size_t line = 0; line < lines; ++line) {
        if (apply({1, 0, OperationKind::read, false}).outcome != Outcome::ok) return;
    }
}

Answer Processes::apply(const Operation& operation) {
    return apply_many(std::span{&operation, 1}).front();
}

}  // namespace hotcount::loadtest
