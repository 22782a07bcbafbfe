#include "votes/journal/left_items.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace hotcount {
namespace {

using Ids = std::vector<sql::Id>;

// An item that folds refuse keeps its rows, so it is forgotten only once a fold has taken them.
class LeftItemsTest : public testing::Test {
  protected:
    LeftItemsTest() {
        left.refuse(sql::Id{1}, "not this one");
        later = std::chrono::steady_clock::now() + LeftItems::kRefusedFor;
    }

    static FoldedPage page(const Ids& items, bool more) {
        FoldedPage page;
        page.more = more;
        for (const sql::Id& item : items) page.counts.push_back({item, 1, 1});
        return page;
    }

    LeftItems left;
    SteadyTime later;
};

TEST_F(LeftItemsTest, AnItemIsRefusedUntilAFoldThatTriesItAgainEndsWell) {
    EXPECT_EQ(left.left_out(later - LeftItems::kRefusedFor), Ids{sql::Id{1}});
    EXPECT_EQ(left.left_out(later), Ids{});
    // That fold has not ended yet, or has failed.
    EXPECT_EQ(left.refused_items(), Ids{sql::Id{1}});
    EXPECT_LE(left.retry_at(), later);
    left.note(page({}, false), {}, later);
    EXPECT_EQ(left.refused_items(), Ids{});
}

TEST_F(LeftItemsTest, AFoldThatLeftTheItemOutEndsNoRefusal) {
    left.note(page({}, false), {}, later - LeftItems::kRefusedFor);
    EXPECT_EQ(left.refused_items(), Ids{sql::Id{1}});
}

TEST_F(LeftItemsTest, AFullPageEndsTheRefusalOfItsItemsAlone) {
    left.note(page({sql::Id{2}}, true), {}, later);
    EXPECT_EQ(left.refused_items(), Ids{sql::Id{1}});
    left.note(page({sql::Id{1}}, true), {}, later);
    EXPECT_EQ(left.refused_items(), Ids{});
}

TEST_F(LeftItemsTest, AFoldThatRefusesTheItemAgainKeepsIt) {
    const SteadyTime begun = std::chrono::steady_clock::now();
    left.refuse(sql::Id{1}, "not this one");
    left.note(page({}, false), {}, begun);
    EXPECT_EQ(left.refused_items(), Ids{sql::Id{1}});
}

// The fold of these items ended before it came to all: another process folds, or it was cut short.
TEST_F(LeftItemsTest, AFoldOfTheItemThatDidNotReachItEndsNoRefusal) {
    const Ids only{sql::Id{1}};
    const SteadyTime now = std::chrono::steady_clock::now();
    left.note(page({}, true), only, now);
    EXPECT_EQ(left.refused_items(), only);
    FoldedPage held = page({}, false);
    held.held = only;
    left.note(held, only, now);
    EXPECT_EQ(left.refused_items(), only);
    left.note(page({}, false), only, now);
    EXPECT_EQ(left.refused_items(), Ids{});
}

TEST_F(LeftItemsTest, AFoldOfTheItemEndsNoLaterRefusal) {
    const Ids only{sql::Id{1}};
    const SteadyTime begun = std::chrono::steady_clock::now();
    left.refuse(sql::Id{1}, "not this one");  // By another call, for later rows.
    left.note(page(only, false), only, begun);
    EXPECT_EQ(left.refused_items(), only);
}

TEST_F(LeftItemsTest, NothingIsLeftOnceTheCountsAreElsewhere) {
    FoldedPage held = page({sql::Id{2}}, false);
    held.held = Ids{sql::Id{2}};
    left.note(held, {}, SteadyTime{});
    EXPECT_TRUE(left.holds());
    left.forget();
    EXPECT_FALSE(left.holds());
    EXPECT_EQ(left.refused_items(), Ids{});
    EXPECT_EQ(left.retry_at(), SteadyTime::max());
}

}  // namespace
}  // namespace hotcount
