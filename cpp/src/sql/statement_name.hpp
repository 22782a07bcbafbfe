// The name of a prepared statement in a session of PostgreSQL's.
#pragma once

#include <string>
#include <string_view>

namespace hotcount::sql {

/// "hotcount_", 32 hexadecimal digits: a hash (FNV-1a, 128 bits) of the statement's text and of
/// `scope`, whatever else changes what the text means. Behind a pooler one session of the server
/// serves many clients: equal names there are equal statements, whoever prepared them.
std::string statement_name(std::string_view scope, std::string_view text);

}  // namespace hotcount::sql
