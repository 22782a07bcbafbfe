// Where an add of a PeriodCounter goes.
#pragma once

#include <string>

#include "backend.hpp"

namespace hotcount {

// A period's key in full, and what the store needs to know of the period.
struct PeriodCounter::Place {
    std::string name;
    std::string label;
    PeriodWindow window;
};

/// The error for an instant that the calendar does not take.
Error bad_time(std::string_view argument);

}  // namespace hotcount
