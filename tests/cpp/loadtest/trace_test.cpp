#include "load/workload.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "temporary_folder.hpp"

namespace hotcount::loadtest {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class TraceTest : public testing::Test {
  protected:
    Result<std::shared_ptr<const Trace>> read(const std::string& text, std::uint64_t most = 100) {
        std::ofstream(folder_ / "trace.csv") << text;
        return Trace::read(folder_ / "trace.csv", most);
    }

    TemporaryFolder folder_;
};

TEST_F(TraceTest, HasTheOperationsInTheirTime) {
    for (const std::string head : {"time,item,user,value\n", "time,item,user,value\r\n", ""}) {
        const auto trace = read(head + "100.5,900,17,1\n100.5,30,18,1\r\n101,900,17,0\n102,900,,");
        ASSERT_TRUE(trace) << trace.error().message;
        const auto& lines = (*trace)->lines();
        ASSERT_EQ(lines.size(), 4U);
        EXPECT_EQ(lines[0].at_ns, 0);
        EXPECT_EQ(lines[1].at_ns, 0);
        EXPECT_EQ(lines[2].at_ns, 500'000'000);
        EXPECT_EQ((*trace)->length(), Duration{1'500'000'001});
        EXPECT_EQ(lines[0].operation.item, 1);
        EXPECT_EQ(lines[1].operation.item, 2);
        EXPECT_EQ(lines[2].operation.item, 1);
        EXPECT_EQ(lines[2].operation.user, 17);
        EXPECT_EQ(lines[0].operation.kind, OperationKind::vote);
        EXPECT_EQ(lines[2].operation.kind, OperationKind::unvote);
        EXPECT_EQ(lines[3].operation.kind, OperationKind::read);
        EXPECT_EQ(lines[3].operation.user, 0);
        EXPECT_EQ((*trace)->items(), 2U);
        EXPECT_EQ((*trace)->mix().vote, 2);
    }
}

TEST_F(TraceTest, AByteOrderMarkIsNoPartOfItsFirstLine) {
    for (const std::string head : {"time,item,user,value\r\n", ""}) {
        const auto trace = read("\xef\xbb\xbf" + head + "100.5,900,17,1\n");
        ASSERT_TRUE(trace) << trace.error().message;
        EXPECT_EQ((*trace)->lines().size(), 1U);
    }
}

TEST_F(TraceTest, WhatIsNoTextFileIsRefusedAtOnce) {
    EXPECT_THAT(Trace::read(folder_.path(), 9).error().message, HasSubstr("is a folder"));
    EXPECT_THAT(Trace::read("/dev/zero", 9).error().message,
                AllOf(HasSubstr("/dev/zero, line 1: "), HasSubstr("that is no trace")));
    EXPECT_THAT(Trace::read("/dev/null", 9).error().message, HasSubstr("no operations"));
    EXPECT_THAT(read("1,1,1,1\n2,1," + std::string(300, '7') + ",1\n").error().message,
                HasSubstr("line 2"));
}

TEST_F(TraceTest, ABadLineIsNamedByItsNumber) {
    const std::string good = "time,item,user,value\n1,1,1,1\n";
    for (const std::string bad :
         {"2,1,1", "2,1,1,1,1", "", "two,1,1,1", "nan,1,1,1", "0.5,1,1,1", "2,a,1,1", "2,1,0,1",
          "2,1,,1", "2,1,x,0", "2,1,1,2", "2,1,1,-1", "9e9,1,1,1", "time,item,user,value"}) {
        const auto trace = read(good + bad + "\n3,1,1,1\n");
        ASSERT_FALSE(trace) << bad;
        EXPECT_THAT(trace.error().message, AllOf(HasSubstr("trace.csv, line 3: "))) << bad;
    }
}

TEST_F(TraceTest, OneThatIsMissingEmptyOrTooLongIsRefused) {
    EXPECT_THAT(Trace::read(folder_ / "none", 9).error().message, HasSubstr("cannot be read"));
    EXPECT_THAT(read("").error().message, HasSubstr("no operations"));
    EXPECT_THAT(read("time,item,user,value\n").error().message, HasSubstr("no operations"));
    EXPECT_THAT(read("1,1,1,1\n2,1,2,1\n3,1,3,1\n", 2).error().message,
                AllOf(HasSubstr("line 3"), HasSubstr("--max-ops 2")));
}

}  // namespace
}  // namespace hotcount::loadtest
