// --html: the page that `hotcount report` draws of the folder of a run or comparison.
#pragma once

#include <filesystem>
#include <hotcount/result.hpp>

namespace hotcount::loadtest {

/// The command `hotcount`, beside this program or on PATH, that can draw. ErrorCode::config says what
/// is missing, or that `file` cannot be made: it is asked before the load, because afterwards would be late.
Result<std::filesystem::path> find_drawer(const std::filesystem::path& file);

/// Writes the page of the folder to `file`. Waits for the command to end: a second or two.
Result<void> write_html(const std::filesystem::path& drawer, const std::filesystem::path& folder,
                        const std::filesystem::path& file);

}  // namespace hotcount::loadtest
