#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "command_lines.hpp"
#include "temporary_folder.hpp"

namespace hotcount::loadtest {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(CommandLine, NothingMeansTheCanonicalComparison) {
    const Settings settings = accept({});
    EXPECT_EQ(settings.command, Command::canonical);
    EXPECT_EQ(settings.rounds, 5U);
    EXPECT_EQ(settings.trial.workers, 64U);
    EXPECT_EQ(settings.trial.traffic.items, 10'000U);
    EXPECT_EQ(settings.trial.traffic.users, 1'000'000U);
    EXPECT_EQ(settings.trial.traffic.zipf, 0.99);
    EXPECT_EQ(settings.trial.traffic.seed, 1U);
    EXPECT_FALSE(settings.json);
    EXPECT_TRUE(accept({"--json"}).json);
}

TEST(CommandLine, AStudyNamesTheCommandOfThePythonPackage) {
    for (const char* study : {"search", "sweep", "scale", "calibrate", "diff"}) {
        EXPECT_THAT(
            refuse({study, "-s", "naive"}),
            AllOf(HasSubstr("is gone"), HasSubstr(fmt::format("`hotcount load {}`", study))));
    }
}

TEST(CommandLine, RunTakesOneStrategyAndARate) {
    const Settings settings =
        accept({"run", "-s", "naive", "-r", "5k", "-d", "500ms", "-w", "8", "--seed", "7"});
    EXPECT_EQ(settings.command, Command::run);
    EXPECT_EQ(settings.trial.strategy, "naive");
    EXPECT_EQ(settings.trial.arrival, Arrival::poisson);
    EXPECT_EQ(settings.trial.rate_per_s, 5000);
    EXPECT_EQ(settings.trial.duration, milliseconds{500});
    EXPECT_EQ(settings.trial.workers, 8U);
    EXPECT_EQ(settings.trial.traffic.seed, 7U);
    EXPECT_THAT(settings.command_line, ElementsAre("hotcount-load", "run", "-s", "naive", "-r",
                                                   "5k", "-d", "500ms", "-w", "8", "--seed", "7"));
    EXPECT_THAT(refuse({"run", "-s", "naive,batched"}), HasSubstr("compare"));
    const Settings each = accept({"run", "--each", "-s", "naive,batched", "-s", "naive"});
    EXPECT_TRUE(each.each);
    EXPECT_THAT(each.arguments, ElementsAre("run", "--each", "-s", "naive,batched", "-s", "naive"));
}

TEST(CommandLine, CallsMayFailWhereTheyAreMadeToFail) {
    EXPECT_EQ(accept({"run"}).trial.max_errors, 0.001);
    EXPECT_EQ(accept({"run", "--max-errors", "5%"}).trial.max_errors, 0.05);
    const std::vector<std::string> killed = {
        "run", "-s", "naive", "--db", "sqlite:///x", "--processes", "2", "--kill-every", "1s"};
    EXPECT_EQ(accept(killed).trial.max_errors, 1);
    const std::vector<std::string> outage = {"run", "-s", "redis",    "--managed", "redis",
                                             "-d",  "3s", "--outage", "1s"};
    EXPECT_EQ(accept(outage).trial.max_errors, 1);
    EXPECT_THAT(refuse({"run", "--max-errors", "some"}), HasSubstr("0.1%"));
}

TEST(CommandLine, WithoutARateTheLoopIsClosed) {
    EXPECT_EQ(accept({"run"}).trial.arrival, Arrival::closed);
    EXPECT_EQ(accept({"run", "--arrival", "closed"}).trial.arrival, Arrival::closed);
    EXPECT_EQ(accept({"run", "--arrival", "uniform", "-r", "10"}).trial.arrival, Arrival::uniform);
    EXPECT_THAT(refuse({"run", "--arrival", "closed", "-r", "10"}), HasSubstr("--rate"));
    EXPECT_THAT(refuse({"run", "--arrival", "poisson"}), HasSubstr("--rate"));
}

TEST(CommandLine, CompareHasAControlAndLooksForTheBestNumberOfCallers) {
    const Settings settings = accept({"compare"});
    EXPECT_TRUE(settings.control);
    EXPECT_TRUE(settings.find_best);
    EXPECT_GE(settings.rounds, 6U) << "fewer cannot show a difference";
    const Settings without = accept({"compare", "--no-control", "--no-best"});
    EXPECT_FALSE(without.control);
    EXPECT_FALSE(without.find_best);
    EXPECT_EQ(accept({"compare", "--control-slower", "5%"}).control_slower, 0.05);
    expect_refused({{"compare --control-slower 95%", {"--control-slower"}},
                    {"compare --control-slower 5% --no-control", {"--no-control"}},
                    {"compare -s batched/async --control-slower 5%", {"/async"}}});
}

TEST(CommandLine, ARateMayComeInBurstsAndStairs) {
    const TrialSettings burst =
        accept({"run", "-r", "100", "--arrival", "burst:10x,2s/20s", "-d", "40s"}).trial;
    EXPECT_EQ(burst.arrival, Arrival::poisson);
    EXPECT_EQ(burst.profile.text, "burst:10x,2s/20s");
    ASSERT_EQ(burst.profile.steps.size(), 3U);
    EXPECT_EQ(burst.profile.steps[0].lasts, seconds{9});
    EXPECT_EQ(burst.profile.steps[1].factor, 10);
    EXPECT_EQ(burst.profile.steps[1].lasts, seconds{2});
    EXPECT_EQ(accept({"run", "-r", "9", "--arrival", "stairs:1x,0x,4x/500ms"})
                  .trial.profile.steps[2]
                  .factor,
              4);
    EXPECT_THAT(refuse({"run", "--arrival", "burst:10x,2s/20s"}),
                HasSubstr("--arrival burst:10x,2s/20s needs a --rate"));
    for (const char* bad : {"burst:10,2s/20s", "burst:10x,2s", "burst:10x/20s", "burst:10x,20s/20s",
                            "burst:x,2s/20s", "stairs:1x", "stairs:0x/1s", "stairs:/1s",
                            "stairs:1x,2x/0s", "burst:10x,2s,3s/20s", "burst:-1x,2s/20s"}) {
        EXPECT_THAT(refuse({"run", "-r", "9", "--arrival", bad}), HasSubstr("--arrival")) << bad;
    }
}

TEST(CommandLine, ATraceSaysWhenWhatIsDone) {
    const TemporaryFolder folder;
    const std::string path = (folder / "trace.csv").string();
    std::ofstream(path) << "0,7,1,1\n0.5,9,1,1\n2,7,,\n";
    const TrialSettings trial = accept({"run", "--trace", path}).trial;
    EXPECT_EQ(trial.arrival, Arrival::trace);
    EXPECT_EQ(trial.traffic.items, 2U);
    EXPECT_EQ(trial.warmup, seconds{0});
    EXPECT_EQ(trial.duration, seconds{2} + std::chrono::nanoseconds{1});
    EXPECT_NEAR(trial.rate_per_s, 1.5, 1e-6);
    EXPECT_THAT(refuse({"run", "--trace", path, "--items", "5"}), HasSubstr("leave out --items"));
    EXPECT_THAT(refuse({"run", "--trace", path, "-r", "5"}), HasSubstr("leave out --rate"));
    EXPECT_THAT(refuse({"run", "--trace", path, "--warmup", "5s"}), HasSubstr("--warmup"));
    EXPECT_THAT(refuse({"run", "--trace", path, "--workload", "limiter"}), HasSubstr("votes"));
    EXPECT_THAT(refuse({"run", "--trace", path, "--max-ops", "2"}), HasSubstr("line 3"));
}

TEST(CommandLine, CompareTakesSeveralStrategiesAndABaseline) {
    const Settings settings = accept({"compare", "-s", "batched,naive", "--rounds", "3"});
    ASSERT_EQ(settings.groups.size(), 1U);
    EXPECT_THAT(settings.groups[0].strategies, ElementsAre("batched", "naive"));
    EXPECT_EQ(settings.groups[0].baseline, "batched");
    EXPECT_EQ(settings.rounds, 3U);
    EXPECT_THAT(accept({"compare"}).groups[0].strategies,
                ElementsAre("naive", "slotted", "batched", "batched/async", "insert_only",
                            "memory/cached"));
    EXPECT_EQ(accept({"compare"}).groups[0].baseline, "naive");
    EXPECT_EQ(accept({"compare", "--baseline", "slotted"}).groups[0].baseline, "slotted");
    EXPECT_THAT(refuse({"compare", "-s", "naive,batched", "--baseline", "slotted"}),
                AllOf(HasSubstr("'slotted'"), HasSubstr("naive, batched")));
}

TEST(CommandLine, CountersLiveInMemory) {
    const Settings settings = accept({"run", "--workload", "counters"});
    EXPECT_EQ(settings.trial.strategy, "memory");
    EXPECT_EQ(settings.trial.traffic.dup, 0);
    expect_refused({{"run --workload counters --dup 0.1", {"--dup"}},
                    {"run --workload counters --db sqlite:///x.db", {"--db"}},
                    {"run --workload counters -s batched", {"memory"}}});
}

TEST(CommandLine, TheStrategyTellsTheWorkload) {
    const Settings limiter = accept({"run", "-s", "gcra", "--limit", "5/s burst 9"});
    EXPECT_EQ(limiter.trial.workload, WorkloadKind::limiter);
    EXPECT_EQ(limiter.trial.strategy, "memory/gcra");
    EXPECT_EQ(limiter.trial.limit.burst, 9);
    EXPECT_EQ(limiter.trial.traffic.mix.unvote, 0);
    EXPECT_EQ(limiter.trial.traffic.dup, 0);
    const Settings zset = accept({"run", "--workload", "zset", "--redis", "redis://h/0"});
    EXPECT_EQ(zset.trial.strategy, "redis/script");
    EXPECT_EQ(zset.trial.redis_url, "redis://h/0");
    EXPECT_EQ(zset.trial.traffic.items, 1000U);
    EXPECT_EQ(accept({"run", "--workload", "zset", "--items", "5k"}).trial.traffic.items, 5000U);
    EXPECT_EQ(accept({"run", "--workload", "counters", "--managed", "redis"}).trial.strategy,
              "redis");
}

TEST(CommandLine, AllIsGroupedByWorkload) {
    const Settings settings = accept({"compare", "-s", "all", "--managed", "redis", "--baseline",
                                      "redis/gcra", "--mix", "vote=8,unvote=2"});
    ASSERT_EQ(settings.groups.size(), 4U);
    const std::vector<WorkloadKind> workloads = {WorkloadKind::votes, WorkloadKind::counters,
                                                 WorkloadKind::limiter, WorkloadKind::zset};
    const std::vector<std::size_t> sizes = {10, 16, 19, 7};
    for (std::size_t i = 0; i < workloads.size(); ++i) {
        EXPECT_EQ(settings.groups[i].trial.workload, workloads[i]);
        EXPECT_EQ(settings.groups[i].strategies.size(), sizes[i]);
        EXPECT_TRUE(settings.groups[i].trial.managed_redis);
    }
    EXPECT_EQ(settings.groups[2].baseline, "redis/gcra");
    EXPECT_EQ(settings.groups[3].baseline, "memory/script");
    // Nothing to take back in a limiter; the others take their share.
    EXPECT_EQ(settings.groups[2].trial.traffic.mix.unvote, 0);
    EXPECT_EQ(settings.groups[1].trial.traffic.mix.unvote, 2);
    EXPECT_EQ(accept({"compare", "-s", "all", "--workload", "limiter"}).groups.size(), 1U);
    // Its keys have no prefix: it is left out on a Redis of somebody else.
    EXPECT_EQ(accept({"compare", "-s", "all", "--redis", "redis://h"}).groups[0].strategies.size(),
              9U);
}

TEST(CommandLine, DatabasesAreStartedOrNamed) {
    const Settings managed = accept({"run", "-s", "redis/cached", "--managed", "redis,mysql"});
    EXPECT_EQ(managed.managed, (std::vector{ServerKind::redis, ServerKind::mysql}));
    EXPECT_TRUE(managed.trial.managed_redis);
    EXPECT_TRUE(managed.trial.managed_database);
    const std::string url = "postgresql://me:secret@h/db?host=/run";
    const Settings named = accept({"run", "-s", "naive", "--db", url});
    EXPECT_EQ(named.trial.database_url, url);
    EXPECT_THAT(named.command_line, testing::Not(testing::Contains(HasSubstr("secret"))));
    EXPECT_EQ(accept({"run", "-s", "batched/async", "--in-flight", "9"}).trial.in_flight, 9U);
    EXPECT_THAT(accept({"compare", "-s", "all", "-r", "5"}).groups[0].strategies,
                ElementsAre("naive", "slotted", "batched", "batched/async", "insert_only",
                            "memory/cached"));
}

/// workload on database: strategies, of which the first is the baseline.

TEST(CommandLine, AnOptionThatWouldBeIgnoredIsRefused) {
    expect_refused(
        {{"run -s naive --managed redis", {"--managed", "redis/gcra"}},
         {"run -s memory --redis redis://h", {"--redis"}},
         {"run -s redis --redis redis://h --managed redis", {"take one of them"}},
         {"run -s redis", {"--redis URL, or --managed redis"}},
         {"run -s redis --managed postgres", {"--redis URL, or --managed redis"}},
         {"run -s memory --managed postgres", {"a database is for votes"}},
         {"run -s naive --managed oracle", {"'oracle'", "redis, postgres, mariadb, mysql"}},
         {"run -s naive --managed postgres,mariadb", {"takes one database"}},
         {"run -s naive --managed postgres --db sqlite:///x", {"--db", "take one of them"}},
         {"run -s naive --in-flight 5", {"batched/async"}}});
    EXPECT_EQ(accept({"run", "-s", "batched/async", "-r", "5"}).trial.rate_per_s, 5);
    expect_refused({{"run -s redis --redis http://h", {"--redis"}},
                    {"run -s naive --limit 5/s", {"--limit"}},
                    {"run -s gcra --limit often", {"--limit"}},
                    {"compare -s gcra,per_second_key --limit 5/min --redis redis://h",
                     {"--limit", "redis/per_second_key"}}});
    EXPECT_THAT(refuse({"run", "-s", "list", "--limit", "5/s burst 9", "--redis", "redis://h"}),
                HasSubstr("redis/list"));
    expect_refused({{"run -s gcra --mix vote=1,unvote=1", {"unvote"}},
                    {"run -s memory --life 5ms", {"with a TTL"}},
                    {"run -s memory/ttl --life 5us", {"1ms or more"}},
                    {"run -s memory/ttl --life 5ms --mix vote=1,unvote=1", {"unvote"}},
                    {"run -s memory/ttl --gate 5ms", {"--gate"}},
                    {"run -s memory/ttl_gate --rebuild-every 5ms", {"--rebuild-every"}},
                    {"run -s memory/script --rebuild-every 5us", {"1ms or more"}},
                    {"run -s memory/script --bystander", {"--bystander"}},
                    {"run -s redis/seed_cached --redis redis://h", {"--managed redis"}},
                    {"run -s memory/ttl --batch 5", {"zset"}},
                    {"run -s script --batch 5 -r 9", {"--rate"}},
                    {"run -s script --batch 0", {"1 to 1000"}},
                    {"run -s naive --slots 5", {"slots/sticky"}},
                    {"run -s slots/sticky --slots 0", {"1 to 10000"}},
                    {"run -s memory --processes 2", {"share no memory"}},
                    {"run -s batched/async --processes 2", {"/async"}},
                    {"run -s redis/retry --managed redis --processes 2", {"redis/retry"}},
                    {"run -s naive --stall 5ms", {"--processes"}},
                    {"run -s naive --processes 2 --stall 5ms --kill-every 5ms", {"one of them"}},
                    {"run -s naive --processes 2 --stall 5us", {"1ms or more"}}});
    for (const char* fault : {"--outage", "--fault"}) {
        const char* spec = std::string_view{fault} == "--fault" ? "1s:redis.kill9+1s" : "1s";
        EXPECT_THAT(refuse({"run", "-s", "redis", "--redis", "redis://h", fault, spec}),
                    HasSubstr("--managed redis"));
    }
    const std::vector<std::string> managed = {"run", "-s", "redis", "--managed", "redis"};
    const auto with = [&](const std::vector<std::string>& more) {
        std::vector<std::string> all = managed;
        all.insert(all.end(), more.begin(), more.end());
        return all;
    };
    EXPECT_THAT(refuse(with({"--fault", "1s:redis.kill9+1s", "--outage", "1s"})),
                HasSubstr("one of them"));
    EXPECT_THAT(refuse(with({"--fault", "3s:redis.kill9+1s", "-d", "3s"})),
                HasSubstr("lasts 3s only"));
    EXPECT_EQ(accept(with({"--outage", "1s", "-d", "3s"})).trial.faults,
              (std::vector{Fault{std::chrono::seconds{1}, FaultKind::redis_pause,
                                 std::chrono::seconds{1}}}));
    EXPECT_TRUE(accept(with({"--fault", "1s:redis.kill9+1s"})).trial.kills_redis());
    EXPECT_EQ(accept({"run", "-s", "slots/random", "--slots", "7", "--db", "sqlite:////tmp/x.db"})
                  .trial.slots,
              7);
}

TEST(CommandLine, WhatIsRecordedOfItHasNoPassword) {
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"run", "-s", "redis", "--redis", "redis://a:secret@h/0"},
          {"run", "-s", "redis", "--redis=redis://a:secret@h/0"}}) {
        const Settings settings = accept(arguments);
        EXPECT_EQ(settings.trial.redis_url, "redis://a:secret@h/0");
        EXPECT_THAT(settings.command_line.back(),
                    AllOf(HasSubstr("redis://a:***@h"), testing::Not(HasSubstr("secret"))));
    }
}

