// The command line, its meaning, and the program without main(), so that tests can run it.
#pragma once

#include <fmt/core.h>
#include <atomic>
#include <cstdio>
#include <hotcount/result.hpp>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "load/settings.hpp"

namespace CLI {
class App;
}

namespace hotcount::loadtest {

/// The program is to print this and end: help and version go to stdout with code 0, a usage error
/// to stderr with code 2.
struct ExitMessage {
    int code;
    std::string text;
};

/// `arguments` without the program's own name.
std::variant<Settings, ExitMessage> parse_command_line(const std::vector<std::string>& arguments);

/// Does what the settings ask for: results to `out`, progress and errors to `log`. Returns the exit
/// code: 0 passed, 1 a contract was broken or a threshold missed, 2 bad usage, 3 inconclusive.
int run_program(const Settings& settings, const std::atomic<bool>& interrupt, std::FILE* out,
                std::FILE* log);

// -- for the parts of the command line ------------------------------------------------------------
//
// The options that the commands know, and how their texts become settings; cli.cpp says what they mean.

/// An option by its long name, with its text as it was given.
using Given = std::map<std::string, std::string>;

/// The settings of a command without options. --help shows them.
Settings default_settings(Command command);

/// Lets the command take its options, into `given`, which must outlive the parsing.
void add_options(CLI::App& app, Command command, Given& given);
/// The error message for an argument that the command does not take.
std::string explain_extra(Command command, const std::string& extra);
/// Commands to copy, for the end of a help text, ...
std::string examples_of(Command command);
/// ... and the names, workload by workload.
std::string strategy_lines();

bool manages(const Settings& settings, ServerKind kind);
bool manages_redis(const Settings& settings);
bool manages_database(const Settings& settings);

/// An option for one kind of strategies must find one, and suit it. Otherwise it would be ignored
/// in silence, or end a comparison in its middle.
Result<void> check_options(const Given& given, const Settings& settings);

inline Error about(const char* option, const Error& error) {
    return make_error(ErrorCode::config, fmt::format("{}: {}", option, error.message));
}

/// Reads one option into `target`, if it was given.
template <class T, class Parse>
Result<void> read(const Given& given, const char* name, const Parse& parse, T& target) {
    const auto found = given.find(name);
    if (found == given.end()) return {};
    auto parsed = parse(found->second);
    if (!parsed) return about(("--" + std::string{name}).c_str(), parsed.error());
    target = static_cast<T>(std::move(parsed).value());
    return {};
}

/// read() for a number from `least` to `most`.
template <class T, class Parse>
Result<void> read_within(const Given& given, const char* name, const Parse& parse,
                         std::type_identity_t<T> least, std::type_identity_t<T> most, T& target) {
    T value = target;
    HOTCOUNT_TRY(read(given, name, parse, value));
    if (given.contains(name) && (value < least || value > most)) {
        return make_error(ErrorCode::config,
                          fmt::format("--{} is {}; it takes {} to {}", name, value, least, most));
    }
    target = value;
    return {};
}

/// --managed, --redis and --db: the servers that there are, and the databases that a comparison has.
Result<void> read_servers(const Given& given, Settings& settings);
/// Repeats each group on SQL for each of several databases. Call it after the groups are read.
void spread_over_databases(Settings& settings);
/// --item-table, --vote-user ...: tables of the user's own.
Result<void> read_tables(const Given& given, TrialSettings& trial);
/// --arrival: a kind, or a profile of the rate.
Result<void> read_arrival(const Given& given, TrialSettings& trial);
/// --trace: its operations instead of synthetic ones, at its own times.
Result<void> read_trace(const Given& given, TrialSettings& trial);
/// --processes, and what is done to them and to the private Redis.
Result<void> read_faults(const Given& given, Settings& settings);
/// The faults in the load, whose length is known by now.
Result<void> place_faults(const Given& given, TrialSettings& trial);

}  // namespace hotcount::loadtest
