#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "counter/retry_journal.hpp"
#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

using testing::failed_with;
using testing::succeeded;

class Journal : public ::testing::Test {
  protected:
    void SetUp() override {
        std::string name = (std::filesystem::temp_directory_path() / "journal-XXXXXX").string();
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        folder_ = name;
        path_ = folder_ / "adds";
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    Result<std::unique_ptr<RetryJournal>> open(Fsync fsync = Fsync::off) {
        waiting_.clear();
        return RetryJournal::open(path_.string(), fsync, waiting_);
    }
    static JournaledAdd add_in_period(std::uint64_t sequence, std::string key) {
        JournaledAdd one = add(sequence, std::move(key));
        one.ttl_ms = 0;
        one.period = JournaledPeriod{Instant{std::chrono::seconds{-86'400}},
                                     Instant{std::chrono::seconds{1'700'000'000}}};
        return one;
    }
    static JournaledAdd add(std::uint64_t sequence, std::string key = "count:k") {
        return {.writer = 7,
                .sequence = sequence,
                .n = -5,
                .accepted_us = 1'700'000'000'000'000,
                .server_ms = 1'700'000'000'123,
                .max_age_ms = 3'600'000,
                .ttl_ms = 60'000,
                .key = std::move(key)};
    }
    std::string bytes() const {
        std::ifstream file(path_, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    void write(const std::string& bytes) const {
        std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
    }
    // Three appends: one add each.
    std::string three() {
        {
            auto journal = std::move(*open());
            for (std::uint64_t i = 1; i <= 3; ++i) {
                const JournaledAdd one[] = {add(i)};
                EXPECT_TRUE(succeeded(journal->append(one)));
            }
        }
        return bytes();
    }

    std::filesystem::path folder_;
    std::filesystem::path path_;
    std::vector<JournaledAdd> waiting_;
};

TEST(Crc32c, IsTheOneOfRfc3720) {
    EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
    EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
}

TEST_F(Journal, GivesBackWhatWasNotSettledInOrder) {
    {
        auto journal = std::move(*open(Fsync::always));
        const JournaledAdd first[] = {add(1), add(2, std::string(1500, '\xff'))};
        ASSERT_TRUE(succeeded(journal->append(first)));
        const JournaledAdd second[] = {add(3, std::string("a\0b", 3))};
        ASSERT_TRUE(succeeded(journal->append(second)));
        const AddId done[] = {{7, 1}};
        journal->settle(done, [] { return std::vector<JournaledAdd>{}; });
    }
    ASSERT_TRUE(succeeded(open()));
    ASSERT_EQ(waiting_.size(), 2U);
    EXPECT_EQ(waiting_[0], add(2, std::string(1500, '\xff')));
    EXPECT_EQ(waiting_[1], add(3, std::string("a\0b", 3)));
}

TEST_F(Journal, GivesBackAddsInPeriodsBesideOthers) {
    const std::vector<JournaledAdd> all{add(1), add_in_period(2, "d:k"), add_in_period(3, "d:j"),
                                        add(4)};
    {
        auto journal = std::move(*open());
        ASSERT_TRUE(succeeded(journal->append(all)));
    }
    ASSERT_TRUE(succeeded(open()));
    EXPECT_EQ(waiting_, all);
}

TEST_F(Journal, IsAsSmallAsANewOneWhenAllIsSettled) {
    auto journal = std::move(*open());
    const std::uint64_t empty = journal->bytes();
    const JournaledAdd some[] = {add(1), add(2)};
    ASSERT_TRUE(succeeded(journal->append(some)));
    const AddId done[] = {{7, 1}, {7, 2}};
    journal->settle(done, [] { return std::vector<JournaledAdd>{}; });
    EXPECT_EQ(journal->bytes(), empty);
    EXPECT_EQ(bytes().size(), empty);
}

TEST_F(Journal, StaysBoundedWhileOneAddWaitsForEver) {
    auto journal = std::move(*open());
    const JournaledAdd old[] = {add(1)};
    ASSERT_TRUE(succeeded(journal->append(old)));
    std::uint64_t most = 0;
    for (std::uint64_t i = 2; i < 3000; ++i) {
        const JournaledAdd next[] = {add(i, std::string(1000, 'k'))};
        ASSERT_TRUE(succeeded(journal->append(next)));
        const AddId done[] = {{7, i}};
        journal->settle(done, [&] { return std::vector<JournaledAdd>{old[0]}; });
        most = std::max(most, journal->bytes());
    }
    EXPECT_LT(most, std::uint64_t{3} << 20);
    journal.reset();
    ASSERT_TRUE(succeeded(open()));
    ASSERT_EQ(waiting_.size(), 1U);
    EXPECT_EQ(waiting_[0], old[0]);
}

TEST_F(Journal, CutsATailThatIsTornAtAnyByte) {
    const std::string whole = three();
    const std::size_t frame = (whole.size() - 24) / 3;
    for (std::size_t size = whole.size() - frame; size < whole.size(); ++size) {
        write(whole.substr(0, size));
        {
            auto journal = std::move(*open());
            ASSERT_EQ(waiting_.size(), 2U) << size;
            const JournaledAdd next[] = {add(9)};
            ASSERT_TRUE(succeeded(journal->append(next)));
        }
        ASSERT_TRUE(succeeded(open())) << size;
        ASSERT_EQ(waiting_.size(), 3U) << size;
        EXPECT_EQ(waiting_[2].sequence, 9U);
    }
    write(whole + std::string(5000, '\0'));
    ASSERT_TRUE(succeeded(open()));
    EXPECT_EQ(waiting_.size(), 3U);
}

TEST_F(Journal, AFlippedBitBeforeGoodAddsIsAnErrorThatNamesFileAndOffset) {
    const std::string whole = three();
    const std::size_t frame = (whole.size() - 24) / 3;
    for (std::size_t at = 24; at < 24 + 2 * frame; ++at) {
        std::string bad = whole;
        bad[at] = static_cast<char>(bad[at] ^ 1 << (at % 8));
        write(bad);
        const std::string offset = "byte " + std::to_string(24 + (at - 24) / frame * frame);
        ASSERT_TRUE(failed_with(open(), ErrorCode::config, path_.string())) << at;
        ASSERT_TRUE(failed_with(open(), ErrorCode::config, offset)) << at;
        ASSERT_EQ(bytes(), bad) << "it was touched";
    }
    // In the last one it cannot be told from a torn write.
    std::string bad = whole;
    bad.back() = static_cast<char>(bad.back() ^ 1);
    write(bad);
    ASSERT_TRUE(succeeded(open()));
    EXPECT_EQ(waiting_.size(), 2U);
}

TEST_F(Journal, RefusesAnotherVersionAndWhatIsNoJournal) {
    const std::string whole = three();
    for (std::size_t at = 0; at < 24; ++at) {
        std::string bad = whole;
        bad[at] = static_cast<char>(bad[at] ^ 4);
        write(bad);
        ASSERT_TRUE(failed_with(open(), ErrorCode::config, path_.string())) << at;
        ASSERT_EQ(bytes(), bad);
    }
    const auto of_version = [&](char version) {
        std::string other = whole.substr(0, 16) + version + std::string(3, '\0');
        const std::uint32_t sum = crc32c(other);
        for (int i = 0; i < 4; ++i) other += static_cast<char>(sum >> (8 * i) & 0xFFU);
        return other + whole.substr(24);
    };
    write(of_version(4));
    EXPECT_TRUE(failed_with(open(), ErrorCode::config, "version 4"));
    write(of_version(2));
    EXPECT_TRUE(failed_with(open(), ErrorCode::config, "e815ecc6 is the last that reads it"));
    EXPECT_EQ(bytes(), of_version(2));
    write("a text\n");
    EXPECT_TRUE(failed_with(open(), ErrorCode::config, "no journal"));
    EXPECT_EQ(bytes(), "a text\n");
    // The beginning of a header: its creation was cut off.
    for (std::size_t size = 0; size < 24; ++size) {
        write(whole.substr(0, size));
        ASSERT_TRUE(succeeded(open())) << size;
    }
}

TEST_F(Journal, GivesTheAddsOfAWriterByTheirNumbers) {
    {
        auto journal = std::move(*open());
        for (const std::uint64_t number : {3, 1, 2}) {
            const JournaledAdd one[] = {add(number)};
            ASSERT_TRUE(succeeded(journal->append(one)));
        }
    }
    ASSERT_TRUE(succeeded(open()));
    EXPECT_EQ(waiting_, (std::vector{add(1), add(2), add(3)}));
}

TEST_F(Journal, HasOneOwnerWhateverNameItIsOpenedBy) {
    auto first = std::move(*open());
    std::vector<JournaledAdd> none;
    const auto link = folder_ / "link";
    std::filesystem::create_symlink(path_, link);
    EXPECT_TRUE(failed_with(RetryJournal::open(link.string(), Fsync::off, none), ErrorCode::config,
                            "another counter"));
    // Somebody tidied up.
    std::filesystem::remove(folder_ / "adds.lock");
    EXPECT_TRUE(failed_with(open(), ErrorCode::config, "another counter"));
}

TEST_F(Journal, StaysWhereItIsWhenTheProgramChangesItsFolder) {
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(folder_);
    auto journal = std::move(*RetryJournal::open("adds", Fsync::off, waiting_));
    std::filesystem::current_path(before);
    // Large enough to be written anew.
    std::vector<JournaledAdd> many;
    std::vector<AddId> settled;
    for (std::uint64_t number = 1; number <= 3000; ++number) {
        many.push_back(add(number, std::string(900, 'k')));
        settled.push_back({7, number});
    }
    ASSERT_TRUE(succeeded(journal->append(many)));
    settled.resize(2999);
    journal->settle(settled, [] { return std::vector{add(3000)}; });
    EXPECT_LT(journal->bytes(), 1000U);
    journal.reset();
    ASSERT_TRUE(succeeded(open()));
    EXPECT_EQ(waiting_, std::vector{add(3000)});
    EXPECT_FALSE(std::filesystem::exists(before / "adds"));
}

TEST_F(Journal, HasOneOwnerAtATime) {
    auto first = std::move(*open());
    EXPECT_TRUE(failed_with(open(), ErrorCode::config, std::to_string(::getpid())));
    // A forked child does not own it, and does not keep it from others after the parent.
    int ready[2];
    int end[2];
    ASSERT_EQ(::pipe(ready), 0);
    ASSERT_EQ(::pipe(end), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        ::close(end[1]);
        const JournaledAdd one[] = {add(1)};
        char refused = first->append(one).ok() ? 'n' : 'y';
        if (::write(ready[1], &refused, 1) != 1) ::_exit(1);
        ::_exit(::read(end[0], &refused, 1) == 0 ? 0 : 1);
    }
    char refused = '?';
    ASSERT_EQ(::read(ready[0], &refused, 1), 1);
    EXPECT_EQ(refused, 'y');
    first.reset();
    EXPECT_TRUE(succeeded(open()));
    EXPECT_TRUE(waiting_.empty());
    for (const int file : {ready[0], ready[1], end[0], end[1]}) ::close(file);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

// In a child: the bound is the process's.
TEST_F(Journal, AFullDiskRefusesTheAddAndKeepsTheOthers) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::signal(SIGXFSZ, SIG_IGN);
        auto journal = std::move(*open(Fsync::always));
        const JournaledAdd one[] = {add(1)};
        bool good = journal->append(one).ok();
        const rlimit bound{.rlim_cur = journal->bytes() + 30, .rlim_max = RLIM_INFINITY};
        good = good && ::setrlimit(RLIMIT_FSIZE, &bound) == 0;
        for (std::uint64_t i = 2; i < 5; ++i) {
            const JournaledAdd next[] = {add(i)};
            const auto appended = journal->append(next);
            good = good && !appended && appended.error().code == ErrorCode::capacity;
        }
        const rlimit none{.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
        good = good && ::setrlimit(RLIMIT_FSIZE, &none) == 0;
        const JournaledAdd next[] = {add(5)};
        good = good && journal->append(next).ok();
        ::_exit(good ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    ASSERT_TRUE(succeeded(open()));
    ASSERT_EQ(waiting_.size(), 2U);
    EXPECT_EQ(waiting_[1].sequence, 5U);
}

TEST_F(Journal, AFolderThatTakesNoFilesIsSaidSo) {
    path_ = folder_ / "absent" / "adds";
    EXPECT_TRUE(failed_with(open(), ErrorCode::unavailable, path_.string()));
    path_ = folder_;
    EXPECT_FALSE(open().ok());
    if (::geteuid() == 0) {
        path_ = "/proc/sys/kernel/adds";
        EXPECT_FALSE(open().ok());
    } else {
        ASSERT_EQ(::chmod(folder_.c_str(), 0500), 0);
        path_ = folder_ / "adds";
        EXPECT_TRUE(failed_with(open(), ErrorCode::permission_denied, path_.string()));
        ASSERT_EQ(::chmod(folder_.c_str(), 0700), 0);
    }
}

}  // namespace
}  // namespace hotcount
