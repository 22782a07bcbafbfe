#include "file_guard.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/random.hpp>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace hotcount::sql {
namespace {

// The bytes that SQLite locks: its file format, and the format of the WAL's index.
constexpr std::int64_t kSharedFirst = 0x40000002;
constexpr std::int64_t kSharedSize = 510;
constexpr std::int64_t kWriteLock = 120;
constexpr std::int64_t kInUse = 128;
// The header of the WAL's index, which every commit changes.
constexpr std::size_t kHeaderSize = 48;
using IndexHeader = std::array<char, kHeaderSize>;

#ifdef F_OFD_SETLK
constexpr int kSetLock = F_OFD_SETLK;
constexpr int kGetLock = F_OFD_GETLK;
#else
constexpr int kSetLock = -1;  // Refused by fcntl().
constexpr int kGetLock = -1;
#endif

struct flock range(short type, std::int64_t start, std::int64_t length) {
    struct flock lock {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = start;
    lock.l_len = length;
    return lock;
}

bool same_file(const struct stat& a, const struct stat& b) {
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// Files that are to be closed when nothing else in this process has them open: closing one ends the
// process's locks on it, a Python sqlite3 connection's too.
//
// A child shares their open file descriptions, and so their locks, with its parent. It closes them at
// once: it has no locks yet that could end.
class ParkedFiles final : ForkAware {
  public:
    static ParkedFiles& own() {
        static auto* const parked = new ParkedFiles;
        return *parked;
    }
    // After the pools: a fork waits until threads return their connections, and a commit needs mutex_.
    ParkedFiles() { start_watching_forks_last(); }

    void before_fork() override { mutex_.lock(); }
    void after_fork(bool in_child) override {
        if (in_child) {
            for (const int fd : parked_) ::close(fd);
            parked_.clear();
        }
        mutex_.unlock();
    }

    int open(const std::string& path) {
        struct stat wanted {};
        if (stat(path.c_str(), &wanted) != 0) return -1;
        const std::lock_guard lock(mutex_);
        const Exclusion exclusion;
        const auto found = std::find_if(parked_.begin(), parked_.end(), [&](int fd) {
            struct stat each {};
            return fstat(fd, &each) == 0 && same_file(each, wanted);
        });
        if (found == parked_.end()) {
            // An exclusive lock needs a file that may be written.
            const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
            return fd >= 0 ? fd : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        }
        const int fd = *found;
        parked_.erase(found);
        return fd;
    }

    void park(std::initializer_list<int> fds) {
        const std::lock_guard lock(mutex_);
        const Exclusion exclusion;
        std::copy_if(fds.begin(), fds.end(), std::back_inserter(parked_),
                     [](int fd) { return fd >= 0; });
        const std::vector<struct stat> used = open_elsewhere();
        std::erase_if(parked_, [&](int fd) {
            struct stat each {};
            if (fstat(fd, &each) == 0 &&
                std::any_of(used.begin(), used.end(),
                            [&](const struct stat& other) { return same_file(each, other); })) {
                return false;
            }
            ::close(fd);
            return true;
        });
    }

  private:
    // SQLite takes no lock on a file that it opens while this mutex is held.
    struct Exclusion {
        Exclusion() { sqlite3_mutex_enter(mutex); }
        ~Exclusion() { sqlite3_mutex_leave(mutex); }
        Exclusion(const Exclusion&) = delete;
        Exclusion& operator=(const Exclusion&) = delete;
        sqlite3_mutex* const mutex{sqlite3_mutex_alloc(SQLITE_MUTEX_STATIC_VFS1)};
    };

    std::vector<struct stat> open_elsewhere() const {
        std::vector<struct stat> found;
        DIR* const folder = opendir("/proc/self/fd");
        if (folder == nullptr) {
            // The files in use are not known, so all of them stay open.
            for (const int fd : parked_) (void)fstat(fd, &found.emplace_back());
            return found;
        }
        while (const dirent* const entry = readdir(folder)) {
            const std::string_view name{entry->d_name};
            int fd = -1;
            std::from_chars(name.data(), name.data() + name.size(), fd);
            if (fd < 0 || std::find(parked_.begin(), parked_.end(), fd) != parked_.end()) continue;
            struct stat each {};
            if (fstat(fd, &each) == 0 && S_ISREG(each.st_mode)) found.push_back(each);
        }
        closedir(folder);
        return found;
    }

    std::mutex mutex_;
    std::vector<int> parked_;
};

}  // namespace

void FileGuard::start_watching_forks() { (void)ParkedFiles::own(); }

std::shared_ptr<FileGuard> FileGuard::join(sqlite3* connection) {
    const char* const path = sqlite3_db_filename(connection, "main");
    int moved = 0;
    (void)sqlite3_file_control(connection, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
    struct stat file {};
    if (path == nullptr || moved != 0 || stat(path, &file) != 0) return nullptr;
    // A caller holds a connection of a pool, and a fork waits for all of those, so this mutex is
    // free during a fork.
    static auto* const mutex = new std::mutex;
    static auto* const guards = new std::map<std::pair<dev_t, ino_t>, std::weak_ptr<FileGuard>>;
    std::shared_ptr<FileGuard> guard;
    {
        const std::lock_guard lock(*mutex);
        std::erase_if(*guards, [](const auto& item) { return item.second.expired(); });
        std::weak_ptr<FileGuard>& place = (*guards)[{file.st_dev, file.st_ino}];
        guard = place.lock();
        if (guard == nullptr) {
            guard = std::make_shared<FileGuard>();
            for (File& each : guard->files_) each.path = std::string{path} + each.suffix;
            place = guard;
        }
    }
    return guard->enter() ? guard : nullptr;
}

bool FileGuard::enter() {
    const std::lock_guard lock(mutex_);
    if (users_ == 0) {
        for (File& each : files_) {
            struct stat now {};
            if (stat(each.path.c_str(), &now) != 0) return false;
            each.device = now.st_dev;
            each.inode = now.st_ino;
        }
        lost_.store("", std::memory_order_release);
        database_fd_ = ParkedFiles::own().open(files_[kDatabase].path);
        index_fd_ = ParkedFiles::own().open(files_[kIndex].path);
        locked_ = this->lock(database_fd_, F_RDLCK, kSharedFirst, kSharedSize) &&
                  this->lock(index_fd_, F_RDLCK, kInUse, 1);
        if (locked_) {
            index_ = mmap(nullptr, kHeaderSize, PROT_READ, MAP_SHARED, index_fd_, 0);
            locked_ = index_ != MAP_FAILED;
        }
        // Far behind every byte that SQLite locks, and no other process's.
        canary_ = (std::int64_t{1} << 40) +
                  static_cast<std::int64_t>(thread_random().below(std::uint64_t{1} << 61));
        (void)watch_locks();
    }
    ++users_;
    return true;
}

void FileGuard::leave(sqlite3* connection) {
    const std::lock_guard lock(mutex_);
    const bool last = --users_ == 0;
    const bool is_lost = *lost() != '\0';
    // The WAL that it has open is not the file's.
    if (is_lost) sqlite3_db_config(connection, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
    const auto unlock = [&] {
        (void)this->lock(database_fd_, F_UNLCK, 0, 0);
        (void)this->lock(index_fd_, F_UNLCK, 0, 0);
    };
    if (last && !is_lost) unlock();
    sqlite3_close(connection);
    if (!last) return;
    unlock();
    struct flock canary = range(F_UNLCK, canary_, 1);
    (void)fcntl(index_fd_, F_SETLK, &canary);
    if (index_ != MAP_FAILED) munmap(std::exchange(index_, MAP_FAILED), kHeaderSize);
    ParkedFiles::own().park({std::exchange(database_fd_, -1), std::exchange(index_fd_, -1)});
}

bool FileGuard::lock(int fd, short type, std::int64_t start, std::int64_t length) const {
    struct flock lock = range(type, start, length);
    return fcntl(fd, kSetLock, &lock) == 0;
}

bool FileGuard::hold_write() {
    if (!locked_) return true;
    const IndexHeader before = *static_cast<const IndexHeader*>(index_);
    // Another process may write between the unlock and the lock: the header shows that.
    struct flock posix = range(F_UNLCK, kWriteLock, 1);
    (void)fcntl(index_fd_, F_SETLK, &posix);
    if (!lock(index_fd_, F_WRLCK, kWriteLock, 1)) return false;
    // SQLite's lock may have ended before, too.
    const IndexHeader after = *static_cast<const IndexHeader*>(index_);
    if (before == after && kept_locks()) return true;
    (void)watch_locks();
    release_write();
    return false;
}

void FileGuard::release_write() {
    if (locked_) (void)lock(index_fd_, F_UNLCK, kWriteLock, 1);
}

bool FileGuard::kept_locks() const {
    if (!locked_) return true;
    struct flock canary = range(F_WRLCK, canary_, 1);
    return fcntl(index_fd_, kGetLock, &canary) == 0 && canary.l_type == F_RDLCK;
}

std::uint64_t FileGuard::watch_locks() {
    // Counted before the canary is locked again: a reader whose locks ended must not find it alive.
    if (!kept_locks()) {
        const std::lock_guard lock(watching_);
        if (!kept_locks()) {
            ++endings_;
            struct flock canary = range(F_RDLCK, canary_, 1);
            (void)fcntl(index_fd_, F_SETLK, &canary);
        }
    }
    return endings_;
}

bool FileGuard::files() {
    if (*lost() != '\0') return false;
    // By name: a watch on the files does not report that their folder was renamed.
    for (const File& each : files_) {
        // Not stat(): from Linux 6.13 on, a write that follows a look at a file's times marks the
        // inode. A vote alone took 15 % longer.
        struct statx now {};
        if (statx(AT_FDCWD, each.path.c_str(), 0, STATX_INO, &now) == 0 &&
            now.stx_ino == each.inode &&
            makedev(now.stx_dev_major, now.stx_dev_minor) == each.device) {
            continue;
        }
        lost_.store(each.path.c_str(), std::memory_order_release);
        return false;
    }
    return true;
}

}  // namespace hotcount::sql