TEST(CommandLine, AllMayStandBesideADriverAndAnEmptyDriverIsNamed) {
    const Settings both = accept({"compare", "--workload", "votes", "-s", "all,exec:./driver"});
    ASSERT_EQ(both.groups.size(), 1U);
    EXPECT_EQ(both.groups[0].strategies.back(), "exec:./driver");
    EXPECT_GT(both.groups[0].strategies.size(), 3U);
    EXPECT_EQ(accept({"compare", "-s", "naive,all", "--workload", "votes"}).groups[0].strategies[0],
              "naive");
    for (const char* names : {"all,exec:", "exec:", "naive,exec: "}) {
        EXPECT_THAT(refuse({"compare", "-s", names}), HasSubstr("exec: names no program"));
    }
    EXPECT_THAT(refuse({"compare", "-s", "naive,naive"}), HasSubstr("named twice"));
}

TEST(CommandLine, AnEmptyPathAndSharesWithoutASumAreRefused) {
    for (const char* option : {"--out", "--html", "--trace"}) {
        EXPECT_THAT(refuse({"run", option, ""}), HasSubstr("'' is no path"));
    }
    EXPECT_THAT(refuse({"run", "--mix", "vote=1e308,read=1e308"}), HasSubstr("is no mix"));
}

TEST(CommandLine, ANameOfAReportsRowIsNoSecret) {
    EXPECT_THAT(refuse({"run", "-s", "memory@4"}),
                HasSubstr("'memory@4' is no strategy: memory with so many callers is -s memory "
                          "-w 4"));
    EXPECT_THAT(refuse({"run", "-s", "quick@h="}), HasSubstr("'***' is no strategy"));
    EXPECT_THAT(refuse({"run", "-s", "quick@4"}), HasSubstr("'quick@4' is no strategy"));
    for (const char* url :
         {"redis://a:secret@h", "a:secret@h", "postgresql://secret@h/d", "secret@127.0.0.1:1"}) {
        EXPECT_THAT(refuse({"run", "-s", url}), testing::Not(HasSubstr("secret"))) << url;
        const std::string text{url};
        for (const std::string& argument :
             {"--threshold=p99<" + text, "--threshold=lost=0,p99<" + text + ",err<1%",
              "--threshold=" + text + ",lost=0", "--fault=1s:" + text, "--managed=redis," + text,
              "-d" + text, "-s" + text + ",naive"}) {
            EXPECT_THAT(refuse({"run", argument}), testing::Not(HasSubstr("secret"))) << argument;
        }
        // What is no secret is left as it is.
        EXPECT_THAT(refuse({"run", "--threshold=lost=0,p99<" + text}), HasSubstr("50"));
    }
}

