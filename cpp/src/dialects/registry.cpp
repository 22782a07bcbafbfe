// The list of SQL dialects: what the layers below declare and each dialect defines.
//
// A dialect is a folder here. It needs a line in kDrivers, one in vote_dialect(), and a name in
// sql::Dialect.
#include <array>
#include <hotcount/detail/sql/dialect.hpp>

#include "mysql/dialect.hpp"
#include "postgres/dialect.hpp"
#include "sql/dialect.hpp"
#include "sqlite/dialect.hpp"
#include "votes/tables/vote_dialect.hpp"

namespace hotcount {
namespace sql {

std::span<const Driver> drivers() {
    static constexpr std::array kSqlite{Scheme{"sqlite"}};
    static constexpr std::array kPostgres{Scheme{"postgresql"}, Scheme{"postgres", true}};
    static constexpr std::array kMysql{Scheme{"mariadb"}, Scheme{"mysql"}};
    static const std::array kDrivers{
        Driver{kSqlite, open_sqlite, sqlite_grammar()},
        Driver{kPostgres, open_postgres, postgres_grammar()},
        Driver{kMysql, open_mysql, mysql_grammar()},
    };
    return kDrivers;
}

}  // namespace sql

const VoteDialect& vote_dialect(sql::Dialect dialect) {
    static const std::array kAll{&sqlite_votes(), &postgres_votes(), &mysql_votes()};
    for (const VoteDialect* each : kAll) {
        if (each->grammar().dialect() == dialect) return *each;
    }
    return *kAll.front();
}

}  // namespace hotcount
