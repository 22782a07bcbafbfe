// The statements of an embedded .sql file.
//
//     -- name: count_of
//     -- The count of item ?1. Locks nothing. Returns one row: n.
//     SELECT COALESCE(SUM(n), 0) FROM {cell} WHERE item = ?1
//     --if exact
//         + (SELECT COALESCE(SUM(diff), 0) FROM {journal} WHERE item = ?1)
//     --end
//
// A statement begins at `-- name:` and ends at the next one. Other comments are for readers and are
// left out, and each run of white space outside quotes becomes one space, or none where lines meet
// beside a bracket or before a comma. Only the end of a line after ; stays, if it is not between
// $hotcount$ and $hotcount$: a script has one statement a line.
//
//   {name}                   the value that the caller gives for it; else the file's own statement of
//                            that name, so a part that several statements share is written once
//   {name(a, b)}             the same, with {1} and {2} in it for the arguments and {*} for all of
//                            them; commas within parentheses or quotes separate nothing
//   --> text                 a comment for the readers of a script, which stays in it
//   --if NAME --else --end   lines for a value that is not empty; --if !NAME for one that is empty
//   --each SEP --end         lines that BulkStatement repeats for each row, SEP between two rows. The
//                            row's own placeholders are the first one in it and those above; lower
//                            ones are the same in all rows. #1 is the number of ?1. A statement may
//                            have several blocks: each has the same rows
//
// {name} stands for SQL: a quoted identifier, a type or a clause, never for a value. Values are
// parameters: ?1, ?2.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dialect.hpp"

namespace hotcount::sql {

/// The values of {name}. A flag is "" or "1".
using Names = std::map<std::string, std::string, std::less<>>;

/// The value of a flag.
inline std::string flag(bool is_set) { return is_set ? "1" : ""; }

/// The text on one line, for a script, where ; at the end of a line ends a statement. Line breaks
/// inside quotes and at the end stay.
std::string one_line(std::string text);

class Statements {
  public:
    /// `file` must outlive it: an embedded constant does.
    Statements(std::string_view file, Names names) : Statements({file}, std::move(names)) {}
    /// Of several files, such as one of parts and the dialect's words (Grammar::words()). The first
    /// file that has a name gives it.
    Statements(std::initializer_list<std::string_view> files, Names names);

    /// The text of a statement. Throws std::logic_error that names what is missing in the file or
    /// in the caller's names: a programming error, which the first object that uses the file shows.
    std::string operator[](std::string_view name) const;
    /// With further names, which take precedence.
    std::string with(std::string_view name, const Names& more) const;
    /// With arguments too.
    std::string call(std::string_view name, const std::vector<std::string>& arguments,
                     const Names& more = {}) const;

  private:
    struct Scope;
    std::string text_of(std::string_view name, const Scope& scope) const;
    std::string value_of(std::string_view reference, std::string_view within,
                         const Scope& scope) const;
    std::string filled(std::string_view text, std::string_view within, const Scope& scope) const;

    std::map<std::string_view, std::string_view> parts_{};
    Names names_;
};

/// The text of a statement with --each, for so many rows.
std::string repeat_rows(std::string_view text, std::size_t rows);

// -- statements for a connection of the application's own ----------------------------------------
//
// The application's library binds parameters by name. Its MySQL sessions are not in ANSI_QUOTES
// mode, so names stand in backticks.

/// `text`, written as for our own connections, in the form of SQLAlchemy's text(): parameter ?N
/// becomes :name, `names` having one for each, and a colon in a quoted name is escaped.
std::string session_statement(const Grammar& grammar, std::string_view text,
                              std::initializer_list<std::string_view> names);

/// `text` without parameters, for the database's own client, whose session has default settings.
std::string client_script(const Grammar& grammar, std::string_view text);

}  // namespace hotcount::sql
