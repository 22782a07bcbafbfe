#include "compare.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <functional>
#include <hotcount/url.hpp>
#include <system_error>
#include <utility>

#include "trial.hpp"

namespace hotcount::loadtest {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestName = 100;

/// votes.db and closed-01-naive give votes-closed-01-naive.db.
Result<fs::path> database_beside(const std::string& url, const std::string& name) {
    HOTCOUNT_TRY_ASSIGN(const Url parsed, parse_url(url));
    const fs::path path = parsed.path.substr(1);
    return path.parent_path() /
           fmt::format("{}-{}{}", path.stem().string(), name, path.extension().string());
}

/// The name as a folder may be called, which is in no other trial's. A user's own command may have
/// anything in it.
std::string folder_name(const fs::path& parent, std::string name) {
    const auto keeps = [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == '=';
    };
    std::replace_if(name.begin(), name.end(), std::not_fn(keeps), '-');
    if (name.size() > kLongestName) name.resize(kLongestName);
    std::error_code ignored;
    std::string taken = name;
    for (int other = 2; fs::exists(parent / taken, ignored); ++other) {
        taken = fmt::format("{}-{}", name, other);
    }
    return taken;
}

void remove_database(const fs::path& path) {
    std::error_code ignored;
    for (const char* suffix : {"", "-wal", "-shm"}) {
        fs::path file = path;
        file += suffix;
        fs::remove(file, ignored);
    }
}

}  // namespace

TrialHooks TrialContext::hooks() const {
    return {interrupt,
            [this] { progress.load(); },
            [this](const LoadSample& sample) { progress.sample(sample); },
            {},
            redis,
            ceiling,
            databases};
}

Result<TrialResult> FreshTrials::run(TrialSettings settings, std::string name,
                                     const std::string& label, bool keep) {
    name = folder_name(context_.folder, std::move(name));
    fs::path database;
    HOTCOUNT_TRY_ASSIGN(const Strategy strategy, find_strategy(settings.strategy));
    if (!settings.database_url.empty() && settings.tables.empty() && is_on_sql(strategy) &&
        !on_database_server(settings.database_url)) {
        HOTCOUNT_TRY_ASSIGN(database, database_beside(settings.database_url, name));
        settings.database_url = sqlite_url(database);
    }
    context_.progress.set_up(
        label, std::chrono::duration<double>(settings.warmup + settings.duration).count());
    const fs::path folder = context_.folder / name;
    std::error_code failed;
    fs::create_directory(folder, failed);
    if (failed) {
        return make_error(ErrorCode::config,
                          fmt::format("cannot make {}: {}", folder.string(), failed.message()));
    }
    HOTCOUNT_TRY_ASSIGN(TrialResult trial,
                        run_trial(settings, folder, context_.provenance, context_.hooks()));
    context_.progress.end(trial);
    if (!context_.keep || !keep) {
        const bool series = keep && settings.keep_series;
        for (const auto& each : fs::directory_iterator(folder, failed)) {
            if (series && each.path().filename() == kResponseFile) continue;
            fs::remove_all(each.path(), failed);
        }
        if (!series) fs::remove(folder, failed);
        if (!database.empty()) remove_database(database);
    }
    return trial;
}

}  // namespace hotcount::loadtest
