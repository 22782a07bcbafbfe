#include "base/secrets.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

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

TEST(SecretsTest, AChildThatIsForkedWhileAnotherThreadHidesOneHidesItToo) {
    remember_secret("inherited");
    for (int i = 0; i < 500; ++i) remember_secret("other-" + std::to_string(1000 + i));
    std::atomic<bool> stop{false};
    std::thread other([&] {
        while (!stop) (void)hide_secrets(std::string(1000, 'x'));
    });
    int well = 0;
    for (int i = 0; i < 50; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(20);  // A child that hangs is killed by it.
            _exit(hide_secrets("inherited") == "***" ? 0 : 1);
        }
        int status = 1;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        if (status != 0) break;
        ++well;
    }
    stop = true;
    other.join();
    EXPECT_EQ(well, 50);
}

}  // namespace
}  // namespace hotcount
