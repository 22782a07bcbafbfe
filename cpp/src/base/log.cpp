#include <condition_variable>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/log.hpp>
#include <hotcount/detail/base/worker_pool.hpp>
#include <memory>
#include <mutex>

#include "base/secrets.hpp"

namespace hotcount {
namespace {

std::atomic<LogSink> the_sink{nullptr};

struct LogQueue {
    std::mutex mutex;
    std::vector<LogLine> lines;
    bool handed_on{false};  // A thread is passing lines to the sink.
    std::condition_variable at_rest;
};

LogQueue& log_queue() {
    // Never destroyed: threads may log while the process ends.
    static auto* const own = new ForkLocal<LogQueue>{[] { return std::make_unique<LogQueue>(); }};
    return own->get();
}

void hand_on(LogQueue& from) {
    while (true) {
        std::vector<LogLine> lines;
        {
            const std::lock_guard lock(from.mutex);
            lines.swap(from.lines);
            if (lines.empty()) {
                from.handed_on = false;
                from.at_rest.notify_all();
                return;
            }
        }
        if (const LogSink sink = the_sink.load()) sink(std::move(lines));
    }
}

std::string seconds_text(Duration time) {
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(time).count();
    const std::string rest = std::to_string(ms % 1000);
    return std::to_string(ms / 1000) + "." + std::string(3 - rest.size(), '0') + rest;
}

}  // namespace

void set_log_sink(LogSink sink) {
    (void)log_queue();  // Created before there are threads and forks.
    the_sink.store(sink);
}

void log_line(bool is_trouble, std::string_view text) {
    if (the_sink.load() == nullptr) return;
    LogLine line{is_trouble, hide_secrets(text)};
    LogQueue& here = log_queue();
    const std::lock_guard lock(here.mutex);
    if (here.lines.size() >= kMostLines) return;
    here.lines.push_back(std::move(line));
    if (here.handed_on) return;
    // If no thread could be started, the next line tries again.
    here.handed_on = spawn_thread([&here] { hand_on(here); }).ok();
}

std::vector<LogLine> take_log_lines() {
    LogQueue& here = log_queue();
    std::unique_lock lock(here.mutex);
    here.at_rest.wait_for(lock, kLastWait, [&] { return !here.handed_on; });
    return std::exchange(here.lines, {});
}

std::string_view without_key(std::string_view message) {
    return message.substr(0, message.find(" (key "));
}

void Trouble::begin(std::string_view why) {
    const SteadyTime now = std::chrono::steady_clock::now();
    SteadyTime since = kNever;
    since_.compare_exchange_strong(since, now, std::memory_order_relaxed);
    if (warned_.load(std::memory_order_relaxed)) return;
    SteadyTime last = warned_at_.load(std::memory_order_relaxed);
    if (last != kNever && now - last < kQuiet) return;
    // If several threads see the trouble at the same time, one of them logs it.
    if (!warned_at_.compare_exchange_strong(last, now, std::memory_order_relaxed)) return;
    if (why.starts_with(subject_ + ": ")) why.remove_prefix(subject_.size() + 2);
    log_line(true, subject_ + " " + std::string{begins_} + ": " + std::string{why});
    warned_.store(true);
    // The trouble may have ended while this thread logged it.
    if (since_.load() == kNever) tell_end(now);
}

void Trouble::end_now() {
    const SteadyTime since = since_.exchange(kNever);
    if (since != kNever) tell_end(since);
}

void Trouble::tell_end(SteadyTime since) {
    if (!warned_.exchange(false)) return;
    log_line(false, subject_ + " " + std::string{ends_} + ", after " +
                        seconds_text(std::chrono::steady_clock::now() - since) + " s");
}

}  // namespace hotcount
