// Time zones as Python knows them, and datetimes as instants and back.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <hotcount/period_counter.hpp>
#include <memory>
#include <string>

#include "convert.hpp"
#include "pybind.hpp"

namespace hotcount::python {

/// A zone of zoneinfo, asked for its offsets. It takes the GIL where it has to ask; an answer is
/// kept for its quarter of an hour of UTC, at whose ends alone today's zones change theirs.
class PythonZone final : public TimeZone {
  public:
    /// ConfigError if zoneinfo knows no such name.
    explicit PythonZone(std::string name);
    PythonZone(const PythonZone&) = delete;
    PythonZone& operator=(const PythonZone&) = delete;
    ~PythonZone() override;

    std::string_view name() const override { return name_; }
    std::chrono::seconds offset(Instant at) const override;
    /// An aware datetime in the zone. Needs the GIL.
    py::object to_datetime(Instant at) const;

  private:
    std::chrono::seconds ask(Instant at) const;

    std::string name_;
    py::object zone_;
    py::object timedelta_;
    py::object epoch_;
    // The quarter's number and its offset in one word, so that threads and forks need no lock.
    mutable std::array<std::atomic<std::uint64_t>, 1024> kept_{};
};

/// An aware datetime, down to its second. Naive: a config error; another type: a TypeError.
Instant to_instant(py::handle value, const Where& where);

}  // namespace hotcount::python
