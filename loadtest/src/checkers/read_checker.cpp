#include "read_checker.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace hotcount::loadtest {
namespace {

/// The possible votes of one user at one moment: the values of all casts that may be the last one.
class UserVote {
  public:
    std::int64_t least{0};
    std::int64_t most{0};
    std::int64_t ever_least{0};
    std::int64_t ever_most{0};

    void begin(const Attempt& cast) {
        ever_least = std::min(ever_least, cast.value);
        ever_most = std::max(ever_most, cast.value);
        // A cast without an answer may take effect at any time from now on.
        if (cast.status == Status::unknown) {
            unknown_least_ = unknown_ ? std::min(unknown_least_, cast.value) : cast.value;
            unknown_most_ = unknown_ ? std::max(unknown_most_, cast.value) : cast.value;
            unknown_ = true;
        } else {
            last_.push_back(&cast);
        }
        update_bounds();
    }

    void end(const Attempt& cast) {
        untouched_ = false;
        std::erase_if(last_, [&](const Attempt* other) { return other->done_ns < cast.sent_ns; });
        update_bounds();
    }

  private:
    void update_bounds() {
        bool first = true;
        const auto allow = [&](std::int64_t value) {
            least = first ? value : std::min(least, value);
            most = first ? value : std::max(most, value);
            first = false;
        };
        if (untouched_) allow(0);
        if (unknown_) {
            allow(unknown_least_);
            allow(unknown_most_);
        }
        for (const Attempt* cast : last_) allow(cast->value);
    }

    bool untouched_{true};
    bool unknown_{false};
    std::int64_t unknown_least_{0};
    std::int64_t unknown_most_{0};
    std::vector<const Attempt*> last_{};  // Begun casts that may be the last one.
};

/// The bounds of an item's count at the current moment.
class CountBounds {
  public:
    /// When a number was right for the last time.
    struct Left {
        std::int64_t ns{kNever};
        std::uint64_t changes{0};  ///< How many changes were certain until then.
    };
    static constexpr std::int64_t kNever = INT64_MIN;

    CountBounds(std::span<const Attempt> writes, const AnswerRules& rules)
        : adds_(rules.adds), step_by_step_(rules.step_by_step) {
        std::int64_t down = 0;
        std::int64_t up = 0;
        for (const Attempt& write : writes) (write.value < 0 ? down : up) += write.value;
        base_ = down;
        left_.resize(static_cast<std::size_t>(up - down) + 1);
    }

    void begin(const Attempt& write) {
        ++(write.value > 0 ? ups_ : downs_);
        if (!adds_) {
            change(write, &UserVote::begin, write.sent_ns);
        } else if (write.value < 0) {
            least_ += write.value;
            ever_least_ += write.value;
        } else {
            most_ += write.value;
            ever_most_ += write.value;
        }
    }

    void end(const Attempt& write) {
        if (!adds_) {
            change(write, &UserVote::end, write.done_ns);
        } else if (write.value < 0) {
            move_to(least_, most_ + write.value, write.done_ns);
        } else {
            move_to(least_ + write.value, most_, write.done_ns);
        }
    }

    bool hold(std::int64_t number) const { return number >= least_ && number <= most_; }
    /// Whether some of the writes begun so far can add up to the number.
    bool within_reach(std::int64_t number) const {
        if (step_by_step_ && number >= -downs_ && number <= ups_) return true;
        return number >= ever_least_ && number <= ever_most_;
    }
    Left left(std::int64_t number) const {
        // A driver may return any number, also one that left_ does not have.
        const auto at = static_cast<std::uint64_t>(number) - static_cast<std::uint64_t>(base_);
        return number >= base_ && at < left_.size() ? left_[at] : Left{};
    }
    std::uint64_t changes() const { return changes_; }
    std::int64_t least() const { return least_; }
    std::int64_t most() const { return most_; }

