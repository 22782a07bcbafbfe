#include <hotcount/detail/base/interrupt.hpp>

#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/worker_pool.hpp>
#include <system_error>
#include <utility>

namespace hotcount {
namespace {

std::atomic<InterruptHook> installed{nullptr};
thread_local bool stopped = false;
// Of a thread of HelperThreads: whether the thread that started it was interrupted.
thread_local const std::atomic<bool>* starters = nullptr;

// In a forked child the first thread is the one that forked.
bool is_first_thread() {
#ifdef __linux__
    struct Known {
        std::uint64_t generation;
        bool first;
    };
    static constexpr std::uint64_t kNever = ~std::uint64_t{0};
    thread_local Known known{kNever, false};
    if (known.generation != fork_generation()) {
        known = {fork_generation(), syscall(SYS_gettid) == getpid()};
    }
    return known.first;
#else
    return true;  // Not known: let the hook find out.
#endif
}

bool asks() {
    return starters != nullptr ||
           (installed.load(std::memory_order_acquire) != nullptr && is_first_thread());
}

}  // namespace

void set_interrupt_hook(InterruptHook hook) { installed.store(hook, std::memory_order_release); }

bool interrupted() { return stopped; }

void clear_interrupt() { stopped = false; }

bool check_interrupt() {
    if (stopped || !asks()) return stopped;
    if (starters != nullptr) return stopped = starters->load();
    if (const InterruptHook hook = installed.load(std::memory_order_acquire)) stopped = hook();
    return stopped;
}

SteadyTime next_check(Deadline deadline) {
    if (deadline.time() == SteadyTime::max()) return deadline.time();
    if (stopped) return SteadyTime{};  // In the past: do not wait.
    if (!asks()) return deadline.time();
    return std::min(deadline.time(), std::chrono::steady_clock::now() + kInterruptSlice);
}

void sleep_or_interrupt(Duration duration) {
    const Deadline until = Deadline::after(duration);
    while (!until.passed()) {
        // Not std::this_thread::sleep_for, which goes on sleeping after a signal.
        const Duration left = std::min(until.remaining(), kInterruptSlice);
        const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
        const timespec pause{static_cast<std::time_t>(seconds.count()),
                             static_cast<long>((left - seconds).count())};
        nanosleep(&pause, nullptr);
        check_interrupt();
    }
}

bool HelperThreads::start(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    threads_.reserve(threads_.size() + 1);
    try {
        threads_.push_back(start_thread([this, work = std::move(work)] {
            starters = &interrupted_;
            work();
            const std::lock_guard ends(mutex_);
            --running_;
            ended_.notify_all();
        }));
    } catch (const std::system_error&) {
        return false;
    }
    ++running_;
    return true;
}

void HelperThreads::join() {
    {
        std::unique_lock lock(mutex_);
        const auto none_runs = [&] { return running_ == 0; };
        while (!none_runs()) {
            if (interrupted()) {
                interrupted_ = true;
                ended_.wait(lock, none_runs);
            } else {
                (void)wait_or_interrupt(ended_, lock, Deadline::after(std::chrono::hours{1}),
                                        none_runs);
            }
        }
    }
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
}

}  // namespace hotcount
