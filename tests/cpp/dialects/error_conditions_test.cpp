// What each database's own codes mean to those who decide what to do next.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <hotcount/detail/sql/transaction.hpp>

#include "dialects/mysql/connection.hpp"
#include "dialects/postgres/connection.hpp"
#include "dialects/sqlite/dialect.hpp"

namespace hotcount::sql {
namespace {

Error mysql(unsigned number, std::string_view text = "refused") {
    return mysql_failure("mysql app", MysqlStage::statement, number, "HY000", text);
}

TEST(PostgresConditions, WhatOneWriteMayHaveCausedConcernsNoOther) {
    for (const char* state : {"P0001", "22001", "22021", "22P02", "23514", "44000", "54000",
                              "55000", "42501", "ZZ001"}) {
        EXPECT_EQ(condition_of_sqlstate(state, "refused"), SqlCondition::unspecified) << state;
    }
}

TEST(PostgresConditions, WhatNoSingleWriteBringsAboutConcernsAll) {
    for (const char* state : {"42703", "42601", "0A000", "25001", "26000", "53200", "55006",
                              "58030", "XX000", "08P01"}) {
        EXPECT_EQ(condition_of_sqlstate(state, "refused"), SqlCondition::of_all_writes) << state;
    }
    EXPECT_EQ(condition_of_sqlstate("42501", "permission denied for table vote"),
              SqlCondition::of_all_writes);
}

TEST(PostgresConditions, EachHasItsName) {
    for (const char* state : {"40001", "40P01", "55P03"}) {
        EXPECT_EQ(condition_of_sqlstate(state, ""), SqlCondition::transaction_conflict) << state;
    }
    EXPECT_EQ(condition_of_sqlstate("57014", ""), SqlCondition::query_canceled);
    EXPECT_EQ(condition_of_sqlstate("57P05", ""), SqlCondition::idle_session_timeout);
    EXPECT_EQ(condition_of_sqlstate("25006", ""), SqlCondition::read_only);
    EXPECT_EQ(condition_of_sqlstate("42P01", ""), SqlCondition::undefined_table);
    EXPECT_EQ(condition_of_sqlstate("53300", ""), SqlCondition::too_many_connections);
    EXPECT_EQ(condition_of_sqlstate("08P01", "query_wait_timeout"),
              SqlCondition::too_many_connections);
    EXPECT_EQ(condition_of_sqlstate("22003", "integer out of range"), SqlCondition::narrow_column);
    EXPECT_EQ(condition_of_sqlstate("22003", "bigint out of range"), SqlCondition::unspecified);
}

TEST(MysqlConditions, WhatOneWriteMayHaveCausedConcernsNoOther) {
    // SIGNAL takes any number: those of five digits look like SQLSTATEs.
    for (const unsigned number :
         {1366U, 1406U, 1644U, 4025U, 25006U, 40001U, 42001U, 53300U, 57014U}) {
        EXPECT_EQ(mysql(number).condition, SqlCondition::unspecified) << number;
        EXPECT_FALSE(is_transient(mysql(number))) << number;
    }
}

TEST(MysqlConditions, WhatNoSingleWriteBringsAboutConcernsAll) {
    for (const unsigned number :
         {1054U, 1064U, 1114U, 1180U, 1226U, 1290U, 2013U, 3032U, 4031U, 5014U}) {
        EXPECT_EQ(mysql(number).condition, SqlCondition::of_all_writes) << number;
        EXPECT_FALSE(may_be_one_writes_fault(mysql(number))) << number;
    }
}

TEST(MysqlConditions, EachHasItsName) {
    EXPECT_EQ(mysql(1205).condition, SqlCondition::transaction_conflict);
    EXPECT_EQ(mysql(1213).condition, SqlCondition::transaction_conflict);
    EXPECT_EQ(mysql(1467).condition, SqlCondition::transaction_conflict);
    EXPECT_EQ(mysql(1317).condition, SqlCondition::query_canceled);
    EXPECT_EQ(mysql(1243).condition, SqlCondition::invalid_statement_name);
    EXPECT_EQ(mysql(1615).condition, SqlCondition::invalid_statement_name);
    EXPECT_EQ(mysql(1836).condition, SqlCondition::read_only);
    EXPECT_EQ(mysql(1290, "running with the --read-only option").condition,
              SqlCondition::read_only);
    EXPECT_EQ(mysql(1040).condition, SqlCondition::too_many_connections);
    EXPECT_EQ(mysql(1203).condition, SqlCondition::too_many_connections);
    EXPECT_EQ(mysql(1226, "exceeded the 'max_user_connections' resource").condition,
              SqlCondition::too_many_connections);
    EXPECT_EQ(mysql(1461).condition, SqlCondition::too_many_statements);
    EXPECT_EQ(mysql(1146).condition, SqlCondition::undefined_table);
    EXPECT_EQ(mysql(1264, "Out of range value for column 'item_id' at row 1").condition,
              SqlCondition::narrow_column);
    EXPECT_EQ(mysql(1264, "Out of range value for column 'n' at row 1").condition,
              SqlCondition::unspecified);
}

TEST(MysqlConditions, ASessionThatHadEndedBeforeItsCommitAppliedNothing) {
    const Error error = mysql_failure("mysql app", MysqlStage::commit, 4031, "HY000", "inactive");
    EXPECT_EQ(error.code, ErrorCode::unavailable);
    EXPECT_TRUE(breaks_connection(4031));
}

TEST(MysqlConditions, WhatANodeThatJoinsItsClusterRefusesWasNotApplied) {
    for (const MysqlStage stage : {MysqlStage::statement, MysqlStage::alone, MysqlStage::commit}) {
        const Error error = mysql_failure("mysql app", stage, 1047, "08S01",
                                          "WSREP has not yet prepared node for application use");
        EXPECT_EQ(error.code, ErrorCode::unavailable);
        EXPECT_TRUE(error.message.ends_with("; nothing was applied")) << error.message;
    }
    EXPECT_TRUE(breaks_connection(1047));  // Another node may be in its cluster.
}

TEST(MysqlConditions, ACallersOwnErrorNamesNoServerAndNoDatabase) {
    const Error refused = mysql_failure(
        "mysql app", MysqlStage::statement, 1452, "23000",
        "a foreign key constraint fails (`app`.`vote`, CONSTRAINT `k` FOREIGN KEY (`item_id`))");
    EXPECT_EQ(refused.message,
              "a foreign key constraint fails (`vote`, CONSTRAINT `k` FOREIGN KEY (`item_id`)) "
              "(1452, 23000)");
    ASSERT_TRUE(refused.facts);
    EXPECT_EQ(refused.facts->server, "mysql app");
    EXPECT_TRUE(mysql(1690, "out of range in '(\"app\".\"cell\".\"n\" + 1)'")
                    .message.starts_with("out of range in '(\"cell\".\"n\" + 1)'"));
    EXPECT_TRUE(mysql(1146, "no `app`.`vote`").message.starts_with("mysql"));
}

TEST(MysqlConditions, ACommitThatWasNotAnsweredIsNeverTransient) {
    for (const unsigned number : {1040U, 1461U, 1615U, 2013U}) {
        const Error error =
            mysql_failure("mysql app", MysqlStage::commit, number, "HY000", "refused");
        EXPECT_EQ(error.code, ErrorCode::outcome_unknown) << number;
        EXPECT_FALSE(is_transient(error)) << number;
    }
}

TEST(SqliteConditions, AConstraintIsOneWritesAndTheFileIsEverybodys) {
    for (const int code : {SQLITE_CONSTRAINT, SQLITE_TOOBIG, SQLITE_MISMATCH, SQLITE_ERROR}) {
        EXPECT_EQ(sqlite_failure(nullptr, code, "sqlite no such file").condition,
                  SqlCondition::unspecified)
            << code;
    }
    for (const int code : {SQLITE_BUSY, SQLITE_READONLY, SQLITE_READONLY_DIRECTORY, SQLITE_FULL,
                           SQLITE_IOERR_FSYNC, SQLITE_AUTH}) {
        const Error error = sqlite_failure(nullptr, code, "sqlite file");
        EXPECT_EQ(error.condition, SqlCondition::of_all_writes) << code;
        EXPECT_FALSE(is_transient(error)) << code;
    }
}

}  // namespace
}  // namespace hotcount::sql
