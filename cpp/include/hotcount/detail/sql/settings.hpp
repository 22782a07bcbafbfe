// What a database says of itself: for `hotcount doctor`.
#pragma once

#include <hotcount/sql.hpp>
#include <map>
#include <string>

namespace hotcount::sql {

/// By the database's own names, with its version; "pooled" is "on" if a pooler was found in between.
using Settings = std::map<std::string, std::string>;

/// Settings that the login may not read are missing. The error of a server that does not answer.
Result<Settings> read_settings(Database& database, Deadline deadline);

}  // namespace hotcount::sql
