// An add as part of a transaction of the application's own. See detail/votes/integrations.hpp.
#pragma once

#include <hotcount/detail/sql/dialect.hpp>
#include <hotcount/slotted_counter.hpp>
#include <map>
#include <string>

namespace hotcount {

/// Statements by name, with the parameters :key, :slot and :n; an add does without those that are
/// missing.
///
///   update  key, slot, n. Missing if the database has one writer at a time: `add` is as good, and
///           slot 0 is enough
///   find    key, slot -> 1 or NULL, and the session's sql_mode. For dialects in which an update that
///           finds no row locks the gap
///   add     key, slot, n
///   sum     key -> its count
std::map<std::string, std::string> counter_session_statements(sql::Dialect dialect,
                                                              const SlottedCounterOptions& options);

}  // namespace hotcount
