#include "votes/journal/fold_failures.hpp"

#include <gtest/gtest.h>

#include <string>

namespace hotcount {
namespace {

// What becomes of folds, and when somebody takes an event: "x" the database refuses one, "u" it does
// not answer, "." one ends well, "?" an event is taken. `told` is what was taken: "!" folds fail, "="
// they work again, "-" nothing is new.
struct Story {
    const char* folds;
    const char* told;
    std::uint64_t failed;
    std::uint64_t failing;
};

TEST(FoldFailuresTest, AFailureIsToldOnceAndItsEndOnce) {
    for (const Story& story : {
             Story{"?.?", "--", 0, 0},
             Story{"x?x?xx?", "!--", 4, 4},
             Story{"x?..?.?", "!=-", 1, 0},
             Story{"x?.?x?.?", "!=!=", 2, 0},
             Story{"x.?", "-", 1, 0},        // Over before anybody asked.
             Story{"x?.x?.?", "!-=", 2, 0},  // It failed again before anybody asked.
             Story{"x?.x.x?", "!-", 3, 1},
             Story{"u?uu?.?", "---", 3, 0},
             Story{"u?x?u?.u?.?", "-!--=", 4, 0},
         }) {
        FoldFailures failures{"app.vote"};
        std::string told;
        for (const char* step = story.folds; *step != '\0'; ++step) {
            if (*step == 'x') failures.add(make_error(ErrorCode::database, "no such column"));
            if (*step == 'u') failures.add(make_error(ErrorCode::unavailable, "no such column"));
            if (*step == '.') failures.end();
            if (*step != '?') continue;
            const auto event = failures.take_event();
            if (!event) {
                told += '-';
                continue;
            }
            told += event->is_trouble ? '!' : '=';
            EXPECT_EQ(event->text.find("folds of app.vote_journal "), 0U) << event->text;
            EXPECT_EQ(event->text.find("no such column") != std::string::npos, event->is_trouble);
        }
        EXPECT_EQ(told, story.told) << story.folds;
        Folder::Stats stats{};
        failures.add_to(stats);
        EXPECT_EQ(stats.failed, story.failed) << story.folds;
        EXPECT_EQ(stats.failing, story.failing) << story.folds;
        EXPECT_EQ(stats.last_error.empty(), story.failing == 0) << story.folds;
        EXPECT_EQ(stats.failing_for > Duration{0}, story.failing > 0) << story.folds;
    }
}

TEST(FoldFailuresTest, AServerThatDoesNotAnswerForLongIsTold) {
    FoldFailures failures{"vote", Duration{0}};
    failures.add(make_error(ErrorCode::unavailable, "it is away"));
    EXPECT_TRUE(failures.take_event()->is_trouble);
    failures.end();
    EXPECT_FALSE(failures.take_event()->is_trouble);
}

}  // namespace
}  // namespace hotcount
