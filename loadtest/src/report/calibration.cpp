#include "calibration.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "load/driver.hpp"
#include "load/ledger.hpp"
#include "load/pacer.hpp"
#include "load/run_folder.hpp"
#include "load/runner.hpp"
#include "machine.hpp"
#include "report_json.hpp"
#include "table.hpp"

namespace hotcount::loadtest {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kTimerSleeps = 2000;
constexpr Duration kTimerSleep = std::chrono::microseconds{200};
constexpr Duration kFlushing = std::chrono::seconds{1};
constexpr int kMostFlushes = 500;
constexpr std::uint32_t kWorkers = 32;  // What `run` has.
constexpr Duration kLoad = milliseconds{300};
constexpr double kStep = 1.5;
constexpr double kLastRate = 20e6;

/// Acknowledges everything and does nothing.
class IdleDriver final : public Driver {
  public:
    Answer apply(const Operation& /*operation*/) override { return {}; }
};

std::int64_t since_ns(steady_clock::time_point start) {
    return std::chrono::nanoseconds{steady_clock::now() - start}.count();
}

Histogram measure_timer(const std::atomic<bool>& interrupt) {
    Histogram late_ns;
    sharpen_timers();
    for (int i = 0; i < kTimerSleeps && !interrupt; ++i) {
        const auto due = steady_clock::now() + kTimerSleep;
        sleep_until(due);
        late_ns.record(since_ns(due));
    }
    return late_ns;
}

Result<Histogram> measure_flush(const fs::path& folder, const std::atomic<bool>& interrupt) {
    const fs::path path = folder / "calibration.flush";
    const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    std::array<char, 4096> block{};
    Histogram flush_ns;
    bool done = file >= 0;
    const auto start = steady_clock::now();
    for (int i = 0; done && i < kMostFlushes && !interrupt; ++i) {
        if (since_ns(start) > kFlushing.count()) break;
        const auto from = steady_clock::now();
        done = ::write(file, block.data(), block.size()) == static_cast<ssize_t>(block.size()) &&
               ::fdatasync(file) == 0;
        flush_ns.record(since_ns(from));
    }
    const int error = errno;
    if (file >= 0) {
        ::close(file);
        std::error_code ignored;
        fs::remove(path, ignored);
    }
    if (done) return flush_ns;
    return make_error(ErrorCode::unavailable,
                      fmt::format("{} cannot be written: {}", path.string(), std::strerror(error)));
}

/// One load on a strategy that does nothing. The closed loop has a rate of 0.
Result<LoadResult> idle_load(double rate_per_s, const fs::path& folder,
                             const std::atomic<bool>& interrupt) {
    LoadSettings load;
    load.arrival = rate_per_s > 0 ? Arrival::poisson : Arrival::closed;
    load.rate_per_s = rate_per_s;
    load.workers = kWorkers;
    load.warmup = milliseconds{50};
    load.duration = kLoad;
    const fs::path path = folder / kLedgerFile;
    HOTCOUNT_TRY_ASSIGN(const auto ledger,
                        Ledger::create(path, ledger_capacity(load, 10'000'000), 1));
    IdleDriver driver;
    LoadResult result = run_load(load, driver, *ledger, interrupt);
    std::error_code ignored;
    fs::remove(path, ignored);
    if (result.error) return *result.error;
    return result;
}

nlohmann::json times_json(const Histogram& ns) {
    const auto us = [](std::int64_t value) { return static_cast<double>(value) * 1e-3; };
    return {{"count", ns.count()},
            {"p50", us(ns.value_at(0.5))},
            {"p99", us(ns.value_at(0.99))},
            {"max", us(ns.max())}};
}

std::string times_text(const Histogram& ns) {
    const auto us = [](std::int64_t value) {
        return three_digits(static_cast<double>(value) * 1e-3);
    };
    return fmt::format("p50 {} us, p99 {} us, max {} us", us(ns.value_at(0.5)),
                       us(ns.value_at(0.99)), us(ns.max()));
}

}  // namespace

Result<Calibration> calibrate(const fs::path& folder, const std::atomic<bool>& interrupt) {
    Calibration found;
    found.measured = utc_now();
    found.workers = kWorkers;
    found.timer_ns = measure_timer(interrupt);
    found.flushed_on = file_system_of(folder);
    HOTCOUNT_TRY_ASSIGN(found.flush_ns, measure_flush(folder, interrupt));
    HOTCOUNT_TRY_ASSIGN(const LoadResult closed, idle_load(0, folder, interrupt));
    found.ceiling.closed_per_s = closed.per_second(closed.tally.ok());
    for (double rate = kFirstRate; rate < kLastRate && !interrupt; rate *= kStep) {
        HOTCOUNT_TRY_ASSIGN(LoadResult open, idle_load(rate, folder, interrupt));
        // A machine that was busy for a moment gets another chance.
        if (!open.offered.carried()) {
            HOTCOUNT_TRY_ASSIGN(open, idle_load(rate, folder, interrupt));
        }
        const auto done = static_cast<double>(std::max<std::uint64_t>(1, open.tally.ok()));
        const double cpu_us = 1e6 * open.cpu_s / done;
        if (rate == kFirstRate) found.cpu_us_per_operation = cpu_us;
        if (!open.offered.carried()) break;
        found.ceiling.open_per_s = rate;
        found.cpu_us_at_ceiling = cpu_us;
    }
    if (interrupt) return make_error(ErrorCode::unavailable, "the calibration was interrupted");
    return found;
}

nlohmann::json calibration_document(const Calibration& calibration,
                                    const nlohmann::json& provenance) {
    nlohmann::json document = begin_document("calibration", provenance);
    document["measured"] = calibration.measured;
    document["timer_late_us"] = times_json(calibration.timer_ns);
    document["ceiling"] = {{"closed_per_s", calibration.ceiling.closed_per_s},
                           {"open_per_s", calibration.ceiling.open_per_s},
                           {"workers", calibration.workers},
                           {"cpu_us_per_operation", calibration.cpu_us_per_operation},
                           {"cpu_us_at_ceiling", calibration.cpu_us_at_ceiling}};
    document["flush_us"] = times_json(calibration.flush_ns);
    document["flush_us"]["file_system"] = calibration.flushed_on;
    return document;
}

std::string calibration_text(const Calibration& calibration) {
    return fmt::format(
        "The generator by itself, on {}\n"
        "  a sleep ends too late by   {}\n"
        "  operations without work    {}/s in a closed loop, {}/s in an open loop, {} workers\n"
        "  one of an open loop costs  {} us of processor time at {}/s, where a worker sleeps "
        "before "
        "each,\n"
        "                             and {} us at the highest rate\n"
        "  a flush of 4 KiB on {} takes {}\n",
        machine_line(), times_text(calibration.timer_ns), grouped(calibration.ceiling.closed_per_s),
        grouped(calibration.ceiling.open_per_s), calibration.workers,
        three_digits(calibration.cpu_us_per_operation), grouped(kFirstRate),
        three_digits(calibration.cpu_us_at_ceiling), calibration.flushed_on,
        times_text(calibration.flush_ns));
}

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
