#include "progress.hpp"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "load/run_folder.hpp"
#include "trial.hpp"

namespace hotcount::loadtest {
namespace {

double in_ms(std::int64_t ns) { return static_cast<double>(ns) * 1e-6; }

}  // namespace

Progress::Progress(ProgressMode mode, std::FILE* stream)
    : mode_(mode), stream_(stream), terminal_(isatty(fileno(stream)) == 1) {}

void Progress::expect(std::size_t trials, double load_s) {
    trials_ = trials;
    left_of_others_s_ = load_s;
    began_ = std::chrono::steady_clock::now();
    if (trials < 2 || mode_ == ProgressMode::none) return;
    if (mode_ == ProgressMode::ndjson) {
        const nlohmann::json event = {{"event", "expect"}, {"trials", trials}, {"load_s", load_s}};
        fmt::print(stream_, "{}\n", json_text(event));
    } else {
        fmt::print(stream_, "{} trials, {:.0f} s of load; set-up and audits come on top\n", trials,
                   load_s);
    }
    std::fflush(stream_);
}

void Progress::expect_fewer(std::size_t trials, double load_s) {
    // Trials that have begun stay in the number.
    trials_ -= std::min(trials, trials_ - std::min(trials_, trial_));
    left_of_others_s_ = std::max(0.0, left_of_others_s_ - load_s);
}

void Progress::done() {
    if (written_ == 0) return;
    say(stream_, "\r{:{}}\r", "", written_);
    std::fflush(stream_);
    written_ = 0;
}

std::string Progress::place() const {
    return trials_ == 0 ? fmt::format("[{}]", trial_) : fmt::format("[{}/{}]", trial_, trials_);
}

std::string Progress::left(double elapsed_s) const {
    return trials_ == 0 ? "" : fmt::format(", about {:.0f} s left", left_s(elapsed_s));
}

double Progress::left_s(double elapsed_s) const {
    const auto trials_left = trials_ > trial_ ? static_cast<double>(trials_ - trial_) : 0.0;
    return std::max(0.0, left_of_others_s_ + load_s_ - elapsed_s) + trials_left * on_top_s_;
}

void Progress::set_up(const std::string& label, double load_s) {
    // The time of the trials before, without their loads.
    const std::chrono::duration<double> so_far = std::chrono::steady_clock::now() - began_;
    if (trial_ > 0) {
        on_top_s_ = std::max(0.0, so_far.count() - load_done_s_) / static_cast<double>(trial_);
    }
    load_done_s_ += load_s;
    ++trial_;
    label_ = label;
    load_s_ = load_s;
    left_of_others_s_ = std::max(0.0, left_of_others_s_ - load_s);
    if (mode_ == ProgressMode::ndjson) {
        const nlohmann::json event = {
            {"event", "set_up"}, {"trial", trial_}, {"trials", trials_}, {"label", label_}};
        say(stream_, "{}\n", json_text(event));
        std::fflush(stream_);
    } else if (mode_ == ProgressMode::line) {
        write_line(fmt::format("{} {}: setting up{}", place(), label_, left(0)), false);
    }
}

void Progress::load() {
    if (mode_ != ProgressMode::ndjson) return;
    const nlohmann::json event = {{"event", "load"}, {"trial", trial_}, {"label", label_}};
    say(stream_, "{}\n", json_text(event));
    std::fflush(stream_);
}

void Progress::sample(const LoadSample& sample) {
    if (mode_ == ProgressMode::ndjson) {
        const nlohmann::json event = {{"event", "sample"},
                                      {"trial", trial_},
                                      {"label", label_},
                                      {"elapsed_s", sample.elapsed_s},
                                      {"rate_per_s", sample.rate_per_s},
                                      {"p99_us", static_cast<double>(sample.p99_ns) * 1e-3},
                                      {"errors", sample.errors},
                                      {"backlog", sample.backlog},
                                      {"left_s", left_s(sample.elapsed_s)}};
        say(stream_, "{}\n", json_text(event));
        std::fflush(stream_);
    } else if (mode_ == ProgressMode::line) {
        write_line(fmt::format("{} {}: {:.0f}/s, p99 {:.1f} ms, {} errors, backlog {}{}", place(),
                               label_, sample.rate_per_s, in_ms(sample.p99_ns), sample.errors,
                               sample.backlog, left(sample.elapsed_s)),
                   false);
    }
}

void Progress::end(const TrialResult& trial) {
    const double rate = trial.load.per_second(trial.load.tally.writes_ok());
    if (mode_ == ProgressMode::ndjson) {
        const nlohmann::json event = {{"event", "end"},
                                      {"trial", trial_},
                                      {"label", label_},
                                      {"writes_per_s", rate},
                                      {"conclusion", to_string(trial.conclusion)}};
        say(stream_, "{}\n", json_text(event));
        std::fflush(stream_);
    } else if (mode_ == ProgressMode::line) {
        write_line(
            fmt::format("{} {}: {:.0f} writes/s, {}", place(), label_, rate, trial.verdict()),
            true);
    }
}

void Progress::write_line(std::string text, bool final) {
    // A log file gets what lasts; only a terminal can take a line back.
    if (!terminal_) {
        if (final) say(stream_, "{}\n", text);
    } else {
        // A line that goes on in the next one could not be taken back.
        winsize window{};
        if (ioctl(fileno(stream_), TIOCGWINSZ, &window) == 0 && window.ws_col > 1) {
            text.resize(std::min<std::size_t>(text.size(), window.ws_col - 1U));
        }
        const std::size_t erase = written_ > text.size() ? written_ - text.size() : 0;
        say(stream_, "\r{}{:{}}", text, "", erase);
        written_ = text.size();
        // The table follows: leave nothing behind.
        if (final && trial_ == trials_) done();
    }
    std::fflush(stream_);
}

}  // namespace hotcount::loadtest
