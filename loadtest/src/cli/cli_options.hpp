// The options that the commands know, as texts; cli.cpp says what they mean.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "load/settings.hpp"

namespace hotcount::loadtest {

/// An option by its long name, with its text as it was given.
using Given = std::map<std::string, std::string>;

/// What the command does if nothing is said. --help has it, too.
Settings default_settings(Command command);

/// Lets the command take its options, into `given`, which must outlive the parsing.
void add_options(CLI::App& app, Command command, Given& given);
/// What to say of an argument that nothing takes.
std::string explain_extra(Command command, const std::string& extra);
/// The names, workload by workload, for the end of a help text.
std::string strategy_lines();

}  // namespace hotcount::loadtest
