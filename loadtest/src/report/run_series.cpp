#include "run_series.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <string_view>
#include <vector>

#include "hdr_log.hpp"

namespace hotcount::loadtest {
namespace {

// What an answer was: the columns of series.csv, and the tags of response.hlog.
enum Outcome : std::uint8_t { vote, unvote, read, failed, unknown, kOutcomes };
constexpr std::array<std::string_view, kOutcomes> kNames{"vote", "unvote", "read", "failed",
                                                         "unknown"};

struct Interval {
    // Made when there is something to record: a long run has many intervals.
    std::array<std::unique_ptr<Histogram>, kOutcomes> responses{};
    std::uint64_t unserved{0};
    std::int64_t waiting{
        0};  // How many more are due than are answered, against the interval before.

    void record(Outcome outcome, std::int64_t response_ns) {
        auto& responses_of = responses[outcome];
        if (!responses_of) responses_of = std::make_unique<Histogram>();
        responses_of->record(response_ns);
    }
};

Outcome outcome_of(const LedgerRecord& record) {
    if (record.load_status() == Status::failed) return failed;
    if (record.load_status() != Status::ok) return unknown;
    switch (record.kind) {
        case OperationKind::vote:
            return vote;
        case OperationKind::unvote:
            return unvote;
        case OperationKind::read:
            break;
    }
    return read;
}

class Series {
  public:
    Series(const Ledger& ledger, bool open) : open_(open) {
        std::int64_t last_ns = 0;
        for (std::uint64_t at = 0; at < ledger.planned(); ++at) {
            const LedgerRecord& record = ledger[at];
            last_ns = std::max({last_ns, record.done_ns, record.sent_ns});
        }
        const auto second = std::int64_t{1'000'000'000};
        while (last_ns / (length_s_ * second) >= static_cast<std::int64_t>(kMostIntervals)) {
            length_s_ *= 2;
        }
        intervals_.resize(static_cast<std::size_t>(last_ns / (length_s_ * second)) + 1);
        for (std::uint64_t at = 0; at < ledger.planned(); ++at) take(ledger[at]);
    }

    std::int64_t length_s() const { return length_s_; }
    const std::vector<Interval>& intervals() const { return intervals_; }

  private:
    Interval& at(std::int64_t ns) {
        const auto index = static_cast<std::size_t>(ns / (length_s_ * 1'000'000'000));
        return intervals_[std::min(index, intervals_.size() - 1)];
    }

    void take(const LedgerRecord& record) {
        const Status status = record.load_status();
        if (status == Status::empty) return;
        if (status == Status::planned) {
            // In the closed loop nothing is due before it is sent.
            if (open_) {
                ++at(record.intended_ns).unserved;
                ++at(record.intended_ns).waiting;
            }
            return;
        }
        const std::int64_t due_ns = open_ ? record.intended_ns : record.sent_ns;
        const bool answered = status != Status::sent;
        const std::int64_t ended_ns = answered ? record.done_ns : record.sent_ns;
        at(ended_ns).record(outcome_of(record), std::max<std::int64_t>(0, ended_ns - due_ns));
        ++at(due_ns).waiting;
        if (answered) --at(ended_ns).waiting;
    }

    bool open_;
    std::int64_t length_s_{1};
    std::vector<Interval> intervals_;
};

void write_csv(const Series& series, Duration warmup, std::ostream& out) {
    out << "from_s,length_s,warmup,vote_ok,unvote_ok,read_ok,failed,unknown,unserved,p50_ms,p99_ms,"
           "max_ms,waiting\n";
    std::int64_t waiting = 0;
    std::int64_t from_s = 0;
    for (const Interval& interval : series.intervals()) {
        Histogram ok;
        std::array<std::uint64_t, kOutcomes> counts{};
        for (std::size_t outcome = 0; outcome < kOutcomes; ++outcome) {
            const auto& responses = interval.responses[outcome];
            if (!responses) continue;
            counts[outcome] = responses->count();
            if (outcome < failed) ok.merge(*responses);
        }
        waiting += interval.waiting;
        const auto ms = [](std::int64_t ns) { return static_cast<double>(ns) * 1e-6; };
        out << fmt::format("{},{},{},{},{},{},{},{},{},{:.6g},{:.6g},{:.6g},{}\n", from_s,
                           series.length_s(), std::chrono::seconds{from_s} < warmup ? 1 : 0,
                           counts[vote], counts[unvote], counts[read], counts[failed],
                           counts[unknown], interval.unserved, ms(ok.value_at(0.5)),
                           ms(ok.value_at(0.99)), ms(ok.max()), waiting);
        from_s += series.length_s();
    }
}

void write_log(const Series& series, double started_s, std::ostream& out) {
    HdrLog log(out, started_s);
    std::int64_t from_s = 0;
    for (const Interval& interval : series.intervals()) {
        for (std::size_t outcome = 0; outcome < kOutcomes; ++outcome) {
            const auto& responses = interval.responses[outcome];
            if (!responses) continue;
            log.add(kNames[outcome], static_cast<double>(from_s),
                    static_cast<double>(series.length_s()), *responses);
        }
        from_s += series.length_s();
    }
}

}  // namespace

Result<void> write_series(const Ledger& ledger, const TrialSettings& settings,
                          const std::filesystem::path& folder) {
    const Series series(ledger, settings.arrival != Arrival::closed);
    const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
    const auto since_start = std::chrono::steady_clock::now().time_since_epoch() -
                             std::chrono::nanoseconds{ledger.started_ns()};
    const double started_s = std::chrono::duration<double>(since_epoch - since_start).count();
    for (const char* const name : {kSeriesFile, kResponseFile}) {
        const std::filesystem::path path = folder / name;
        std::ofstream out(path);
        if (name == kSeriesFile) {
            write_csv(series, settings.warmup, out);
        } else {
            write_log(series, started_s, out);
        }
        out.flush();
        if (!out) {
            return make_error(
                ErrorCode::unavailable,
                fmt::format("{} cannot be written: {}", path.string(), std::strerror(errno)));
        }
    }
    return {};
}

}  // namespace hotcount::loadtest
