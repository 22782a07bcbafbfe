// Log lines for operators: servers that become unavailable or available, queues that fill up. Each
// change of state is one line: a warning when trouble begins and an info when it ends.
//
// Thread-safe, and safe under any lock of the library: a line is queued, and a thread that exists
// only while there are lines passes them to the sink. Without a sink, no line is kept. A forked
// child begins with an empty queue. At most kMostLines lines wait; later lines are dropped.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <hotcount/clock.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hotcount {

struct LogLine {
    bool is_trouble;  ///< True: a warning. False: an info.
    std::string text;
};

inline constexpr std::size_t kMostLines = 1000;

/// Receives the queued lines, in a thread of the library. Must not throw.
using LogSink = void (*)(std::vector<LogLine> lines);
void set_log_sink(LogSink sink);
/// Queues a line for the sink, without the passwords that this process has connected with.
void log_line(bool is_trouble, std::string_view text);
/// Takes the lines that have not reached a sink yet, at the end of the process. Waits for a thread
/// that is about to pass lines to the sink, for at most kLastWait.
std::vector<LogLine> take_log_lines();
inline constexpr Duration kLastWait = std::chrono::seconds{1};
/// An error's message without the key that may stand at its end. A key may be a user's name or
/// token.
std::string_view without_key(std::string_view message);

// Texts for Trouble::Trouble().
inline constexpr std::string_view kUnavailable = "is not available";
inline constexpr std::string_view kAvailable = "is available again";
inline constexpr std::string_view kFull = "has a full queue";
inline constexpr std::string_view kHasRoom = "has room in its queue again";

/// The state of a resource, such as a server, that may fail. Logs when trouble begins and when it
/// ends. The next warning comes kQuiet after the last one at the earliest, however often the state
/// changes; trouble that lasts until then is logged then. Without trouble it costs two loads.
class Trouble {
  public:
    /// Lines read "SUBJECT BEGINS: WHY" and "SUBJECT ENDS, after SECONDS s".
    Trouble(std::string subject, std::string_view begins, std::string_view ends)
        : subject_(std::move(subject)), begins_(begins), ends_(ends) {}

    void begin(std::string_view why);
    void end() {
        if (since_.load(std::memory_order_relaxed) != kNever) [[unlikely]]
            end_now();
    }
    bool is_on() const { return since_.load(std::memory_order_relaxed) != kNever; }

    static constexpr Duration kQuiet = std::chrono::seconds{10};

  private:
    static constexpr SteadyTime kNever = SteadyTime::min();

    void end_now();
    void tell_end(SteadyTime since);

    const std::string subject_;
    const std::string_view begins_;  // begins_ and ends_ are literals.
    const std::string_view ends_;
    // Atomics instead of a lock, because a fork could leave a lock held.
    std::atomic<SteadyTime> since_{kNever};
    std::atomic<SteadyTime> warned_at_{kNever};
    std::atomic<bool> warned_{false};
};

}  // namespace hotcount