TEST(CommandLine, AuditTakesAFolderAndLittleElse) {
    const Settings settings = accept({"audit", "some/folder", "--json"});
    EXPECT_EQ(settings.command, Command::audit);
    EXPECT_EQ(settings.audit_folder, "some/folder");
    EXPECT_TRUE(settings.json);
    EXPECT_THAT(refuse({"audit"}), HasSubstr("audit DIR"));
    EXPECT_THAT(refuse({"audit", "x", "--seed", "3"}), HasSubstr("--seed"));
}

TEST(CommandLine, WhatIsNotKnownIsNamedWithWhatIs) {
    expect_refused({{"tune", {"'tune'", "run, compare, audit"}},
                    {"run --speed 9", {"'--speed'", "--workers", "--duration"}},
                    {"run --rounds 9", {"'--rounds'"}},
                    {"run fast", {"'fast'"}},
                    {"run -s quick", {"'quick'", "naive, slotted, batched"}},
                    {"run --arrival burst", {"poisson, uniform, closed"}},
                    {"run -d", {"-d"}}});
}

TEST(CommandLine, ValuesHaveLimits) {
    expect_refused({{"run -w 0", {"1 to 1024"}},
                    {"run -w 1M", {"--workers"}},
                    {"run --items 0", {"--items"}},
                    {"run --users 0", {"--users"}},
                    {"run --zipf -1", {"--zipf"}},
                    {"run --dup 2", {"--dup"}},
                    {"run -d 0s", {"--duration"}},
                    {"run --timeout 0", {"--timeout"}},
                    {"run -r 1M -d 1m", {"--max-ops"}},
                    {"compare --rounds 0", {"--rounds"}},
                    {"run --db redis://h/0", {"sqlite:///"}}});
}

