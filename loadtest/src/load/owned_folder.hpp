// Temporary folders that end with their owner, also if that is killed.
//
//   PARENT/PREFIXabc123/owner    locked (flock) by the process that made the folder
//
// The lock goes with the process. So whoever makes the next folder takes away those that nobody holds
// any more, of all kinds in OwnedFolder::kKinds. A folder without the file is somebody else's and
// stays.
#pragma once

#include <array>
#include <filesystem>
#include <hotcount/result.hpp>
#include <string_view>

namespace hotcount::loadtest {

inline constexpr const char* kOwnerFile = "owner";

/// Removes its folder when it goes.
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

}  // namespace hotcount::loadtest
