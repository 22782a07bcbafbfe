// The whole program, but for main(): what it prints, and with which code it ends.
#include "cli/cli.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <hotcount/sql.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "load/run_folder.hpp"
#include "report/compare.hpp"
#include "report/machine.hpp"
#include "temporary_folder.hpp"

namespace hotcount::loadtest {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct Output {
    int code;
    std::string out;
    std::string log;
};

std::string take(std::FILE* file) {
    std::string text;
    std::rewind(file);
    for (int byte = std::fgetc(file); byte != EOF; byte = std::fgetc(file)) {
        text += static_cast<char>(byte);
    }
    std::fclose(file);
    return text;
}

Output run(std::vector<std::string> arguments, bool interrupted = false) {
    const auto parsed = parse_command_line(arguments);
    if (const auto* message = std::get_if<ExitMessage>(&parsed)) {
        return {message->code, "", message->text};
    }
    std::FILE* out = std::tmpfile();
    std::FILE* log = std::tmpfile();
    const std::atomic<bool> interrupt{interrupted};
    const int code = run_program(std::get<Settings>(parsed), interrupt, out, log);
    return {code, take(out), take(log)};
}

/// Small enough for any machine; the figures do not matter here.
std::vector<std::string> small(std::vector<std::string> arguments) {
    for (const char* more : {"--allow-debug", "--items", "100", "-w", "8", "--warmup", "0", "-d",
                             "60s", "--max-ops", "200", "--progress", "none"}) {
        arguments.emplace_back(more);
    }
    return arguments;
}

TEST(Program, RunPrintsJsonOfAVersionedSchema) {
    const Output output = run(small({"run", "-s", "slotted", "--json", "--seed", "42"}));
    EXPECT_EQ(output.code, 0) << output.log;
    const json document = json::parse(output.out);
    EXPECT_EQ(document["schema"], "hotcount-load/1");
    EXPECT_EQ(document["kind"], "run");
    EXPECT_EQ(document["state"], "finished");
    EXPECT_EQ(document["conclusion"], "passed");
    EXPECT_EQ(document["exit_code"], 0);
    EXPECT_EQ(document["command"][0], "hotcount-load");
    EXPECT_EQ(document["command"][1], "run");
    EXPECT_EQ(document["settings"]["strategy"], "slotted");
    EXPECT_EQ(document["settings"]["seed"], 42);
    EXPECT_EQ(document["settings"]["workers"], 8);
    EXPECT_TRUE(document["settings"]["rate_per_s"].is_null());
    EXPECT_TRUE(document["versions"].contains("sqlite"));
    EXPECT_GE(document["machine"]["cpus"], 1);
    EXPECT_EQ(document["audit"]["passed"], true);
    EXPECT_EQ(document["audit"]["lost"], 0);
    EXPECT_EQ(document["result"]["operations"]["sent_in_whole_run"], 200);
    EXPECT_GT(document["result"]["service_us"]["p99"], 0);
    EXPECT_EQ(document["contract"]["durable"], true);
}

TEST(Program, AnOpenLoopReportsFromTheIntendedTimes) {
    const Output output =
        run({"run", "-r", "200", "-d", "300ms", "--warmup", "0", "-w", "8", "--items", "100",
             "--allow-debug", "--progress", "none", "--json", "--arrival", "uniform"});
    const json document = json::parse(output.out);
    EXPECT_EQ(document["result"]["offered"]["scheduled"], 60);
    EXPECT_EQ(document["result"]["response_us"]["count"], 60);
    EXPECT_EQ(document["audit"]["passed"], true);
    // A machine that is busy with other things may not carry it, and then says so.
    EXPECT_EQ(output.code, document["result"]["offered"]["carried"] ? 0 : 3);
}

TEST(Program, AnInterruptedRunIsInconclusive) {
    const Output output = run(small({"run"}), true);
    EXPECT_EQ(output.code, 3);
    EXPECT_THAT(output.out, HasSubstr("interrupted"));
}

TEST(Program, OutIsKeptAndCanBeAuditedAgain) {
    const TemporaryFolder parent;
    const std::string folder = (parent / "run").string();
    const Output output = run(small({"run", "-s", "batched", "--out", folder}));
    EXPECT_EQ(output.code, 0) << output.log;
    EXPECT_THAT(output.log, HasSubstr(folder));
    for (const char* name : {kRunFile, kLedgerFile, kDatabaseFile}) {
        EXPECT_TRUE(std::filesystem::exists(parent / "run" / name)) << name;
    }
    const Output audited = run({"audit", folder});
    EXPECT_EQ(audited.code, 0) << audited.log << audited.out;
    EXPECT_THAT(audited.out, HasSubstr("nothing lost, nothing doubled, no ghosts"));
    const json document = json::parse(run({"audit", folder, "--json"}).out);
    EXPECT_EQ(document["kind"], "audit");
    EXPECT_EQ(document["runs"][0]["audit"]["passed"], true);
    // A second run does not write over it.
    const Output again = run(small({"run", "--out", folder}));
    EXPECT_EQ(again.code, 2);
    EXPECT_THAT(again.log, HasSubstr("not empty"));
}

TEST(Program, ABrokenRunEndsWithOne) {
    const TemporaryFolder parent;
    const std::string folder = (parent / "run").string();
    ASSERT_EQ(run(small({"run", "-s", "naive", "--out", folder})).code, 0);
    // Somebody deletes an acknowledged vote.
    {
        const auto database =
            sql::open_database(sqlite_url(parent / "run" / kDatabaseFile)).value();
        const auto writer = database->writer(Deadline::after(std::chrono::seconds{5}));
        const sql::Statement remove(
            "DELETE FROM vote WHERE (item_id, user_id) = (SELECT item_id, user_id FROM vote WHERE "
            "val <> 0 LIMIT 1)");
        const auto removed = (*writer)->execute(remove);
        ASSERT_TRUE(removed) << removed.error().message;
        ASSERT_EQ(*removed, 1);
    }
    const Output audited = run({"audit", folder});
    EXPECT_EQ(audited.code, 1);
    // Gone from the rows: the count, which still has it, differs from them and doubles nothing.
    EXPECT_THAT(audited.out, AllOf(HasSubstr("1 lost, 0 double, 0 ghost"), HasSubstr("broken")));
}

TEST(Program, CompareRunsEveryStrategyInEveryRound) {
    const TemporaryFolder parent;
    const std::string folder = (parent / "compare").string();
    const Output output =
        run(small({"compare", "-s", "naive,batched", "--rounds", "2", "--json", "--out", folder,
                   "--db", sqlite_url(parent / "votes.db"), "--no-control", "--no-best"}));
    EXPECT_EQ(output.code, 0) << output.log;
    const json document = json::parse(output.out);
    EXPECT_EQ(document["kind"], "compare");
    ASSERT_EQ(document["parts"].size(), 1U);
    const json& strategies = document["parts"][0]["strategies"];
    ASSERT_EQ(strategies.size(), 2U);
    for (const json& strategy : strategies) {
        EXPECT_EQ(strategy["rounds"], 2);
        EXPECT_EQ(strategy["trials"].size(), 2U);
        EXPECT_EQ(strategy["audit"]["passed"], true);
        EXPECT_GT(strategy["ratio_to_baseline"]["median"], 0);
        EXPECT_GE(strategy["service_us"]["p50_by_round"]["max"],
                  strategy["service_us"]["p50_by_round"]["min"]);
    }
    // A file of its own for each, beside the one named.
    EXPECT_TRUE(std::filesystem::exists(parent / "votes-closed-02-naive.db"));
    EXPECT_FALSE(std::filesystem::exists(parent / "votes.db"));
    const Output audited = run({"audit", folder});
    EXPECT_EQ(audited.code, 0) << audited.out;
    EXPECT_THAT(audited.out, HasSubstr("Audit of 4 runs"));
}

TEST(Program, CompareRunsTheBaselineAgainAndWithFewerCallers) {
    const TemporaryFolder parent;
    const std::string folder = (parent / "compare").string();
    const Output output = run(small({"compare", "--workload", "counters", "-s", "memory,memory/ttl",
                                     "--rounds", "1", "--json", "--out", folder}));
    EXPECT_EQ(output.code, 0) << output.log;
    const json part = json::parse(output.out)["parts"][0];
    ASSERT_EQ(part["strategies"].size(), 2U);
    ASSERT_GE(part["references"].size(), 1U);
    EXPECT_EQ(part["references"][0]["strategy"], "memory/again");
    EXPECT_EQ(part["references"][0]["role"], "control");
    EXPECT_EQ(part["references"][0]["audit"]["passed"], true);
    // With 1 caller in any case, and with all 8.
    ASSERT_GE(part["baseline_callers"].size(), 2U);
    EXPECT_EQ(part["baseline_callers"].front()["callers"], 1);
    EXPECT_EQ(part["baseline_callers"].back()["callers"], 8);
    EXPECT_GT(part["baseline_callers"][0]["per_s"], 0);
    EXPECT_TRUE(std::filesystem::exists(parent / "compare" / "closed-01-memory-again"));
    EXPECT_FALSE(std::filesystem::exists(parent / "compare" / "closed-try-1"));
    const json machine = part["strategies"][0]["trials"][0]["result"]["machine"];
    EXPECT_GT(machine["before"]["timer_overshoot_us"]["max"], 0);
    EXPECT_GT(machine["after"]["flush_us"], 0);
    EXPECT_TRUE(machine.contains("others_share"));
}

TEST(Program, AComparisonThatCannotGoOnKeepsWhatItMeasured) {
    const TemporaryFolder parent;
    const std::string folder = (parent / "compare").string();
    auto arguments = small({"compare", "-s", "naive,batched", "--rounds", "2", "--json", "--out",
                            folder, "--db", sqlite_url(parent / "votes.db")});
    // A seed with which naive comes first, and so last in the second round.
    std::uint64_t seed = 1;
    while (order_of_round(seed, 0, 2)[0] != 0) ++seed;
    arguments.insert(arguments.end(), {"--max-ops", "30", "--no-control", "--no-best", "--seed",
                                       std::to_string(seed)});
    std::ofstream(parent / "votes-closed-02-naive.db") << "no database, and no empty file either";
    const Output output = run(arguments);
    EXPECT_EQ(output.code, 3) << output.log;
    const json document = json::parse(output.out);
    EXPECT_EQ(document["conclusion"], "inconclusive");
    const json& strategies = document["parts"][0]["strategies"];
    EXPECT_EQ(strategies[0]["trials"].size(), 1U);
    EXPECT_EQ(strategies[1]["trials"].size(), 2U);
    EXPECT_THAT(strategies[0]["reasons"].dump(), HasSubstr("round 2 could not be measured"));
    EXPECT_EQ(read_json(parent / "compare" / kCompareFile).value()["parts"], document["parts"]);
    // Of one that measured nothing there is nothing to keep.
    std::ofstream(parent / "votes-closed-01-naive.db") << "no database, and no empty file either";
    std::filesystem::remove_all(folder);
    const Output none = run(arguments);
    EXPECT_EQ(none.out, "");
    EXPECT_NE(none.code, 0);
}

/// Nothing can be started while it lives.
class EmptyPath {
  public:
    EmptyPath() : before_(std::getenv("PATH") == nullptr ? "" : std::getenv("PATH")) {
        setenv("PATH", "/nonexistent", 1);
    }
    EmptyPath(const EmptyPath&) = delete;
    EmptyPath& operator=(const EmptyPath&) = delete;
    ~EmptyPath() { setenv("PATH", before_.c_str(), 1); }