  private:
    void change(const Attempt& write, void (UserVote::*by)(const Attempt&), std::int64_t ns) {
        UserVote& vote = votes_[write.user];
        const std::int64_t least = least_ - vote.least;
        const std::int64_t most = most_ - vote.most;
        ever_least_ -= vote.ever_least;
        ever_most_ -= vote.ever_most;
        (vote.*by)(write);
        ever_least_ += vote.ever_least;
        ever_most_ += vote.ever_most;
        move_to(least + vote.least, most + vote.most, ns);
    }

    void move_to(std::int64_t least, std::int64_t most, std::int64_t ns) {
        const auto leave = [&](std::int64_t number) {
            left_[static_cast<std::size_t>(number - base_)] = {ns, changes_};
        };
        for (std::int64_t number = least_; number < least; ++number) leave(number);
        for (std::int64_t number = most + 1; number <= most_; ++number) leave(number);
        if (least > least_ || most < most_) ++changes_;
        least_ = least;
        most_ = most;
    }

    bool adds_;
    bool step_by_step_;
    std::int64_t ups_{0};  // Begun so far.
    std::int64_t downs_{0};
    std::int64_t base_{0};
    std::int64_t least_{0};
    std::int64_t most_{0};
    std::int64_t ever_least_{0};
    std::int64_t ever_most_{0};
    std::uint64_t changes_{0};
    std::vector<Left> left_{};
    std::unordered_map<std::int64_t, UserVote> votes_{};
};

/// Finds reads that return less than an earlier read although too little was taken away in between,
/// or more although too little was added.
class ReadsInOrder {
  public:
    /// The bounds of a read's number that follow from earlier reads and writes.
    struct Before {
        std::int64_t taken{0};  ///< Certainly taken away before it was sent.
        /// The largest sum of an earlier read's number and the `taken` of that read.
        std::int64_t most{kNone};
        std::int64_t most_exact{kNone};  ///< The same, over exact reads.
        std::int64_t added{0};           ///< Certainly added before it was sent.
        /// The smallest difference between an earlier exact read's number and its `added`.
        std::int64_t least_exact{kNoneLeast};
    };

    void begin(const Attempt& write) { ++(takes(write) ? maybe_taken_ : maybe_added_); }
    void end(const Attempt& write) { ++(takes(write) ? taken_ : added_); }
    Before sent() const { return {taken_, most_, most_exact_, added_, least_exact_}; }
    /// Notes an answered read whose number was right.
    void answered(const Read& read, const Before& before, bool exact) {
        const std::int64_t told = read.number + before.taken;
        most_ = std::max(most_, told);
        if (!exact) return;
        most_exact_ = std::max(most_exact_, told);
        least_exact_ = std::min(least_exact_, read.number - before.added);
    }
    /// Whether the read tells less than one that was answered before it was sent.
    bool went_back(const Read& read, std::int64_t most) const {
        return most != kNone && most - maybe_taken_ > read.number;
    }
    /// Whether the read tells more than an exact one that was answered before it was sent.
    bool ran_ahead(const Read& read, const Before& before) const {
        return before.least_exact != kNoneLeast && read.number - maybe_added_ > before.least_exact;
    }
    /// The breach is reported once: later reads are compared with this one.
    void forget_before(const Read& read, const Before& before) {
        most_ = std::min(most_, read.number + before.taken);
        most_exact_ = std::min(most_exact_, most_);
    }
    void forget_less(const Read& read, const Before& before) {
        least_exact_ = std::max(least_exact_, read.number - before.added);
    }

  private:
    static constexpr std::int64_t kNone = INT64_MIN;
    static constexpr std::int64_t kNoneLeast = INT64_MAX;
    static bool takes(const Attempt& write) { return write.value <= 0; }

