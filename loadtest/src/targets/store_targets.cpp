#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "checkers/audit.hpp"
#include "checkers/store_checkers.hpp"
#include "load/run_folder.hpp"
#include "plain_ways.hpp"
#include "store_target.hpp"

namespace hotcount::loadtest {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

/// True if the time of the answer bounds the time at which the store executed the call.
bool is_answered(Status status) { return status == Status::ok || status == Status::failed; }

Result<LimiterOptions> limiter_options(const Rate& limit, const Strategy& strategy) {
    LimiterOptions options;
    options.rates = {limit};
    std::string_view way = strategy.way;
    constexpr std::string_view kFirst = "_first";
    if (way.ends_with(kFirst)) {
        way.remove_suffix(kFirst.size());
        options.align = Align::first;
    }
    HOTCOUNT_TRY_ASSIGN(options.algorithm, parse_algorithm(way));
    return options;
}

class LimiterTarget final : public StoreTarget {
  public:
    static Result<std::unique_ptr<Target>> make(const TrialSettings& settings,
                                                const Strategy& strategy, StoreHandle store) {
        if (const PlainLimiter* const way = plain_limiter(strategy.way)) {
            HOTCOUNT_TRY(check_plain_limit(*way, settings.limit));
            auto driver = std::make_unique<PlainLimiterDriver>(store.client(), *way, settings.limit,
                                                               settings.timeout);
            const Rules rules{way->windows, way->on_callers_clock(), way->promise};
            return std::unique_ptr<Target>(
                new LimiterTarget(settings, strategy, std::move(store), std::move(driver), rules));
        }
        HOTCOUNT_TRY_ASSIGN(const LimiterOptions options,
                            limiter_options(settings.limit, strategy));
        HOTCOUNT_TRY_ASSIGN(auto limiter, store.make<Limiter>(options));
        auto driver = std::make_unique<LimiterDriver>(std::move(limiter), settings.timeout);
        return std::unique_ptr<Target>(new LimiterTarget(settings, strategy, std::move(store),
                                                         std::move(driver), rules_of(options)));
    }

    Driver& driver() override { return *driver_; }
    UnvoteValue unvote() const override { return UnvoteValue::set_zero; }
    Contract contract() const override {
        Contract contract = contract_of(promise());
        contract.exact = !strategy_.racy;
        return contract;
    }
    Result<void> begin() override {
        // Read before and after the load: the second reading shows the drift of the two clocks.
        HOTCOUNT_TRY_ASSIGN(before_, clock_offset());
        return StoreTarget::begin();
    }
    nlohmann::json evidence() const override {
        nlohmann::json evidence = StoreTarget::evidence();
        evidence["clock_before"] = {before_.ns, before_.error_ns};
        if (after_) evidence["clock_after"] = {after_->ns, after_->error_ns};
        return evidence;
    }
    Result<void> recall(const nlohmann::json& evidence) override {
        const auto offset = [&](const char* name) {
            const auto [ns, error_ns] =
                evidence.at(name).get<std::pair<std::int64_t, std::int64_t>>();
            return StoreHandle::Offset{ns, error_ns};
        };
        before_ = after_.emplace(offset("clock_before"));
        if (evidence.contains("clock_after")) {
            after_ = offset("clock_after");
        } else {
            // The run died before the second reading. A clock that is being adjusted moves no faster.
            constexpr std::int64_t kMostPpm = 500;
            after_->error_ns +=
                (settings_.warmup + settings_.duration).count() / 1'000'000 * kMostPpm;
        }
        return {};
    }

    Result<AuditResult> audit(const Ledger& ledger) override {
        if (!after_) {
            HOTCOUNT_TRY_ASSIGN(after_, clock_offset());
        }
        const LimiterRules rules = rules_of(ledger);
        const CallsByItem writes(ledger, settings_.traffic.items);
        AuditResult result;
        writes.count_into(result);
        std::vector<LimiterHit> hits;
        for (std::uint64_t item = 1; item <= settings_.traffic.items; ++item) {
            hits.clear();
            for (const std::uint64_t index : writes.of(item)) {
                const LedgerRecord& record = ledger[index];
                LimiterHit hit{record.sent_ns, record.done_ns, LimiterHit::Kind::maybe};
                if (record.load_status() == Status::ok) {
                    hit.kind = record.returned == 1 ? LimiterHit::Kind::admitted
                                                    : LimiterHit::Kind::denied;
                    if (record.returned != 1) ++result.refused;
                }
                // The server may have decided the hit at any time since it was sent, even after the
                // caller's deadline: a stopped server executes received commands when it continues.
                if (!is_answered(record.load_status())) hit.done_ns = INT64_MAX / 4;
                hits.push_back(hit);
            }
            if (hits.empty()) continue;
            check_limiter_hits(static_cast<std::int64_t>(item), hits, rules, result);
        }
        HOTCOUNT_TRY(count_keys_without_ttl(rules.may_refuse, result));
        return result;
    }

