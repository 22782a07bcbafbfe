// The list of SQL dialects: defines functions that the layers below declare.
//
// A dialect is a folder here and a line in all().
#include <array>
#include <vector>

#include "mysql/dialect.hpp"
#include "postgres/dialect.hpp"
#include "sql/dialect.hpp"
#include "sqlite/dialect.hpp"
#include "votes/tables/vote_dialect.hpp"

namespace hotcount {
namespace {

struct Registered {
    sql::Driver driver;
    const VoteDialect& votes;
};

const auto& all() {
    static const std::array kAll{
        Registered{sql::sqlite_driver(), sqlite_votes()},
        Registered{sql::postgres_driver(), postgres_votes()},
        Registered{sql::mysql_driver(), mysql_votes()},
    };
    return kAll;
}

}  // namespace

namespace sql {

std::span<const Driver> drivers() {
    static const std::vector<Driver> kDrivers = [] {
        std::vector<Driver> each;
        for (const Registered& registered : all()) each.push_back(registered.driver);
        return each;
    }();
    return kDrivers;
}

}  // namespace sql

const VoteDialect& vote_dialect(sql::Dialect dialect) {
    for (const Registered& registered : all()) {
        if (registered.driver.grammar.dialect() == dialect) return registered.votes;
    }
    return all().front().votes;
}

}  // namespace hotcount
