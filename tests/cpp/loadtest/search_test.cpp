#include "studies/search.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "report/progress.hpp"
#include "studies/scale.hpp"
#include "studies/sweep.hpp"
#include "temporary_folder.hpp"

namespace hotcount::loadtest {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// Carried, with a hundred answers of 1 to 100 ms.
TrialResult carried() {
    TrialResult trial;
    trial.settings.arrival = Arrival::poisson;
    trial.settings.rate_per_s = 100;
    trial.audited = true;
    trial.load.scheduled = 100;
    trial.load.window_s = 1;
    trial.load.tally.votes_ok = 100;
    for (int i = 1; i <= 100; ++i) trial.load.response_ns.record(i * 1'000'000);
    return trial;
}

TEST(WhyNot, SaysWhichTermIsMissedAndByWhat) {
    const TrialResult trial = carried();
    EXPECT_THAT(why_not(parse_slo("p50<60ms,p99<110ms,max<101ms,err<1%,lost=0").value(), trial),
                IsEmpty());
    EXPECT_THAT(why_not(parse_slo("p99<50ms,max<200ms").value(), trial),
                ElementsAre(AllOf(HasSubstr("p99<50ms"), HasSubstr("99"), HasSubstr("ms"))));
    EXPECT_THAT(why_not(parse_slo("max<=100ms").value(), trial), IsEmpty());
    EXPECT_THAT(why_not(parse_slo("max<100ms").value(), trial), ElementsAre("max<100ms: 100 ms"));
}

TEST(WhyNot, WhatWasNotServedIsAnError) {
    TrialResult trial = carried();
    trial.load.tally.failed = 1;
    trial.load.tally.unknown = 1;
    trial.load.censored = 1;
    const Slo slo = parse_slo("err<3%").value();
    EXPECT_THAT(why_not(slo, trial), ElementsAre("err<3%: 3.00 %"));
    trial.load.censored = 0;
    EXPECT_THAT(why_not(slo, trial), IsEmpty());
}

TEST(WhyNot, CountsWhatTheAuditFound) {
    TrialResult trial = carried();
    trial.audit.lost_rows = 2;
    EXPECT_THAT(why_not(parse_slo("lost=0,double=0,ghost=0").value(), trial),
                ElementsAre("lost=0: 2"));
    EXPECT_THAT(why_not(parse_slo("lost<=2").value(), trial), IsEmpty());
    EXPECT_THAT(why_not(parse_slo("lost<2").value(), trial), ElementsAre("lost<2: 2"));
}

TEST(WhyNot, StalenessIsOfWhatReadsWereTold) {
    TrialResult trial = carried();
    for (int read = 0; read < 100; ++read) trial.audit.staleness_ns.record(50'000'000);
    EXPECT_THAT(why_not(parse_slo("stale.p99<60ms,stale.max<=51ms").value(), trial), IsEmpty());
    EXPECT_THAT(why_not(parse_slo("stale.p99<20ms").value(), trial),
                ElementsAre(AllOf(HasSubstr("stale.p99<20ms"), HasSubstr("50.0 ms"))));
}

TEST(WhyNot, ANumberThatWasRightAtNoMomentIsStalerThanAnyTime) {
    TrialResult trial = carried();
    for (int i = 0; i < 98; ++i) trial.audit.staleness_ns.record(0);
    trial.audit.reads_never_right = 2;
    EXPECT_THAT(why_not(parse_slo("stale.p98<1ms").value(), trial), IsEmpty());
    EXPECT_THAT(why_not(parse_slo("stale.p99<1h").value(), trial),
                ElementsAre("stale.p99<1h: 2 of 100 reads were right at no moment"));
    trial.audit = {};
    EXPECT_THAT(why_not(parse_slo("stale.p50<1h").value(), trial),
                ElementsAre(HasSubstr("no read was told a count")));
}

TEST(Search, ATrialIsLongEnoughForEachPercentileOfItsSlo) {
    const auto seconds_of = [](const char* slo, double rate_per_s) {
        const Mix shares{80, 5, 15};
        const Duration length =
            trial_length(parse_slo(slo).value(), shares, std::chrono::seconds{2}, rate_per_s);
        return std::chrono::duration<double>(length).count();
    };
    EXPECT_DOUBLE_EQ(seconds_of("p99<10ms,lost=0", 1000), 2);
    EXPECT_NEAR(seconds_of("p99<10ms,lost=0", 50), 4, 1e-6) << "200 calls";
    EXPECT_DOUBLE_EQ(seconds_of("stale.p99<1s", 1000), 2) << "1,333 calls have 200 reads";
    EXPECT_NEAR(seconds_of("p99<10ms,stale.p99<1s", 200), 200 / 0.15 / 200, 1e-6);
    EXPECT_DOUBLE_EQ(seconds_of("stale.p99<1s", 1), 10) << "five times at most";
    EXPECT_DOUBLE_EQ(seconds_of("max<1s,stale.max<1s", 1), 2);
}

TEST(Search, SaysWhatHeldWhenItEndsEarly) {
    RateSearch search(100);
    EXPECT_EQ(held_words(search), "none held");
    search.note(true);
    EXPECT_EQ(held_words(search), "100 held once");
    while (search.phase() != RateSearch::Phase::confirm) search.note(false);
    search.note(false);
    EXPECT_EQ(held_words(search), "100 held once");
    search.note(false);
    EXPECT_EQ(held_words(search), "no rate is left that held") << "confirming refused it";
}

TEST(Search, EachConfirmationHasTrafficOfItsOwnFromTheSeed) {
    EXPECT_EQ(confirming_seed(1, 1), confirming_seed(1, 1));
    EXPECT_NE(confirming_seed(1, 1), confirming_seed(1, 2));
    EXPECT_NE(confirming_seed(1, 1), confirming_seed(2, 1));
    EXPECT_LT(confirming_seed(1, 1), std::uint64_t{1} << 53);
}

TEST(WhyNot, APercentileWithNoCallAboveItIsNotMet) {
    TrialResult trial = carried();
    EXPECT_THAT(why_not(parse_slo("p99<110ms").value(), trial), IsEmpty());
    EXPECT_THAT(why_not(parse_slo("p99.9<110ms").value(), trial),
                ElementsAre("p99.9 needs 1,000 calls, a trial had 100"));
    EXPECT_THAT(why_not(parse_slo("p99.9<50ms").value(), trial), ElementsAre("p99.9<50ms: 100 ms"));
    for (int read = 0; read < 99; ++read) trial.audit.staleness_ns.record(0);
    EXPECT_THAT(why_not(parse_slo("stale.p99<1s,stale.max<1s").value(), trial),
                ElementsAre("stale.p99 needs 100 reads, a trial had 99"));
}

TEST(WhyNot, ALoadThatWasNotCarriedMeetsNothing) {
    TrialResult trial = carried();
    trial.load.offered.share = 0.5;
    EXPECT_THAT(why_not(parse_slo("max<10s").value(), trial),
                ElementsAre(AllOf(HasSubstr("overloaded"), HasSubstr("50.0 %"))));
}

/// Drops every vote and acknowledges it.
class Liar final : public Driver {
  public:
    Answer apply(const Operation& /*operation*/) override { return {}; }
};

class Studies : public testing::Test {
  protected:
    Studies() {
        group_.strategies = {"batched"};
        group_.trial.arrival = Arrival::uniform;
        group_.trial.rate_per_s = 100;
        group_.trial.workers = 2;
        group_.trial.warmup = milliseconds{0};
        group_.trial.duration = milliseconds{100};
        group_.trial.traffic.items = 10;
        study_.slo = parse_slo("max<10s").value();
        study_.rates = {100, 200};
    }

