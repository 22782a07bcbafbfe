#include "load/ledger.hpp"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>

#include "temporary_folder.hpp"

namespace hotcount::loadtest {
namespace {

using testing::HasSubstr;

TEST(Ledger, GivesBackWhatWasWritten) {
    const TemporaryFolder folder;
    {
        auto made = Ledger::create(folder / "ledger.bin", 1000, 77);
        ASSERT_TRUE(made) << made.error().message;
        Ledger& ledger = **made;
        for (std::uint64_t index = 0; index < 10; ++index) {
            LedgerRecord& record = ledger[index];
            record.returned = -(std::int64_t{1} << 40);
            record.now = 7;
            record.said = said::kCast | said::kChanged;
            record.item = static_cast<std::int64_t>(index) + 100;
            record.user = -3;
            record.value = 1;
            record.kind = OperationKind::unvote;
            record.sent_ns = 5;
            record.store_status(Status::unknown);
        }
        ledger.set_planned(10);
        ASSERT_TRUE(ledger.finish());
    }
    // Cut to what was used.
    EXPECT_EQ(std::filesystem::file_size(folder / "ledger.bin"), 4096U + 10 * 64);
    const auto opened = Ledger::open(folder / "ledger.bin");
    ASSERT_TRUE(opened) << opened.error().message;
    const Ledger& ledger = **opened;
    EXPECT_EQ(ledger.planned(), 10U);
    EXPECT_EQ(ledger[9].item, 109);
    EXPECT_EQ(ledger[9].user, -3);
    EXPECT_EQ(ledger[9].returned, -(std::int64_t{1} << 40));
    EXPECT_EQ(ledger[9].now, 7);
    EXPECT_EQ(ledger[9].said, said::kCast | said::kChanged);
    EXPECT_EQ(ledger[9].kind, OperationKind::unvote);
    EXPECT_EQ(ledger[9].load_status(), Status::unknown);
}

TEST(Ledger, SurvivesTheKillOfItsProcess) {
    const TemporaryFolder folder;
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        auto made = Ledger::create(folder / "ledger.bin", 1'000'000, 1);
        if (!made) _exit(1);
        Ledger& ledger = **made;
        if (!ledger.reserve(1000)) _exit(1);
        for (std::uint64_t index = 0; index < 1000; ++index) {
            ledger[index].item = 1;
            ledger[index].store_status(index < 700 ? Status::ok : Status::sent);
        }
        ledger.set_planned(1000);
        kill(getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    const auto opened = Ledger::open(folder / "ledger.bin");
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_EQ((**opened).planned(), 1000U);
    EXPECT_EQ((**opened)[699].load_status(), Status::ok);
    EXPECT_EQ((**opened)[700].load_status(), Status::sent);
}

TEST(Ledger, TakesLittleDiskForALargeCapacity) {
    const TemporaryFolder folder;
    const auto made = Ledger::create(folder / "ledger.bin", 20'000'000, 1);
    ASSERT_TRUE(made) << made.error().message;
    struct stat facts {};
    ASSERT_EQ(stat((folder / "ledger.bin").c_str(), &facts), 0);
    EXPECT_EQ(facts.st_size, 4096 + std::int64_t{20'000'000} * 64);
    EXPECT_LE(facts.st_blocks * 512, 20 * 1024 * 1024);
}

TEST(Ledger, RefusesToWriteOverAnother) {
    const TemporaryFolder folder;
    ASSERT_TRUE(Ledger::create(folder / "ledger.bin", 10, 1));
    const auto again = Ledger::create(folder / "ledger.bin", 10, 1);
    ASSERT_FALSE(again);
    EXPECT_THAT(again.error().message, HasSubstr("File exists"));
}

TEST(Ledger, SaysWhyAFileIsNoLedger) {
    const TemporaryFolder folder;
    const auto refusal = [&](const std::string& name) {
        const auto opened = Ledger::open(folder / name);
        return opened ? std::string{"opened"} : opened.error().message;
    };
    EXPECT_THAT(refusal("missing.bin"), HasSubstr("No such file"));
    std::ofstream(folder / "short.bin") << "hcledger";
    EXPECT_THAT(refusal("short.bin"), HasSubstr("shorter than a header"));
    std::ofstream(folder / "other.bin") << std::string(5000, 'x');
    EXPECT_THAT(refusal("other.bin"), HasSubstr("does not begin as a ledger"));

    ASSERT_TRUE(Ledger::create(folder / "cut.bin", 1000, 1));
    {
        std::fstream file(folder / "cut.bin", std::ios::in | std::ios::out | std::ios::binary);
        const std::uint64_t planned = 900;
        file.seekp(32);
        file.write(reinterpret_cast<const char*>(&planned), sizeof(planned));
    }
    std::filesystem::resize_file(folder / "cut.bin", 4096 + 899 * 64);
    EXPECT_THAT(refusal("cut.bin"), HasSubstr("900 records and ends before them"));

    const auto of_version = [&](std::uint32_t version) {
        const std::string name = fmt::format("version{}.bin", version);
        EXPECT_TRUE(Ledger::create(folder / name, 10, 1));
        std::fstream file(folder / name, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(8);
        file.write(reinterpret_cast<const char*>(&version), sizeof(version));
        file.close();
        return refusal(name);
    };
    EXPECT_THAT(of_version(3), HasSubstr("it has version 3 with 64 bytes a record"));
    EXPECT_THAT(of_version(1),
                AllOf(HasSubstr("version 1, which does not say what callers were told"),
                      HasSubstr("commit 866ef8f1 is the last that reads it")));
}

}  // namespace
}  // namespace hotcount::loadtest
