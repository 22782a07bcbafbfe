// What operators read in a log: servers that go away and come back, queues that fill up. A change of
// state is one line, a warning when trouble begins and an info when it ends.
//
// Thread-safe, and safe under any lock of the library: a line is queued, and a thread that exists only
// then hands the queue to the sink. Without a sink, nothing is kept. A forked child begins with an empty
// queue. At most kMostLines lines wait for the sink; later ones are dropped.
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
    bool is_trouble;  ///< A warning; else an info.
    std::string text;
};

inline constexpr std::size_t kMostLines = 1000;

/// Gets the lines that wait, in a thread of the library. Must not throw.
using LogSink = void (*)(std::vector<LogLine> lines);
void set_log_sink(LogSink sink);
/// Queues a line for the sink, without the passwords that this process has connected with.
void log_line(bool is_trouble, std::string_view text);
/// The lines that no sink got yet: for the end of the process. If a thread is about to hand lines to the
/// sink, waits for it, but no longer than kLastWait.
std::vector<LogLine> take_log_lines();
inline constexpr Duration kLastWait = std::chrono::seconds{1};
/// An error's message without the key that may stand at its end, and may be a name or a token of a user.
std::string_view without_key(std::string_view message);

// What begins and ends.
inline constexpr std::string_view kUnavailable = "is not available";
inline constexpr std::string_view kAvailable = "is available again";
inline constexpr std::string_view kFull = "has a full queue";
inline constexpr std::string_view kHasRoom = "has room in its queue again";

/// Something that works or does not, such as a server. It is logged when trouble begins and when it
/// ends. After a warning, the next one comes kQuiet later at the earliest, however often the state
/// changes; trouble that lasts until then is logged then. Two loads of memory while all is well.
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
    const std::string_view begins_;  // Literals, as the next.
    const std::string_view ends_;
    // Without a lock, which a fork could leave held.
    std::atomic<SteadyTime> since_{kNever};
    std::atomic<SteadyTime> warned_at_{kNever};
    std::atomic<bool> warned_{false};
};

}  // namespace hotcount
