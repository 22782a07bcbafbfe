#include <fcntl.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "support/callers.hpp"
#include "support/result_matchers.hpp"
#include "support/temporary_database.hpp"

namespace hotcount::sql {
namespace {

using namespace std::chrono_literals;
using hotcount::testing::failed_with;
using hotcount::testing::in_threads;
using hotcount::testing::query_integer;
using hotcount::testing::succeeded;
using hotcount::testing::TemporaryDatabase;

// A connection that is not ours, as another process would have.
class Outsider {
  public:
    explicit Outsider(const std::string& path) { sqlite3_open(path.c_str(), &handle_); }
    ~Outsider() { sqlite3_close(handle_); }
    int run(const char* text) { return sqlite3_exec(handle_, text, nullptr, nullptr, nullptr); }

  private:
    sqlite3* handle_{nullptr};
};

class Sqlite : public ::testing::Test {
  protected:
    Result<void> write(Database& database, const std::string& text, Duration within = 5s) {
        const Deadline deadline = Deadline::after(within);
        HOTCOUNT_TRY_ASSIGN(const Lease connection, database.writer(deadline));
        HOTCOUNT_TRY(connection->begin(deadline));
        HOTCOUNT_TRY(connection->execute(Statement{text}));
        return connection->commit();
    }
    TemporaryDatabase file_;
};

TEST_F(Sqlite, CommitsAreDurableAndForeignKeysHold) {
    const auto database = file_.open();
    EXPECT_EQ(query_integer(*database, "PRAGMA synchronous"), 2) << "FULL";
    EXPECT_EQ(query_integer(*database, "PRAGMA foreign_keys"), 1);
    const auto lease = database->reader(database->deadline({}));
    std::string mode;
    const RowVisitor read = [&](const Row& row) -> Result<void> {
        mode = row.text(0);
        return {};
    };
    ASSERT_TRUE(succeeded((*lease)->query(Statement{"PRAGMA journal_mode"}, {}, read)));
    EXPECT_EQ(mode, "wal");
}

TEST_F(Sqlite, ALockThatIsGivenUpInTimeIsWaitedFor) {
    const auto database = file_.open();
    ASSERT_TRUE(succeeded(write(*database, "CREATE TABLE t (x)")));
    Outsider other{file_.path()};
    ASSERT_EQ(other.run("BEGIN IMMEDIATE"), SQLITE_OK);
    std::thread release([&] {
        std::this_thread::sleep_for(100ms);
        other.run("COMMIT");
    });
    EXPECT_TRUE(succeeded(write(*database, "INSERT INTO t VALUES (1)")));
    release.join();
    EXPECT_GT(database->stats().busy_waits, 0U);
}

TEST_F(Sqlite, CallersOfThisProcessQueueInOrderAndNoneStarves) {
    const auto database = file_.open();
    ASSERT_TRUE(succeeded(write(*database, "CREATE TABLE t (x)")));
    std::atomic<int> done{0};
    in_threads(16, [&](int) {
        for (int i = 0; i < 20; ++i) {
            if (write(*database, "INSERT INTO t VALUES (1)", 20s).ok()) ++done;
        }
    });
    EXPECT_EQ(done, 320);
    EXPECT_EQ(query_integer(*database, "SELECT COUNT(*) FROM t"), 320);
    EXPECT_EQ(database->stats().busy_waits, 0U) << "no caller of ours polls for another";
}

TEST_F(Sqlite, AStatementThatRunsPastItsDeadlineIsStopped) {
    const auto database = file_.open();
    const Deadline deadline = Deadline::after(50ms);
    const auto lease = database->reader(deadline);
    ASSERT_TRUE(succeeded((*lease)->begin_read(deadline)));
    const Statement endless{
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n"};
    EXPECT_TRUE(failed_with((*lease)->execute(endless), ErrorCode::deadline, "mid-statement"));
}

TEST_F(Sqlite, ALeaseLeftInMidTransactionIsRolledBack) {
    const auto database = file_.open();
    ASSERT_TRUE(succeeded(write(*database, "CREATE TABLE t (x)")));
    {
        const auto lease = database->writer(database->deadline({}));
        ASSERT_TRUE(succeeded((*lease)->begin(database->deadline({}))));
        ASSERT_TRUE(succeeded((*lease)->execute(Statement{"INSERT INTO t VALUES (1)"})));
    }
    EXPECT_EQ(query_integer(*database, "SELECT COUNT(*) FROM t"), 0);
}

// As a second SQLite library does when it closes the file: POSIX locks of this process end.
void end_locks(const std::string& path) { close(open(path.c_str(), O_RDONLY)); }

TEST_F(Sqlite, TheWriteLockOutlivesThePosixLocksOfTheProcess) {
    const auto database = file_.open();
    ASSERT_TRUE(succeeded(write(*database, "CREATE TABLE t (x)")));
    auto lease = std::make_unique<Result<Lease>>(database->writer(database->deadline({})));
    Connection& connection = ***lease;
    ASSERT_TRUE(succeeded(connection.begin(database->deadline({}))));
    end_locks(file_.path() + "-shm");
    end_locks(file_.path());
    const int other = open((file_.path() + "-shm").c_str(), O_RDWR);
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_start = 120;  // The write lock of a WAL, in SQLite's format.
    lock.l_len = 1;
    ASSERT_EQ(fcntl(other, F_OFD_GETLK, &lock), 0);
    EXPECT_EQ(lock.l_type, F_WRLCK);
    ASSERT_TRUE(succeeded(connection.execute(Statement{"INSERT INTO t VALUES (1)"})));
    ASSERT_TRUE(succeeded(connection.commit()));
    lease.reset();
    lock.l_type = F_WRLCK;
    lock.l_pid = 0;
    ASSERT_EQ(fcntl(other, F_OFD_GETLK, &lock), 0);
    EXPECT_EQ(lock.l_type, F_UNLCK);
    close(other);
    EXPECT_TRUE(succeeded(write(*database, "INSERT INTO t VALUES (2)")));
    EXPECT_EQ(query_integer(*database, "SELECT COUNT(*) FROM t"), 2);
}

TEST_F(Sqlite, AReadWhoseLocksEndedSaysThatItMayBeReadAgain) {
    const auto database = file_.open();
    ASSERT_TRUE(succeeded(write(*database, "CREATE TABLE t (x)")));
    const Deadline deadline = database->deadline({});
    const auto lease = database->reader(deadline);
    const Statement count{"SELECT COUNT(*) FROM t"};
    const auto read = [&](bool ends) -> Result<void> {
        HOTCOUNT_TRY((*lease)->begin_read(deadline));
        HOTCOUNT_TRY((*lease)->execute(count));
        if (ends) end_locks(file_.path() + "-shm");
        return (*lease)->commit();
    };
    EXPECT_TRUE(succeeded(read(false)));
    EXPECT_TRUE(failed_with(read(true), ErrorCode::unavailable, "another SQLite library"));
    EXPECT_TRUE(succeeded(read(false)));
}

TEST_F(Sqlite, TheLastCloseRemovesTheWalAndClosesTheFiles) {
    const auto open_files = [] {
        const std::filesystem::directory_iterator files{"/proc/self/fd"};
        return std::distance(begin(files), end(files));
    };
    const auto before = open_files();
    for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(succeeded(write(*file_.open(), "CREATE TABLE IF NOT EXISTS t (x)")));
        EXPECT_FALSE(std::filesystem::exists(file_.path() + "-wal"));
        EXPECT_EQ(open_files(), before);
    }
    {
        // While SQLite has the file open for somebody else, they wait and are used again.
        Outsider other{file_.path()};
        ASSERT_EQ(other.run("SELECT * FROM t"), SQLITE_OK);
        const auto once = [&] {
            EXPECT_TRUE(succeeded(write(*file_.open(), "CREATE TABLE IF NOT EXISTS t (x)")));
            return open_files();
        };
        const auto parked = once();
        EXPECT_EQ(once(), parked);
        EXPECT_EQ(once(), parked);
    }
    ASSERT_TRUE(succeeded(write(*file_.open(), "CREATE TABLE IF NOT EXISTS t (x)")));
    EXPECT_EQ(open_files(), before);
}

TEST_F(Sqlite, MoreReadersThanTheBoundWaitTheirTurnAndGiveUpAtTheirDeadline) {
    DatabaseOptions options;
    options.max_readers = 2;
    const auto database = file_.open(options);
    const auto first = database->reader(database->deadline({}));
    auto second = std::make_unique<Result<Lease>>(database->reader(database->deadline({})));
    EXPECT_TRUE(failed_with(database->reader(Deadline::after(30ms)), ErrorCode::deadline, "2 in"));
    second.reset();
    EXPECT_TRUE(succeeded(database->reader(Deadline::after(30ms))));
}

TEST_F(Sqlite, UrlsThatCannotBeADatabaseSaySo) {
    const auto open = [](const std::string& url) { return open_database(url); };
    const std::string folder = std::filesystem::path{file_.path()}.parent_path().string();
    EXPECT_TRUE(failed_with(open("sqlite:///" + folder), ErrorCode::config, "directory"));
    EXPECT_TRUE(failed_with(open("sqlite:///" + folder + "/no/x.db"), ErrorCode::config, "folder"));
    EXPECT_TRUE(failed_with(open("sqlite://host/x.db"), ErrorCode::config, "no host"));
    EXPECT_TRUE(failed_with(open("oracle://h/x"), ErrorCode::config, "'oracle'"));
    EXPECT_TRUE(failed_with(open(file_.url() + "?cache=1"), ErrorCode::config, "'cache'"));
    EXPECT_TRUE(failed_with(open(file_.url() + "?mode=fast"), ErrorCode::config, "option mode"));
    std::ofstream{file_.path()} << "this is no database, but it is long enough to be looked at...";
    EXPECT_TRUE(failed_with(open(file_.url()), ErrorCode::database, file_.path()));
}

TEST_F(Sqlite, ObjectsOfOneFileAreOneAndInMemoryOnesAreNot) {
    EXPECT_EQ(file_.open(), file_.open());
    EXPECT_NE(*open_database("sqlite:///:memory:"), *open_database("sqlite:///:memory:"));
    DatabaseOptions other;
    other.timeout = 7s;
    const auto database = file_.open();
    EXPECT_NE(database, file_.open(other));
}

TEST_F(Sqlite, AClosedDatabaseSaysSo) {
    const auto database = file_.open();
    database->close();
    EXPECT_TRUE(failed_with(database->writer(database->deadline({})), ErrorCode::closed));
    EXPECT_TRUE(failed_with(database->reader(database->deadline({})), ErrorCode::closed));
}

// A child that inherited open connections would share SQLite's table of locks with its parent and
// believe in locks it does not hold: here the parent's last close would delete the WAL under it.
TEST_F(Sqlite, ParentAndForkedChildrenWriteOneFileWithoutLoss) {
    const auto database = file_.open();
    ASSERT_TRUE(succeeded(write(*database, "CREATE TABLE t (x)")));
    constexpr int kChildren = 4;
    constexpr int kWrites = 50;
    std::atomic<bool> stop{false};
    std::atomic<int> by_parent{0};
    std::thread busy([&] {
        while (!stop) {
            if (write(*database, "INSERT INTO t VALUES (0)", 20s).ok()) ++by_parent;
        }
    });
    std::vector<pid_t> children;
    for (int c = 0; c < kChildren; ++c) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(60);
            int failures = 0;
            for (int i = 0; i < kWrites; ++i) {
                failures += write(*database, "INSERT INTO t VALUES (1)", 20s).ok() ? 0 : 1;
            }
            _exit(failures);
        }
        children.push_back(child);
    }
    for (const pid_t child : children) {
        int status = 0;
        waitpid(child, &status, 0);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    stop = true;
    busy.join();
    EXPECT_EQ(query_integer(*database, "SELECT COUNT(*) FROM t WHERE x = 1"), kChildren * kWrites);
    EXPECT_EQ(query_integer(*database, "SELECT COUNT(*) FROM t WHERE x = 0"), by_parent);
}

}  // namespace
}  // namespace hotcount::sql
