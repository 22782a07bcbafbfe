// sliding_log: at most the limit in every period, from a log of admitted hits.
//
// A key's log has an entry for each microsecond of the last period in which hits were admitted: at
// most as many entries as the limit. An entry holds the sum of all costs up to it. So one
// subtraction gives a period's cost, and one search the time at which there will be room.
#include <algorithm>

#include "backends.hpp"
#include "hotcount_embedded/limiter/lua.hpp"

namespace hotcount {
namespace {

class SlidingLog {
  public:
    struct Entry {
        std::int64_t at;     // In microseconds.
        std::int64_t total;  // The sum of the costs up to `at`.
    };
    struct State {
        std::vector<Entry> entries{};  // By time.
        std::size_t first{0};          // The entries before it have expired.
        std::int64_t before{0};        // The total of the expired entries.

        std::int64_t time() const { return entries.empty() ? 0 : entries.back().at; }
        // As a table stores it, without the expired entries.
        void append_numbers(std::vector<std::int64_t>& numbers) const {
            numbers.push_back(before);
            numbers.push_back(static_cast<std::int64_t>(entries.size() - first));
            Entry last{0, before};
            for (std::size_t i = first; i < entries.size(); ++i) {
                numbers.push_back(entries[i].at - last.at);
                numbers.push_back(entries[i].total - last.total);
                last = entries[i];
            }
        }
        bool take_numbers(std::span<const std::int64_t>& numbers) {
            if (numbers.size() < 2) return false;
            before = numbers[0];
            const auto count = static_cast<std::size_t>(numbers[1]);
            numbers = numbers.subspan(2);
            if (count > numbers.size() / 2) return false;
            Entry last{0, before};
            for (std::size_t i = 0; i < count; ++i) {
                last = {last.at + numbers[2 * i], last.total + numbers[2 * i + 1]};
                if (last.at > kExact || last.total > kExact) return false;
                entries.push_back(last);
            }
            numbers = numbers.subspan(2 * count);
            return true;
        }
    };
    struct Change {
        std::size_t first;  // As State has them.
        std::int64_t before;
        std::int64_t moved;  // How much earlier the entries are.
        std::int64_t at;
        std::int64_t taken;
        std::int64_t given_back{0};
    };
    static std::string script() { return std::string{lua::limiter::kSlidingLogLua}; }
    // A log holds an element for each hit, so it cannot be for millions.
    static constexpr std::int64_t kMaxLimit = 100'000;
    // A database writes the whole log with each hit: 10 bytes an entry.
    static constexpr std::int64_t kMostStored = 1000;

    static Result<SlidingLog> make(const Rate& rate, const LimiterOptions&) {
        HOTCOUNT_TRY(check_window_rate(rate));
        if (rate.limit > kMaxLimit) {
            return make_error(ErrorCode::config,
                              "sliding_log remembers each hit and takes a limit of " +
                                  std::to_string(kMaxLimit) + " at most, not " +
                                  std::to_string(rate.limit));
        }
        return SlidingLog{rate};
    }

    std::int64_t limit() const { return limit_; }
    std::array<std::int64_t, 3> script_arguments() const { return {limit_, period_, 0}; }

    bool holds(const State& log) const {
        return log.entries.empty() || log.entries.back().total - log.before <= limit_;
    }

    std::optional<Change> step(const State* state, std::int64_t now, std::int64_t cost, bool take,
                               Outcome& outcome) const {
        static const State kEmpty;
        const State& log = state != nullptr ? *state : kEmpty;
        const View view = look(log, now);
        std::int64_t held = view.held;
        std::int64_t last = view.last;
        const bool admissible = cost <= limit_;
        std::optional<Change> change;
        outcome.allowed = admissible && held + cost <= limit_;
        if (outcome.allowed) {
            outcome.retry_after_us = 0;
        } else if (admissible) {
            const std::int64_t enough = view.before + held + cost - limit_;
            const auto leaving = std::partition_point(
                log.entries.begin() + static_cast<std::ptrdiff_t>(view.first), log.entries.end(),
                [&](const Entry& entry) { return entry.total < enough; });
            outcome.retry_after_us = leaving->at - view.moved + period_ - now;
        }
        if (take && outcome.allowed) {
            held += cost;
            last = view.at;
            change = Change{view.first, view.before, view.moved, view.at, cost};
        } else if (view.moved > 0) {
            change = Change{view.first, view.before, view.moved, view.at, 0};
        }
        outcome.remaining = limit_ - held;
        outcome.reset_after_us = held > 0 ? last + period_ - now : 0;
        return change;
    }

