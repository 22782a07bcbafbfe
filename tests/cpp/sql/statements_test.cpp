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
BEGIN;
UPDATE {table}
    SET n = 1;
{commit}
-- name: commit
COMMIT;
-- name: open
--if shared
SELECT 1
-- name: strange
SELECT {unheard}
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
    EXPECT_EQ(statements(true)["script"], "BEGIN;\nUPDATE \"votes\" SET n = 1;\nCOMMIT;\n");
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

TEST(StatementsTest, MistakesNameTheStatementAndWhatItLacks) {
    const auto of = [](std::string_view name) { return [name] { (void)statements(true)[name]; }; };
    EXPECT_THAT(of("nothing"), ThrowsMessage<std::logic_error>(HasSubstr("nothing: the file has")));
    EXPECT_THAT(of("open"), ThrowsMessage<std::logic_error>(HasSubstr("open: a block without")));
    EXPECT_THAT(of("strange"), ThrowsMessage<std::logic_error>(HasSubstr("{unheard}")));
}

}  // namespace
}  // namespace hotcount::sql
