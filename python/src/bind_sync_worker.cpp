#include "bind.hpp"
#include "convert.hpp"
#include "function.hpp"
#include "gil.hpp"
#include "signature_text.hpp"
#include "sync_worker.hpp"
#include "value.hpp"

namespace hotcount::python {
namespace {

py::object worker_run_once(BoundWorker& self, const Arguments& arguments) {
    const Timeout timeout = to_timeout(arguments[0]);
    self.check_open();
    return py::cast(unwrap(without_gil([&] { return self.worker().run_once(timeout); })));
}

py::object worker_run(BoundWorker& self, const Arguments& arguments) {
    py::object wait;
    if (arguments.given(0)) {
        if (!py::hasattr(arguments[0], "wait")) {
            raise_wrong_type("stop", "a threading.Event, or None", arguments[0]);
        }
        wait = arguments[0].attr("wait");
    } else {
        // Nobody sets it; Ctrl-C gets through.
        wait = py::module_::import("threading").attr("Event")().attr("wait");
    }
    self.check_open();
    std::exception_ptr raised;
    const auto stop = [&](Duration pause) {
        const py::gil_scoped_acquire gil;
        try {
            raise_interrupt();
            if (PyErr_CheckSignals() != 0) throw py::error_already_set();
            if (wait(to_seconds(pause)).cast<bool>()) return true;
            self.check_open();
            return false;
        } catch (...) {
            raised = std::current_exception();
            return true;
        }
    };
    auto done = without_gil([&] { return self.worker().run(stop); });
    if (raised) std::rethrow_exception(raised);
    unwrap(std::move(done));
    return py::none();
}

py::object worker_stats(BoundWorker& self, const Arguments&) {
    const SyncWorker::Stats stats = self.worker().stats();
    py::dict result;
    result["rounds"] = stats.rounds;
    result["failed"] = stats.failed;
    result["scanned"] = stats.total.scanned;
    result["filled"] = stats.total.filled;
    result["saved"] = stats.total.saved;
    result["deleted"] = stats.total.deleted;
    result["recounted"] = stats.total.recounted;
    result["unsettled"] = stats.total.unsettled;
    result["at_risk"] = stats.total.at_risk;
    return result;
}

}  // namespace

void bind_sync_worker(py::module_& module) {
    bind_value(
        module, "SyncRound", "What one round of a SyncWorker did, in items.",
        Field{"scanned", &SyncRound::scanned, "Counts found in the cache."},
        Field{"filled", &SyncRound::filled, "Given what the database knew."},
        Field{"saved", &SyncRound::saved, "Written to the item table."},
        Field{"deleted", &SyncRound::deleted,
              "Saved, past their retention, and taken out of the cache."},
        Field{"recounted", &SyncRound::recounted,
              "Summed again from the votes: a count was lost or in doubt."},
        Field{"unsettled", &SyncRound::unsettled, "Not saved as found: for the next round."},
        Field{"at_risk", &SyncRound::at_risk, "Votes in those, which only the cache has counted."});
    py::class_<BoundWorker> cls(
        module, "SyncWorker",
        "Brings the counts of a cache to the database; Votes.sync_worker() makes one.\n\n"
        "Any number may run at once, in threads and processes: each step is fenced, so one that\n"
        "dies or stalls between any two of them loses nothing and overwrites nothing.");
    define<&worker_run_once>(cls, "run_once",
                             "(self, *, " + kTimeout + ") -> hotcount._core.SyncRound",
                             "Looks at every count in the cache once. timeout in seconds for the\n"
                             "whole round; None: 60.");
    define<&worker_run>(
        cls, "run", "(self, stop: threading.Event | None = None) -> None",
        "Rounds, with a pause of `interval` between them, until stop is set. None: for ever.\n\n"
        "A round that failed because a server is away is tried again; other errors are raised.");
    define<&worker_stats>(cls, "stats", "(self) -> dict[str, int]",
                          "Rounds, those that failed, and sums of what they did; unsettled and\n"
                          "at_risk are those of the latest round.");
    py::options plain;
    plain.disable_function_signatures();
    cls.def("__repr__", &BoundWorker::repr, "__repr__(self) -> str");
}

}  // namespace hotcount::python
