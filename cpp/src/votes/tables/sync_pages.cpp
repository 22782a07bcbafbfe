#include "sync_pages.hpp"

#include "hotcount_embedded/votes/sql.hpp"

namespace hotcount {

std::string sync_columns(const VoteNames& n) {
    return sql::Statements{vote_sql::kPartsSql, to_names(n)}["state_columns"];
}

std::string sync_tables(const VoteNames& n) {
    return sql::Statements{vote_sql::kPartsSql, to_names(n)}["state_tables"];
}

SyncState read_sync_state(const sql::Row& row, int first) {
    return SyncState{row.integer(first),          row.integer(first + 1),
                     row.integer(first + 2),      row.integer(first + 3),
                     row.integer(first + 4),      std::string{row.text(first + 5)},
                     row.integer(first + 6) != 0, row.id(first + 7)};
}

}  // namespace hotcount
