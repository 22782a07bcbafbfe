// The SQLite dialect: a file, or a private database in memory.
#pragma once

#include <hotcount/sql.hpp>
#include <memory>

namespace hotcount::sql {

class Grammar;
struct Driver;

/// Every connection: WAL, synchronous=FULL (a commit is on disk before it is acknowledged),
/// foreign_keys=ON. Writers use BEGIN IMMEDIATE, because upgrading a deferred transaction fails
/// at once with SQLITE_BUSY whatever the timeout.
Driver sqlite_driver();
const Grammar& sqlite_grammar();

}  // namespace hotcount::sql

namespace hotcount {

class VoteDialect;
const VoteDialect& sqlite_votes();
class Adopter;
const Adopter& sqlite_adopter();
class OutsideTriggers;
const OutsideTriggers& sqlite_outside_triggers();

}  // namespace hotcount