  private:
    /// The checker's rules for a strategy.
    struct Rules {
        Windows windows;
        bool on_callers_clock;
        std::string_view promise;
    };

    LimiterTarget(const TrialSettings& settings, const Strategy& strategy, StoreHandle store,
                  std::unique_ptr<Driver> driver, Rules way)
        : StoreTarget(settings, strategy, std::move(store)),
          driver_(std::move(driver)),
          way_(way) {}

    std::string promise() const {
        return std::string{"a hit is admitted"} +
               (strategy_.racy ? " (RACY, WRONG, to compare with): " : ": ") +
               std::string{way_.promise};
    }

    static Rules rules_of(const LimiterOptions& options) {
        const AlgorithmInfo& info = hotcount::info(options.algorithm);
        if (options.align == Align::first) {
            return {Windows::after_first, false, info.promise_from_first};
        }
        return {windows_of(info.window), false, info.promise};
    }
    static Windows windows_of(WindowKind window) {
        switch (window) {
            case WindowKind::none:
                return Windows::none;
            case WindowKind::store_clock:
                return Windows::clock;
            case WindowKind::weighted_clock:
                return Windows::weighted_clock;
            case WindowKind::sliding:
                break;
        }
        return Windows::sliding;
    }

    Result<StoreHandle::Offset> clock_offset() const {
        if (!way_.on_callers_clock) return store_.clock_offset();
        const auto wall = std::chrono::duration_cast<nanoseconds>(
            std::chrono::system_clock::now().time_since_epoch());
        return StoreHandle::Offset{wall.count() - steady_ns(), 0};
    }

    LimiterRules rules_of(const Ledger& ledger) const {
        LimiterRules rules;
        const Rate& rate = settings_.limit;
        rules.windows = way_.windows;
        const bool on_clock =
            rules.windows == Windows::clock || rules.windows == Windows::weighted_clock;
        rules.limit = rate.burst;  // For a window this is its limit.
        rules.rate_limit = rate.limit;
        rules.period_ns = std::chrono::duration_cast<nanoseconds>(rate.period).count();
        rules.may_over_admit = rules.may_refuse = strategy_.racy;
        if (!on_clock) return rules;
        const std::int64_t moved = after_->ns - before_.ns;
        rules.clock_offset_ns = before_.ns + moved / 2 + ledger.started_ns();
        rules.clock_error_ns =
            std::max(before_.error_ns, after_->error_ns) + (moved < 0 ? -moved : moved);
        return rules;
    }

    std::unique_ptr<Driver> driver_;
    Rules way_;
    StoreHandle::Offset before_{0, 0};
    std::optional<StoreHandle::Offset> after_{};
};

class SetsTarget final : public StoreTarget {
  public:
    static Result<std::unique_ptr<Target>> make(const TrialSettings& settings,
                                                const Strategy& strategy, StoreHandle store) {
        LiveSetsOptions options;
        const auto plain = plain_way(strategy.way);
        // With ttl_gate, remove() is a plain ZREM.
        if (plain || strategy.way == "ttl_gate") options.method = UpsertMethod::ttl_gate;
        options.gate = settings.gate;
        if (plain && *plain != PlainWay::watch &&
            settings.gate.value_or(Duration{0}) > Duration{0}) {
            return make_error(ErrorCode::config, fmt::format("{} has no gate", strategy.name));
        }
        HOTCOUNT_TRY_ASSIGN(auto sets, store.make<LiveSets>(options));
        std::unique_ptr<Driver> driver;
        if (plain) {
            driver = std::make_unique<PlainSetsDriver>(store.client(), sets, *plain,
                                                       settings.gate.value_or(Duration{0}),
                                                       settings.timeout);
        } else {
            driver = std::make_unique<SetsDriver>(sets, settings.timeout);
        }
        return std::unique_ptr<Target>(new SetsTarget(settings, strategy, std::move(store),
                                                      std::move(sets), std::move(driver)));
    }

    Driver& driver() override { return *driver_; }
    UnvoteValue unvote() const override { return UnvoteValue::numbered; }
    Contract contract() const override {
        Contract contract = contract_of(promise());
        contract.exact = !may_make_sets();
        return contract;
    }

