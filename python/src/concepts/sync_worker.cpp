// hotcount.SyncWorker: declared in hotcount/_votes_base.py.
#include <algorithm>
#include <hotcount/detail/base/interrupt.hpp>
#include <hotcount/detail/base/log.hpp>
#include <optional>

#include "votes.hpp"

namespace hotcount::python {
namespace {

// Logs when rounds of run() begin to fail, when they work again, and votes that were set aside.
class RoundLog {
  public:
    RoundLog(std::string name, const SyncWorker::Stats& stats)
        : name_(std::move(name)),
          rounds_(stats.rounds),
          failed_(stats.failed),
          refused_(stats.total.refused) {}

    /// True if a round has succeeded since the last call.
    bool look(const SyncWorker::Stats& stats) {
        const SteadyTime now = std::chrono::steady_clock::now();
        if (stats.failed > failed_ && !since_) {
            since_ = now;
            log("warning", name_ + ": rounds fail: " + std::string{without_key(stats.last_error)});
        } else if (stats.rounds > rounds_ && since_) {
            const auto ms = std::chrono::ceil<std::chrono::milliseconds>(now - *since_).count();
            since_.reset();
            log("info", name_ + ": rounds work again, after " + std::to_string(ms) + " ms");
        }
        if (stats.total.refused > refused_) {
            log("warning", name_ + ": " + std::to_string(stats.total.refused - refused_) +
                               " votes that the database refuses were set aside");
        }
        failed_ = stats.failed;
        refused_ = stats.total.refused;
        return std::exchange(rounds_, stats.rounds) < stats.rounds;
    }

  private:
    std::string name_;
    std::uint64_t rounds_;
    std::uint64_t failed_;
    std::int64_t refused_;
    std::optional<SteadyTime> since_{};
};

class BoundWorker final : public Bound<SyncWorker> {
  public:
    template <class Counts>
    BoundWorker(std::shared_ptr<SyncWorker> worker, std::shared_ptr<Counts> counts)
        : Bound(std::move(worker), counts->store, &kTag<BoundWorker>),
          counts_(counts),
          check_open_([counts] { counts->check_open(); }),
          add_facts_(
              [counts](Error& error, Timeout timeout) { counts->add_facts(error, timeout); }) {
        if constexpr (requires { counts->log_event_of_core(); }) {
            log_event_ = [counts] { counts->log_event_of_core(); };
        }
    }

    std::string repr(const std::string& title) const override {
        return "hotcount." + title + "(" + counts_->repr("") + ")";
    }
    void check_open() const { check_open_(); }
    void add_facts(Error& error, Timeout timeout) const { add_facts_(error, timeout); }
    /// For Votes: the worker's process also folds.
    void log_event() const {
        if (log_event_) log_event_();
    }
    /// Records that a round has just succeeded.
    void note_round() const { last_round_ = std::chrono::steady_clock::now(); }
    Duration since_last_round() const { return std::chrono::steady_clock::now() - last_round_; }
    py::object to_python(const SyncRound& round) const;

  private:
    std::shared_ptr<BoundBase> counts_;  // Of Votes, or of a WriteBehindCounter.
    std::function<void()> check_open_;
    std::function<void(Error&, Timeout)> add_facts_;
    std::function<void()> log_event_{};
    mutable SteadyTime last_round_{std::chrono::steady_clock::now()};  // Under the GIL.
};

}  // namespace

template <>
inline ResultRow<&SyncRound::scanned, &SyncRound::filled, &SyncRound::saved, &SyncRound::deleted,
                 &SyncRound::recounted, &SyncRound::unsettled, &SyncRound::at_risk,
                 &SyncRound::refused>
    kResultRow<SyncRound>{"SyncRound"};

template <>
struct BoundOf<SyncWorker> {
    using type = BoundWorker;
};

py::object BoundWorker::to_python(const SyncRound& round) const {
    log_event();
    note_round();
    return To<SyncRound>::make(round);
}

namespace {

template <class Counts>
std::shared_ptr<BoundBase> worker_of(const std::shared_ptr<BoundBase>& bound) {
    auto counts = std::static_pointer_cast<Counts>(bound);
    counts->check_open();
    auto worker = unwrap(without_gil([&] { return counts->core->sync_worker(); }));
    return std::make_shared<BoundWorker>(std::move(worker), std::move(counts));
}

std::shared_ptr<BoundBase> make_worker(const std::string&, py::handle object) {
    constexpr const char* kTakes = "Votes or WriteBehindCounter";
    if (!BoundObject::check(object.ptr())) raise_wrong_type("votes", kTakes, object);
    const auto& bound = BoundObject::of(object.ptr())->bound;
    if (bound == nullptr) raise_unfinished(object.ptr());
    if (bound->tag() == &kTag<BoundVotes>) return worker_of<BoundVotes>(bound);
    if (bound->tag() == &kTag<BoundViews>) return worker_of<BoundViews>(bound);
    raise_wrong_type("votes", kTakes, object);
}

// How soon a worker notices that its event is set.
constexpr Duration kStopLook = std::chrono::milliseconds{20};

py::object run_worker(py::handle, BoundWorker& self, py::handle stop) {
    if (!stop.is_none() && !py::hasattr(stop, "is_set")) {
        raise_wrong_type("stop", "a threading.Event, or None", stop);
    }
    self.check_open();
    std::exception_ptr raised;
    RoundLog rounds(self.store.name(), self.core->stats());
    // Without the event's wait(): if a signal handler came while wait() holds the event's lock, and
    // set the event, it would wait for that lock for ever.
    const auto stopped = [&](Duration pause) {
        const Deadline until = Deadline::after(pause);
        const py::gil_scoped_acquire gil;
        try {
            while (true) {
                raise_interrupt();
                if (PyErr_CheckSignals() != 0) throw py::error_already_set();
                // Nobody sets an event of None; Ctrl-C still ends the wait.
                if (!stop.is_none() && stop.attr("is_set")().cast<bool>()) return true;
                self.check_open();
                self.log_event();
                if (rounds.look(self.core->stats())) self.note_round();
                if (until.passed()) return false;
                without_gil([&] { sleep_or_interrupt(std::min(kStopLook, until.remaining())); });
            }
        } catch (...) {
            raised = std::current_exception();
            return true;
        }
    };
    auto done = without_gil([&] { return self.core->run(stopped); });
    if (raised) std::rethrow_exception(raised);
    unwrap(std::move(done));
    return py::none();
}

py::object worker_stats(py::handle, BoundWorker& self) {
    const SyncWorker::Stats stats = self.core->stats();
    using R = SyncRound;
    py::dict dict = to_dict<&R::scanned, &R::filled, &R::saved, &R::deleted, &R::recounted,
                            &R::unsettled, &R::at_risk, &R::refused>(stats.total);
    dict["rounds"] = stats.rounds;
    dict["failed"] = stats.failed;
    dict["last_error"] = stats.last_error;
    dict["last_round_s"] = to_seconds(self.since_last_round());
    return dict;
}

}  // namespace

void bind_sync_worker() {
    constructor<&make_worker, py::handle>("SyncWorker.__init__", "votes");
    method<&SyncWorker::run_once, nullptr, Timeout>("SyncWorker.run_once", "timeout");
    object_method<&run_worker, BoundWorker, py::handle>("SyncWorker._run", "stop");
    object_method<&worker_stats, BoundWorker>("SyncWorker.stats", "");
}

}  // namespace hotcount::python