TEST(CommandLine, TheLastOfARepeatedOptionCounts) {
    EXPECT_EQ(accept({"run", "-w", "8", "--seed", "1", "-w", "3"}).trial.workers, 3U);
    EXPECT_TRUE(accept({"run", "--json", "--json"}).json);
}

TEST(CommandLine, HelpAndVersionEndWithSuccess) {
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"--help"}, {"run", "--help"}, {"--version"}}) {
        const auto parsed = parse_command_line(arguments);
        const auto* message = std::get_if<ExitMessage>(&parsed);
        ASSERT_NE(message, nullptr);
        EXPECT_EQ(message->code, 0);
        EXPECT_FALSE(message->text.empty());
    }
    const auto help = parse_command_line({"run", "--help"});
    EXPECT_THAT(std::get<ExitMessage>(help).text, HasSubstr("-r,--rate RATE "));
    EXPECT_THAT(std::get<ExitMessage>(help).text, HasSubstr("--bystander  "));
    const auto version = parse_command_line({"--version"});
    EXPECT_THAT(std::get<ExitMessage>(version).text, HasSubstr("hotcount-load 0."));
}

TEST(CommandLine, HelpHasTheDefaultsOfItsCommand) {
    const auto help_of = [](const std::vector<std::string>& arguments) {
        return std::get<ExitMessage>(parse_command_line(arguments)).text;
    };
    EXPECT_THAT(help_of({"run", "--help"}), AllOf(HasSubstr("2m [10s]"), HasSubstr("call [32]")));
    EXPECT_THAT(help_of({"compare", "--help"}),
                AllOf(HasSubstr("2m [1s]"), HasSubstr("differs [8]")));
    EXPECT_THAT(help_of({"--help"}), AllOf(HasSubstr("2m [800ms]"), HasSubstr("differs [5]")));
}

