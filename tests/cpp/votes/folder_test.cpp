#include "votes/journal/folder.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <latch>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace hotcount {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Outcome = FoldedPage::Outcome;

// A journal of one page size in memory. Items in `held` are put back, as a server does with locked
// rows; a page with an item in `refused` fails.
class MemoryJournal final : public Journal {
  public:
    std::vector<std::pair<std::int64_t, std::int64_t>> rows{};  // Item, difference.
    std::set<std::int64_t> held{};
    std::set<std::int64_t> refused{};
    bool locked{false};  // All rows, by a transaction that folds skip.
    int folds{0};
    // Called before each fold with its number, from 1 on. An outcome other than `folded` and an error
    // replace the fold.
    std::function<Result<Outcome>(int)> before{[](int) { return Outcome::folded; }};

    void append(std::int64_t item, std::size_t times = 1) {
        rows.insert(rows.end(), times, {item, 1});
    }

    Result<FoldedPage> fold(const FoldRequest& request, Deadline) override {
        FoldedPage page;
        HOTCOUNT_TRY_ASSIGN(page.outcome, before(++folds));
        if (page.outcome != Outcome::folded) return page;
        if (locked) {
            page.left = JournalRange{1, 1};
            return page;
        }
        std::vector<std::pair<std::int64_t, std::int64_t>> rest;
        std::set<std::int64_t> items;
        for (const auto& row : rows) {
            if (page.rows < request.most && wants(request, row.first)) {
                if (refused.contains(row.first)) return refusal();
                ++page.rows;
                items.insert(row.first);
            } else {
                rest.push_back(row);
            }
        }
        page.more = page.rows >= request.most;
        for (const std::int64_t item : items) {
            page.counts.push_back({sql::Id{item}, 1, 1});
            if (!held.contains(item)) continue;
            page.held.emplace_back(item);
            rest.emplace_back(item, 0);
        }
        rows = std::move(rest);
        return page;
    }
    Result<FoldedPage> fold_in(sql::Connection&, const FoldRequest&) override {
        return FoldedPage{};
    }
    Result<void> ask(std::span<const sql::Id>, Deadline) override { return {}; }
    Result<std::vector<sql::Id>> items(Deadline) override {
        std::set<std::int64_t> all;
        for (const auto& row : rows) all.insert(row.first);
        std::vector<sql::Id> first(all.begin(), all.end());
        first.resize(std::min(first.size(), kFoldPage));
        return first;
    }
    Result<JournalBacklog> backlog(Deadline) override { return JournalBacklog{}; }
    Result<JournalLook> look(Deadline) override { return JournalLook{}; }
    Result<void> tidy(Deadline) override { return {}; }

  private:
    static Error refusal() { return make_error(ErrorCode::database, "not this one"); }

    static bool wants(const FoldRequest& request, std::int64_t item) {
        const auto among = [&](std::span<const sql::Id> items) {
            return std::ranges::binary_search(items, sql::Id{item});
        };
        return request.only.empty() ? !among(request.but) : among(request.only);
    }
};

class FolderTest : public testing::Test {
  protected:
    FoldReport flush(Duration time = seconds{20}) {
        const auto report = folder.fold_now(Deadline::after(time));
        EXPECT_TRUE(report.ok()) << report.error().message;
        return report.ok() ? *report : FoldReport{};
    }

    const std::shared_ptr<MemoryJournal> journal{std::make_shared<MemoryJournal>()};
    Folder folder{journal, VotesOptions{}, seconds{20}};
};

TEST_F(FolderTest, AHeldItemThatIsRefusedKeepsNoOtherHeldItem) {
    journal->append(1);
    journal->append(2);
    journal->held = {1, 2};
    journal->before = [this](int fold) {
        if (fold == 2) journal->held.clear();
        if (fold == 2) journal->refused = {2};
        return Outcome::folded;
    };
    const FoldReport report = flush();
    EXPECT_EQ(report.shown, 1);
    EXPECT_EQ(report.held, 0);
    EXPECT_EQ(report.failed, 1);
    ASSERT_EQ(journal->rows.size(), 1U);
    EXPECT_EQ(journal->rows.front().first, 2);
}

TEST_F(FolderTest, AnErrorWhileItWaitsForAHeldItemIsReturnedAndNamesIt) {
    journal->append(1);
    journal->held = {1};
    journal->before = [](int fold) -> Result<Outcome> {
        if (fold == 2) return make_error(ErrorCode::unavailable, "the connection was lost");
        return Outcome::folded;
    };
    const auto report = folder.fold_now(Deadline::after(seconds{20}));
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.error().code, ErrorCode::unavailable);
    EXPECT_EQ(
        report.error().message,
        "the connection was lost; not folded yet: 1 items that another transaction had locked");
}

TEST_F(FolderTest, AttemptsAtAHeldItemThatTakeTooLongAreRepeatedUntilTheDeadline) {
    journal->append(1);
    journal->held = {1};
    journal->before = [this](int fold) -> Result<Outcome> {
        if (fold == 2) return make_error(ErrorCode::deadline, "cancelled");
        if (fold == 3) journal->held.clear();
        return Outcome::folded;
    };
    const FoldReport report = flush();
    EXPECT_EQ(report.held, 0);
    EXPECT_TRUE(journal->rows.empty());
}

TEST_F(FolderTest, AHeldItemIsNotWaitedForOnceTheCountsAreElsewhere) {
    journal->append(1);
    journal->held = {1};
    journal->before = [](int fold) { return fold == 1 ? Outcome::folded : Outcome::elsewhere; };
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_EQ(flush().held, 0);
    EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds{10});
}

