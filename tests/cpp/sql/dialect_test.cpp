#include <gmock/gmock.h>

#include "sql/dialect.hpp"
#include "sql/session_statement.hpp"

namespace hotcount::sql {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

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
    const Grammar& postgres = grammar_of(Dialect::postgres);
    EXPECT_EQ(
        postgres.or_update("id") + "n = " + postgres.own("t", "n") + " + " + postgres.excluded("n"),
        " ON CONFLICT (id) DO UPDATE SET n = t.n + excluded.n");
    const Grammar& mysql = grammar_of(Dialect::mysql);
    EXPECT_EQ(mysql.or_update("id") + "n = " + mysql.own("t", "n") + " + " + mysql.excluded("n"),
              " ON DUPLICATE KEY UPDATE n = t.n + VALUES(n)");
}

TEST(Grammar, TextIsComparedByteByByte) {
    EXPECT_THAT(grammar_of(Dialect::postgres).type(ColumnType::text),
                ::testing::HasSubstr("\"C\""));
    EXPECT_EQ(grammar_of(Dialect::mysql).type(ColumnType::text), "VARBINARY(1000)");
}

TEST(Grammar, OnlySqliteChecksSumsItself) {
    EXPECT_EQ(grammar_of(Dialect::sqlite).and_fits("n + ?1"), " AND typeof(n + ?1) = 'integer'");
    EXPECT_EQ(grammar_of(Dialect::postgres).and_fits("n + ?1"), "");
    EXPECT_EQ(grammar_of(Dialect::mysql).and_fits("n + ?1"), "");
}

TEST(Grammar, OnlyServersLockRows) {
    EXPECT_EQ(grammar_of(Dialect::sqlite).for_update(), "");
    EXPECT_EQ(grammar_of(Dialect::postgres).for_update(), " FOR UPDATE");
    EXPECT_EQ(grammar_of(Dialect::postgres).for_share(), " FOR SHARE");
    EXPECT_EQ(grammar_of(Dialect::mysql).for_share(), " LOCK IN SHARE MODE");
}

TEST(DialectOf, EveryDialectIsFoundByItsNameAndAnUnknownOneIsRefused) {
    for (const Dialect dialect : {Dialect::sqlite, Dialect::postgres, Dialect::mysql}) {
        EXPECT_EQ(*dialect_of(to_string(dialect)), dialect);
    }
    EXPECT_EQ(*dialect_of("mariadb"), Dialect::mysql);
    const auto unknown = dialect_of("oracle");
    ASSERT_FALSE(unknown);
    EXPECT_EQ(unknown.error().code, ErrorCode::config);
    EXPECT_EQ(unknown.error().message,
              "oracle is not a dialect that hotcount knows: sqlite, postgresql, mysql, mariadb");
}

TEST(SessionStatement, ParametersGetNamesAndColonsOfNamesAreEscaped) {
    EXPECT_EQ(session_statement(grammar_of(Dialect::postgres),
                                R"(SELECT "a:b""c", ?2, ?1 WHERE x = 'it''s ?1')", {"key", "n"}),
              R"(SELECT "a\:b""c", :n, :key WHERE x = 'it''s ?1')");
}

TEST(SessionStatement, MysqlNamesStandInBackticks) {
    EXPECT_EQ(session_statement(grammar_of(Dialect::mysql), R"(SELECT "a""b", "c`d", ?1)", {"n"}),
              "SELECT `a\"b`, `c``d`, :n");
}

}  // namespace
}  // namespace hotcount::sql
