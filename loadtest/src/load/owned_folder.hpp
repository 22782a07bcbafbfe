// Temporary folders that end with their owner, also if that is killed.
//
//   PARENT/PREFIXabc123/owner    locked (flock) by the process that made the folder
//
// The lock goes with the process. So whoever makes the next folder of the prefix takes away those
// that nobody holds any more. A folder without the file is somebody else's and stays.
#pragma once

#include <filesystem>
#include <hotcount/result.hpp>
#include <string_view>

namespace hotcount::loadtest {

inline constexpr const char* kOwnerFile = "owner";

/// Removes its folder when it goes.
class OwnedFolder {
  public:
    /// Makes PARENT/PREFIXabc123, after the folders of dead owners were removed there.
    static Result<OwnedFolder> make(const std::filesystem::path& parent, std::string_view prefix);
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
