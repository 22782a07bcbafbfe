// A SQLite file of the test's own, gone with it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <hotcount/sql.hpp>
#include <memory>
#include <string>

namespace hotcount::testing {

class TemporaryDatabase {
  public:
    TemporaryDatabase() {
        static std::atomic<int> next{0};
        folder_ = std::filesystem::temp_directory_path() /
                  ("hotcount-test-" + std::to_string(getpid()) + "-" + std::to_string(next++));
        std::filesystem::create_directory(folder_);
    }
    ~TemporaryDatabase() { std::filesystem::remove_all(folder_); }
    TemporaryDatabase(const TemporaryDatabase&) = delete;
    TemporaryDatabase& operator=(const TemporaryDatabase&) = delete;

    std::string path() const { return (folder_ / "test.db").string(); }
    std::string url() const { return "sqlite:///" + path(); }
    std::shared_ptr<sql::Database> open(sql::DatabaseOptions options = {}) const {
        auto database = sql::open_database(url(), options);
        if (!database) {
            ADD_FAILURE() << database.error().message;
            return nullptr;
        }
        return *database;
    }

  private:
    std::filesystem::path folder_;
};

/// The one integer that a query gives.
inline std::int64_t query_integer(sql::Database& database, const std::string& text) {
    auto lease = database.reader(database.deadline({}));
    std::int64_t value = -1;
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        value = row.integer(0);
        return {};
    };
    const auto ran = (*lease)->query(sql::Statement{text}, {}, read);
    EXPECT_TRUE(ran.ok()) << (ran.ok() ? "" : ran.error().message);
    return value;
}

}  // namespace hotcount::testing
