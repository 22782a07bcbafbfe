#include "views/view_writer.hpp"

#include <gtest/gtest.h>

#include <hotcount/detail/sql/transaction.hpp>
#include <limits>
#include <thread>

#include "support/result_matchers.hpp"
#include "support/temporary_database.hpp"

namespace hotcount {
namespace {

using namespace std::chrono_literals;
using testing::succeeded;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

// Redis is away: what is written is written to SQL.
class ViewWriterTest : public ::testing::Test {
  protected:
    template <class Body>
    auto in_sql(const Body& body) {
        sql::Database& database = *settings_->database;
        return sql::transact(database, database.deadline({}), body);
    }
    ViewWriterTest() {
        auto away = *redis::parse_options("redis+unix://" + file_.path() + ".sock");
        away.timeout = 10ms;
        const auto client = *redis::Client::make(away);
        WriteBehindOptions options;
        options.clock = clock_;
        options.flush_interval = 60s;
        const auto database = file_.open();
        settings_ = std::shared_ptr<ViewSettings>(
            new ViewSettings{database, client, options, ViewCells{client, options.prefix},
                             ViewTables{options, database->dialect()}});
        EXPECT_TRUE(succeeded(in_sql([&](sql::Connection& connection) {
            return connection.run_script(settings_->tables.schema());
        })));
        writer_ = std::make_shared<ViewWriter>(settings_);
    }
    ~ViewWriterTest() override { writer_->close(Deadline::after(10ms)); }
    ViewWriterTest(const ViewWriterTest&) = delete;
    ViewWriterTest& operator=(const ViewWriterTest&) = delete;

    ViewWriter::Open add(std::string_view key) {
        const ViewWriter::Open open = *writer_->begin(key, 1, Ack::sql);
        const auto applied = in_sql([&](sql::Connection& connection) {
            return settings_->tables.apply(connection, std::span{&open.value, 1});
        });
        EXPECT_TRUE(succeeded(applied));
        EXPECT_TRUE(succeeded(writer_->end(open, {})));
        return open;
    }

    testing::TemporaryDatabase file_;
    std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
    std::shared_ptr<ViewSettings> settings_;
    std::shared_ptr<ViewWriter> writer_;
};

TEST_F(ViewWriterTest, ACellThatOutlivedItsIdIsGivenBackOnceSqlHasIt) {
    std::weak_ptr<ViewWriter::Cell> old = add("k").cell;
    clock_->advance(48h);
    add("k");
    EXPECT_EQ(writer_->stats().writers, 2U);
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (!old.expired() && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(5ms);
    }
    EXPECT_TRUE(old.expired()) << "its writer still holds it";
    EXPECT_EQ(writer_->stats().cells, 1);
}

TEST_F(ViewWriterTest, CellsThatOutliveOneIdShareTheNext) {
    for (const char* key : {"a", "b", "c"}) add(key);
    clock_->advance(48h);
    const std::string next = add("a").value.writer;
    EXPECT_EQ(add("b").value.writer, next);
    EXPECT_EQ(add("c").value.writer, next);
    EXPECT_EQ(writer_->stats().writers, 2U);
}

TEST_F(ViewWriterTest, MoreAtRiskThan64BitsTakeIsTheMostThereIs) {
    for (const char* key : {"a", "b"}) {
        EXPECT_TRUE(succeeded(writer_->begin(key, kMost, Ack::local)));
    }
    EXPECT_EQ(writer_->stats().at_risk, kMost);
    EXPECT_EQ(writer_->flush(Deadline::after(10ms)).at_risk, kMost);
}

}  // namespace
}  // namespace hotcount
