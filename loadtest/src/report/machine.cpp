#include "machine.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <hotcount/build_info.hpp>
#include <set>
#include <sstream>

#include "load/pacer.hpp"
#include "load/run_folder.hpp"
#include "numbers.hpp"
#include "report.hpp"

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

namespace {

using nlohmann::json;
using std::chrono::microseconds;
using std::chrono::steady_clock;

constexpr std::size_t kSleeps = 32;
constexpr std::size_t kFlushes = 3;
// Bounds below which a machine without other work stays.
constexpr double kMostStolen = 0.02;
constexpr double kMostOthers = 0.2;
constexpr double kTimesTheMedian = 4;
constexpr double kLeastSlowFlushMs = 20;
constexpr double kLeastLateSleepMs = 4;

std::int64_t ns_since(SteadyTime start) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(steady_clock::now() - start)
        .count();
}

double own_cpu_s() {
    double total = 0;
    for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
        rusage used{};
        if (getrusage(who, &used) != 0) continue;
        for (const timeval& time : {used.ru_utime, used.ru_stime}) {
            total += static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
        }
    }
    return total;
}

std::optional<CpuTimes> cpu_times() {
    std::ifstream file("/proc/stat");
    std::string name;
    // user nice system idle iowait irq softirq steal
    std::array<double, 8> ticks{};
    file >> name;
    for (double& each : ticks) file >> each;
    const long per_second = sysconf(_SC_CLK_TCK);
    if (!file || name != "cpu" || per_second <= 0) return std::nullopt;
    CpuTimes times;
    for (const double each : ticks) times.all_s += each;
    times.busy_s = times.all_s - ticks[3] - ticks[4] - ticks[7];
    times.stolen_s = ticks[7];
    for (double* each : {&times.all_s, &times.busy_s, &times.stolen_s}) {
        *each /= static_cast<double>(per_second);
    }
    times.own_s = own_cpu_s();
    return times;
}

std::vector<std::int64_t> measure_flushes(const std::filesystem::path& folder) {
    std::vector<std::int64_t> flushes;
    std::string path = (folder / "flush-XXXXXX").string();
    const int file = mkostemp(path.data(), O_CLOEXEC);
    if (file < 0) return flushes;
    (void)unlink(path.c_str());
    const std::array<char, 4096> page{};
    const SteadyTime start = steady_clock::now();
    for (std::size_t i = 0; i < kFlushes && steady_clock::now() - start < kMostFlushTime; ++i) {
        const SteadyTime begin = steady_clock::now();
        if (write(file, page.data(), page.size()) != static_cast<ssize_t>(page.size()) ||
            fdatasync(file) != 0) {
            break;
        }
        flushes.push_back(ns_since(begin));
    }
    close(file);
    return flushes;
}

std::vector<double> in_ms(std::span<const std::int64_t> ns) {
    std::vector<double> ms;
    for (const std::int64_t each : ns) ms.push_back(static_cast<double>(each) * 1e-6);
    return ms;
}

/// Of both states.
std::vector<std::int64_t> both(const MachineWatch& watch,
                               std::vector<std::int64_t> MachineState::*member) {
    std::vector<std::int64_t> all = watch.before.*member;
    const std::vector<std::int64_t>& after = watch.after.*member;
    all.insert(all.end(), after.begin(), after.end());
    return all;
}

/// The share of `part` in all processor time between the two states; empty if one lacks it.
std::optional<double> share_between(const MachineWatch& watch,
                                    const std::function<double(const CpuTimes&)>& part) {
    if (!watch.before.cpu || !watch.after.cpu) return std::nullopt;
    const double all = watch.after.cpu->all_s - watch.before.cpu->all_s;
    if (all <= 0) return std::nullopt;
    const double spent = part(*watch.after.cpu) - part(*watch.before.cpu);
    return std::clamp(spent / all, 0.0, 1.0);
}

json describe(const MachineState& state) {
    const Spread overshoot = spread_of(in_ms(state.overshoot_ns));
    json result = {
        {"load_average", nullptr},
        {"governor", nullptr},
        {"flush_us", nullptr},
        {"timer_overshoot_us", {{"p50", overshoot.median * 1e3}, {"max", overshoot.max * 1e3}}}};
    if (state.load_average) result["load_average"] = *state.load_average;
    if (!state.governor.empty()) result["governor"] = state.governor;
    if (!state.flush_ns.empty()) result["flush_us"] = median(in_ms(state.flush_ns)) * 1e3;
    return result;
}

/// The rounds in which `value` is above `limit`, and the largest value.
struct Above {
    std::set<std::size_t> rounds{};
    double most{0};
};
Above above(std::span<const double> values, std::span<const std::size_t> rounds, double limit) {
    Above found;
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (values[i] <= limit) continue;
        found.rounds.insert(rounds[i]);
        found.most = std::max(found.most, values[i]);
    }
    return found;
}