    std::int64_t maybe_taken_{0};
    std::int64_t taken_{0};
    std::int64_t most_{kNone};
    std::int64_t most_exact_{kNone};
    std::int64_t maybe_added_{0};
    std::int64_t added_{0};
    std::int64_t least_exact_{kNoneLeast};
};

struct Moment {
    // Sorts the moments of one time: a write that touches a read's time overlaps it.
    enum class Kind : std::uint8_t { write_sent, read_sent, read_done, write_done };
    std::int64_t ns;
    Kind kind;
    std::size_t index;
};

std::vector<Moment> moments_of(std::span<const Attempt> writes, std::span<const Read> reads) {
    std::vector<Moment> moments;
    moments.reserve(2 * (writes.size() + reads.size()));
    for (std::size_t i = 0; i < writes.size(); ++i) {
        moments.push_back({writes[i].sent_ns, Moment::Kind::write_sent, i});
        if (writes[i].status != Status::ok) continue;
        moments.push_back({writes[i].done_ns, Moment::Kind::write_done, i});
    }
    for (std::size_t i = 0; i < reads.size(); ++i) {
        moments.push_back({reads[i].sent_ns, Moment::Kind::read_sent, i});
        moments.push_back({reads[i].done_ns, Moment::Kind::read_done, i});
    }
    std::sort(moments.begin(), moments.end(), [](const Moment& a, const Moment& b) {
        return a.ns != b.ns ? a.ns < b.ns : a.kind < b.kind;
    });
    return moments;
}

double in_ms(std::int64_t ns) { return static_cast<double>(ns) * 1e-6; }

void add_breach(std::uint64_t& count, const AnswerRules& rules, AuditResult& result) {
    ++count;
    if (rules.may_be_wrong) ++result.allowed_breaches;
}

/// Reports a read whose number was right at no moment between its sending and its answer.
void check_old_number(std::int64_t item, const Read& read, const CountBounds& bounds,
                      std::uint64_t changes_before, const AnswerRules& rules, AuditResult& result) {
    const std::optional<Duration> within = read.exact ? Duration{0} : rules.reads_within;
    const CountBounds::Left left = bounds.left(read.number);
    const auto what = [&] {
        return fmt::format("item {} was said to have {} at {:.3f} ms", item, read.number,
                           in_ms(read.sent_ns));
    };
    if (left.ns == CountBounds::kNever) {
        ++result.reads_never_right;
        const bool exact = within && *within == Duration{0};
        if (!exact && bounds.within_reach(read.number)) return;
        add_breach(result.wrong_reads, rules, result);
        result.example(fmt::format("read: {}, which was never right; then it had {} to {}", what(),
                                   bounds.least(), bounds.most()));
        return;
    }
    const std::int64_t stale_ns = read.sent_ns - left.ns;
    const std::uint64_t behind = changes_before - left.changes;
    result.staleness_ns.record(stale_ns);
    result.versions_behind.record(static_cast<std::int64_t>(behind));
    if (!within || stale_ns <= within->count()) return;
    add_breach(result.stale_reads, rules, result);
    result.example(fmt::format("stale: {}, which had been wrong for {:.3f} ms and {} writes",
                               what(), in_ms(stale_ns), behind));
}

/// Compares a read with earlier ones: a number that is right by itself may contradict theirs.
void check_order(std::int64_t item, const Read& read, bool right,
                 const ReadsInOrder::Before& before, const AnswerRules& rules, ReadsInOrder& order,
                 AuditResult& result) {
    const std::optional<Duration> within = read.exact ? Duration{0} : rules.reads_within;
    const bool exact = within && *within == Duration{0};
    if (order.went_back(read, before.most)) {
        ++result.reads_went_back;
        // An exact read that was not right has been reported already.
        if (right && exact && order.went_back(read, before.most_exact)) {
            add_breach(result.backward_reads, rules, result);
            result.example(fmt::format(
                "went back: item {} was said to have {} at {:.3f} ms, although an earlier read "
                "returned more and too little was taken away since",
                item, read.number, in_ms(read.sent_ns)));
        }
        order.forget_before(read, before);
    }
    if (right && exact && order.ran_ahead(read, before)) {
        add_breach(result.backward_reads, rules, result);
        result.example(
            fmt::format("ran ahead: item {} was said to have {} at {:.3f} ms, although an earlier "
                        "read returned less and too little was added since",
                        item, read.number, in_ms(read.sent_ns)));
        order.forget_less(read, before);
    }
    // A wrong number would make later reads seem to go back or to run ahead.
    if (right) order.answered(read, before, exact);
}

/// For each cast, the latest sent_ns of the casts that were acknowledged before it was sent;
/// INT64_MIN if there are none. `casts` are in the order of their sending.
std::vector<std::int64_t> last_sent_before(std::span<const CastCall> casts) {
    std::vector<const Attempt*> ended;
    for (const CastCall& cast : casts) {
        if (cast.attempt.status == Status::ok) ended.push_back(&cast.attempt);
    }
    std::sort(ended.begin(), ended.end(),
              [](const Attempt* a, const Attempt* b) { return a->done_ns < b->done_ns; });
    std::vector<std::int64_t> last;
    last.reserve(casts.size());
    std::int64_t sent_ns = INT64_MIN;
    std::size_t next = 0;
    for (const CastCall& cast : casts) {
        for (; next < ended.size() && ended[next]->done_ns < cast.attempt.sent_ns; ++next) {
            sent_ns = std::max(sent_ns, ended[next]->sent_ns);
        }
        last.push_back(sent_ns);
    }
    return last;
}

/// Whether the vote may have been `previous` right before casts[at].
bool may_follow(std::span<const CastCall> casts, std::size_t at, std::int64_t last_sent_ns) {
    const CastCall& cast = casts[at];
    if (cast.previous == 0 && last_sent_ns == INT64_MIN) return true;
    // The nearest casts first: one of them is the likely predecessor.
    const auto until =
        std::upper_bound(casts.begin(), casts.end(), cast.attempt.done_ns,
                         [](std::int64_t ns, const CastCall& c) { return ns < c.attempt.sent_ns; });
    for (auto other = until; other != casts.begin();) {
        --other;
        if (&*other == &cast || other->attempt.value != cast.previous) continue;
        const bool replaced =
            other->attempt.status == Status::ok && other->attempt.done_ns < last_sent_ns;
        if (!replaced) return true;
    }
    return false;
}

/// The largest excess at any moment: the changes that had ended by then, less `most`, less the
/// opposite changes that had begun. `ended` and `undone` have these times in ascending order.
std::int64_t beyond(const std::vector<std::int64_t>& ended, const std::vector<std::int64_t>& undone,
                    std::int64_t most) {
    std::int64_t worst = 0;
    std::size_t begun = 0;
    for (std::size_t at = 0; at < ended.size(); ++at) {
        while (begun < undone.size() && undone[begun] <= ended[at]) ++begun;
        const auto came = static_cast<std::int64_t>(at + 1);
        worst = std::max(worst, came - static_cast<std::int64_t>(begun) - most);
    }
    return worst;
}

/// The number of changes in the answers to casts that cannot have happened: a user has one vote or
/// none at each moment. A cast without an answer may have changed the vote once, at any time since
/// it was sent.
std::int64_t impossible_changes(std::span<const CastCall> casts) {
    std::vector<std::int64_t> set_ended;
    std::vector<std::int64_t> set_begun;
    std::vector<std::int64_t> unset_ended;
    std::vector<std::int64_t> unset_begun;
    for (const CastCall& cast : casts) {
        const Attempt& attempt = cast.attempt;
        const bool sets = attempt.value != 0;
        if (!cast.told) {
            (sets ? set_begun : unset_begun).push_back(attempt.sent_ns);
            continue;
        }
        if ((cast.previous != 0) == sets) continue;
        (sets ? set_begun : unset_begun).push_back(attempt.sent_ns);
        (sets ? set_ended : unset_ended).push_back(attempt.done_ns);
    }
    for (auto* const times : {&set_ended, &set_begun, &unset_ended, &unset_begun}) {
        std::sort(times->begin(), times->end());
    }
    return std::max(beyond(set_ended, unset_begun, 1), beyond(unset_ended, set_begun, 0));
}

bool agrees_with_itself(const CastCall& cast) {
    return cast.now == cast.attempt.value && cast.counted == (cast.now != 0) &&
           cast.changed == (cast.now != cast.previous);
}

}  // namespace

