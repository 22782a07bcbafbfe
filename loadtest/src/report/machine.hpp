// The machine and the build with which a figure was measured: a number without them says nothing.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

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
    /// It must be so many times what is reported.
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

}  // namespace hotcount::loadtest
