// The SQLite dialect: a file, or a private database in memory.
#pragma once

#include <hotcount/sql.hpp>
#include <memory>
#include <string>
#include <string_view>

struct sqlite3;

namespace hotcount::sql {

class Grammar;
class Statements;
struct Driver;

/// Every connection: WAL, synchronous=FULL (a commit is on disk before it is acknowledged),
/// foreign_keys=ON. Writers use BEGIN IMMEDIATE, because upgrading a deferred transaction fails
/// at once with SQLITE_BUSY, regardless of the timeout.
Driver sqlite_driver();
/// The beginning of the comment that identifies hotcount's triggers. Our transactions run no
/// triggers if the database has only these: they count themselves, and SQLite keeps a statement
/// journal for each statement that has a trigger, which took a fifth of the rate of votes. Triggers
/// of a second vote table are not among these: an item that we delete may take its votes along.
inline constexpr std::string_view kVoteTrigger = "/* hotcount: ";
/// kVoteTrigger -> 1 if the database has other triggers.
const Statement& other_triggers();
/// The error of the connection's last call, with the file's name in its message. `code` is the
/// extended result code.
Error sqlite_failure(sqlite3* connection, int code, const std::string& name);
const Grammar& sqlite_grammar();
/// sql/catalog.sql
const Statements& sqlite_catalog();

}  // namespace hotcount::sql

namespace hotcount {

class VoteDialect;
const VoteDialect& sqlite_votes();
class Adopter;
const Adopter& sqlite_adopter();
class OutsideTriggers;
const OutsideTriggers& sqlite_outside_triggers();

}  // namespace hotcount
