#include "sql/statements.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "votes/tables/bulk_statement.hpp"

namespace hotcount::sql {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr std::string_view kFile = R"(-- What precedes the first name is for readers.
-- name: read
-- The value of ?1. Locks nothing.
SELECT {value}
    FROM {table} WHERE {of_item}
--if shared
    FOR SHARE
--else
--if !plain
    FOR UPDATE
--end
--end
-- name: of_item
item = ?1   AND note <> '  {value} -- '

-- name: write
INSERT INTO {table} VALUES
--each ,
(?2,
 ?3, #2, "?" )
--end
RETURNING 1
-- name: script
--> For the {reader}.
BEGIN;
UPDATE {table}
    SET n = 1;
{commit}
-- name: commit
COMMIT;
DO $hotcount$ BEGIN
    SELECT 1;
    {text}
END $hotcount$;
-- name: text
SELECT 2;
SELECT 3;
-- name: open
--if shared
SELECT 1
-- name: strange
SELECT {unheard}
-- name: call
SELECT {sum(hc_i.{value}, COALESCE(a, '), ('))} WHERE {all(x, y)}
    {empty}
-- name: sum
{1} + {2}
-- name: all
({*}) = {value}
-- name: empty
)";

Statements statements(bool shared, bool plain = false) {
    return {
        kFile,
        {{"table", "\"votes\""}, {"value", "n"}, {"shared", flag(shared)}, {"plain", flag(plain)}}};
}

TEST(StatementsTest, NamesAndPartsArePutInAndCommentsLeftOut) {
    EXPECT_EQ(statements(true)["read"],
              "SELECT n FROM \"votes\" WHERE item = ?1 AND note <> '  {value} -- ' FOR SHARE");
}

TEST(StatementsTest, BlocksFollowTheirFlags) {
    EXPECT_THAT(statements(false)["read"], testing::EndsWith("' FOR UPDATE"));
    EXPECT_THAT(statements(false, true)["read"], testing::EndsWith("-- '"));
}

TEST(StatementsTest, FurtherNamesComeFirst) {
    EXPECT_THAT(statements(true).with("read", {{"of_item", "FALSE"}, {"shared", ""}}),
                testing::StrEq("SELECT n FROM \"votes\" WHERE FALSE FOR UPDATE"));
}

TEST(StatementsTest, AScriptHasOneStatementALine) {
    EXPECT_EQ(statements(true)["script"],
              "-- For the {reader}.\nBEGIN;\nUPDATE \"votes\" SET n = 1;\nCOMMIT;\n"
              "DO $hotcount$ BEGIN SELECT 1; SELECT 2; SELECT 3; END $hotcount$;\n");
}

TEST(StatementsTest, ArgumentsStandForNumbers) {
    EXPECT_EQ(statements(true)["call"], "SELECT hc_i.n + COALESCE(a, '), (') WHERE (x, y) = n");
    EXPECT_EQ(statements(true).call("sum", {"{a}", "b"}), "{a} + b");
}

TEST(StatementsTest, TheFirstFileThatHasANameGivesIt) {
    const Statements both{{"-- name: sum\n{value}\n", kFile}, {{"value", "n"}, {"table", "t"}}};
    EXPECT_EQ(both["sum"], "n");
    EXPECT_EQ(both["all"], "() = n");
}

TEST(StatementsTest, RowsStayMarked) {
    EXPECT_EQ(statements(true)["write"],
              "INSERT INTO \"votes\" VALUES \x1e, \x1e(?2, ?3, #2, \"?\" )\x1e RETURNING 1");
}

TEST(StatementsTest, BulkStatementNumbersTheRows) {
    BulkStatement bulk{statements(true)["write"]};
    EXPECT_EQ(bulk.of(2).text(),
              "INSERT INTO \"votes\" VALUES (?2, ?3, 2, \"?\" ), (?4, ?5, 4, \"?\" ) RETURNING 1");
}

TEST(StatementsTest, RowsMayStandTwiceAndShareAPlaceholder) {
    const Statements file{
        "-- name: add\nSET n = CASE id\n--each\nWHEN ?2 THEN ?3\n--end\nEND\nWHERE id IN (\n"
        "--each ,\n?2\n--end\n) AND n < ?1\n"
        "-- name: read\n--each UNION ALL\nSELECT #2, \"a?9\" WHERE id = ?2 AND user = "
        "?1\n--end\n",
        {}};
    EXPECT_EQ(
        repeat_rows(file["add"], 2),
        "SET n = CASE id WHEN ?2 THEN ?3 WHEN ?4 THEN ?5 END WHERE id IN (?2, ?4) AND n < ?1");
    EXPECT_EQ(repeat_rows(file["read"], 2),
              "SELECT 2, \"a?9\" WHERE id = ?2 AND user = ?1 UNION ALL SELECT 3, \"a?9\" "
              "WHERE id = ?3 AND user = ?1");
}

TEST(StatementsTest, MistakesNameTheStatementAndWhatItLacks) {
    const auto of = [](std::string_view name) { return [name] { (void)statements(true)[name]; }; };
    EXPECT_THAT(of("nothing"), ThrowsMessage<std::logic_error>(HasSubstr("nothing: the file has")));
    EXPECT_THAT(of("open"), ThrowsMessage<std::logic_error>(HasSubstr("open: a block without")));
    EXPECT_THAT(of("strange"), ThrowsMessage<std::logic_error>(HasSubstr("{unheard}")));
}

TEST(StatementsTest, OneLineKeepsWhatStandsInQuotes) {
    EXPECT_EQ(one_line("BEGIN\n\"a\nb\" = 'c\nd';\nEND;\n"), "BEGIN \"a\nb\" = 'c\nd'; END;\n");
}

}  // namespace
}  // namespace hotcount::sql
