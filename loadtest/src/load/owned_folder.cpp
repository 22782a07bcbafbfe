#include "owned_folder.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

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

void remove_if_dead(const fs::path& folder) {
    struct stat facts {};
    if (lstat(folder.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode)) return;
    const int owner = ::open((folder / kOwnerFile).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (owner < 0) return;
    // The folder itself may be given to the user that a server runs as.
    const bool own = fstat(owner, &facts) == 0 && facts.st_uid == geteuid();
    std::error_code ignored;
    if (own && flock(owner, LOCK_EX | LOCK_NB) == 0) fs::remove_all(folder, ignored);
    close(owner);
}

void remove_dead(const fs::path& parent, std::string_view prefix) {
    std::error_code failed;
    for (fs::directory_iterator at(parent, failed), end; !failed && at != end;
         at.increment(failed)) {
        const std::string name = at->path().filename().string();
        if (name.starts_with(prefix) && name.size() == prefix.size() + kRandomPart.size()) {
            remove_if_dead(at->path());
        }
    }
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

Result<OwnedFolder> OwnedFolder::make(const fs::path& parent, std::string_view prefix) {
    remove_dead(parent, prefix);
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
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    close(lock_);
}

}  // namespace hotcount::loadtest
