#include "votes/cache/stream_marks.hpp"

#include "support/result_matchers.hpp"
#include "support/temporary_database.hpp"

namespace hotcount {
namespace {

using namespace std::chrono_literals;
using testing::query_integer;
using testing::succeeded;

class StreamMarksTest : public ::testing::Test {
  protected:
    StreamMarksTest() {
        options_.clock = clock_;
        EXPECT_TRUE(succeeded((*Votes::make(database_, options_))->create_tables()));
    }
    // Of a process that has reserved nothing yet.
    StreamMarks make() const {
        return {database_, std::make_shared<Layout>(options_, database_->dialect()), options_};
    }
    bool reserve(std::int64_t version) const {
        StreamMarks marks = make();
        const auto streams = marks.streams(deadline_);
        EXPECT_TRUE(succeeded(streams));
        const auto reserved = marks.reserve(*streams, version, deadline_);
        EXPECT_TRUE(succeeded(reserved));
        return *reserved;
    }
    std::int64_t floor() const {
        return query_integer(
            *database_, "SELECT CAST(value AS INTEGER) FROM vote_meta WHERE name = 'stream_floor'");
    }

    const Deadline deadline_ = Deadline::after(60s);
    testing::TemporaryDatabase file_;
    std::shared_ptr<sql::Database> database_ = file_.open();
    std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
    VotesOptions options_{};
};

// A page that another process takes again after the first one's death: its votes have the versions
// that the first process reserved.
TEST_F(StreamMarksTest, AVersionUpToTheFloorIsReservedWithoutRaisingIt) {
    const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
        clock_->wall_now().time_since_epoch());
    // Further ahead of this machine's clock than a floor is, so the floor is the version itself.
    const std::int64_t version = version_of(now.count() + 60'000, 7);
    EXPECT_TRUE(reserve(version));
    EXPECT_EQ(floor(), version);
    clock_->advance(1h);
    for (const std::int64_t reserved : {version, version - 1, version}) {
        EXPECT_TRUE(reserve(reserved));
        EXPECT_EQ(floor(), version);
    }
    EXPECT_TRUE(reserve(version + 1));
    EXPECT_GT(floor(), version + 1);
}

}  // namespace
}  // namespace hotcount
