// The progress of a command on stderr, for people (line) or programs (ndjson).
//
//   line     one line that is rewritten each second on a terminal, one per trial elsewhere
//   ndjson   one JSON object a line: {"event": "set_up" | "load" | "sample" | "end", ...}
//
// Used from one thread.
#pragma once

#include <fmt/core.h>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>

#include "load/runner.hpp"
#include "load/settings.hpp"

namespace hotcount::loadtest {

/// Writes text to a stream that may fail: a closed pipe, a terminal that was hung up, a full disk.
/// fmt::print throws there, and a measurement must not end because its progress has no reader.
///
/// Returns true if all of it was written; a buffered stream may still fail at its flush. Throws
/// only if memory is exhausted.
template <class... Args>
bool say(std::FILE* to, fmt::format_string<Args...> format, Args&&... args) {
    const std::string text = fmt::format(format, std::forward<Args>(args)...);
    return std::fwrite(text.data(), 1, text.size(), to) == text.size();
}

struct TrialResult;

class Progress {
  public:
    Progress(ProgressMode mode, std::FILE* stream);

    /// Sets the number of trials and the sum of their loads' lengths. Without this call both are
    /// unknown.
    void expect(std::size_t trials, double load_s);
    /// Takes `trials` trials off, whose loads would have lasted `load_s` altogether.
    void expect_fewer(std::size_t trials, double load_s);
    /// A trial is being set up; its load will last `load_s`.
    void set_up(const std::string& label, double load_s);
    void load();
    void sample(const LoadSample& sample);
    void end(const TrialResult& trial);
    /// Takes back the line on a terminal: text follows.
    void done();

  private:
    void write_line(std::string text, bool final);
    double left_s(double elapsed_s) const;
    std::string place() const;
    std::string left(double elapsed_s) const;

    ProgressMode mode_;
    std::FILE* stream_;
    bool terminal_;
    std::size_t trials_{0};
    std::size_t trial_{0};
    double left_of_others_s_{0};  // Without the present trial's.
    double load_s_{0};
    std::chrono::steady_clock::time_point began_{std::chrono::steady_clock::now()};
    double load_done_s_{0};   // Of all trials so far.
    double on_top_s_{0};      // Mean time of a trial without its load.
    std::size_t written_{0};  // Columns of the line on the terminal now.
    std::string label_{};
};

/// Calls done() at the end of its scope, which has the trials of a study, whatever ends it.
class ProgressScope {
  public:
    explicit ProgressScope(Progress& progress) : progress_(progress) {}
    ~ProgressScope() { progress_.done(); }
    ProgressScope(const ProgressScope&) = delete;
    ProgressScope& operator=(const ProgressScope&) = delete;

  private:
    Progress& progress_;
};

}  // namespace hotcount::loadtest