void check_reads(std::int64_t item, std::span<const Attempt> writes, std::span<const Read> reads,
                 const AnswerRules& rules, AuditResult& result) {
    CountBounds bounds(writes, rules);
    ReadsInOrder order;
    std::vector<std::uint64_t> changes_before(reads.size(), 0);
    std::vector<ReadsInOrder::Before> before(reads.size());
    for (const Moment& moment : moments_of(writes, reads)) {
        switch (moment.kind) {
            case Moment::Kind::write_sent:
                bounds.begin(writes[moment.index]);
                order.begin(writes[moment.index]);
                break;
            case Moment::Kind::write_done:
                bounds.end(writes[moment.index]);
                order.end(writes[moment.index]);
                break;
            case Moment::Kind::read_sent:
                changes_before[moment.index] = bounds.changes();
                before[moment.index] = order.sent();
                break;
            case Moment::Kind::read_done: {
                const Read& read = reads[moment.index];
                ++result.reads;
                const bool right =
                    bounds.hold(read.number) || bounds.left(read.number).ns >= read.sent_ns;
                if (right) {
                    result.staleness_ns.record(0);
                    result.versions_behind.record(0);
                } else {
                    check_old_number(item, read, bounds, changes_before[moment.index], rules,
                                     result);
                }
                check_order(item, read, right, before[moment.index], rules, order, result);
                break;
            }
        }
    }
}