TEST(CommandLine, AShareOfVotesIsAShareAsOthersAre) {
    EXPECT_EQ(accept({"run", "--dup", "1%"}).trial.traffic.dup, 0.01);
    EXPECT_EQ(accept({"run", "--dup", "0.5"}).trial.traffic.dup, 0.5);
    EXPECT_THAT(refuse({"run", "--dup", "101%"}), HasSubstr("--dup"));
}

TEST(CommandLine, AWordOfAMixStandsOnce) {
    EXPECT_THAT(refuse({"run", "--mix", "vote=80,vote=5"}),
                HasSubstr("--mix: 'vote' stands twice in 'vote=80,vote=5'"));
    EXPECT_EQ(accept({"run", "--mix", "vote=80,read=5"}).trial.traffic.mix.read, 5);
}

TEST(CommandLine, TheCanonicalComparisonScales) {
    const Settings settings = accept({"-d", "300ms", "--rounds", "2", "--items", "100"});
    EXPECT_EQ(settings.command, Command::canonical);
    EXPECT_EQ(settings.trial.duration, milliseconds{300});
    EXPECT_EQ(settings.trial.arrival, Arrival::closed);
    EXPECT_EQ(settings.rounds, 2U);
}

TEST(CommandLine, ThresholdsAddUpAndHaveUnits) {
    const auto thresholds =
        accept({"run", "--threshold", "p99<50ms,err<=0.1%", "--threshold", "rate>=1k",
                "--threshold=stale.max<1s", "--threshold", "lost=0"})
            .trial.thresholds;
    ASSERT_EQ(thresholds.size(), 5U);
    const std::vector<std::pair<double, double>> met_and_missed = {
        {49e6, 50e6}, {0.001, 0.0011}, {1000, 999}, {0.9e9, 1e9}, {0, 1}};
    for (std::size_t at = 0; at < thresholds.size(); ++at) {
        EXPECT_TRUE(thresholds[at].is_met_by(met_and_missed[at].first)) << thresholds[at].text;
        EXPECT_FALSE(thresholds[at].is_met_by(met_and_missed[at].second)) << thresholds[at].text;
    }
    EXPECT_EQ(thresholds[0].quantile(), 0.99);
    EXPECT_EQ(thresholds[1].quantile(), 0);
    EXPECT_EQ(thresholds[3].quantile(), 1);
    EXPECT_TRUE(thresholds[3].of_staleness());
    for (const char* term : {"p99", "p99=<5ms", "p100<5ms", "p<5ms", "votes>5", "<5ms", "p99<"}) {
        EXPECT_THAT(refuse({"run", "--threshold", term}),
                    AllOf(HasSubstr(fmt::format("'{}' is no threshold", term)),
                          HasSubstr("p99<50ms,lost==0")));
    }
    expect_refused({
        {"run --threshold p99<50", {"'p99<50' is no threshold", "unit"}},
        {"run -s memory/gcra --threshold lost==0", {"lost==0", "limiters", "no such number"}},
        {"run -s memory/script --threshold double==0", {"double==0", "votes and counters"}},
        {"run -s memory/gcra --threshold stale.p99<1s", {"stale.p99<1s", "votes and counters"}},
        {"run --mix vote=100 --threshold stale.p99<1s", {"stale.p99<1s", "--mix has no reads"}},
    });
    EXPECT_EQ(
        accept({"run", "-s", "memory/script", "--threshold", "lost==0"}).trial.thresholds.size(),
        1U);
    // A study holds limiters to the SLO of all others.
    accept({"run", "--each", "-s", "memory/gcra,memory", "--threshold", "lost=0"});
}

TEST(CommandLine, TablesOfTheUsersOwnAreInADatabaseThatIsThere) {
    const auto trial = accept({"run", "--db", "sqlite:///copy.db", "--item-table", "post",
                               "--vote-user", "member_id"})
                           .trial;
    EXPECT_EQ(trial.tables, (std::map<std::string, std::string>{{"item-table", "post"},
                                                                {"vote-user", "member_id"}}));
    expect_refused({
        {"run --item-table post", {"--item-table", "--db"}},
        {"run --item-id post_id --managed postgres", {"--item-id", "leave out --managed"}},
        {"run -s insert_only --db sqlite:///c.db --item-table post", {"--item-table", "batched"}},
        {"run --workload counters -s slots/sticky --db sqlite:///c.db --vote-table v",
         {"--vote-table", "batched"}},
    });
    EXPECT_THAT(refuse({"run", "--db", "sqlite:///c.db", "--vote-item", ""}),
                HasSubstr("--vote-item: '' is no name"));
}

}  // namespace
}  // namespace hotcount::loadtest
