// The folder of a run: what an audit needs to find later.
//
//   run.json       every setting, versions, the machine; written before the load begins, again with
//                  the figures when it ended, and with the verdict after the audit
//   run.json.new   until then: the room for it, so that a disk that fills takes no result away
//   ledger.bin     see ledger.hpp
//   series.csv, response.hlog   what it did second by second: report/run_series.cpp
//   votes.sqlite3  the database, unless --db named another
//   target.json    what the target knew and the store does not say: clocks, when sets lived
//   redis.rdb      what the private Redis held after the load: targets/redis_dump.cpp
//   redis/         the data of the private Redis, while it runs and after a kill -9 of this program
//
// A comparison's folder holds compare.json and one such folder per trial; redis/ is beside them.
#pragma once

#include <array>
#include <filesystem>
#include <hotcount/result.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace hotcount::loadtest {

inline constexpr const char* kOwnerFile = "owner";

/// A temporary folder that goes with its owner, even if the owner is killed.
///
///   PARENT/PREFIXabc123/owner    locked (flock) by the process that made the folder
///
/// The lock ends with the process. make() first removes folders whose lock is free, of all kinds in
/// kKinds. A folder without an owner file is another program's and stays.
class OwnedFolder {
  public:
    /// All prefixes that make() is given: what a killed program left is known by them.
    static constexpr std::array<std::string_view, 6> kKinds = {
        "hotcount-load-",     "hotcount-driver-",  "hotcount-redis-",
        "hotcount-postgres-", "hotcount-mariadb-", "hotcount-mysql-"};

    /// Makes PARENT/PREFIXabc123, after the folders of dead owners were removed there.
    static Result<OwnedFolder> make(const std::filesystem::path& parent, std::string_view prefix);
    /// Removes the folders of dead owners, whatever their kind. Those that cannot be removed stay.
    static void remove_dead(const std::filesystem::path& parent);
    OwnedFolder(OwnedFolder&& other) noexcept;
    OwnedFolder& operator=(OwnedFolder&&) = delete;
    ~OwnedFolder();

    const std::filesystem::path& path() const { return path_; }

  private:
    OwnedFolder(std::filesystem::path path, int lock) : path_(std::move(path)), lock_(lock) {}

    std::filesystem::path path_;
    int lock_;  // The descriptor of `owner`; -1: moved from.
};

inline constexpr const char* kRunFile = "run.json";
inline constexpr const char* kCompareFile = "compare.json";
inline constexpr const char* kLedgerFile = "ledger.bin";
inline constexpr const char* kDatabaseFile = "votes.sqlite3";
inline constexpr const char* kTargetFile = "target.json";
inline constexpr const char* kRedisFile = "redis.rdb";
inline constexpr const char* kRedisFolder = "redis";
// In redis/, as the server names them.
inline constexpr const char* kRedisDump = "dump.rdb";
inline constexpr const char* kRedisPid = "redis.pid";

/// A temporary one goes when this object does, or after a kill with the next start. A named one is
/// locked (flock) while this object lives, and stays.
class RunFolder {
  public:
    /// Makes the folder named, which must not exist or be empty; or a temporary one. Also takes away
    /// the temporary folders that killed programs left.
    static Result<RunFolder> make(const std::optional<std::filesystem::path>& named);
    /// Whether a run works in the folder, or in the one around it.
    static bool in_use(const std::filesystem::path& folder);
    RunFolder(RunFolder&& other) noexcept;
    RunFolder& operator=(RunFolder&&) = delete;
    ~RunFolder();

    const std::filesystem::path& path() const { return path_; }
    bool temporary() const { return own_.has_value(); }

  private:
    RunFolder(std::filesystem::path named, int lock) : path_(std::move(named)), lock_(lock) {}
    explicit RunFolder(OwnedFolder own) : path_(own.path()), own_(std::move(own)) {}
    std::filesystem::path path_;
    std::optional<OwnedFolder> own_{};
    int lock_{-1};  // The descriptor of a named folder.
};

/// As text; bytes that are no UTF-8, of a path or another program, become U+FFFD.
std::string json_text(const nlohmann::json& content, int indent = -1);
/// Takes the room that the next write_json() of this file needs, as a file beside it, whose name ends
/// in .new: a disk that fills meanwhile does not keep it from being written.
Result<void> reserve_json(const std::filesystem::path& path);
/// Replaces the file in one step: a reader, or a kill, finds the old content or the new.
Result<void> write_json(const std::filesystem::path& path, const nlohmann::json& content);
Result<nlohmann::json> read_json(const std::filesystem::path& path);

struct TrialSettings;
/// The settings of a trial in run.json, without passwords: a URL that has one is redacted.
nlohmann::json describe_settings(const TrialSettings& settings);
/// Reads the output of describe_settings(), or a part of it.
Result<TrialSettings> settings_of(const nlohmann::json& from);

/// Whether the system's error says that there is no room, on the disk or in what a process may write.
bool is_full(int error);

/// Where a temporary folder goes: $TMPDIR, else the system's. If that is in memory:
/// /var/tmp, because a commit to memory costs no fsync and a comparison there would show nothing.
std::filesystem::path temporary_parent();

/// "ext4", "tmpfs", ... or the number of a kind not known here.
std::string file_system_of(const std::filesystem::path& path);

}  // namespace hotcount::loadtest
