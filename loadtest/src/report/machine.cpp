#include "machine.hpp"

#include <fmt/core.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <hotcount/build_info.hpp>

#include "load/run_folder.hpp"
#include "report_json.hpp"

namespace hotcount::loadtest {

namespace {

std::string first_line(const char* path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

int usable_cpus() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
    return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

std::string cpu_model() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        const std::size_t colon = line.find(": ");
        if (line.starts_with("model name") && colon != std::string::npos) {
            return line.substr(colon + 2);
        }
    }
    return "unknown";
}

std::string kernel() {
    utsname names{};
    if (uname(&names) != 0) return "unknown";
    return fmt::format("{} {}", names.sysname, names.release);
}

}  // namespace

nlohmann::json describe_machine() {
    const long pages = sysconf(_SC_PHYS_PAGES);
    utsname names{};
    uname(&names);
    return {{"cpus", usable_cpus()},
            {"cpu_model", cpu_model()},
            {"architecture", names.machine},
            {"memory_bytes", static_cast<std::int64_t>(pages) * sysconf(_SC_PAGESIZE)},
            {"kernel", kernel()},
            {"clock_source",
             first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource")}};
}

std::string machine_line() {
    return fmt::format("{} x {}, {}", usable_cpus(), cpu_model(), kernel());
}

nlohmann::json describe_versions() {
    nlohmann::json versions = nlohmann::json::object();
    for (const auto& [name, value] : build_info()) versions[name] = value;
    return versions;
}

std::optional<std::string> why_not_measurable() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return "it is built with a sanitizer";
#elif !defined(NDEBUG)
    return "it is a debug build (NDEBUG is not defined)";
#else
    // The library's own build type, should the two differ.
    const auto info = build_info();
    const auto type = info.find("build_type");
    if (type != info.end() && type->second == "Debug") return "the library is a debug build";
    return std::nullopt;
#endif
}

std::string utc_now() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900,
                       parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

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
