#include "workload.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>

#include "words.hpp"

namespace hotcount::loadtest {

namespace {

// (e^x - 1) / x and log(1 + x) / x, which at 0 would be 0 / 0. They keep exponents near 1, where
// the integral turns from a power into a logarithm, free of cancellation.
double expm1_ratio(double x) { return std::abs(x) > 1e-8 ? std::expm1(x) / x : 1 + x / 2; }
double log1p_ratio(double x) { return std::abs(x) > 1e-8 ? std::log1p(x) / x : 1 - x / 2; }

constexpr int kRounds = 6;
constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio: the bits look random.

std::uint64_t scramble(std::uint64_t word) {
    word = (word ^ (word >> 32)) * 0xd6e8feb86659fd93;
    word = (word ^ (word >> 32)) * 0xd6e8feb86659fd93;
    return word ^ (word >> 32);
}

}  // namespace

Zipf::Zipf(std::uint64_t size, double exponent) : size_(size), exponent_(exponent) {
    assert(size >= 1 && exponent >= 0);
    top_ = integral(static_cast<double>(size) + 0.5);
    // Rank 1 is exact: its share is 1 = density(1), not the integral from 1/2 to 3/2.
    bottom_ = integral(1.5) - 1;
    shortcut_ = 2 - inverse_integral(integral(2.5) - density(2));
}

double Zipf::integral(double x) const {
    const double log_x = std::log(x);
    return expm1_ratio((1 - exponent_) * log_x) * log_x;
}

double Zipf::inverse_integral(double y) const {
    // Rounding may carry the argument of the logarithm just below its domain.
    const double t = std::max(y * (1 - exponent_), -1.0);
    return std::exp(log1p_ratio(t) * y);
}

double Zipf::density(double x) const { return std::exp(-exponent_ * std::log(x)); }

std::uint64_t Zipf::draw(Random& random) const {
    if (exponent_ == 0) return 1 + random.below(size_);
    for (;;) {
        const double u = top_ + random.unit() * (bottom_ - top_);
        const double x = inverse_integral(u);
        const double rank = std::clamp(std::round(x), 1.0, static_cast<double>(size_));
        if (rank - x <= shortcut_ || u >= integral(rank + 0.5) - density(rank)) {
            return static_cast<std::uint64_t>(rank);
        }
    }
}

std::uint64_t mix(std::uint64_t a, std::uint64_t b) { return scramble(scramble(a + kOdd) ^ b); }

Permutation::Permutation(std::uint64_t size) : size_(size) {
    assert(size >= 1);
    const auto bits = static_cast<int>(std::bit_width(size - 1));
    low_bits_ = bits / 2;
    low_mask_ = (std::uint64_t{1} << low_bits_) - 1;
    high_mask_ = (std::uint64_t{1} << (bits - low_bits_)) - 1;
}

std::uint64_t Permutation::permute(std::uint64_t key, std::uint64_t index) const {
    assert(index < size_);
    std::uint64_t result = index;
    do {
        std::uint64_t low = result & low_mask_;
        std::uint64_t high = result >> low_bits_;
        std::uint64_t round_key = key;
        // Each half in turn is changed by a function of the other: undone in reverse order, so
        // no two inputs meet, whatever the function. The halves may differ by one bit.
        for (int round = 0; round < kRounds; round += 2) {
            round_key += kOdd;
            high ^= scramble(low + round_key) & high_mask_;
            round_key += kOdd;
            low ^= scramble(high + round_key) & low_mask_;
        }
        result = (high << low_bits_) | low;
    } while (result >= size_);
    return result;
}

namespace {

// The 64-bit draws below the result are `share` (0 to 1) of all.
std::uint64_t threshold(double share) {
    if (share >= 1) return ~std::uint64_t{0};
    return static_cast<std::uint64_t>(std::max(share, 0.0) * 0x1.0p64);
}

}  // namespace

std::string_view to_string(OperationKind kind) { return word_of(kind, {"vote", "unvote", "read"}); }

Workload::Workload(const TrafficSettings& settings)
    : random_(mix(settings.seed, 0)),
      zipf_(settings.items, settings.zipf),
      items_(settings.items),
      users_(settings.users),
      seed_(settings.seed),
      trace_(settings.trace),
      votes_of_item_(settings.items, 0) {
    const Mix& shares = settings.mix;
    const double total = shares.vote + shares.unvote + shares.read;
    unvote_below_ = threshold(shares.unvote / total);
    read_below_ = threshold((shares.unvote + shares.read) / total);
    // Rounding must not let one vote in 2^64 into a stream that is to have none.
    if (shares.vote == 0) read_below_ = ~std::uint64_t{0};
    dup_below_ = threshold(settings.dup);
}

std::uint64_t Workload::draw_item() { return items_.permute(seed_, zipf_.draw(random_) - 1); }

Operation Workload::next() {
    if (trace_) return trace_->lines()[traced_++].operation;
    const std::uint64_t kind = random_.next();
    if (kind < unvote_below_) {
        // Before there are votes to take back, a vote comes in the un-vote's place.
        if (voted_ < kFewest) return fresh_vote();
        const std::uint64_t oldest = std::min<std::uint64_t>(voted_, kRemembered);
        const std::uint64_t recent = std::min<std::uint64_t>(voted_ / 4, kRecent);
        const Vote& vote = remembered(recent + random_.below(oldest - recent));
        return {vote.item, vote.user, OperationKind::unvote, false};
    }
    if (kind < read_below_) {
        return {static_cast<std::int64_t>(draw_item()) + 1, 0, OperationKind::read, false};
    }
    if (voted_ > 0 && random_.next() < dup_below_) {
        const Vote& vote = remembered(random_.below(std::min<std::uint64_t>(voted_, kRecent)));
        return {vote.item, vote.user, OperationKind::vote, true};
    }
    return fresh_vote();
}

Operation Workload::fresh_vote() {
    const std::uint64_t item = draw_item();
    std::uint32_t& votes = votes_of_item_[item];
    if (votes >= users_.size()) ++repeated_;
    const std::uint64_t user = users_.permute(mix(seed_, item + 1), votes % users_.size());
    ++votes;
    Vote& vote = votes_[voted_++ % kRemembered];
    vote = {static_cast<std::int64_t>(item) + 1, static_cast<std::int64_t>(user) + 1};
    return {vote.item, vote.user, OperationKind::vote, false};
}

const Workload::Vote& Workload::remembered(std::uint64_t age) const {
    return votes_[(voted_ - 1 - age) % kRemembered];
}

}  // namespace hotcount::loadtest
