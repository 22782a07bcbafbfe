#include "managed_server.hpp"

#include <fmt/core.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <hotcount/redis.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>

#include "load/run_folder.hpp"

namespace hotcount::loadtest {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRunMark = "hotcount-load:run";
constexpr Duration kSave = std::chrono::minutes{2};
// The longest wait for a server to save after its generator was killed.
constexpr Duration kLastSave = std::chrono::seconds{30};
constexpr Duration kDumpPoll = std::chrono::milliseconds{20};

Result<redis::Reply> ask(const ManagedServer& redis, std::span<const std::string_view> words) {
    HOTCOUNT_TRY_ASSIGN(redis::Options options, redis::parse_options(redis.url()));
    options.silence_limit = kSave;  // A server that saves does not answer.
    HOTCOUNT_TRY_ASSIGN(const auto client, redis::Client::make(std::move(options)));
    return client->execute(words, kSave);
}

Error impossible(const std::string& why) {
    return make_error(ErrorCode::config, "audit impossible: " + why);
}

/// Whether the server of a killed run still runs: it exits when it has saved.
bool is_saving(const fs::path& folder) {
    pid_t pid = 0;
    return std::ifstream(folder / kRedisPid) >> pid && pid > 0 && kill(pid, 0) == 0;
}

/// The dump of a run that ended is in its own folder. The server of a killed run saves a dump in
/// its data folder, which the trials of a comparison share.
Result<fs::path> find_dump(const fs::path& folder) {
    std::error_code ignored;
    if (fs::exists(folder / kRedisFile, ignored)) return folder / kRedisFile;
    for (const fs::path& left : {folder / kRedisFolder, folder.parent_path() / kRedisFolder}) {
        const auto until = std::chrono::steady_clock::now() + kLastSave;
        while (is_saving(left) && std::chrono::steady_clock::now() < until) {
            std::this_thread::sleep_for(kDumpPoll);
        }
        if (fs::exists(left / kRedisDump, ignored)) return left / kRedisDump;
    }
    return impossible(fmt::format("the dump of its private Redis is missing: no {} in {}",
                                  kRedisFile, folder.string()));
}

}  // namespace

Result<void> mark_run(const ManagedServer& redis, const TrialSettings& settings) {
    const std::string_view set[] = {"SET", kRunMark, settings.key_prefix};
    HOTCOUNT_TRY(ask(redis, set));
    return {};
}

Result<void> save_dump(const ManagedServer& redis, const fs::path& folder) {
    constexpr std::string_view kWords[] = {"SAVE"};
    HOTCOUNT_TRY(ask(redis, kWords));
    std::error_code failed;
    fs::rename(redis.data_folder() / kRedisDump, folder / kRedisFile, failed);
    if (!failed) return {};
    return make_error(ErrorCode::config,
                      fmt::format("the dump of the private Redis cannot be kept as {}: {}",
                                  (folder / kRedisFile).string(), failed.message()));
}

Result<std::unique_ptr<ManagedServer>> start_on_dump(const fs::path& folder,
                                                     const TrialSettings& settings) {
    HOTCOUNT_TRY_ASSIGN(const fs::path dump, find_dump(folder));
    const std::atomic<bool> never{false};
    ManagedOptions options;
    options.dump = dump;
    auto started = ManagedServer::start(ServerKind::redis, never, options);
    if (!started) {
        return impossible(
            fmt::format("no Redis starts on {}: {}", dump.string(), started.error().message));
    }
    const std::string_view get[] = {"GET", kRunMark};
    HOTCOUNT_TRY_ASSIGN(const redis::Reply mark, ask(**started, get));
    const auto* const name = std::get_if<std::string>(&mark.value);
    if (name != nullptr && *name == settings.key_prefix) return started;
    return impossible(fmt::format("{} is not of this run, whose keys begin with {}", dump.string(),
                                  settings.key_prefix));
}

}  // namespace hotcount::loadtest
