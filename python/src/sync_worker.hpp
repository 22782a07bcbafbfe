// SyncWorker as Python holds it. Votes makes it (bind_votes.cpp), bind_sync_worker.cpp defines it.
#pragma once

#include <pybind11/pybind11.h>

#include <hotcount/votes/votes.hpp>
#include <memory>
#include <string>

#include "errors.hpp"

namespace hotcount::python {

namespace py = pybind11;

/// Holds the Votes object, whose closing ends it.
class BoundWorker {
  public:
    BoundWorker(std::shared_ptr<SyncWorker> worker, py::object votes)
        : worker_(std::move(worker)), votes_(std::move(votes)) {}
    SyncWorker& worker() const { return *worker_; }
    /// ClosedError where the Votes object is closed.
    void check_open() const {
        if (votes_.attr("closed").cast<bool>()) {
            raise(make_error(ErrorCode::closed, "the worker's Votes is closed"));
        }
    }
    std::string repr() const {
        return "hotcount.SyncWorker(" + std::string(py::repr(votes_)) + ")";
    }

  private:
    std::shared_ptr<SyncWorker> worker_;
    py::object votes_;
};

}  // namespace hotcount::python
