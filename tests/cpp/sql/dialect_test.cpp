#include <gmock/gmock.h>

#include "sql/dialect.hpp"
#include "sql/statements.hpp"

namespace hotcount::sql {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::StartsWith;

const Grammar& sqlite() { return dialect_of("sqlite")->grammar(); }
const Grammar& postgres() { return dialect_of("postgresql")->grammar(); }
const Grammar& mysql() { return dialect_of("mysql")->grammar(); }

TEST(PlaceParameters, PostgresKeepsTheirNumbers) {
    const Placed placed = place_parameters("SELECT ?2, ?1 + ?2, ?12", Placeholders::dollar);
    EXPECT_EQ(placed.text, "SELECT $2, $1 + $2, $12");
    EXPECT_THAT(placed.parameters, IsEmpty());
}

TEST(PlaceParameters, MysqlSaysWhichStandsWhere) {
    const Placed placed = place_parameters("SELECT ?2, ?1 + ?2, ?12", Placeholders::in_order);
    EXPECT_EQ(placed.text, "SELECT ?, ? + ?, ?");
    EXPECT_THAT(placed.parameters, ElementsAre(1, 0, 1, 11));
}

TEST(PlaceParameters, SqliteReadsThemAsTheyAre) {
    EXPECT_EQ(place_parameters("SELECT ?2, ?1", Placeholders::as_written).text, "SELECT ?2, ?1");
}

TEST(PlaceParameters, WhatIsQuotedIsNone) {
    const std::string text = R"(SELECT '?1', "a?2", 'it''s ?3', "q""?4", ?5)";
    EXPECT_EQ(place_parameters(text, Placeholders::dollar).text,
              R"(SELECT '?1', "a?2", 'it''s ?3', "q""?4", $5)");
    EXPECT_THAT(place_parameters(text, Placeholders::in_order).parameters, ElementsAre(4));
}

TEST(QuoteIdentifier, DoublesQuotes) {
    EXPECT_EQ(quote_identifier("order"), R"("order")");
    EXPECT_EQ(quote_identifier(R"(a"; DROP TABLE b)"), R"("a""; DROP TABLE b")");
}

TEST(Grammar, UpsertsReadTheirTwoRowsInEachDialect) {
    const auto add = [](const Grammar& g) {
        return g.or_update("id") + "n = " + g.own("t", "n") + " + " + g.excluded("n");
    };
    EXPECT_EQ(add(postgres()), " ON CONFLICT (id) DO UPDATE SET n = t.n + excluded.n");
    EXPECT_EQ(add(mysql()), " ON DUPLICATE KEY UPDATE n = t.n + VALUES(n)");
}

TEST(Grammar, TextIsComparedByteByByte) {
    EXPECT_THAT(postgres().type(ColumnType::text), ::testing::HasSubstr("\"C\""));
    EXPECT_EQ(mysql().type(ColumnType::text), "VARBINARY(1000)");
}

TEST(Grammar, OnlySqliteChecksSumsItself) {
    EXPECT_EQ(sqlite().and_fits("n + ?1"), " AND typeof(n + ?1) = 'integer'");
    EXPECT_EQ(postgres().and_fits("n + ?1"), "");
    EXPECT_EQ(mysql().and_fits("n + ?1"), "");
}

TEST(Grammar, OnlyServersLockRows) {
    EXPECT_EQ(sqlite().for_update(), "");
    EXPECT_EQ(postgres().for_update(), " FOR UPDATE");
    EXPECT_EQ(postgres().for_share(), " FOR SHARE");
    EXPECT_EQ(mysql().for_share(), " LOCK IN SHARE MODE");
}

TEST(DialectOf, EveryDialectIsFoundByItsNameAndAnUnknownOneIsRefused) {
    EXPECT_THAT(dialect_names(), IsSupersetOf({"sqlite", "postgresql", "mysql", "mariadb"}));
    for (const std::string_view name : {"sqlite", "postgresql", "mysql"}) {
        EXPECT_EQ(to_string(*dialect_of(name)), name);
    }
    EXPECT_EQ(*dialect_of("mariadb"), *dialect_of("mysql"));
    EXPECT_NE(*dialect_of("mariadb"), *dialect_of("postgresql"));
    const auto unknown = dialect_of("oracle");
    ASSERT_FALSE(unknown);
    EXPECT_EQ(unknown.error().code, ErrorCode::config);
    EXPECT_THAT(
        unknown.error().message,
        StartsWith(
            "oracle is not a dialect that hotcount knows: sqlite, postgresql, mysql, mariadb"));
}

TEST(CheckVersion, AnOlderServerIsRefusedWithBothVersions) {
    constexpr OldestServer kMySql{"MySQL", {8, 0, 20}};
    for (const std::string_view version :
         {"8.0.20", "8.0.31-log", "8.4.0", "9.7.4-2", "10.0", "8.1", "unknown", ""}) {
        EXPECT_TRUE(check_version("db", version, kMySql)) << version;
    }
    for (const std::string_view version : {"8.0.19", "8.0", "8", "5.7.44-48-log", "5.7.44-TiDB"}) {
        const auto refused = check_version("mysql h/db", version, kMySql);
        ASSERT_FALSE(refused) << version;
        EXPECT_EQ(refused.error().code, ErrorCode::config);
        EXPECT_EQ(refused.error().message, "mysql h/db: the server is MySQL " +
                                               std::string{version} +
                                               "; hotcount needs 8.0.20 or later");
    }
}

TEST(SessionStatement, ParametersGetNamesAndColonsOfNamesAreEscaped) {
    EXPECT_EQ(session_statement(postgres(), R"(SELECT "a:b""c", ?2, ?1 WHERE x = 'it''s ?1')",
                                {"key", "n"}),
              R"(SELECT "a\:b""c", :n, :key WHERE x = 'it''s ?1')");
}

TEST(SessionStatement, MysqlNamesStandInBackticks) {
    EXPECT_EQ(session_statement(mysql(), R"(SELECT "a""b", "c`d", ?1)", {"n"}),
              "SELECT `a\"b`, `c``d`, :n");
}

}  // namespace
}  // namespace hotcount::sql
