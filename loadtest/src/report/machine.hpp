// The machine and the build with which a figure was measured: a number without them says nothing.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace hotcount::loadtest {

/// Processors this process may use, their model, memory, kernel, clock source.
nlohmann::json describe_machine();
/// One line of the same, for tables: "2 x <model>, Linux 6.1".
std::string machine_line();

/// hotcount::build_info() with the generator's own compiler flags.
nlohmann::json describe_versions();

/// Why this build's figures would mislead: assertions are on, or a sanitizer is compiled in. None
/// for a release build.
std::optional<std::string> why_not_measurable();

/// The present in UTC, as 2024-05-31T12:00:00Z.
std::string utc_now();

}  // namespace hotcount::loadtest
