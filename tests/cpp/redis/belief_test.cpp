#include "redis/belief.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace hotcount::redis {
namespace {

using std::chrono::milliseconds;

SteadyTime at(int ms) { return SteadyTime{} + std::chrono::hours{1} + milliseconds{ms}; }

// A process that has run since time 0, and whose Sentinels answer.
class BeliefOfAProcess : public ::testing::Test {
  protected:
    BeliefOfAProcess() { run(0, 1000); }

    void run(int from, int until) {
        for (int ms = from; ms <= until; ms += 50) belief_.beat(at(ms));
        belief_.looked(at(until));
    }
    bool counts(int read_at, int now) const {
        return belief_.counts(at(read_at), [&] { return at(now); });
    }
    Belief belief_;
};

TEST_F(BeliefOfAProcess, RepliesCountWhileItRuns) {
    EXPECT_TRUE(counts(1040, 1040));
    EXPECT_TRUE(counts(1040, 1099));
}

TEST_F(BeliefOfAProcess, ReplyAfterAStandstillWaitsForARound) {
    EXPECT_FALSE(counts(1800, 1800)) << "the reader is the first thread that runs again";
    belief_.beat(at(1801));
    EXPECT_FALSE(counts(1802, 1802));
    EXPECT_TRUE(belief_.wants_round(at(1801)));
    belief_.confirmed(at(1700));
    EXPECT_FALSE(counts(1803, 1803)) << "the round was asked before";
    belief_.confirmed(at(1802));
    EXPECT_TRUE(counts(1803, 1803)) << "it has run since";
}

TEST_F(BeliefOfAProcess, ReplyAfterOldLooksWaitsForARound) {
    for (int ms = 1050; ms <= 3500; ms += 50) belief_.beat(at(ms));
    EXPECT_TRUE(counts(3499, 3499));
    EXPECT_FALSE(counts(3500, 3500));
    belief_.looked(at(1001));
    EXPECT_TRUE(counts(3500, 3500));
}

TEST_F(BeliefOfAProcess, StandstillsDuringTheWaitDoNotProlongIt) {
    belief_.beat(at(2000));
    EXPECT_FALSE(counts(2001, 2001));
    belief_.beat(at(3000));
    belief_.confirmed(at(2002));
    EXPECT_TRUE(counts(2001, 3001));
    EXPECT_TRUE(counts(2001, 9000));
    EXPECT_FALSE(counts(3001, 3001)) << "it was read after the second standstill";
}

// A process whose primary is replaced at a drawn time. Its threads run in an order that makes the most
// of each standstill: the messages of the Sentinels are read last, and the beat after the first replies.
class DrawnProcess {
  public:
    explicit DrawnProcess(unsigned seed) : random_(seed), replaced_at_(1000 + draw(4000)) {}

    // Until it has heard of its new primary.
    void run() {
        for (now_ = 0; now_ < 8000 && !left_; now_ += kStep) {
            if (now_ < still_until_) {
                // Also if it had no time left to read the messages.
                missed_it_ |= now_ - kStep < replaced_at_ && replaced_at_ < now_ + kStep;
            } else if (now_ >= replaced_at_ && is_told()) {
                return;
            } else {
                step();
            }
        }
    }

    int believed{0};
    int wrong{0};
    int most_rounds{0};

  private:
    static constexpr int kStep = 5;
    static constexpr int kMessagesAreLate = 150;
    static constexpr int kNever = 1'000'000;

    int draw(int most) { return static_cast<int>(random_() % static_cast<unsigned>(most)); }
    bool is_told() const { return !missed_it_ || now_ >= still_until_ + kMessagesAreLate; }

    void step() {
        if (!waits_ && draw(3) == 0) {
            waits_ = true;
            read_at_ = now_;
            sent_at_ = now_;
            rounds_ = 0;
        }
        if (waits_ && belief_.counts(at(read_at_), [&] { return at(now_); })) {
            waits_ = false;
            ++believed;
            wrong += sent_at_ > replaced_at_;
            most_rounds = std::max(most_rounds, rounds_);
        }
        if (now_ >= next_beat_) {
            belief_.beat(at(now_));
            belief_.looked(at(now_));
            next_beat_ = now_ + 50;
        }
        if (round_ends_ == kNever && belief_.wants_round(at(now_))) {
            asked_at_ = now_;
            round_ends_ = now_ + kStep + draw(400);
        }
        if (now_ >= round_ends_) {
            left_ = replaced_at_ < asked_at_;
            if (!left_) belief_.confirmed(at(asked_at_));
            ++rounds_;
            round_ends_ = kNever;
        }
        if (draw(60) == 0) {
            still_until_ = now_ + kStep * (21 + draw(200));
            next_beat_ = still_until_ + kStep * draw(10);
        }
    }

    std::mt19937 random_;
    const int replaced_at_;
    Belief belief_;
    int now_{0};
    int still_until_{0};
    bool missed_it_{false};  // It stood still when the primary was replaced.
    bool left_{false};
    int next_beat_{0};
    bool waits_{false};  // A reply does.
    int sent_at_{0};
    int read_at_{0};
    int rounds_{0};
    int asked_at_{0};
    int round_ends_{kNever};
};

TEST(Belief, CountsNoReplyOfAReplacedPrimary) {
    int believed = 0;
    int most_rounds = 0;
    for (unsigned seed = 0; seed < 2000; ++seed) {
        DrawnProcess process(seed);
        process.run();
        ASSERT_EQ(process.wrong, 0) << "seed " << seed;
        believed += process.believed;
        most_rounds = std::max(most_rounds, process.most_rounds);
    }
    EXPECT_GT(believed, 50000);
    EXPECT_EQ(most_rounds, 2);
}

}  // namespace
}  // namespace hotcount::redis
