#include "run_folder.hpp"

#include <fmt/core.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

namespace hotcount::loadtest {
namespace {

namespace fs = std::filesystem;

Error folder_error(const fs::path& path, std::string_view what, const std::string& why) {
    return make_error(ErrorCode::config, fmt::format("cannot {} {}: {}", what, path.string(), why));
}

}  // namespace

Result<RunFolder> RunFolder::make(const std::optional<fs::path>& named) {
    if (!named) {
        std::string pattern = (temporary_parent() / "hotcount-load-XXXXXX").string();
        if (mkdtemp(pattern.data()) == nullptr) {
            return folder_error(pattern, "make", std::strerror(errno));
        }
        return RunFolder(pattern, true);
    }
    std::error_code failed;
    const fs::path path = fs::absolute(*named, failed);
    if (!failed) fs::create_directories(path, failed);
    if (failed) return folder_error(*named, "make", failed.message());
    const bool empty = fs::is_empty(path, failed);
    if (failed) return folder_error(path, "read", failed.message());
    if (!empty) {
        return make_error(ErrorCode::config,
                          fmt::format("--out {} is not empty; name a folder that is or that does "
                                      "not exist yet",
                                      path.string()));
    }
    return RunFolder(path, false);
}

RunFolder::RunFolder(RunFolder&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, false)) {}

RunFolder::~RunFolder() {
    std::error_code ignored;
    if (temporary_) fs::remove_all(path_, ignored);
}

Result<void> write_json(const fs::path& path, const nlohmann::json& content) {
    fs::path fresh = path;
    fresh += ".new";
    {
        std::ofstream file(fresh);
        file << content.dump(2) << '\n';
        file.flush();
        if (!file) return folder_error(fresh, "write", std::strerror(errno));
    }
    std::error_code failed;
    fs::rename(fresh, path, failed);
    if (failed) return folder_error(path, "write", failed.message());
    return {};
}

Result<nlohmann::json> read_json(const fs::path& path) {
    std::ifstream file(path);
    if (!file) return folder_error(path, "read", std::strerror(errno));
    nlohmann::json content = nlohmann::json::parse(file, nullptr, false);
    if (content.is_discarded()) return folder_error(path, "read", "it is not JSON");
    return content;
}

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
    // From the kernel's linux/magic.h.
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

}  // namespace hotcount::loadtest
