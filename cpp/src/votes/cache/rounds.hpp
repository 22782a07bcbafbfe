// Parts that all workers share: the loop of rounds, the sums of rounds, and a worker for each process.
#pragma once

#include <functional>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/votes/sync_worker.hpp>
#include <memory>
#include <utility>

namespace hotcount {

/// Whether run() continues after a round failed with this error: the server was away, or one key or
/// row was at fault. Other errors fail each round until the configuration is changed.
inline bool is_worth_another_round(ErrorCode code) {
    return code != ErrorCode::config && code != ErrorCode::closed && code != ErrorCode::auth &&
           code != ErrorCode::permission_denied;
}

/// Whether the server may answer again.
inline bool is_away(ErrorCode code) {
    return code == ErrorCode::unavailable || code == ErrorCode::deadline ||
           code == ErrorCode::capacity || code == ErrorCode::outcome_unknown;
}

inline void add(SyncRound& sum, const SyncRound& round) {
    sum.scanned += round.scanned;
    sum.filled += round.filled;
    sum.saved += round.saved;
    sum.deleted += round.deleted;
    sum.recounted += round.recounted;
    sum.unsettled += round.unsettled;
    sum.at_risk += round.at_risk;
    sum.refused += round.refused;
}

/// Sums rounds, except that unsettled and at_risk are the latest round's.
inline void add_round(SyncRound& sum, const SyncRound& round) {
    sum.unsettled = sum.at_risk = 0;
    add(sum, round);
}

/// SyncWorker::run() of all workers. A round may ask `stop` too, to end early.
using StopRounds = std::function<bool(Duration)>;
inline Result<void> run_rounds(const std::function<Result<SyncRound>(const StopRounds&)>& round,
                               Duration interval, const StopRounds& stop) {
    bool stopped = false;
    // The caller's stop() is not asked again once it has said true.
    const StopRounds stops = [&](Duration pause) { return stopped = stopped || stop(pause); };
    while (!stops(Duration{0})) {
        const auto done = round(stops);
        if (!done && !is_worth_another_round(done.error().code)) return done.error();
        if (stops(interval)) break;
    }
    return {};
}

/// How long a round may take if its caller does not say.
inline constexpr Duration kRoundTimeout{std::chrono::seconds{60}};

/// A worker of its own for each process. A child that was forked during a round would otherwise inherit
/// the locked mutex of that round.
template <class Worker>
class WorkerOfProcess final : public SyncWorker {
  public:
    template <class Subject>
    explicit WorkerOfProcess(std::shared_ptr<Subject> subject)
        : worker_([subject = std::move(subject)] { return std::make_unique<Worker>(subject); }) {}

    Result<SyncRound> run_once(Timeout timeout) override { return worker_.get().run_once(timeout); }
    Result<void> run(const std::function<bool(Duration)>& stop) override {
        return worker_.get().run(stop);
    }
    Stats stats() const override { return worker_.get().stats(); }

  private:
    mutable ForkLocal<Worker> worker_;
};

}  // namespace hotcount
