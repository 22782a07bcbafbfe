// Statements for a connection of the application's own: its driver, its session, its transaction.
//
// The application's library binds parameters by name. MySQL's sessions are not in ANSI_QUOTES mode
// there, so names stand in backticks.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "dialect.hpp"

namespace hotcount::sql {

/// `text`, written as for our own connections, in the form of SQLAlchemy's text(): parameter ?N
/// becomes :name, `names` having one for each, and a colon in a quoted name is escaped.
std::string session_statement(const Grammar& grammar, std::string_view text,
                              std::initializer_list<std::string_view> names);

/// `text` without parameters, for the database's own client, whose session is as the server makes it.
std::string client_script(const Grammar& grammar, std::string_view text);

}  // namespace hotcount::sql
