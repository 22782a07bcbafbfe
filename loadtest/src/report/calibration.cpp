#include "calibration.hpp"

#include <cstdlib>

#include "load/run_folder.hpp"
#include "report_json.hpp"

namespace hotcount::loadtest {

namespace fs = std::filesystem;

std::optional<fs::path> calibration_cache() {
    const auto set = [](const char* name) -> std::optional<fs::path> {
        const char* value = std::getenv(name);
        if (value == nullptr || *value != '/') return std::nullopt;
        return fs::path{value};
    };
    if (const auto cache = set("XDG_CACHE_HOME")) return *cache / "hotcount" / kCalibrationFile;
    if (const auto home = set("HOME")) return *home / ".cache" / "hotcount" / kCalibrationFile;
    return std::nullopt;
}

std::optional<GeneratorCeiling> find_ceiling(const fs::path& path,
                                             const nlohmann::json& provenance) {
    const auto document = read_json(path);
    if (!document) return std::nullopt;
    try {
        for (const char* what : {"machine", "versions"}) {
            if (document->at(what) != provenance.at(what)) return std::nullopt;
        }
        if (document->at("schema") != kSchema) return std::nullopt;
        const nlohmann::json& ceiling = document->at("ceiling");
        return GeneratorCeiling{ceiling.at("closed_per_s").get<double>(),
                                ceiling.at("open_per_s").get<double>()};
    } catch (const nlohmann::json::exception&) {
        return std::nullopt;
    }
}

}  // namespace hotcount::loadtest