    TrialContext context() {
        return {folder_.path(), false, provenance_, interrupt_, nullptr, {}, progress_, wrap_};
    }

    TemporaryFolder folder_;
    nlohmann::json provenance_ = nlohmann::json::object();
    std::atomic<bool> interrupt_{false};
    Progress progress_{ProgressMode::none, stderr};
    decltype(TrialHooks::wrap) wrap_{};
    StrategyGroup group_{};
    StudySettings study_{};
};

TEST_F(Studies, ASearchEndsAtABrokenContract) {
    wrap_ = [](Driver&) { return std::make_unique<Liar>(); };
    study_.from_per_s = 100;
    const auto search = run_search({group_}, study_, context());
    ASSERT_TRUE(search) << search.error().message;
    EXPECT_EQ(search->conclusion, Conclusion::broken);
    ASSERT_EQ(search->results.size(), 1U);
    EXPECT_EQ(search->results[0].trials.size(), 1U);
    EXPECT_EQ(search->results[0].rate_per_s, 0);
    EXPECT_THAT(search->results[0].reasons, ElementsAre(HasSubstr("lost")));
    EXPECT_THAT(search_text(*search), HasSubstr("broken: the audit found"));
    EXPECT_EQ(search_document(*search, provenance_)["exit_code"], 1);
    // Also if the short load that says where to begin finds it.
    study_.from_per_s = 0;
    group_.trial.max_operations = 500;
    const auto sooner = run_search({group_}, study_, context());
    ASSERT_TRUE(sooner) << sooner.error().message;
    EXPECT_EQ(sooner->conclusion, Conclusion::broken);
    EXPECT_TRUE(sooner->results[0].trials.empty());
}

TEST_F(Studies, AnInterruptedStudyNamesWhatDidNotRun) {
    group_.strategies = {"batched", "naive"};
    study_.from_per_s = 100;
    wrap_ = [this](Driver&) {
        interrupt_ = true;
        return std::make_unique<Liar>();
    };
    const auto search = run_search({group_}, study_, context());
    ASSERT_TRUE(search) << search.error().message;
    EXPECT_EQ(search->conclusion, Conclusion::inconclusive);
    ASSERT_EQ(search->results.size(), 2U);
    EXPECT_THAT(search->results[1].reasons, ElementsAre(HasSubstr("not run")));
    interrupt_ = false;
    const auto sweep = run_sweep({group_}, study_, context());
    ASSERT_TRUE(sweep) << sweep.error().message;
    ASSERT_EQ(sweep->results.size(), 2U);
    EXPECT_THAT(sweep->results[0].reasons, ElementsAre(HasSubstr("not run at 200/s and above")));
    EXPECT_THAT(sweep->results[1].reasons, ElementsAre(HasSubstr("not run: interrupted")));
    EXPECT_THAT(sweep_text(*sweep), HasSubstr("naive: not run"));
    interrupt_ = false;
    study_.workers = {1, 2};
    study_.rounds = 1;
    group_.trial.arrival = Arrival::closed;
    const auto scale = run_scale({group_}, study_, context());
    ASSERT_TRUE(scale) << scale.error().message;
    EXPECT_EQ(scale->results[1].conclusion, Conclusion::inconclusive);
    EXPECT_THAT(scale_text(*scale), HasSubstr("\nnaive: not run\n"));
}

TEST_F(Studies, ASearchWhoseTimeIsOverIsInconclusive) {
    study_.from_per_s = 100;
    study_.max_time = milliseconds{1};
    const auto search = run_search({group_}, study_, context());
    ASSERT_TRUE(search) << search.error().message;
    EXPECT_EQ(search->conclusion, Conclusion::inconclusive);
    EXPECT_EQ(search->results[0].trials.size(), 1U);
    EXPECT_THAT(search->results[0].reasons, ElementsAre(HasSubstr("--max-time 1ms")));
}

TEST_F(Studies, ATableWithoutARateExplainsNone) {
    Search search;
    search.slo = study_.slo;
    search.results.emplace_back().strategy = "naive";
    EXPECT_THAT(search_text(search), AllOf(Not(HasSubstr("held in three trials")),
                                           Not(HasSubstr("acknowledgement means"))));
    SearchResult& held = search.results.emplace_back();
    held.strategy = "batched";
    held.rate_per_s = 100;
    held.trials.push_back({carried(), {}});
    EXPECT_THAT(search_text(search), AllOf(HasSubstr("\nEach rate held in three trials"),
                                           HasSubstr("acknowledgement means\n  batched on ")));
}

TEST_F(Studies, ASearchWhoseTrialsAreTooShortForItsPercentileSaysWhatToRaise) {
    study_.slo = parse_slo("p99.999<10m").value();
    study_.from_per_s = 100;
    const auto search = run_search({group_}, study_, context());
    ASSERT_TRUE(search) << search.error().message;
    EXPECT_EQ(search->conclusion, Conclusion::inconclusive);
    EXPECT_EQ(search->results[0].rate_per_s, 0);
    EXPECT_EQ(search->results[0].refused_per_s, 0) << "the rate is not to blame";
    EXPECT_THAT(search->results[0].reasons,
                ElementsAre(AllOf(HasSubstr("p99.999 needs 100,000 calls, a trial had "),
                                  HasSubstr(": raise -d or --from"))));
}

TEST_F(Studies, ASearchInWhichNothingHoldsSaysWhatWasMissed) {
    study_.slo = parse_slo("max<1ns").value();
    study_.from_per_s = 30;
    group_.trial.duration = milliseconds{50};
    const auto search = run_search({group_}, study_, context());
    ASSERT_TRUE(search) << search.error().message;
    EXPECT_EQ(search->conclusion, Conclusion::inconclusive);
    EXPECT_THAT(search->results[0].reasons,
                ElementsAre(AllOf(HasSubstr("no rate held"), HasSubstr("max<1ns"))));
    EXPECT_EQ(search_document(*search, provenance_)["exit_code"], 3);
    EXPECT_THAT(search_markdown(*search), HasSubstr("| batched | inconclusive | "));
}

TEST_F(Studies, ASweepHasALineForEachRate) {
    const auto sweep = run_sweep({group_}, study_, context());
    ASSERT_TRUE(sweep) << sweep.error().message;
    EXPECT_NE(sweep->conclusion, Conclusion::broken);
    const nlohmann::json document = sweep_document(*sweep, provenance_);
    const nlohmann::json& trials = document["strategies"][0]["trials"];
    ASSERT_EQ(trials.size(), 2U);
    EXPECT_EQ(trials[0]["settings"]["rate_per_s"], 100);
    EXPECT_EQ(trials[1]["settings"]["rate_per_s"], 200);
    EXPECT_EQ(trials[1]["audit"]["passed"], true);
    EXPECT_THAT(sweep_csv(*sweep), AllOf(HasSubstr("\nbatched,100,"), HasSubstr("\nbatched,200,")));
}

TEST_F(Studies, AScaleMeasuresEachNumberOfCallersInEachRound) {
    group_.trial.arrival = Arrival::closed;
    group_.trial.rate_per_s = 0;
    group_.trial.duration = std::chrono::seconds{60};
    group_.trial.max_operations = 100;
    study_.workers = {1, 2, 4};
    study_.rounds = 2;
    const auto scale = run_scale({group_}, study_, context());
    ASSERT_TRUE(scale) << scale.error().message;
    EXPECT_EQ(scale->conclusion, Conclusion::passed);
    ASSERT_EQ(scale->results.size(), 1U);
    const ScaleResult& result = scale->results[0];
    ASSERT_EQ(result.trials.size(), 3U);
    for (std::size_t at = 0; at < 3; ++at) {
        ASSERT_EQ(result.trials[at].size(), 2U);
        EXPECT_EQ(result.trials[at][1].settings.workers, study_.workers[at]);
    }
    ASSERT_TRUE(result.law);
    EXPECT_FALSE(result.law->sigma) << "two rounds have no interval";
    const nlohmann::json document = scale_document(*scale, provenance_);
    EXPECT_EQ(document["strategies"][0]["points"][2]["workers"], 4);
    EXPECT_EQ(document["strategies"][0]["points"][2]["writes_per_s"].size(), 2U);
    EXPECT_THAT(scale_text(*scale), HasSubstr("sigma"));
}

TEST(FitLaw, HasIntervalsAroundWhatMadeTheRounds) {
    const UslFit made{1000, 0.1, 0.002};
    ScaleRounds rounds(8);
    for (std::size_t round = 0; round < rounds.size(); ++round) {
        for (const double callers : {1.0, 2.0, 4.0, 8.0, 16.0, 32.0}) {
            const double noise = 1 + 0.02 * (static_cast<double>((round * 3) % 8) - 3.5) / 3.5;
            rounds[round].push_back({callers, made.per_s(callers) * noise});
        }
    }
    const auto law = fit_law(rounds, 1);
    ASSERT_TRUE(law);
    EXPECT_NEAR(law->fit.sigma, made.sigma, 0.01);
    ASSERT_TRUE(law->sigma && law->kappa && law->peak);
    EXPECT_LE(law->sigma->low, law->fit.sigma);
    EXPECT_GE(law->sigma->high, law->fit.sigma);
    ASSERT_TRUE(law->peak_callers);
    EXPECT_NEAR(*law->peak_callers, *made.peak(), 0.5);
    EXPECT_EQ(fit_law(rounds, 1)->peak, law->peak);
}

/// Measured on a machine that was busy with other things: medians of 490, 420, 883 and 1,590.
ScaleRounds of_a_busy_machine() {
    const std::vector<double> callers = {1, 2, 4, 8};
    const std::vector<std::vector<double>> rates = {
        {197, 233, 197, 507},  {320, 300, 500, 1200},  {480, 400, 850, 1570},
        {500, 440, 916, 1610}, {900, 700, 1500, 2000}, {3240, 1080, 1830, 2290}};
    ScaleRounds rounds(rates.size());
    for (std::size_t round = 0; round < rates.size(); ++round) {
        for (std::size_t at = 0; at < callers.size(); ++at) {
            rounds[round].push_back({callers[at], rates[round][at]});
        }
    }
    return rounds;
}

TEST(FitLaw, DoesNotFollowTheFastestRound) {
    const auto law = fit_law(of_a_busy_machine(), 1);
    ASSERT_TRUE(law);
    EXPECT_LT(law->fit.sigma, 0.5);
    EXPECT_LT(law->fit.per_s(1), 700) << "the median of one caller is 490";
    EXPECT_GT(law->fit.per_s(8), law->fit.per_s(1)) << "eight callers make three times as much";
    EXPECT_TRUE(!law->peak_callers || *law->peak_callers > 4);
}

TEST(FitLaw, StatesNoPeakWhereTheLawDoesNotFit) {
    // Two callers make half of what one makes, and eight make three times as much: no law does that.
    ScaleRounds rounds(6);
    for (auto& round : rounds) {
        round = {{1, 500}, {2, 250}, {4, 900}, {8, 1500}, {16, 300}};
    }
    const auto law = fit_law(rounds, 1);
    ASSERT_TRUE(law);
    EXPECT_FALSE(law->peak_callers);
    EXPECT_FALSE(law->peak);
    EXPECT_THAT(law->no_peak_because,
                AllOf(HasSubstr("does not fit these rounds"), HasSubstr("they made")));
    Scale scale;
    scale.workers = {1, 2, 4, 8, 16};
    ScaleResult& result = scale.results.emplace_back();
    result.strategy = "naive";
    result.law = law;
    for (const ScalePoint& point : rounds[0]) {
        TrialResult trial;
        trial.settings.workers = static_cast<std::uint32_t>(point.callers);
        trial.load.window_s = 1;
        trial.load.tally.votes_ok = static_cast<std::uint64_t>(point.per_s);
        result.trials.push_back({trial});
    }
    EXPECT_THAT(scale_text(scale), AllOf(HasSubstr("no peak: the law does not fit these rounds"),
                                         Not(HasSubstr("peak at"))));
    const nlohmann::json document = scale_document(scale, nlohmann::json::object());
    EXPECT_TRUE(document["strategies"][0]["law"]["peak_callers"].is_null());
}

TEST(FitLaw, StatesNoPeakThatSomeResamplesDoNotHave) {
    // A half of the rounds falls beyond four callers, the other half goes on rising.
    const UslFit falls{1000, 0.02, 0.04};
    const UslFit rises{1000, 0.02, 0};
    ScaleRounds rounds(6);
    for (std::size_t round = 0; round < rounds.size(); ++round) {
        for (const double callers : {1.0, 2.0, 4.0, 8.0}) {
            rounds[round].push_back({callers, (round % 2 == 0 ? falls : rises).per_s(callers)});
        }
    }
    const auto law = fit_law(rounds, 1);
    ASSERT_TRUE(law);
    EXPECT_FALSE(law->peak_callers);
    EXPECT_FALSE(law->peak);
    EXPECT_THAT(law->no_peak_because, HasSubstr("do not say where it is"));
}

TEST_F(Studies, AScaleHasTrueMedians) {
    Scale scale;
    scale.workers = {1};
    ScaleResult& result = scale.results.emplace_back();
    result.strategy = "naive";
    for (const std::uint64_t made : {100, 200, 400, 800}) {
        TrialResult trial;
        trial.load.window_s = 1;
        trial.load.tally.votes_ok = made;
        result.trials.resize(1);
        result.trials[0].push_back(trial);
    }
    EXPECT_THAT(scale_text(scale), AllOf(HasSubstr(" 300 "), Not(HasSubstr(" 400 "))));
}

TEST(FitLaw, SaysNothingOfMoreThanTwiceTheCallersMeasured) {
    const UslFit made{1000, 0.01, 0.0001};  // Its peak is at 99 callers.
    ScaleRounds rounds(6);
    for (auto& round : rounds) {
        for (const double callers : {1.0, 8.0, 32.0}) {
            round.push_back({callers, made.per_s(callers)});
        }
    }
    const auto law = fit_law(rounds, 1);
    ASSERT_TRUE(law);
    EXPECT_FALSE(law->peak_callers);
    EXPECT_FALSE(law->peak);
    EXPECT_FALSE(fit_law({{{1, 10}, {2, 20}}}, 1));
}

TEST_F(Studies, ASweepOfABrokenStrategyIsBroken) {
    wrap_ = [](Driver&) { return std::make_unique<Liar>(); };
    const auto sweep = run_sweep({group_}, study_, context());
    ASSERT_TRUE(sweep) << sweep.error().message;
    EXPECT_EQ(sweep->conclusion, Conclusion::broken);
    EXPECT_EQ(sweep_document(*sweep, provenance_)["exit_code"], 1);
}

}  // namespace
}  // namespace hotcount::loadtest