    std::optional<Change> give_back(const State& log, std::int64_t now, std::int64_t n,
                                    Outcome& outcome) const {
        const View view = look(log, now);
        n = std::min(n, view.held);
        const std::int64_t held = view.held - n;
        outcome.remaining = limit_ - held;
        outcome.reset_after_us = held > 0 ? view.last + period_ - now : 0;
        if (n == 0 && view.moved == 0) return std::nullopt;
        return Change{view.first, view.before, view.moved, view.at, 0, n};
    }

    void apply(State& state, const Change& change) const {
        state.first = change.first;
        state.before = change.before;
        std::vector<Entry>& entries = state.entries;
        // Moved once for as many as have gone.
        if (state.first * 2 > entries.size()) {
            entries.erase(entries.begin(),
                          entries.begin() + static_cast<std::ptrdiff_t>(state.first));
            state.first = 0;
        }
        if (change.moved > 0) {
            for (Entry& entry : entries) entry.at -= change.moved;
        }
        if (change.given_back > 0) return take_back(state, change.given_back);
        if (change.taken == 0) return;
        const bool empty = state.first == entries.size();
        const std::int64_t total = (empty ? state.before : entries.back().total) + change.taken;
        if (!empty && entries.back().at == change.at) {
            entries.back().total = total;
        } else {
            entries.push_back({change.at, total});
        }
    }

  private:
    // A log as of one time.
    struct View {
        std::int64_t at;     // The moment: now, or the last entry's, which may be a little ahead.
        std::int64_t moved;  // The correction of a log ahead of the clock: subtracted.
        std::size_t first;   // The first entry that the period before `at` holds.
        std::int64_t before;
        std::int64_t held;  // The cost in that period.
        std::int64_t last;  // When the last hit was admitted.
    };
    View look(const State& log, std::int64_t now) const {
        View view{now, 0, 0, log.before, 0, 0};
        if (!log.entries.empty()) {
            const std::int64_t last_at = log.entries.back().at;
            if (lies_ahead(last_at, now)) view.moved = last_at - now;
            view.at = std::max(now, last_at - view.moved);
        }
        const auto from = log.entries.begin() + static_cast<std::ptrdiff_t>(log.first);
        const auto kept = std::partition_point(from, log.entries.end(), [&](const Entry& entry) {
            return entry.at - view.moved + period_ <= view.at;
        });
        view.first = static_cast<std::size_t>(kept - log.entries.begin());
        if (kept != from) view.before = std::prev(kept)->total;
        if (kept != log.entries.end()) view.held = log.entries.back().total - view.before;
        view.last = view.held > 0 ? log.entries.back().at - view.moved : view.at;
        return view;
    }

    // Takes n of the newest hits out of the log, which has as many.
    static void take_back(State& state, std::int64_t n) {
        std::vector<Entry>& entries = state.entries;
        const std::int64_t total = entries.back().total - n;
        const auto from = entries.begin() + static_cast<std::ptrdiff_t>(state.first);
        const auto last = std::partition_point(
            from, entries.end(), [&](const Entry& entry) { return entry.total < total; });
        if (total == state.before) {
            entries.erase(from, entries.end());
        } else {
            last->total = total;
            entries.erase(std::next(last), entries.end());
        }
    }

    explicit SlidingLog(const Rate& rate) : limit_(rate.limit), period_(rate.period.count()) {}

    std::int64_t limit_;
    std::int64_t period_;  // In microseconds.
};

}  // namespace

constinit const LimiterAlgorithm kSlidingLog = stepped<SlidingLog>({
    .algorithm = Algorithm::sliding_log,
    .name = "sliding_log",
    .promise = "at most the limit in every period",
    .window = WindowKind::sliding,
});

}  // namespace hotcount