    Result<void> begin() override {
        const std::uint64_t items = settings_.traffic.items;
        lives_.assign(items, {});
        for (std::uint64_t item = 1; item <= items; ++item) {
            if (outlives_load(item)) HOTCOUNT_TRY(create(item, long_life(settings_), false));
        }
        // Mortal sets come last, because their TTLs run. They expire in a random order, spread over
        // the load.
        const Duration load = settings_.warmup + settings_.duration;
        const Permutation places(items);
        for (std::uint64_t item = 1; item <= items; item += 4) {
            const double share =
                static_cast<double>(places.permute(settings_.traffic.seed, item - 1)) /
                static_cast<double>(items);
            const auto life =
                Duration{static_cast<std::int64_t>(share * static_cast<double>(load.count()))};
            HOTCOUNT_TRY(create(item, std::max<Duration>(life, milliseconds{1}), true));
        }
        return StoreTarget::begin();
    }
    /// For each set: whether it was made, until when it certainly lives, and from when on it is
    /// certainly gone.
    nlohmann::json evidence() const override {
        nlohmann::json evidence = StoreTarget::evidence();
        nlohmann::json& lives = evidence["lives"] = nlohmann::json::array();
        for (const SetLife& life : lives_) {
            lives.push_back({life.made, life.lives_until_ns, life.dead_from_ns});
        }
        return evidence;
    }
    Result<void> recall(const nlohmann::json& evidence) override {
        for (const auto& life : evidence.at("lives")) {
            lives_.push_back({life.at(0).get<bool>(), life.at(1).get<std::int64_t>(),
                              life.at(2).get<std::int64_t>()});
        }
        if (lives_.size() == settings_.traffic.items) return {};
        return make_error(ErrorCode::config,
                          fmt::format("{} tells of {} sets, and the run had {}", kTargetFile,
                                      lives_.size(), settings_.traffic.items));
    }

    Result<AuditResult> audit(const Ledger& ledger) override {
        const CallsByItem writes(ledger, settings_.traffic.items);
        AuditResult result;
        writes.count_into(result);
        std::vector<SetWrite> set_writes;
        for (std::uint64_t item = 1; item <= settings_.traffic.items; ++item) {
            set_writes.clear();
            for (const std::uint64_t index : writes.of(item)) {
                set_writes.push_back(to_write(ledger[index]));
                const bool ok = set_writes.back().status == Status::ok;
                if (ok && set_writes.back().answer != Upsert::applied) ++result.refused;
            }
            SetLife life = lives_[item - 1];
            if (life.dead_from_ns != INT64_MAX) {
                life.lives_until_ns -= ledger.started_ns();
                life.dead_from_ns -= ledger.started_ns();
            }
            HOTCOUNT_TRY_ASSIGN(const auto found, look_at(item, ledger.started_ns()));
            const bool may_make = may_make_sets() || outlived_gate(set_writes);
            check_set(static_cast<std::int64_t>(item), life, set_writes, found, may_make, result);
        }
        return result;
    }

  private:
    // The member with which a set is made: no user's name, and never removed.
    static constexpr const char* kAnchor = "anchor";

    SetsTarget(const TrialSettings& settings, const Strategy& strategy, StoreHandle store,
               std::shared_ptr<LiveSets> sets, std::unique_ptr<Driver> driver)
        : StoreTarget(settings, strategy, std::move(store)),
          sets_(std::move(sets)),
          driver_(std::move(driver)) {}

    Duration gate() const { return settings_.gate.value_or(std::chrono::seconds{10}); }
    // The exception in the contract of ttl_gate: a stall that outlasts the gate.
    bool may_make_sets() const { return strategy_.racy || (gated() && settings_.stall >= gate()); }
    /// True if a call took longer than the gate, or its time is unknown.
    bool outlived_gate(const std::vector<SetWrite>& writes) const {
        return gated() && std::any_of(writes.begin(), writes.end(), [&](const SetWrite& write) {
                   return write.score != 0 && write.done_ns - write.sent_ns > gate().count();
               });
    }
    bool gated() const { return strategy_.way == "ttl_gate"; }

    std::string promise() const {
        if (gated()) {
            return fmt::format(
                "the member has the score; no set is made unless a call stalls "
                "for longer than the gate of {}",
                format_duration(gate()));
        }
        const auto plain = plain_way(strategy_.way);
        if (!plain) return "the member has the score; a set that is not there is never made";
        if (*plain == PlainWay::exists_then_add) {
            return "the member has the score (RACY, to compare with): a set that expires "
                   "between the two commands is made again, without a TTL";
        }
        if (*plain == PlainWay::watch) {
            return "the member has the score; a set that is not there is never made, whatever "
                   "happens between the look and the transaction";
        }
        return "the member has the score (WRONG, to compare with): it is always added, so that "
               "sets are made that should not be, without a TTL";
    }

    Result<void> create(std::uint64_t item, Duration ttl, bool mortal) {
        // The two clocks may run at different speeds, and a server rounds to milliseconds.
        const std::int64_t slack = ttl.count() / 1000 + 5'000'000;
        SetLife& life = lives_[item - 1];
        life.made = true;
        const std::vector<ScoredMember> members = {{kAnchor, 0}};
        const std::int64_t before = steady_ns();
        HOTCOUNT_TRY(
            sets_->create(item_key(static_cast<std::int64_t>(item)), ttl, members, kSetUpTimeout));
        if (!mortal) return {};
        life.lives_until_ns = before + ttl.count() - slack;
        life.dead_from_ns = steady_ns() + ttl.count() + slack;
        return {};
    }

