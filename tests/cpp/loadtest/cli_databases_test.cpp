// Command lines with several databases.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <string>
#include <tuple>
#include <vector>

#include "command_lines.hpp"

namespace hotcount::loadtest {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> groups_of(const Settings& settings) {
    std::vector<std::string> groups;
    for (const StrategyGroup& group : settings.groups) {
        EXPECT_EQ(group.baseline, group.strategies.front());
        EXPECT_EQ(group.trial.strategy, group.strategies.front());
        std::string text = fmt::format("{} on {}:", to_string(group.trial.workload),
                                       group.database ? group.database->label : "none");
        for (const std::string& name : group.strategies) text += " " + name;
        groups.push_back(text);
    }
    return groups;
}

TEST(CommandLine, AComparisonDrivesWhatIsOnSqlOnEachDatabase) {
    const Settings all = accept(
        {"compare", "-s", "redis,naive,slots/sticky", "--managed", "redis,postgres,mariadb"});
    EXPECT_THAT(groups_of(all),
                ElementsAre("counters on none: redis", "counters on postgres: slots/sticky",
                            "counters on mariadb: slots/sticky", "votes on postgres: naive",
                            "votes on mariadb: naive"));
    EXPECT_FALSE(all.groups[0].trial.managed_database);
    EXPECT_TRUE(all.groups[1].trial.managed_database);
    const Settings own = accept({"compare", "-s", "naive,batched", "--baseline", "batched", "--db",
                                 "postgresql://a:x@h:1/a,b,mariadb://b:y@h/v,sqlite:////v.db",
                                 "--managed", "postgres"});
    ASSERT_EQ(own.groups.size(), 4U);
    const char* const labels[] = {"postgres", "postgres-2", "mariadb", "sqlite"};
    for (std::size_t i = 0; i < own.groups.size(); ++i) {
        EXPECT_EQ(own.groups[i].database->label, labels[i]);
        EXPECT_EQ(own.groups[i].baseline, "batched");
        EXPECT_EQ(own.groups[i].trial.managed_database, i == 0);
    }
    EXPECT_EQ(own.groups[1].trial.database_url, "postgresql://a:x@h:1/a,b");
    EXPECT_THAT(
        own.command_line,
        testing::Not(testing::Contains(testing::AnyOf(HasSubstr(":x@"), HasSubstr(":y@")))));
    EXPECT_EQ(accept({"compare", "-s", "naive", "--managed", "postgres"}).databases.size(), 0U);
    EXPECT_THAT(refuse({"compare", "-s", "naive", "--db", "mariadb://h/v,mariadb://h/v"}),
                HasSubstr("twice"));
    EXPECT_THAT(refuse({"run", "-s", "naive", "--managed", "postgres,mariadb"}),
                HasSubstr("compare takes several"));
    EXPECT_EQ(accept({"audit", "x", "--db", "mariadb://h/v,postgresql://h/v"}).database_urls.size(),
              2U);
}

TEST(CommandLine, AFaultOfADatabaseNeedsAPrivateOne) {
    const char* const fault = "1s:db.kill9+500ms";
    const Settings run = accept({"run", "--managed", "mysql", "--fault", fault});
    EXPECT_EQ(run.trial.faults.front().kind, FaultKind::db_kill9);
    EXPECT_EQ(run.trial.max_errors, 1);
    EXPECT_FALSE(run.trial.kills_redis());
    EXPECT_THAT(refuse({"run", "--fault", fault}),
                HasSubstr("--managed postgres, mariadb, mysql, postgres-pair or galera"));
    EXPECT_THAT(refuse({"compare", "-s", "naive", "--fault", fault, "--managed", "mariadb", "--db",
                        "postgresql://h/v"}),
                HasSubstr("no --db"));
    EXPECT_THAT(refuse({"run", "--managed", "mariadb", "--fault", "1s:redis.pause+1s"}),
                HasSubstr("--managed redis"));
}

TEST(CommandLine, AFaultThatTheServersCannotHaveNamesThoseThatCan) {
    const std::tuple<const char*, const char*, const char*> cases[] = {
        {"redis", "1s:redis.failover", "sentinel or redis-cluster"},
        {"sentinel", "1s:redis.reshard=5", "take --managed redis-cluster"},
        {"sentinel", "1s:redis.cut+5s", "take --managed redis-cluster"},
        {"sentinel", "1s:db.pause+1s", "--managed postgres"},
        {"redis,sentinel", "1s:redis.pause+1s", "take one of redis, sentinel"}};
    for (const auto& [servers, fault, says] : cases) {
        EXPECT_THAT(refuse({"run", "-s", "redis", "--managed", servers, "--fault", fault}),
                    HasSubstr(says));
    }
    EXPECT_THAT(refuse({"run", "--managed", "postgres", "--fault", "1s:db.failover"}),
                HasSubstr("take --managed postgres-pair or galera"));
    // Its node joins again, so that a later fault or load has three.
    accept({"compare", "-s", "naive,batched", "--managed", "galera", "--fault",
            "100ms:db.cut+1ms,500ms:db.kill9+1s"});
    const std::pair<const char*, const char*> twice[] = {
        {"1s:db.kill9+1s,3s:db.failover", "3s:db.failover"},
        {"1s:db.cut+1s,3s:db.pause+1s", "is promoted by 1s:db.cut+1s"}};
    for (const auto& [faults, says] : twice) {
        EXPECT_THAT(refuse({"run", "--managed", "postgres-pair", "--fault", faults}),
                    HasSubstr(says));
    }
    accept({"run", "--managed", "postgres-pair", "--fault", "1s:db.pause+1s,3s:db.kill9+1s"});
    EXPECT_THAT(refuse({"compare", "-s", "naive,batched", "--managed", "postgres-pair", "--fault",
                        "1s:db.failover"}),
                HasSubstr("several loads"));
    accept({"compare", "-s", "naive,batched", "--managed", "postgres-pair", "--fault",
            "500ms:db.pause+1s"});
    const Settings run =
        accept({"run", "-s", "redis", "--managed", "sentinel", "--fault", "1s:redis.kill9+1s"});
    EXPECT_TRUE(run.trial.managed_redis);
    EXPECT_FALSE(run.trial.managed_database);
}

}  // namespace
}  // namespace hotcount::loadtest
