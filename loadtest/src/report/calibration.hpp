// What this machine and this generator can do by themselves: the floor under every figure.
//
//   timer     how much later than asked a sleep ends
//   ceiling   operations per second with a strategy that does nothing, and what one costs
//   flush     how long a small write takes until it is on the disk
//
// `hotcount-load calibrate` measures it into a file, which later commands on the same machine and
// with the same version find. A result that comes near the ceiling says how fast the generator is.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <hotcount/result.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "load/histogram.hpp"
#include "load/settings.hpp"

namespace hotcount::loadtest {

inline constexpr const char* kCalibrationFile = "calibration.json";
inline constexpr double kFirstRate = 10'000;

/// The most that the generator can do with a strategy that does nothing.
struct GeneratorCeiling {
    /// It must be so many times what is reported.
    static constexpr double kLeastHeadroom = 3;

    double closed_per_s{0};  ///< In a closed loop.
    double open_per_s{0};    ///< The highest rate of an open loop that was carried.

    double per_s(Arrival arrival) const {
        return arrival == Arrival::closed ? closed_per_s : open_per_s;
    }
};

struct Calibration {
    std::string measured{};  ///< UTC.
    Histogram timer_ns{};    ///< How much too late sleeps ended.
    GeneratorCeiling ceiling{};
    std::uint32_t workers{0};  ///< With so many threads.
    /// Processor time of one operation of an open loop: at kFirstRate, where a worker sleeps before each,
    /// and at the highest rate that was carried, where hardly anybody sleeps.
    double cpu_us_per_operation{0};
    double cpu_us_at_ceiling{0};
    Histogram flush_ns{};
    std::string flushed_on{};  ///< The file system.
};

/// Takes 5 to 15 seconds. Its files are below `folder`, which exists; they are removed again.
Result<Calibration> calibrate(const std::filesystem::path& folder,
                              const std::atomic<bool>& interrupt);

/// `provenance` as in run.json.
nlohmann::json calibration_document(const Calibration& calibration,
                                    const nlohmann::json& provenance);
std::string calibration_text(const Calibration& calibration);

/// Where calibrations are kept: $XDG_CACHE_HOME/hotcount/calibration.json, else in ~/.cache. None
/// without a home.
std::optional<std::filesystem::path> calibration_cache();
/// Of such a document in a file. None if there is none, or it is of another machine or version than
/// `provenance`: then its figures say nothing.
std::optional<GeneratorCeiling> find_ceiling(const std::filesystem::path& path,
                                             const nlohmann::json& provenance);

}  // namespace hotcount::loadtest
