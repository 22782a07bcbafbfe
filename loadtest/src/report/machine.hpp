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

/// The reason why this build's figures would mislead: assertions are on, or a sanitizer is compiled
/// in. Empty for a release build.
std::optional<std::string> why_not_measurable();

/// The present in UTC, as 2024-05-31T12:00:00Z.
std::string utc_now();

inline constexpr const char* kCalibrationFile = "calibration.json";

/// The generator's highest rates, with a strategy that does nothing. `hotcount load calibrate`
/// measures them and writes them to a file. A result near this ceiling measures the generator, not
/// the strategy.
struct GeneratorCeiling {
    /// The ceiling must be at least this many times the reported rate.
    static constexpr double kLeastHeadroom = 3;

    double closed_per_s{0};  ///< In a closed loop.
    double open_per_s{0};    ///< The highest rate of an open loop that was carried.

    double per_s(Arrival arrival) const {
        return arrival == Arrival::closed ? closed_per_s : open_per_s;
    }
};

/// The file of calibrations: $XDG_CACHE_HOME/hotcount/calibration.json, else in ~/.cache. Empty
/// without a home folder.
std::optional<std::filesystem::path> calibration_cache();
/// Reads the ceiling from a calibration file. Empty if there is no such file, or if it is of
/// another machine or version than `provenance`.
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
    bool on_server{false};  ///< A server worked too: its work and other programs' look the same.

    /// The stolen share of all processor time; empty if the system does not report it.
    std::optional<double> stolen_share() const;
    /// The share of processor time that other programs used; empty with a server.
    std::optional<double> others_share() const;
    /// The median time of the flushes before and after the load.
    std::int64_t median_flush_ns() const;
};

nlohmann::json describe(const MachineWatch& watch);

/// The p99 lateness of all sleeps around these loads. A latency that begins with a sleep is known
/// to no better than twice this time. 0: no sleep was measured.
std::int64_t timer_floor_ns(std::span<const MachineWatch> watches);

/// One line for each kind of disturbance, such as "others used up to 38 % of the processors in
/// rounds 2, 5"; no line without a disturbance. `watches` has one for each load, `rounds` its round
/// from 1, or 0 for a load outside the rounds. Flushes and sleeps are compared with the median of
/// all these loads.
std::vector<std::string> disturbances(std::span<const MachineWatch> watches,
                                      std::span<const std::size_t> rounds);

}  // namespace hotcount::loadtest
