// The table of one SlottedCounter, and the statements over it, made once.
#pragma once

#include <hotcount/counter/slotted_counter.hpp>
#include <hotcount/sql/database.hpp>
#include <string>

namespace hotcount {

class SlotTable {
  public:
    explicit SlotTable(const SlottedCounterOptions& options);

    std::string schema;  ///< Creates table and ledger; idempotent.

    // Parameters in order, then the columns returned.
    sql::Statement add;          ///< key, slot, n -> count
    sql::Statement sum;          ///< key -> sum over its slots
    sql::Statement remove;       ///< key
    sql::Statement remember_op;  ///< key, op_id, seconds; changes no row where it is known
    sql::Statement forget_ops;   ///< seconds: forgets up to two older ones

  private:
    struct Names;
    explicit SlotTable(const Names& names);
};

}  // namespace hotcount
