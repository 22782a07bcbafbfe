#include <sqlite3.h>

#include <hotcount/build_info.hpp>
#include <hotcount/detail/sql/settings.hpp>

#include "dialects/mysql/libmariadb.hpp"
#include "dialects/postgres/libpq.hpp"
#include "redis/tls.hpp"

#ifndef HOTCOUNT_BUILD_TYPE
#define HOTCOUNT_BUILD_TYPE "unknown"
#endif

namespace hotcount {
namespace {

// 150004 is 15.4: two parts since PostgreSQL 10.
std::string libpq_version() {
    const auto pq = sql::load_libpq();
    if (!pq) return "not found";
    const int number = (*pq)->PQlibVersion();
    return std::to_string(number / 10000) + "." + std::to_string(number % 10000);
}

std::string libmariadb_version() {
    const auto library = sql::libmariadb::load();
    return library ? (*library)->get_client_info() : "not found";
}

}  // namespace

std::map<std::string, std::string> build_info() {
    return {
        {"version", kVersion},
        {"compiler", __VERSION__},
        {"build_type", HOTCOUNT_BUILD_TYPE},
        {"hiredis", HOTCOUNT_HIREDIS_VERSION},
        {"tls", redis::tls_version()},
        {"sqlite", sql::load_sqlite() ? sqlite3_libversion() : "not found"},
        {"libpq", libpq_version()},
        {"libmariadb", libmariadb_version()},
    };
}

}  // namespace hotcount
