#include "run_folder.hpp"

#include <fmt/core.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <hotcount/result.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#include "settings.hpp"
#include "workload.hpp"

namespace hotcount::loadtest {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRandomPart = "XXXXXX";

/// Removes the file with the owner last: after a kill meanwhile the next start recognises the folder.
void remove_with_owner_last(const fs::path& folder) {
    // If the folder is replaced by a link meanwhile, only the link is removed.
    const int opened = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (opened < 0) return;
    std::error_code ignored;
    for (fs::directory_iterator at(fmt::format("/proc/self/fd/{}", opened), ignored), end;
         !ignored && at != end; at.increment(ignored)) {
        std::error_code stays;
        if (at->path().filename() != kOwnerFile) fs::remove_all(at->path(), stays);
    }
    close(opened);
    fs::remove_all(folder, ignored);
}

void remove_if_dead(const fs::path& folder) {
    struct stat facts {};
    if (lstat(folder.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode)) return;
    const int owner = ::open((folder / kOwnerFile).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (owner < 0) return;
    // The folder may be owned by the user that a server runs as.
    const bool own = fstat(owner, &facts) == 0 && facts.st_uid == geteuid();
    if (own && flock(owner, LOCK_EX | LOCK_NB) == 0) remove_with_owner_last(folder);
    close(owner);
}

bool is_name_of_ours(std::string_view name) {
    return std::any_of(
        OwnedFolder::kKinds.begin(), OwnedFolder::kKinds.end(), [&](std::string_view kind) {
            return name.starts_with(kind) && name.size() == kind.size() + kRandomPart.size();
        });
}

/// The file is locked before it gets its name, so that it is never found unlocked while its owner
/// lives.
int make_owner(const fs::path& folder) {
    const fs::path fresh = folder / "owner.new";
    const int owner = ::open(fresh.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (owner < 0) return -1;
    if (flock(owner, LOCK_EX | LOCK_NB) == 0 &&
        rename(fresh.c_str(), (folder / kOwnerFile).c_str()) == 0) {
        return owner;
    }
    close(owner);
    return -1;
}

}  // namespace

void OwnedFolder::remove_dead(const fs::path& parent) {
    std::error_code failed;
    for (fs::directory_iterator at(parent, failed), end; !failed && at != end;
         at.increment(failed)) {
        if (is_name_of_ours(at->path().filename().string())) remove_if_dead(at->path());
    }
}

Result<OwnedFolder> OwnedFolder::make(const fs::path& parent, std::string_view prefix) {
    remove_dead(parent);
    std::string pattern = (parent / prefix).string();
    pattern += kRandomPart;
    const auto fail = [&] {
        return make_error(ErrorCode::config,
                          fmt::format("cannot make {}: {}", pattern, std::strerror(errno)));
    };
    if (mkdtemp(pattern.data()) == nullptr) return fail();
    const int owner = make_owner(pattern);
    if (owner < 0) return fail();
    return OwnedFolder(pattern, owner);
}

OwnedFolder::OwnedFolder(OwnedFolder&& other) noexcept
    : path_(std::move(other.path_)), lock_(std::exchange(other.lock_, -1)) {}

OwnedFolder::~OwnedFolder() {
    if (lock_ < 0) return;
    remove_with_owner_last(path_);
    close(lock_);
}

namespace {

namespace fs = std::filesystem;

// The temporary name of write_json()'s file, and the space reserved for it: several times the size of
// a run's settings and figures.
constexpr const char* kFresh = ".new";
constexpr off_t kMostJson = 128 * 1024;

Error folder_error(const fs::path& path, std::string_view what, const std::string& why) {
    return make_error(ErrorCode::config, fmt::format("cannot {} {}: {}", what, path.string(), why));
}

Error folder_error(const fs::path& path, std::string_view what, int error) {
    Error failed = folder_error(path, what, std::strerror(error));
    if (is_full(error)) failed.code = ErrorCode::capacity;
    return failed;
}

}  // namespace

Result<RunFolder> RunFolder::make(const std::optional<fs::path>& named) {
    // If the path is too long for a socket, the folder is in /tmp.
    for (const fs::path& parent : {temporary_parent(), fs::path{"/tmp"}}) {
        OwnedFolder::remove_dead(parent);
    }
    if (!named) {
        HOTCOUNT_TRY_ASSIGN(auto own, OwnedFolder::make(temporary_parent(), "hotcount-load-"));
        return RunFolder(std::move(own));
    }
    std::error_code failed;
    const fs::path path = fs::absolute(*named, failed);
    if (!failed) fs::create_directories(path, failed);
    if (failed) return folder_error(*named, "make", failed.message());
    const int lock = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0) return folder_error(path, "read", errno);
    RunFolder folder(path, lock);
    if (flock(lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        return make_error(ErrorCode::config,
                          fmt::format("--out {}: another run works in it", path.string()));
    }
    const bool empty = fs::is_empty(path, failed);
    if (failed) return folder_error(path, "read", failed.message());
    if (!empty) {
        return make_error(ErrorCode::config,
                          fmt::format("--out {} is not empty; name a folder that is or that does "
                                      "not exist yet",
                                      path.string()));
    }
    if (access(path.c_str(), W_OK | X_OK) != 0) return folder_error(path, "write", errno);
    return folder;
}

bool RunFolder::in_use(const fs::path& folder) {
    std::error_code failed;
    const fs::path path = fs::canonical(folder, failed);
    if (failed) return false;
    for (const fs::path& each : {path, path.parent_path()}) {
        const int file = ::open(each.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (file < 0) continue;
        const bool held = flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        close(file);
        if (held) return true;
    }
    return false;
}

RunFolder::RunFolder(RunFolder&& other) noexcept
    : path_(std::move(other.path_)),
      own_(std::move(other.own_)),
      lock_(std::exchange(other.lock_, -1)) {}

RunFolder::~RunFolder() {
    if (lock_ >= 0) close(lock_);
}

Result<void> reserve_json(const fs::path& path) {
    const fs::path fresh = path.string() + kFresh;
    const int file = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) return folder_error(fresh, "write", errno);
    const int failed = posix_fallocate(file, 0, kMostJson);
    close(file);
    // If the file system cannot reserve space, each write takes it.
    if (failed != 0 && failed != EOPNOTSUPP) return folder_error(fresh, "write", failed);
    return {};
}

std::string json_text(const nlohmann::json& content, int indent) {
    return content.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<void> write_json(const fs::path& path, const nlohmann::json& content) {
    const fs::path fresh = path.string() + kFresh;
    const std::string text = json_text(content, 2) + '\n';
    // Without O_TRUNC, which would free the space that reserve_json() took.
    const int file = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) return folder_error(fresh, "write", errno);
    std::size_t written = 0;
    while (written < text.size()) {
        const ssize_t more = ::write(file, text.data() + written, text.size() - written);
        if (more < 0 && errno == EINTR) continue;
        if (more <= 0) break;
        written += static_cast<std::size_t>(more);
    }
    const bool whole =
        written == text.size() && ftruncate(file, static_cast<off_t>(text.size())) == 0;
    const int why = errno;
    close(file);
    if (!whole) return folder_error(fresh, "write", why);
    if (rename(fresh.c_str(), path.c_str()) != 0) return folder_error(path, "write", errno);
    return {};
}

Result<nlohmann::json> read_json(const fs::path& path) {
    std::ifstream file(path);
    if (!file) return folder_error(path, "read", errno);
    nlohmann::json content = nlohmann::json::parse(file, nullptr, false);
    if (content.is_discarded()) return folder_error(path, "read", "it is not JSON");
    if (!content.is_object()) return folder_error(path, "read", "it is no JSON object");
    return content;
}

bool is_full(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

fs::path temporary_parent() {
    if (const char* chosen = std::getenv("TMPDIR"); chosen != nullptr && *chosen != '\0') {
        return chosen;
    }
    std::error_code failed;
    const fs::path system = fs::temp_directory_path(failed);
    const fs::path on_disk = "/var/tmp";
    if (failed) return on_disk;
    if (file_system_of(system) == "tmpfs" && file_system_of(on_disk) != "tmpfs" &&
        fs::is_directory(on_disk, failed)) {
        return on_disk;
    }
    return system;
}

std::string file_system_of(const fs::path& path) {
    struct statfs facts {};
    if (statfs(path.c_str(), &facts) != 0) return "unknown";
    // As in linux/magic.h.
    switch (static_cast<unsigned long>(facts.f_type)) {
        case 0xEF53:
            return "ext4";
        case 0x01021994:
            return "tmpfs";
        case 0x858458f6:
            return "ramfs";
        case 0x58465342:
            return "xfs";
        case 0x9123683E:
            return "btrfs";
        case 0x794c7630:
            return "overlay";
        case 0x2FC12FC1:
            return "zfs";
        case 0xF2F52010:
            return "f2fs";
        case 0x6969:
            return "nfs";
        case 0x01021997:
            return "9p";
        case 0x65735546:
            return "fuse";
        default:
            return fmt::format("{:#x}", facts.f_type);
    }
}

// -- the settings of a trial as JSON, in run.json --------------------------------------------------

namespace {

using nlohmann::json;

/// The settings that are written unchanged, durations as seconds: calls `always` for fields of every
/// document, `since` for fields that older documents lack.
template <class Settings, class Always, class Since>
void for_each_field(Settings& settings, const Always& always, const Since& since) {
    auto& traffic = settings.traffic;
    always("strategy", settings.strategy);
    always("workers", settings.workers);
    always("warmup_s", settings.warmup);
    always("duration_s", settings.duration);
    always("timeout_s", settings.timeout);
    always("items", traffic.items);
    always("zipf", traffic.zipf);
    always("users", traffic.users);
    always("dup", traffic.dup);
    always("seed", traffic.seed);
    always("max_operations", settings.max_operations);
    always("database_url", settings.database_url);
    since("max_errors", settings.max_errors);
    since("in_flight", settings.in_flight);
    since("redis_url", settings.redis_url);
    since("managed_redis", settings.managed_redis);
    since("managed_database", settings.managed_database);
    since("key_prefix", settings.key_prefix);
    since("life_s", settings.life);
    since("batch", settings.batch);
    since("slots", settings.slots);
    since("processes", settings.processes);
    since("kill_every_s", settings.kill_every);
    since("stall_s", settings.stall);
    since("rebuild_every_s", settings.rebuild_every);
    since("bystander", settings.bystander);
    since("slower", settings.slower);
    since("tables", settings.tables);
}

double in_s(Duration duration) { return std::chrono::duration<double>(duration).count(); }

void get_to(const json& value, Duration& duration) {
    // To the nanosecond: a schedule that is 1 ns shorter is another schedule.
    duration = Duration{std::llround(value.get<double>() * 1e9)};
}
template <class T>
void get_to(const json& value, T& member) {
    value.get_to(member);
}

}  // namespace

json describe_settings(const TrialSettings& settings) {
    const bool open = settings.arrival != Arrival::closed;
    const TrafficSettings& traffic = settings.traffic;
    json to = {
        {"workload", to_string(settings.workload)},
        {"arrival", settings.profile.constant() ? std::string{to_string(settings.arrival)}
                                                : settings.profile.text},
        {"trace", traffic.trace ? json(traffic.trace->path().string()) : json(nullptr)},
        {"rate_per_s", open ? json(settings.rate_per_s) : json(nullptr)},
        {"mix",
         {{"vote", traffic.mix.vote}, {"unvote", traffic.mix.unvote}, {"read", traffic.mix.read}}},
        {"gate_s", settings.gate ? json(in_s(*settings.gate)) : json(nullptr)},
        {"faults", format_faults(settings.faults)},
        {"limit", settings.limit.str()}};
    const auto put = [&](const char* name, const auto& member) {
        if constexpr (std::is_same_v<decltype(member), const Duration&>) {
            to[name] = in_s(member);
        } else {
            to[name] = member;
        }
    };
    for_each_field(settings, put, put);
    to["database_url"] = without_password(settings.database_url);
    to["redis_url"] = without_password(settings.redis_url);
    return to;
}

Result<TrialSettings> settings_of(const json& from) {
    try {
        TrialSettings settings;
        const auto take = [&](const char* name, auto& member) { get_to(from.at(name), member); };
        const auto take_if = [&](const char* name, auto& member) {
            if (from.contains(name) && !from.at(name).is_null()) take(name, member);
        };
        for_each_field(settings, take, take_if);
        HOTCOUNT_TRY_ASSIGN(settings.workload,
                            parse_workload(from.at("workload").get<std::string>()));
        const auto arrival = from.at("arrival").get<std::string>();
        HOTCOUNT_TRY_ASSIGN(auto profile, parse_profile(arrival));
        settings.arrival = Arrival::poisson;
        if (profile) {
            settings.profile = std::move(*profile);
        } else if (arrival == to_string(Arrival::trace)) {
            settings.arrival = Arrival::trace;  // An audit has its operations from the ledger.
        } else {
            HOTCOUNT_TRY_ASSIGN(settings.arrival, parse_arrival(arrival));
        }
        if (from.at("rate_per_s").is_number()) take("rate_per_s", settings.rate_per_s);
        for (const auto& [name, share] : {std::pair{"vote", &settings.traffic.mix.vote},
                                          std::pair{"unvote", &settings.traffic.mix.unvote},
                                          std::pair{"read", &settings.traffic.mix.read}}) {
            from.at("mix").at(name).get_to(*share);
        }
        if (from.contains("gate_s") && from.at("gate_s").is_number()) {
            take("gate_s", settings.gate.emplace());
        }
        if (const auto faults = from.value("faults", ""); !faults.empty()) {
            HOTCOUNT_TRY_ASSIGN(settings.faults, parse_faults(faults));
        }
        if (from.contains("limit")) {
            HOTCOUNT_TRY_ASSIGN(settings.limit, Rate::parse(from.at("limit").get<std::string>()));
        }
        return settings;
    } catch (const json::exception& wrong) {
        return make_error(ErrorCode::config, wrong.what());
    }
}

}  // namespace hotcount::loadtest
