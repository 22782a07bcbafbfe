// Protects the locks and the WAL of a database file while connections of ours have the file open.
//
// SQLite's locks are POSIX locks, which belong to the process: when any code in the process closes
// a file, all of the process's locks on that file end. SQLite heeds that for its own files. A
// second SQLite library in the process (apsw, pysqlite3-binary, a Python that bundles one) does not
// know of ours. It takes the file for unused, removes the WAL that we write, or empties the WAL's
// index under us. When it closes the file, our locks end, and another process may write at the same
// time.
//
// Locks of an open file description (F_OFD_SETLK) conflict with POSIX locks of the same process and
// do not end so. One guard for each file holds some of SQLite's own locks a second time:
//
//   always           shared, on the bytes that a connection locks while it has the file open, so
//                    that no process is alone with the file, which is when SQLite removes a WAL; and
//                    on the byte that says that the WAL's index is in use, so that no process
//                    empties the index
//   while we write   exclusive, the write lock of the WAL, instead of SQLite's POSIX lock
//
// A POSIX lock on an otherwise unused byte, the canary, shows that locks have ended.
// Where a file system has no such locks, only files() is of use.
//
// Thread-safe, except that hold_write() and release_write() belong to the writing connection.
#pragma once

#include <sys/stat.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

struct sqlite3;

namespace hotcount::sql {

class FileGuard {
  public:
    /// Registers the process's parked files with the fork handlers. Call it before the first commit:
    /// a fork waits for commits, and a commit that registers would wait for the fork.
    static void start_watching_forks();

    /// The guard of a connection's file, to be held until leave(). Null if the file has no WAL, or
    /// none yet.
    static std::shared_ptr<FileGuard> join(sqlite3* connection);
    /// Closes a connection that has joined. Our last one removes the WAL as SQLite does, unless the
    /// guard is lost(): then it writes nothing more.
    void leave(sqlite3* connection);

    /// After BEGIN IMMEDIATE: takes the write lock over. False if another may have had it since: the
    /// transaction must end, not by ROLLBACK, and begin again.
    bool hold_write();
    void release_write();

    /// How often the locks of this process on the WAL's index have been found ended. A caller that
    /// reads this number before and after kept_locks() knows whether the locks ended in between.
    std::uint64_t watch_locks();
    bool kept_locks() const;

    /// Whether database, WAL and index are still the files that were opened. If one is not, the
    /// guard is lost for good: committed rows may be in no file.
    bool files();
    /// The file that was removed or replaced; empty if none was.
    const char* lost() const { return lost_.load(std::memory_order_acquire); }

  private:
    struct File {
        const char* suffix;
        std::string path{};
        dev_t device{0};
        ino_t inode{0};
    };
    bool enter();
    bool lock(int fd, short type, std::int64_t start, std::int64_t length) const;

    enum : std::uint8_t { kDatabase, kWal, kIndex };
    std::mutex mutex_;
    std::mutex watching_;
    std::size_t users_{0};
    std::array<File, 3> files_{File{""}, File{"-wal"}, File{"-shm"}};
    int database_fd_{-1};
    int index_fd_{-1};
    void* index_{reinterpret_cast<void*>(-1)};  // MAP_FAILED.
    bool locked_{false};
    std::int64_t canary_{0};
    std::atomic<std::uint64_t> endings_{0};
    std::atomic<const char*> lost_{""};
};

}  // namespace hotcount::sql
