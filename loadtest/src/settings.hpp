// What the user may choose, and the text forms that durations, counts and mixes take.
//
// Each parser returns an error that says what it was given and what it takes; the names of the
// strategies and of everything else one can misspell are listed there too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <hotcount/base/result.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pacer.hpp"
#include "workload.hpp"

namespace hotcount::loadtest {

enum class Command : std::uint8_t { canonical, compare, run, audit };
std::string_view to_string(Command command);

enum class WorkloadKind : std::uint8_t {
    votes,     ///< hotcount::Votes on SQL.
    counters,  ///< hotcount::Counter in this process's memory.
};
std::string_view to_string(WorkloadKind kind);

enum class ProgressMode : std::uint8_t { line, ndjson, none };

/// What one trial needs to know. Defaults are those of `run`.
struct TrialSettings {
    WorkloadKind workload{WorkloadKind::votes};
    std::string strategy{"batched"};
    Arrival arrival{Arrival::closed};
    double rate_per_s{0};  ///< 0 in the closed loop.
    std::uint32_t workers{32};
    Duration warmup{std::chrono::seconds{1}};
    Duration duration{std::chrono::seconds{10}};
    TrafficSettings traffic{};
    Duration timeout{std::chrono::seconds{1}};
    std::uint64_t max_operations{20'000'000};
    /// Empty: a file of the trial's own in its folder. Otherwise an absolute SQLite URL.
    std::string database_url{};
};

struct Settings {
    Command command{Command::canonical};
    std::vector<std::string> strategies{};
    std::string baseline{};
    std::uint32_t rounds{5};
    TrialSettings trial{};
    std::optional<std::filesystem::path> out{};  ///< None: a temporary folder.
    std::filesystem::path audit_folder{};
    bool json{false};
    ProgressMode progress{ProgressMode::line};
    bool allow_debug{false};
    std::vector<std::string> command_line{};
};

/// Limits that keep a slip of the finger from filling a disk or starting a million threads.
inline constexpr std::uint32_t kMostWorkers = 1024;
inline constexpr std::uint32_t kMostRounds = 1000;
inline constexpr std::uint64_t kMostItems = 50'000'000;
inline constexpr std::uint64_t kMostUsers = std::uint64_t{1} << 40;
inline constexpr std::uint64_t kMostOperations = 1'000'000'000;

/// The strategies that a workload can be run with.
std::vector<std::string> strategies_of(WorkloadKind kind);

/// 250us, 500ms, 10s, 1.5m, 2h; a plain number is seconds. Not negative, at most 30 days.
Result<Duration> parse_duration(std::string_view text);
/// 1000, 10k, 1.5M, 2G: a whole number after all.
Result<std::uint64_t> parse_count(std::string_view text);
/// As a count, but may have a fraction: 0.5, 2.5k. Positive.
Result<double> parse_rate(std::string_view text);
/// vote=80,unvote=5,read=15; what is left out is 0.
Result<Mix> parse_mix(std::string_view text);
Result<WorkloadKind> parse_workload(std::string_view text);
Result<Arrival> parse_arrival(std::string_view text);
Result<ProgressMode> parse_progress(std::string_view text);
/// a,b,c, each of them a strategy of the workload.
Result<std::vector<std::string>> parse_strategies(std::string_view text, WorkloadKind kind);
/// The URL with its file's path made absolute, so that a later audit finds it from any folder.
Result<std::string> absolute_database_url(std::string_view url);
/// The URL of a file.
std::string sqlite_url(const std::filesystem::path& path);

/// 2m, 1.5s, 300ms, 250us: as parse_duration takes it.
std::string format_duration(Duration duration);

}  // namespace hotcount::loadtest