    static SetWrite to_write(const LedgerRecord& record) {
        const Status status = record.load_status();
        return {record.user,
                record.value,
                record.sent_ns,
                is_answered(status) ? record.done_ns : INT64_MAX / 4,
                status == Status::sent ? Status::unknown : status,
                static_cast<Upsert>(record.returned)};
    }

    Result<std::optional<SetFound>> look_at(std::uint64_t item, std::int64_t started_ns) const {
        const std::int64_t now = steady_ns() - started_ns;
        HOTCOUNT_TRY_ASSIGN(const auto state,
                            store_.set_at(item_key(static_cast<std::int64_t>(item))));
        if (!state) return std::optional<SetFound>{};
        SetFound found{state->expires, false, {}, now};
        for (const auto& [member, score] : state->members) {
            if (member == kAnchor) {
                found.anchored = true;
                continue;
            }
            // "user:123". Other names are read as user 0, which never writes.
            SetMember one{0, static_cast<std::int64_t>(score)};
            const std::string_view digits =
                std::string_view{member}.substr(std::min<std::size_t>(5, member.size()));
            std::from_chars(digits.data(), digits.data() + digits.size(), one.member);
            if (member_name(one.member) != member) one.member = 0;
            found.members.push_back(one);
        }
        return std::optional{std::move(found)};
    }

    std::shared_ptr<LiveSets> sets_;
    std::unique_ptr<Driver> driver_;
    std::vector<SetLife> lives_{};  // On the monotonic clock.
};

}  // namespace

Result<void> check_limit(const Rate& limit, const Strategy& strategy) {
    if (const PlainLimiter* const way = plain_limiter(strategy.way)) {
        return check_plain_limit(*way, limit);
    }
    HOTCOUNT_TRY_ASSIGN(const LimiterOptions options, limiter_options(limit, strategy));
    HOTCOUNT_TRY_ASSIGN(const auto store, memory::Store::make());
    HOTCOUNT_TRY(Limiter::make(store, options));
    return {};
}

namespace {

Result<std::unique_ptr<Target>> target_on(const TrialSettings& settings, const Strategy& strategy) {
    HOTCOUNT_TRY_ASSIGN(StoreHandle store, StoreHandle::open(settings, strategy.store));
    switch (strategy.workload) {
        case WorkloadKind::limiter:
            return LimiterTarget::make(settings, strategy, std::move(store));
        case WorkloadKind::zset:
            return SetsTarget::make(settings, strategy, std::move(store));
        case WorkloadKind::counters:
        case WorkloadKind::votes:
            break;
    }
    return make_counters_target(settings, strategy, std::move(store));
}

/// True if the audit reads keys that outlive the load and expire later.
bool reads_mortal_keys(const TrialSettings& settings, const Strategy& strategy) {
    if (strategy.workload == WorkloadKind::zset) return true;
    const bool has_ttl = strategy.expires;
    return strategy.workload == WorkloadKind::counters && has_ttl && settings.life == Duration{0};
}

std::int64_t wall_now_ns() {
    return std::chrono::duration_cast<nanoseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

}  // namespace

Result<std::unique_ptr<Target>> make_store_target(const TrialSettings& settings,
                                                  const Strategy& strategy) {
    return target_on(settings, strategy);
}

Result<std::unique_ptr<Target>> reopen_store_target(const TrialSettings& settings,
                                                    const Strategy& strategy,
                                                    const std::filesystem::path& folder) {
    HOTCOUNT_TRY_ASSIGN(auto target, target_on(settings, strategy));
    if (strategy.workload == WorkloadKind::counters && !reads_mortal_keys(settings, strategy)) {
        return target;
    }
    const auto impossible = [&](const std::string& why) {
        return make_error(ErrorCode::config, fmt::format("audit impossible: {}; the verdict of the "
                                                         "run itself is in run.json",
                                                         why));
    };
    const auto evidence = read_json(folder / kTargetFile);
    if (!evidence) return impossible(evidence.error().message);
    try {
        const auto begun_ns = evidence->at("begun_ns").get<std::int64_t>();
        if (reads_mortal_keys(settings, strategy) &&
            nanoseconds{wall_now_ns() - begun_ns} >= long_life(settings)) {
            return impossible("its keys have expired since");
        }
        HOTCOUNT_TRY(target->recall(*evidence));
    } catch (const nlohmann::json::exception& wrong) {
        return impossible(fmt::format("{}: {}", (folder / kTargetFile).string(), wrong.what()));
    }
    return target;
}

}  // namespace hotcount::loadtest