std::string in_rounds(const std::set<std::size_t>& rounds, std::span<const std::size_t> all) {
    if (rounds.contains(0)) return {};
    if (rounds.size() > 1 && rounds.size() == std::set(all.begin(), all.end()).size()) {
        return " in every round";
    }
    return fmt::format(" in round{} {}", rounds.size() == 1 ? "" : "s", fmt::join(rounds, ", "));
}

}  // namespace

std::vector<std::int64_t> measure_overshoot(std::size_t sleeps) {
    constexpr microseconds kSleep{100};
    sharpen_timers();
    std::vector<std::int64_t> overshoots;
    overshoots.reserve(sleeps);
    for (std::size_t i = 0; i < sleeps; ++i) {
        const SteadyTime due = steady_clock::now() + kSleep;
        sleep_until(due);
        overshoots.push_back(std::max<std::int64_t>(0, ns_since(due)));
    }
    return overshoots;
}

MachineState measure_machine(const std::filesystem::path& folder) {
    MachineState state;
    double average = 0;
    if (std::ifstream("/proc/loadavg") >> average) state.load_average = average;
    std::ifstream("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") >> state.governor;
    state.flush_ns = measure_flushes(folder);
    state.overshoot_ns = measure_overshoot(kSleeps);
    state.cpu = cpu_times();
    return state;
}

std::optional<double> MachineWatch::stolen_share() const {
    return share_between(*this, [](const CpuTimes& cpu) { return cpu.stolen_s; });
}

std::optional<double> MachineWatch::others_share() const {
    if (on_server) return std::nullopt;
    return share_between(*this, [](const CpuTimes& cpu) { return cpu.busy_s - cpu.own_s; });
}

std::int64_t MachineWatch::median_flush_ns() const {
    return static_cast<std::int64_t>(median(in_ms(both(*this, &MachineState::flush_ns))) * 1e6);
}

json describe(const MachineWatch& watch) {
    json result = {{"before", describe(watch.before)},
                   {"after", describe(watch.after)},
                   {"stolen_share", nullptr},
                   {"others_share", nullptr}};
    if (const auto share = watch.stolen_share()) result["stolen_share"] = *share;
    if (const auto share = watch.others_share()) result["others_share"] = *share;
    return result;
}

std::int64_t timer_floor_ns(std::span<const MachineWatch> watches) {
    std::vector<std::int64_t> all;
    for (const MachineWatch& watch : watches) {
        const std::vector<std::int64_t> of_one = both(watch, &MachineState::overshoot_ns);
        all.insert(all.end(), of_one.begin(), of_one.end());
    }
    if (all.empty()) return 0;
    std::sort(all.begin(), all.end());
    return all[(all.size() * 99 - 1) / 100];
}

std::vector<std::string> disturbances(std::span<const MachineWatch> watches,
                                      std::span<const std::size_t> rounds) {
    std::vector<double> stolen;
    std::vector<double> others;
    std::vector<double> flushes;
    std::vector<double> sleeps;
    for (const MachineWatch& watch : watches) {
        stolen.push_back(watch.stolen_share().value_or(0));
        others.push_back(watch.others_share().value_or(0));
        flushes.push_back(static_cast<double>(watch.median_flush_ns()) * 1e-6);
        sleeps.push_back(median(in_ms(both(watch, &MachineState::overshoot_ns))));
    }
    std::vector<std::string> lines;
    const auto add = [&](const std::vector<double>& values, double limit, const auto& say) {
        const Above found = above(values, rounds, limit);
        if (!found.rounds.empty())
            lines.push_back(say(found.most, in_rounds(found.rounds, rounds)));
    };
    add(stolen, kMostStolen, [](double most, const std::string& where) {
        return fmt::format("the host took up to {:.0f} % of the processors away{}", 100 * most,
                           where);
    });
    add(others, kMostOthers, [](double most, const std::string& where) {
        return fmt::format("others used up to {:.0f} % of the processors{}", 100 * most, where);
    });
    const double flush = median(flushes);
    add(flushes, std::max(kLeastSlowFlushMs, kTimesTheMedian * flush),
        [&](double most, const std::string& where) {
            return fmt::format("a flush of the disk took {:.0f} ms{}, {:.1f} ms else", most, where,
                               flush);
        });
    const double sleep = median(sleeps);
    add(sleeps, std::max(kLeastLateSleepMs, kTimesTheMedian * sleep),
        [&](double most, const std::string& where) {
            return fmt::format("sleeps ended {:.1f} ms late{}, {:.2f} ms else", most, where, sleep);
        });
    return lines;
}

}  // namespace hotcount::loadtest
