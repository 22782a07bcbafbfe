// The dialect of MariaDB and MySQL, over libmariadb, which is loaded when the first such URL is
// opened.
#pragma once

#include <hotcount/sql.hpp>
#include <memory>

namespace hotcount::sql {

class Grammar;
class Statements;
struct Driver;

Driver mysql_driver();
const Grammar& mysql_grammar();
/// The statements of sql/catalog.sql.
const Statements& mysql_catalog();

}  // namespace hotcount::sql

namespace hotcount {

class VoteDialect;
const VoteDialect& mysql_votes();
class Adopter;
const Adopter& mysql_adopter();
class OutsideTriggers;
const OutsideTriggers& mysql_outside_triggers();

}  // namespace hotcount
