// The PostgreSQL dialect, over libpq, which is loaded when the first such URL is opened.
#pragma once

#include <hotcount/sql.hpp>
#include <memory>

namespace hotcount::sql {

class Grammar;
struct Driver;

Driver postgres_driver();
const Grammar& postgres_grammar();
/// Whether transactions that write are SERIALIZABLE on that connection, because the URL says so.
bool is_serializable(const Connection& connection);

}  // namespace hotcount::sql

namespace hotcount {

class VoteDialect;
const VoteDialect& postgres_votes();
class Adopter;
const Adopter& postgres_adopter();
class OutsideTriggers;
const OutsideTriggers& postgres_outside_triggers();

}  // namespace hotcount