TEST_F(FolderTest, AHeldItemOfMoreThanAPageIsFoldedToItsLastRow) {
    journal->append(1);
    journal->held = {1};
    journal->before = [this](int fold) {
        if (fold == 2) journal->held.clear();
        if (fold == 2) journal->append(1, kFoldPage);
        return Outcome::folded;
    };
    EXPECT_FALSE(flush().more);
    EXPECT_TRUE(journal->rows.empty());
}

// The item was refused once; then its fold works again.
TEST_F(FolderTest, ARefusedItemOfMoreThanAPageIsFoldedToItsLastRow) {
    journal->append(1, kFoldPage + 1);
    journal->refused = {1};
    EXPECT_EQ(flush().failed, 1);
    journal->refused.clear();
    EXPECT_EQ(flush().failed, 0);
    EXPECT_TRUE(journal->rows.empty());
}

TEST_F(FolderTest, ARefusedItemThatAnotherProcessHasFoldedIsNotReported) {
    journal->append(1);
    journal->refused = {1};
    EXPECT_EQ(flush().failed, 1);
    journal->rows.clear();
    EXPECT_EQ(flush().failed, 0);
    EXPECT_TRUE(folder.stats().refused.empty());
}

TEST_F(FolderTest, ItemsBehindAFullListOfItemsAreFoldedDespiteRefusedOnes) {
    journal->append(1);
    journal->refused = {1};
    EXPECT_EQ(flush().failed, 1);
    for (std::int64_t item = 2; item <= static_cast<std::int64_t>(kFoldPage) + 1; ++item) {
        journal->append(item);
    }
    journal->refused = {1, 2};
    EXPECT_EQ(flush().failed, 2);
    EXPECT_EQ(journal->rows.size(), 2U);
}

TEST_F(FolderTest, APageThatAnotherProcessTakesIsRepeatedThoughAnItemIsHeld) {
    journal->append(1);
    journal->append(2, kFoldPage);
    journal->held = {1};
    journal->before = [this](int fold) {
        if (fold == 2) return Outcome::taken;
        if (fold == 3) journal->held.clear();
        return Outcome::folded;
    };
    EXPECT_EQ(flush().held, 0);
    EXPECT_TRUE(journal->rows.empty());
}

// Waits until the thread has ended; `used` is of its journal.
void await_end(const std::weak_ptr<MemoryJournal>& used) {
    for (int i = 0; !used.expired() && i < 2000; ++i) {
        std::this_thread::sleep_for(milliseconds{10});
    }
    EXPECT_TRUE(used.expired());
}

// A fold beside a caller's DROP TABLE ends one of them on PostgreSQL.
TEST(Folder, AfterAFoldOfEverythingNothingIsFoldedUntilTheNextRow) {
    auto journal = std::make_shared<MemoryJournal>();
    std::latch thread_folds{1};
    std::latch caller_folds{1};
    std::atomic<bool> ended{false};
    std::atomic<int> folds{0};
    journal->before = [&](int fold) {
        folds = fold;
        if (fold == 2) caller_folds.count_down();
        if (fold != 1) return Outcome::folded;
        thread_folds.count_down();
        caller_folds.wait();
        std::this_thread::sleep_for(milliseconds{50});
        ended = true;
        return Outcome::taken;
    };
    auto folder = std::make_unique<Folder>(journal, VotesOptions{}, seconds{20});
    const std::weak_ptr<MemoryJournal> used = std::exchange(journal, nullptr);
    folder->note_appended(1);
    thread_folds.wait();
    ASSERT_TRUE(folder->fold_now(Deadline::after(seconds{20})).ok());
    EXPECT_TRUE(ended);
    folder.reset();
    await_end(used);
    EXPECT_EQ(folds, 2);
}

TEST(Folder, AfterAFoldOfEverythingRowsThatReadsHaveSummedAskForNone) {
    auto journal = std::make_shared<MemoryJournal>();
    std::latch failed{1};
    std::atomic<int> folds{0};
    journal->before = [&](int fold) -> Result<Outcome> {
        folds = fold;
        if (fold != 1) return Outcome::folded;
        failed.count_down();
        return make_error(ErrorCode::unavailable, "the connection was lost");
    };
    auto folder = std::make_unique<Folder>(journal, VotesOptions{}, seconds{20});
    const std::weak_ptr<MemoryJournal> used = std::exchange(journal, nullptr);
    folder->note_appended(1);
    failed.wait();
    folder->note_read(10'000'000);
    ASSERT_TRUE(folder->fold_now(Deadline::after(seconds{20})).ok());
    folder.reset();
    await_end(used);
    EXPECT_EQ(folds, 2);
}

TEST(Folder, AFoldThatDoesNotWaitForLockedRowsLeavesThemToTheThread) {
    auto journal = std::make_shared<MemoryJournal>();
    std::latch thread_folds{1};
    std::latch caller_folds{1};
    std::atomic<int> folds{0};
    journal->locked = true;
    journal->before = [&](int fold) {
        folds = fold;
        if (fold == 2) caller_folds.count_down();
        if (fold != 1) return Outcome::folded;
        thread_folds.count_down();
        caller_folds.wait();
        return Outcome::taken;
    };
    auto folder = std::make_unique<Folder>(journal, VotesOptions{}, seconds{20});
    const std::weak_ptr<MemoryJournal> used = std::exchange(journal, nullptr);
    folder->note_appended(1);
    thread_folds.wait();
    ASSERT_TRUE(folder->fold_once(Deadline::after(seconds{20})).ok());
    folder.reset();
    await_end(used);
    EXPECT_EQ(folds, 3);
}

}  // namespace
}  // namespace hotcount
