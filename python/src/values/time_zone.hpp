// Time zones as Python knows them, and datetimes as instants and back.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <hotcount/period_counter.hpp>
#include <memory>
#include <optional>
#include <string>

#include "convert.hpp"
#include "pybind.hpp"

namespace hotcount::python {

/// A zone of zoneinfo, asked for its offsets. It takes the GIL where it has to ask. An answer is kept
/// for two days if both their ends have it: no zone that IANA lists changes its offset and takes it
/// back within three. In two days with a change it is kept for its quarter of an hour of UTC, at
/// whose ends alone zones change theirs.
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
    // Answers by stretches of one length since 1970. The stretch's number and the offset are one word,
    // so that threads and forks need no lock.
    struct Kept {
        std::chrono::seconds length;
        std::array<std::atomic<std::uint64_t>, 512> words{};
    };
    std::chrono::seconds ask(Instant at) const;
    std::optional<std::chrono::seconds> ask(Instant at, Kept& kept) const;

    std::string name_;
    py::object zone_;
    py::object timedelta_;
    py::object epoch_;
    mutable Kept days_{std::chrono::days{2}};
    mutable Kept quarters_{std::chrono::minutes{15}};
};

/// The zone of that name; made once and kept for good, with what it has asked. Needs the GIL.
const std::shared_ptr<const PythonZone>& zone_named(const std::string& name);
/// The zone as the core takes it. For UTC it is the core's own, which does not call Python.
std::shared_ptr<const TimeZone> core_zone(const std::shared_ptr<const PythonZone>& zone);

using Time = std::chrono::sys_time<std::chrono::microseconds>;

/// An aware datetime. Naive: a config error; another type: a TypeError.
Time to_time(py::handle value, const Where& where);

}  // namespace hotcount::python