  private:
    std::string before_;
};

TEST(Program, AManagedRedisThatIsNotInstalledIsNamedWithItsPackage) {
    const EmptyPath path;
    const Output output = run(small({"run", "-s", "redis", "--managed", "redis"}));
    EXPECT_EQ(output.code, 2);
    EXPECT_EQ(output.out, "");
    EXPECT_THAT(output.log, AllOf(HasSubstr("--managed redis"), HasSubstr("not installed"),
                                  HasSubstr("package: redis-server")));
}

TEST(Program, WithoutRedisTheCanonicalComparisonHasThreeTablesAndSaysSo) {
    const EmptyPath path;
    const Output output = run({"--rounds", "1", "-d", "80ms", "--warmup", "0", "-w", "8", "--items",
                               "100", "--allow-debug", "--progress", "none"});
    EXPECT_THAT(output.out,
                AllOf(HasSubstr("the canonical comparison"), HasSubstr("ratio: to naive"),
                      HasSubstr("closed loop, 8 callers"), HasSubstr("Counters on"),
                      HasSubstr("0 everywhere: "), testing::ContainsRegex("Audit of [67] runs"),
                      HasSubstr("\nNext, with "),
                      HasSubstr("Redis is left out: redis-server is not installed")));
}

TEST(Program, ADamagedRunFolderIsInconclusive) {
    const TemporaryFolder folder;
    std::ofstream(folder / kRunFile) << "{\"schema\": \"hotcount-load/1\", \"settings\": {}}";
    const Output output = run({"audit", folder.path().string()});
    EXPECT_EQ(output.code, 3);
    EXPECT_THAT(output.out, HasSubstr("run.json"));
    std::ofstream(folder / kRunFile) << "{\"schema\": \"hotcount-load/9\"}";
    EXPECT_THAT(run({"audit", folder.path().string()}).out, HasSubstr("hotcount-load/9"));
}

TEST(Program, AFolderThatCannotBeMadeIsBadUsage) {
    const Output output = run(small({"run", "--out", "/proc/no/such/folder"}));
    EXPECT_EQ(output.code, 2);
    EXPECT_THAT(output.log, HasSubstr("/proc/no/such/folder"));
}

TEST(Program, ABuildThatIsNotForMeasuringReportsNothing) {
    const Output output = run({"run", "-d", "1ms", "--warmup", "0", "--max-ops", "10", "--progress",
                               "none", "--items", "10"});
    if (const auto why = why_not_measurable()) {
        EXPECT_EQ(output.code, 3);
        EXPECT_EQ(output.out, "");
        EXPECT_THAT(output.log, AllOf(HasSubstr(*why), HasSubstr("--allow-debug")));
    } else {
        EXPECT_THAT(output.log, Not(HasSubstr("--allow-debug")));
    }
}

TEST(Program, ProgressIsOneJsonObjectALine) {
    std::vector<std::string> arguments = small({"run"});
    arguments.back() = "ndjson";
    const Output output = run(arguments);
    std::vector<std::string> events;
    std::size_t from = 0;
    for (std::size_t end = output.log.find('\n'); end != std::string::npos;
         end = output.log.find('\n', from)) {
        events.push_back(json::parse(output.log.substr(from, end - from))["event"]);
        from = end + 1;
    }
    EXPECT_THAT(events, testing::ElementsAre("set_up", "load", "end"));
}

TEST(RunFolder, ATemporaryOneGoes) {
    std::filesystem::path path;
    {
        const auto folder = RunFolder::make(std::nullopt);
        ASSERT_TRUE(folder) << folder.error().message;
        path = folder->path();
        EXPECT_TRUE(std::filesystem::is_directory(path));
        EXPECT_TRUE(folder->temporary());
        std::ofstream(path / "something") << "x";
    }
    EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(OwnedFolder, TheNextOneOfAnyKindTakesAwayThoseOfDeadOwnersAndNoOthers) {
    const TemporaryFolder parent;
    const auto living = OwnedFolder::make(parent.path(), "hotcount-redis-").value();
    std::filesystem::create_directory(parent / "hotcount-load-theirs");
    std::filesystem::create_directory(parent / "hotcount-load-ABCDEF-longer");
    std::ofstream(parent / "hotcount-load-ABCDEF-longer" / kOwnerFile);
    // Processes that were killed: their folders are there, and their locks are not.
    for (const std::string_view kind : OwnedFolder::kKinds) {
        const auto killed = parent / (std::string{kind} + "killed");
        std::filesystem::create_directories(killed / "below");
        std::ofstream(killed / kOwnerFile);
    }
    const auto next = OwnedFolder::make(parent.path(), "hotcount-load-").value();
    for (const std::string_view kind : OwnedFolder::kKinds) {
        EXPECT_FALSE(std::filesystem::exists(parent / (std::string{kind} + "killed"))) << kind;
    }
    EXPECT_TRUE(std::filesystem::exists(living.path() / kOwnerFile));
    EXPECT_TRUE(std::filesystem::exists(parent / "hotcount-load-theirs"))
        << "nobody's: it has no owner";
    EXPECT_TRUE(std::filesystem::exists(parent / "hotcount-load-ABCDEF-longer"));
    EXPECT_TRUE(std::filesystem::exists(next.path()));
}

TEST(RunFolder, ANamedOneIsOfOneRunAtATime) {
    const TemporaryFolder parent;
    {
        const auto first = RunFolder::make(parent / "run");
        ASSERT_TRUE(first) << first.error().message;
        std::filesystem::create_directory(first->path() / "closed-01-naive");
        EXPECT_TRUE(RunFolder::in_use(first->path()));
        EXPECT_TRUE(RunFolder::in_use(first->path() / "closed-01-naive"));
        const auto second = RunFolder::make(parent / "run");
        ASSERT_FALSE(second);
        EXPECT_EQ(second.error().code, ErrorCode::config);
        EXPECT_NE(second.error().message.find("another run works in it"), std::string::npos);
    }
    EXPECT_FALSE(RunFolder::in_use(parent / "run"));
    EXPECT_FALSE(RunFolder::in_use(parent / "nowhere"));
}

}  // namespace
}  // namespace hotcount::loadtest
