#include "owned_folder.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

namespace hotcount::loadtest {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRandomPart = "XXXXXX";

/// The file that says whose it is goes last: a kill meanwhile leaves a folder that the next start knows.
void remove_with_owner_last(const fs::path& folder) {
    // Whoever swaps the folder for a link meanwhile loses no more than the link.
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
    // The folder itself may be given to the user that a server runs as.
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

/// The file gets its name when it is locked: nobody finds it unlocked while its owner lives.
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

}  // namespace hotcount::loadtest
