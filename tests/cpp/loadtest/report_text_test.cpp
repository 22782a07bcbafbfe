// What reports say to people: of what did not run, and of what timers cannot tell.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "made_parts.hpp"
#include "report/progress.hpp"
#include "report/report.hpp"

namespace hotcount::loadtest {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t kMicrosecond = 1'000;

/// Passed, with a hundred answers that took `p99_us` or less, and timers that are late by `late_us`.
TrialResult trial(Arrival arrival, std::int64_t p99_us, std::int64_t late_us) {
    TrialResult result;
    result.settings.strategy = "naive";
    result.settings.arrival = arrival;
    result.settings.rate_per_s = arrival == Arrival::closed ? 0 : 100;
    result.audited = true;
    result.audit.acknowledged = 100;
    result.place = "SQLite";
    result.load.window_s = 1;
    result.load.tally.votes_ok = 100;
    result.load.scheduled = 100;
    for (int call = 0; call < 100; ++call) {
        const std::int64_t ns = p99_us * kMicrosecond * (call < 50 ? 1 : 2) / 2;
        result.load.response_ns.record(ns);
        result.load.service_ns.record(ns);
    }
    result.machine.before.overshoot_ns = {late_us * kMicrosecond};
    result.machine.after.overshoot_ns = {late_us * kMicrosecond};
    return result;
}

/// The line of a table that begins with the name.
std::string row(const std::string& table, const std::string& name) {
    for (std::size_t from = 0; from < table.size();) {
        const std::size_t until = std::min(table.find('\n', from), table.size());
        if (table.compare(from, name.size() + 1, name + " ") == 0) {
            return table.substr(from, until - from);
        }
        from = until + 1;
    }
    return {};
}

TEST(RunTable, NoPercentileIsClaimedWithinTwiceTheFloorOfTheTimers) {
    const std::string at = run_table(trial(Arrival::poisson, 600, 300)).str();
    EXPECT_THAT(row(at, "naive"), HasSubstr("<= 0.600 (floor)"));
    const std::string above = run_table(trial(Arrival::poisson, 602, 300)).str();
    EXPECT_THAT(row(above, "naive"), AllOf(HasSubstr("0.602"), Not(HasSubstr("floor"))));
    const std::string far = run_table(trial(Arrival::poisson, 600, 20)).str();
    EXPECT_THAT(row(far, "naive"), AllOf(HasSubstr("0.600"), Not(HasSubstr("floor"))));
}

TEST(RunTable, AClosedLoopDoesNotSleep) {
    const std::string table = run_table(trial(Arrival::closed, 600, 300)).str();
    EXPECT_THAT(row(table, "naive"), AllOf(HasSubstr("0.600"), Not(HasSubstr("floor"))));
}

TEST(RunTable, APercentileWithNoCallAboveItIsNotShown) {
    TrialResult of_a_hundred = trial(Arrival::poisson, 600, 20);
    const auto cell_of = [&](std::string_view column) {
        const std::string table = run_table(of_a_hundred).str();
        std::istringstream header(table.substr(0, table.find('\n')));
        std::istringstream cells(row(table, "naive"));
        for (std::string name, cell; header >> name && cells >> cell;) {
            if (name == column) return cell;
        }
        return std::string{"no such column"};
    };
    EXPECT_EQ(cell_of("p99_ms"), "0.600");
    EXPECT_EQ(cell_of("p999_ms"), "-");
    for (int call = 0; call < 900; ++call) {
        of_a_hundred.load.response_ns.record(600 * kMicrosecond);
    }
    EXPECT_EQ(cell_of("p999_ms"), "0.600");
}

TEST(ComparisonTable, TheFloorHidesTheRangeToo) {
    const auto six_of = [](std::int64_t p99_us) {
        return std::vector<TrialResult>(6, trial(Arrival::poisson, p99_us, 300));
    };
    const PartResult result = part_of({{"naive", six_of(500)}, {"batched", six_of(5'000)}},
                                      Role::named, Arrival::poisson);
    const std::string table = comparison_table(result).str();
    EXPECT_THAT(row(table, "naive"),
                AllOf(HasSubstr("<= 0.600 (floor)"), Not(HasSubstr(".. 0.5"))));
    EXPECT_THAT(row(table, "batched"), AllOf(HasSubstr("5.00"), Not(HasSubstr("floor"))));
}

TEST(RunTable, SmallFiguresKeepTheirDigitsAndLargeOnesTheirCommas) {
    TrialResult shown = trial(Arrival::closed, 600, 20);
    shown.audit.acknowledged = 1000;
    shown.server.cpu_s = 0.00456;
    shown.server.log_bytes = 21'626'000;
    shown.server.commits = 1.23;
    const std::string table = run_table(shown).str();
    EXPECT_THAT(row(table, "naive"),
                AllOf(HasSubstr(" 0.00456"), HasSubstr(" 21,600 "), HasSubstr(" 0.00123 ")));
    EXPECT_THAT(table, Not(HasSubstr("builds")));
    shown.settings.rebuild_every = std::chrono::milliseconds{5};
    EXPECT_THAT(run_table(shown).str(), HasSubstr("builds"));
}

std::string compare_text(const Comparison& comparison, bool wide = true) {
    std::string text;
    for (const PartResult& result : comparison.parts) text += part_text(result, wide);
    return text + conclusion_text(comparison, wide);
}

Comparison only(PartResult result) {
    Comparison comparison;
    comparison.conclusion = result.conclusion;
    comparison.parts.push_back(std::move(result));
    return comparison;
}

/// Eight rounds in which the baseline with four callers makes `best` times what it makes with all.
Comparison with_best(double best) {
    const auto made = [](double votes) {
        std::vector<TrialResult> trials(8, trial(Arrival::closed, 600, 20));
        for (std::size_t round = 0; round < trials.size(); ++round) {
            trials[round].load.tally.votes_ok = static_cast<std::uint64_t>(votes) + round;
        }
        return trials;
    };
    return only(
        part_of({{"naive", made(1000)}, {"batched", made(5000)}, {"naive@4", made(1000 * best)}},
                Role::best));
}

TEST(CompareText, ABestNumberOfCallersThatIsNoFasterInTheRoundsIsNoMeasure) {
    const std::string faster = compare_text(with_best(2));
    EXPECT_THAT(faster, AllOf(HasSubstr("x naive@4"), HasSubstr("that suits it best"),
                              HasSubstr("times naive@4")));
    const std::string slower = compare_text(with_best(0.44));
    EXPECT_THAT(slower, AllOf(HasSubstr("naive@4 was the best of short tries, and no faster in the "
                                        "rounds.\n"),
                              Not(HasSubstr("x naive@4")), Not(HasSubstr("suits it best")),
                              Not(HasSubstr("times naive@4"))));
    EXPECT_THAT(slower, HasSubstr("By how much: 4.99 times naive, 4.97 to 5.00 in 8 rounds.\n"));
}

std::size_t longest_line(const std::string& text) {
    std::istringstream lines(text);
    std::size_t most = 0;
    for (std::string line; std::getline(lines, line);) most = std::max(most, line.size());
    return most;
}

TEST(ShortTables, FitAHundredColumnsWhateverTheNames) {
    Comparison comparison = with_best(2);
    PartResult& result = comparison.parts[0];
    Summary& first = result.summaries[0];
    result.part.baseline = first.strategy =
        "exec:python a/long/path/of/a/driver.py --with arguments";
    AuditResult& audit = first.trials[0].audit;
    audit.over_admitted = audit.allowed_breaches = 0;
    audit.drift = audit.allowed_breaches = 12'345;
    first.trials[1].load.tally.failed = 7;
    summarise(result);
    const std::string text = compare_text(comparison, false);
    EXPECT_LE(longest_line(text), kColumns) << text;
    EXPECT_THAT(
        text,
        AllOf(HasSubstr("strategy"), HasSubstr("votes/s"), HasSubstr("##"), HasSubstr("ratio"),
              HasSubstr("p99"), HasSubstr("doubled"), HasSubstr("verdict"),
              HasSubstr("drift 12,345 (by how many votes"), HasSubstr("7 calls without a success"),
              HasSubstr("0 everywhere: ghost (votes that no caller sent), told wrong")));
    EXPECT_GT(longest_line(compare_text(comparison)), kColumns);
}

TEST(ShortTables, ARunSaysWhatStandsInItsPercentiles) {
    TrialResult shown = trial(Arrival::poisson, 600, 20);
    shown.audited = true;
    shown.load.censored = 1'500;
    conclude(shown);
    const std::string text = run_text(shown, false);
    EXPECT_LE(longest_line(text), kColumns) << text;
    EXPECT_THAT(text, AllOf(HasSubstr("1,500 operations were due and not served"),
                            HasSubstr("not served counts in p50 ... max as slower"),
                            HasSubstr("100 operations/s (85.0 votes among them)")));
    EXPECT_THAT(row(text, "naive"), HasSubstr("passed"));
}

TEST(ShortTables, ARunOfALongNameAndGreatNumbersKeepsItsRowWhole) {
    TrialResult shown = trial(Arrival::closed, 4'999'999, 20);
    shown.settings.workload = WorkloadKind::counters;
    shown.settings.strategy = "exec:" + std::string(80, 'x');
    shown.settings.timeout = std::chrono::minutes{1};
    shown.settings.max_errors = 0;
    shown.load.tally.votes_ok = shown.load.tally.reads_ok = 123'456'789;
    shown.load.tally.failed = 1;
    conclude(shown);
    const std::string text = run_text(shown, false);
    EXPECT_THAT(row(text, "123,456,789"), AllOf(HasSubstr("5,000 ms"), HasSubstr("inconclusive")))
        << text;
    shown.settings.strategy = "memory";
    shown.load.tally.votes_ok = shown.load.tally.reads_ok = 100;
    EXPECT_THAT(row(run_text(shown, false), "memory"), HasSubstr("100"));
}

TEST(Thresholds, APercentileOfCallsWithoutASuccessMeetsNoLimit) {
    TrialResult shown = trial(Arrival::poisson, 600, 20);
    shown.settings.faults = parse_faults("1s:redis.pause+1s").value();
    shown.settings.max_errors = 1;
    shown.settings.timeout = std::chrono::milliseconds{300};
    shown.settings.thresholds = parse_thresholds("p50<1s,p99<10s,max>1ms").value();
    shown.load.censored = 2;
    for (int call = 0; call < 2; ++call) shown.load.response_ns.record(300'000 * kMicrosecond);
    conclude(shown);
    EXPECT_EQ(shown.conclusion, Conclusion::missed);
    EXPECT_EQ(shown.reasons,
              std::vector<std::string>{"threshold p99<10s: a call without a success"});
}

TEST(Thresholds, MissedOnesAreTheVerdictAndNamedWithTheirFigure) {
    const auto concluded = [](std::string_view terms) {
        TrialResult shown = trial(Arrival::poisson, 600, 20);
        shown.audited = true;
        shown.settings.thresholds = parse_thresholds(terms).value();
        conclude(shown);
        return shown;
    };
    const TrialResult met = concluded("p99<1ms,lost==0,err<1%,rate>=100");
    EXPECT_EQ(met.conclusion, Conclusion::passed);
    EXPECT_THAT(run_text(met, false), HasSubstr("threshold p99<1ms: 0.600 ms, met\n"));
    const TrialResult missed = concluded("p99<0.5ms,rate>100");
    EXPECT_EQ(missed.conclusion, Conclusion::missed);
    EXPECT_EQ(exit_code(missed.conclusion), 1);
    EXPECT_EQ(missed.reasons, (std::vector<std::string>{"threshold p99<0.5ms: 0.600 ms",
                                                        "threshold rate>100: 100/s"}));
    // A hundred calls say nothing of one in a thousand.
    const TrialResult unknown = concluded("p99.9<1s");
    EXPECT_EQ(unknown.conclusion, Conclusion::inconclusive);
    EXPECT_THAT(unknown.reasons.front(), HasSubstr("longer --duration"));
}

TEST(Thresholds, ANumberThatWasRightAtNoMomentIsStalerThanAnyTime) {
    TrialResult shown = trial(Arrival::poisson, 600, 20);
    shown.settings.thresholds =
        parse_thresholds("stale.p98<1ms,stale.p99<1h,stale.p99.9<1h").value();
    for (int read = 0; read < 98; ++read) shown.audit.staleness_ns.record(0);
    shown.audit.reads_never_right = 2;
    conclude(shown);
    EXPECT_EQ(shown.conclusion, Conclusion::missed);
    EXPECT_TRUE(shown.checked[0].met);
    EXPECT_FALSE(shown.checked[1].met || shown.checked[1].too_few);
    EXPECT_EQ(shown.checked[1].figure, "2 of 100 reads were right at no moment");
    EXPECT_TRUE(shown.checked[2].too_few);
    EXPECT_THAT(shown.checked[2].figure, HasSubstr("it needs 1,000 reads"));
    EXPECT_THAT(run_text(shown, false), HasSubstr("not known"));
}

TEST(Thresholds, JsonHasTheFigureAsANumberInItsUnit) {
    TrialResult shown = trial(Arrival::poisson, 600, 20);
    shown.state = RunState::finished;
    shown.settings.thresholds = parse_thresholds("p99<1ms,err<1%,rate>=100,lost==0").value();
    conclude(shown);
    const nlohmann::json written = run_document(shown, nlohmann::json::object())["thresholds"];
    const auto figure = [&](std::size_t at) {
        return std::pair{written[at]["found"].get<double>(),
                         written[at]["unit"].get<std::string>()};
    };
    EXPECT_NEAR(figure(0).first, 0.6, 0.01);
    EXPECT_EQ(figure(0).second, "ms");
    EXPECT_EQ(figure(1), (std::pair{0.0, std::string{"share"}}));
    EXPECT_EQ(figure(2), (std::pair{100.0, std::string{"per_s"}}));
    EXPECT_EQ(figure(3), (std::pair{0.0, std::string{"count"}}));
}

TEST(Conclusions, AWritingLoadWithoutAnAcknowledgedWriteIsInconclusive) {
    TrialResult shown = trial(Arrival::closed, 600, 20);
    shown.audit.acknowledged = 0;
    shown.load.tally = {};
    shown.load.tally.reads_ok = 100;
    conclude(shown);
    EXPECT_EQ(shown.verdict(), "inconclusive");
    EXPECT_EQ(shown.reasons, std::vector<std::string>{std::string{kNothingToAudit}});
    shown.settings.traffic.mix = {0, 0, 100};
    conclude(shown);
    EXPECT_EQ(shown.verdict(), "passed");
}

TEST(Conclusions, FaultsThatWereAskedForLeaveAPassedAudit) {
    TrialResult late = trial(Arrival::poisson, 600, 20);
    late.audited = true;
    late.load.offered.share = 0.5;
    conclude(late);
    EXPECT_EQ(late.verdict(), "overloaded");
    late.settings.faults = parse_faults("1s:redis.pause+1s").value();
    conclude(late);
    EXPECT_EQ(late.conclusion, Conclusion::passed);
    EXPECT_EQ(late.verdict(), "passed");
}

TEST(CompareText, SaysOfWhomTheContractAllowsWhatTheAuditFound) {
    Comparison comparison = with_best(2);
    PartResult& result = comparison.parts[0];
    const auto allow = [&](std::size_t at, const char* name, std::uint64_t breaches) {
        result.part.strategies[at] = result.summaries[at].strategy = name;
        AuditResult& audit = result.summaries[at].trials[0].audit;
        audit.over_admitted = audit.allowed_breaches = breaches;
        result.summaries[at].audit = {};
        result.summaries[at].audit.add(audit);
    };
    for (Summary& summary : result.summaries) summary.audited = summary.trials.size();
    allow(0, "redis/incr_expire", 20'000);
    allow(1, "redis/racy_list", 578);
    EXPECT_THAT(compare_text(comparison),
                HasSubstr("\nLost: nothing. Wrong ways that are here for comparison "
                          "(redis/incr_expire, redis/racy_list) broke their rules 20,578 times. "
                          "Their contracts allow that; the tables show how.\n"));
    allow(1, "redis/cached", 1);
    EXPECT_THAT(compare_text(comparison),
                HasSubstr("\nLost: nothing. redis/incr_expire, redis/cached broke their rules "
                          "20,001 times."));
}

TEST(CompareText, ABaselineThatIsFastestIsNamed) {
    Comparison comparison = with_best(2);
    comparison.parts[0].part.baseline = "batched";
    EXPECT_THAT(compare_text(comparison),
                HasSubstr("\nBy how much: batched is the baseline, and no other strategy made more "
                          "writes.\n"));
}

FolderAudit impossible(const char* folder, const char* why) {
    FolderAudit audit;
    audit.folder = folder;
    audit.settings.strategy = "naive";
    audit.state = "finished";
    audit.audited = false;
    audit.reasons = {why};
    return audit;
}

TEST(AuditText, OneLineForEachReasonAndNoZeroesWhereNothingWasAudited) {
    const std::string text = audit_text({impossible("runs/closed-01-naive", "the data is gone"),
                                         impossible("runs/closed-02-naive", "the data is gone"),
                                         impossible("runs/closed-03-naive", "damaged")});
    EXPECT_THAT(text, AllOf(HasSubstr("\n  closed-01-naive and 1 more: the data is gone\n"),
                            HasSubstr("\n  closed-03-naive: damaged\n"),
                            Not(HasSubstr("\n  closed-02-naive: "))));
    EXPECT_THAT(row(text, "closed-01-naive"), Not(HasSubstr(" 0")));
}

TEST(Progress, TrialsThatAreNotNeededAreNotWaitedFor) {
    std::FILE* const file = std::tmpfile();
    ASSERT_NE(file, nullptr);
    Progress progress(ProgressMode::line, file);
    progress.expect(10, 20);
    progress.set_up("first", 2);
    progress.expect_fewer(7, 14);
    progress.end(trial(Arrival::closed, 600, 20));
    progress.expect_fewer(100, 200);  // What has begun counts.
    progress.end(trial(Arrival::closed, 600, 20));
    progress.done();
    std::rewind(file);
    std::string text(1000, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), file));
    std::fclose(file);
    EXPECT_THAT(text, AllOf(HasSubstr("\n[1/3] first: "), HasSubstr("\n[1/1] first: "),
                            Not(HasSubstr("\r"))));
}

/// Interrupted before batched had run at all.
Comparison interrupted() {
    PartResult result = part_of({{"naive", {trial(Arrival::closed, 600, 20)}}, {"batched", {}}});
    result.part.rounds = 8;
    return only(std::move(result));
}

TEST(CompareText, AStrategyThatDidNotRunHasNoVerdictAndIsNamed) {
    const Comparison comparison = interrupted();
    EXPECT_EQ(comparison.conclusion, Conclusion::inconclusive);
    const std::string text = compare_text(comparison);
    EXPECT_THAT(row(text, "naive"), HasSubstr("passed"));
    EXPECT_THAT(row(text, "batched"), AllOf(HasSubstr("not run"), Not(HasSubstr("passed")),
                                            Not(HasSubstr("0.00")), Not(HasSubstr("yes"))));
    EXPECT_THAT(text, AllOf(HasSubstr("\nNot run: batched.\n"),
                            HasSubstr("it ended after 0 whole rounds")));
    const nlohmann::json document = compare_document(comparison, nlohmann::json::object());
    const nlohmann::json& batched = document["parts"][0]["strategies"][1];
    EXPECT_EQ(batched["not_run"], true);
    EXPECT_EQ(batched["conclusion"], "inconclusive");
    EXPECT_TRUE(batched["audit"].is_null());
    EXPECT_EQ(document["parts"][0]["strategies"][0]["not_run"], false);
}

TEST(CompareText, ALoadThatWasNotReachedIsNamed) {
    Comparison comparison = interrupted();
    PartResult open = part_of({{"naive", {}}, {"batched", {}}}, Role::named, Arrival::poisson);
    EXPECT_EQ(open.conclusion, Conclusion::inconclusive);
    comparison.parts.push_back(std::move(open));
    EXPECT_THAT(compare_text(comparison),
                AllOf(HasSubstr("The load open: not run"),
                      HasSubstr("\nNot run: batched (closed), naive (open), batched (open).\n")));
}

}  // namespace
}  // namespace hotcount::loadtest
