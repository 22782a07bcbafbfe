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

// The page is folded apart for the refused item; another process takes the fold in between.
TEST_F(FolderTest, ItemsFoldedApartAreShownAlthoughAnotherProcessTookTheRest) {
    for (const std::int64_t item : {1, 2, 3}) journal->append(item);
    journal->refused = {3};
    journal->before = [](int fold) { return fold == 4 ? Outcome::taken : Outcome::folded; };
    const FoldReport report = flush();
    EXPECT_EQ(report.shown, 2);
    EXPECT_EQ(report.failed, 1);
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

// A journal that the folder's thread uses, too. Each test's first fold is the thread's.
class FolderThreadTest : public testing::Test {
  protected:
    using Before = std::function<Result<Outcome>(int)>;

    // Begins the thread's fold, and returns once `before` was called for it.
    void begin(const Before& before) {
        const auto journal = std::make_shared<MemoryJournal>();
        journal->locked = locked;
        journal->before = [this, before](int fold) {
            folds = fold;
            if (fold == 1) begun.count_down();
            return before(fold);
        };
        used = journal;
        folder = std::make_unique<Folder>(journal, VotesOptions{}, seconds{20});
        folder->note_appended(1);
        begun.wait();
    }
    // The number of folds until the thread has ended, which uses the journal until then.
    int folds_until_the_end() {
        folder.reset();
        for (int i = 0; !used.expired() && i < 2000; ++i) {
            std::this_thread::sleep_for(milliseconds{10});
        }
        EXPECT_TRUE(used.expired());
        return folds;
    }

    bool locked{false};
    std::latch begun{1};
    std::atomic<int> folds{0};
    std::weak_ptr<MemoryJournal> used;
    std::unique_ptr<Folder> folder;
};

// PostgreSQL ends a fold or a DROP TABLE of the caller that meet.
TEST_F(FolderThreadTest, AfterAFoldOfEverythingNothingIsFoldedUntilTheNextRow) {
    std::latch caller_folds{1};
    std::atomic<bool> ended{false};
    begin([&](int fold) {
        if (fold == 2) caller_folds.count_down();
        if (fold != 1) return Outcome::folded;
        caller_folds.wait();
        std::this_thread::sleep_for(milliseconds{50});
        ended = true;
        return Outcome::taken;
    });
    ASSERT_TRUE(folder->fold_now(Deadline::after(seconds{20})).ok());
    EXPECT_TRUE(ended);
    EXPECT_EQ(folds_until_the_end(), 2);
}

TEST_F(FolderThreadTest, AfterAFoldOfEverythingRowsThatReadsHaveSummedAskForNone) {
    begin([](int fold) -> Result<Outcome> {
        if (fold != 1) return Outcome::folded;
        return make_error(ErrorCode::unavailable, "the connection was lost");
    });
    folder->note_read(10'000'000);
    ASSERT_TRUE(folder->fold_now(Deadline::after(seconds{20})).ok());
    EXPECT_EQ(folds_until_the_end(), 2);
}

TEST_F(FolderThreadTest, AFoldThatDoesNotWaitForLockedRowsLeavesThemToTheThread) {
    std::latch caller_folds{1};
    locked = true;
    begin([&](int fold) {
        if (fold == 2) caller_folds.count_down();
        if (fold != 1) return Outcome::folded;
        caller_folds.wait();
        return Outcome::taken;
    });
    ASSERT_TRUE(folder->fold_once(Deadline::after(seconds{20})).ok());
    EXPECT_EQ(folds_until_the_end(), 3);
}

}  // namespace
}  // namespace hotcount
