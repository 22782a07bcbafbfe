// The machine and the build with which a figure was measured: a number without them says nothing.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "load/settings.hpp"

namespace hotcount::loadtest {

/// Processors this process may use, their model, memory, kernel, clock source.
nlohmann::json describe_machine();
/// One line of the same, for tables: "2 x <model>, Linux 6.1".
std::string machine_line();

/// hotcount::build_info() with the generator's own compiler flags.
nlohmann::json describe_versions();

/// Why this build's figures would mislead: assertions are on, or a sanitizer is compiled in. None
/// for a release build.
std::optional<std::string> why_not_measurable();

/// The present in UTC, as 2024-05-31T12:00:00Z.
std::string utc_now();

inline constexpr const char* kCalibrationFile = "calibration.json";

/// The most that the generator can do with a strategy that does nothing: `hotcount load calibrate` has
/// measured it with such runs and left it in a file. A result that comes near this ceiling says how fast
/// the generator is.
struct GeneratorCeiling {
    /// The ceiling must be at least this many times the reported rate.
    static constexpr double kLeastHeadroom = 3;

    double closed_per_s{0};  ///< In a closed loop.
    double open_per_s{0};    ///< The highest rate of an open loop that was carried.

    double per_s(Arrival arrival) const {
        return arrival == Arrival::closed ? closed_per_s : open_per_s;
    }
};

/// Where calibrations are kept: $XDG_CACHE_HOME/hotcount/calibration.json, else in ~/.cache. None
/// without a home.
std::optional<std::filesystem::path> calibration_cache();
/// Of such a document in a file. None if there is none, or it is of another machine or version than
/// `provenance`: then its figures say nothing.
std::optional<GeneratorCeiling> find_ceiling(const std::filesystem::path& path,
                                             const nlohmann::json& provenance);

// -- what the machine did around a load -------------------------------------------------------------
//
// A figure that was measured beside other programs' work says little about the strategy.
//
// measure_machine() takes about 10 ms, and up to kMostFlushTime longer on a slow disk. Used from one
// thread at a time.

/// Of all processors together, since the machine started, in seconds.
struct CpuTimes {
    double all_s{0};
    double busy_s{0};
    double stolen_s{0};  ///< By other guests of the same host.
    double own_s{0};     ///< By this process and its children that have ended.
};

struct MachineState {
    std::optional<double> load_average{};  ///< Of one minute.
    std::optional<CpuTimes> cpu{};
    std::string governor{};                ///< Of the first processor; empty: not to be read.
    std::vector<std::int64_t> flush_ns{};  ///< Writes of 4 KB and their fsync in the run's folder.
    std::vector<std::int64_t> overshoot_ns{};  ///< How much longer than asked each sleep took.
};

/// How long the flushes of one call of measure_machine() may take together before it stops.
inline constexpr std::chrono::milliseconds kMostFlushTime{50};

MachineState measure_machine(const std::filesystem::path& folder);
/// The lateness of each of `sleeps` sleeps of 100 us, with sharpened timers.
std::vector<std::int64_t> measure_overshoot(std::size_t sleeps);

/// Before and after one load.
struct MachineWatch {
    MachineState before{};
    MachineState after{};
    bool on_server{false};  ///< A server worked too: others' work cannot be told from its.

    /// Of all processor time in between; none if the system does not say.
    std::optional<double> stolen_share() const;
    /// The share that neither the generator used nor was idle; none with a server.
    std::optional<double> others_share() const;
    /// Of the flushes before and after.
    std::int64_t median_flush_ns() const;
};

nlohmann::json describe(const MachineWatch& watch);

/// The p99 of all sleeps around these loads: no latency that begins with a sleep is known any better
/// than to twice as much. 0: none was measured.
std::int64_t timer_floor_ns(std::span<const MachineWatch> watches);

/// One line for each kind of disturbance, such as "others used up to 38 % of the processors in rounds
/// 2, 5"; none if there was none. A watch for each load; `rounds` has their numbers, from 1; 0 is a
/// load that is no round. Flushes and
/// sleeps are held against the median of all these loads.
std::vector<std::string> disturbances(std::span<const MachineWatch> watches,
                                      std::span<const std::size_t> rounds);

}  // namespace hotcount::loadtest
