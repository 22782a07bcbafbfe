#include "rate_search.hpp"

#include <algorithm>
#include <cmath>

namespace hotcount::loadtest {

std::optional<double> RateSearch::next() const {
    if (phase_ == Phase::over) return std::nullopt;
    return rate_;
}

void RateSearch::note(bool held) {
    ++(held ? hits_ : misses_);
    if (misses_ == kMostMisses) {
        refuse();
    } else if (hits_ == (phase_ == Phase::confirm ? kConfirmations : 1)) {
        accept();
    } else {
        return;
    }
    hits_ = misses_ = 0;
}

void RateSearch::accept() {
    if (phase_ == Phase::confirm) {
        confirmed_ = rate_;
        phase_ = Phase::over;
        return;
    }
    held_ = rate_;
    choose();
}

void RateSearch::refuse() {
    refused_ = rate_;
    if (phase_ != Phase::confirm) {
        choose();
        return;
    }
    held_ = 0;
    rate_ /= 1 + step_;
    step_ *= 2;
    if (rate_ < kLeast) phase_ = Phase::over;
}

void RateSearch::choose() {
    if (refused_ == 0 && rate_ >= kMost) {
        phase_ = Phase::confirm;
    } else if (refused_ == 0) {
        rate_ = std::min(kMost, rate_ * kRamp);
    } else if (held_ == 0) {
        rate_ /= fall_;
        fall_ *= kRamp;
        if (rate_ < kLeast) phase_ = Phase::over;
    } else if (refused_ > held_ * kPrecision) {
        phase_ = Phase::bisect;
        rate_ = std::sqrt(held_ * refused_);
    } else {
        phase_ = Phase::confirm;
        rate_ = held_;
    }
}

}  // namespace hotcount::loadtest
