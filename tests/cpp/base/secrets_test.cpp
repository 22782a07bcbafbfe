#include "base/secrets.hpp"

#include <gtest/gtest.h>

namespace hotcount {
namespace {

TEST(SecretsTest, EachPasswordIsHiddenWhereverItStands) {
    remember_secret("canary");
    remember_secret("canary-long");
    remember_secret("");
    EXPECT_EQ(hide_secrets("no canary, xcanaryx, canary-long"), "no ***, x***x, ***");
    EXPECT_EQ(hide_secrets("nothing"), "nothing");
    EXPECT_EQ(hide_secrets(""), "");
}

TEST(SecretsTest, AShortOneIsHiddenWhereItStandsAlone) {
    remember_secret("er");
    EXPECT_EQ(hide_secrets("error: 'er' er_ er"), "error: '***' er_ ***");
}

TEST(SecretsTest, TheLastOnesAreKept) {
    remember_secret("the-oldest");
    remember_secret("the-next");
    for (int i = 0; i < 999; ++i) remember_secret("number-" + std::to_string(1000 + i));
    EXPECT_EQ(hide_secrets("the-oldest the-next number-1998"), "the-oldest *** ***");
}

TEST(SecretsTest, OneThatIsGivenAgainIsKeptLonger) {
    remember_secret("in-use");
    for (int i = 0; i < 999; ++i) remember_secret("first-" + std::to_string(1000 + i));
    remember_secret("in-use");
    for (int i = 0; i < 999; ++i) remember_secret("second-" + std::to_string(1000 + i));
    EXPECT_EQ(hide_secrets("in-use first-1998"), "*** first-1998");
}

}  // namespace
}  // namespace hotcount
