// Whether what the user chose goes together.
#pragma once

#include <hotcount/result.hpp>

#include "cli_options.hpp"
#include "load/settings.hpp"

namespace hotcount::loadtest {

bool manages(const Settings& settings, ServerKind kind);
bool manages_database(const Settings& settings);

/// An option for one kind of strategies must find one, and suit it. Otherwise it would be ignored
/// in silence, or end a comparison in its middle.
Result<void> check_options(const Given& given, const Settings& settings);

}  // namespace hotcount::loadtest
