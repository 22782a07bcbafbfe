#include "sync_pages.hpp"

namespace hotcount {

std::string sync_columns(const VoteNames& n) {
    return "COALESCE(hc_s.epoch, 0), COALESCE(hc_s.gen, 0), COALESCE(hc_s.saved_gen, 0), "
           "COALESCE(hc_s.saved_version, 0), COALESCE(hc_i." +
           n.count + ", 0), COALESCE(hc_s.holder, ''), COALESCE(hc_s.wide, 0), hc_i." + n.id;
}

std::string sync_tables(const VoteNames& n) {
    return n.item + " AS hc_i LEFT JOIN " + n.sync + " AS hc_s ON hc_s.item = hc_i." + n.id;
}

SyncState read_sync_state(const sql::Row& row, int first) {
    return SyncState{row.integer(first),          row.integer(first + 1),
                     row.integer(first + 2),      row.integer(first + 3),
                     row.integer(first + 4),      std::string{row.text(first + 5)},
                     row.integer(first + 6) != 0, row.id(first + 7)};
}

}  // namespace hotcount