void check_casts(std::span<CastCall> casts, const AnswerRules& rules, AuditResult& result) {
    std::sort(casts.begin(), casts.end(), [](const CastCall& a, const CastCall& b) {
        return a.attempt.sent_ns < b.attempt.sent_ns;
    });
    const std::vector<std::int64_t> last_sent_ns = last_sent_before(casts);
    const std::uint64_t before = result.wrong_casts;
    bool all_told = true;
    std::int64_t moved = 0;
    for (std::size_t at = 0; at < casts.size(); ++at) {
        const CastCall& cast = casts[at];
        all_told = all_told && cast.told;
        if (!cast.told) continue;
        ++result.casts;
        const char* why = nullptr;
        if (!agrees_with_itself(cast)) {
            why = "which does not agree with itself";
        } else if (!may_follow(casts, at, last_sent_ns[at])) {
            why = "which no order of that user's casts gives";
        }
        if (why == nullptr) {
            moved += cast.now - cast.previous;
            continue;
        }
        add_breach(result.wrong_casts, rules, result);
        result.example(fmt::format(
            "cast: item {} user {} set {} at {:.3f} ms and was told {} before, {} after{}, {}",
            cast.attempt.item, cast.attempt.user, cast.attempt.value, in_ms(cast.attempt.sent_ns),
            cast.previous, cast.now, cast.changed ? ", changed" : "", why));
    }
    // Answers that are possible one by one may contradict each other.
    if (casts.empty() || result.wrong_casts != before) return;
    if (const std::int64_t impossible = impossible_changes(casts); impossible > 0) {
        for (std::int64_t at = 0; at < impossible; ++at) {
            add_breach(result.wrong_casts, rules, result);
        }
        result.example(
            fmt::format("cast: of the {} casts of item {} user {}, {} cannot have changed the vote "
                        "as told: it had that value already",
                        casts.size(), casts[0].attempt.item, casts[0].attempt.user, impossible));
        return;
    }
    // The changes, in some order, must lead to the stored vote.
    if (!all_told) return;
    std::vector<Attempt> attempts;
    attempts.reserve(casts.size());
    for (const CastCall& cast : casts) attempts.push_back(cast.attempt);
    if (AllowedStates(attempts).allows(moved)) return;
    add_breach(result.wrong_casts, rules, result);
    result.example(
        fmt::format("cast: the {} casts of item {} user {} were told of changes that come to {}, "
                    "which no order of them gives",
                    casts.size(), attempts[0].item, attempts[0].user, moved));
}

}  // namespace hotcount::loadtest
