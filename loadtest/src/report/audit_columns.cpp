// The findings of audits as columns: the other list of columns.hpp.
#include <utility>

#include "columns.hpp"

namespace hotcount::loadtest {
namespace {

using nlohmann::json;

template <class T>
auto audit(T AuditResult::*member) {
    return [member](const AuditResult& found) -> json { return found.*member; };
}
template <class T>
auto audit(T (AuditResult::*method)() const) {
    return [method](const AuditResult& found) -> json { return (found.*method)(); };
}

/// A histogram for people: pairs of 0, 1, 2, 5, 10, 20 ... units, and how many values lie up to there
/// and above the pair before.
json steps_of(const Histogram& values, std::int64_t unit) {
    json steps = json::array();
    std::size_t cell = 0;
    const auto until = [&](std::int64_t end) {
        std::uint64_t count = 0;
        for (; cell <= Histogram::cell_of(end); ++cell) count += values.count_in(cell);
        return count;
    };
    std::uint64_t left = values.count();
    std::int64_t end = 0;
    for (std::int64_t power = unit, digit = 1; left > 0;) {
        const std::uint64_t count = until(end);
        left -= count;
        steps.push_back({static_cast<double>(end) / static_cast<double>(unit), count});
        end = digit * power;
        digit = digit == 1 ? 2 : digit == 2 ? 5 : 1;
        if (digit == 1) power *= 10;
    }
    return steps;
}

/// Of the reads whose numbers were right once.
json of_reads(const Histogram& values, std::int64_t unit) {
    const auto at = [&](double quantile) {
        return static_cast<double>(values.value_at(quantile)) / static_cast<double>(unit);
    };
    return {{"p50", at(0.5)},
            {"p90", at(0.9)},
            {"p99", at(0.99)},
            {"p999", at(0.999)},
            {"max", static_cast<double>(values.max()) / static_cast<double>(unit)},
            {"up_to", steps_of(values, unit)}};
}

constexpr std::int64_t kMillisecond = 1'000'000;

json staleness_ms(const AuditResult& found) {
    return found.reads > 0 ? of_reads(found.staleness_ns, kMillisecond) : json(nullptr);
}
/// Null where none of the reads can be above it.
json stale_p99_ms(const AuditResult& found) {
    if (!can_tell(found.staleness_ns.count(), 0.99)) return nullptr;
    return in_us(found.staleness_ns.value_at(0.99)) * 1e-3;
}
json versions_behind(const AuditResult& found) {
    return found.reads > 0 ? of_reads(found.versions_behind, 1) : json(nullptr);
}

double per_million(std::uint64_t found, std::uint64_t writes) {
    return writes > 0 ? 1e6 * static_cast<double>(found) / static_cast<double>(writes) : 0.0;
}

// -- the list: add a column here ------------------------------------------------------------------

std::vector<AuditColumn> make_audit_columns() {
    using A = AuditResult;
    using W = WorkloadKind;
    constexpr Format n = Format::whole;
    constexpr unsigned kAll = kCompare | kRunAudit | kFolderAudit;
    const std::vector<W> counted = {W::votes, W::counters};
    std::vector<AuditColumn> all;
    const auto add = [&](const char* path, std::function<json(const A&)> value,
                         const char* header = "", Format format = Format::whole,
                         unsigned tables = 0, std::vector<W> workloads = {}, bool finding = true) {
        all.push_back(
            {path, std::move(value), header, format, tables, std::move(workloads), finding});
    };
    // Attempted writes, and the stored state.
    add("acknowledged", audit(&A::acknowledged), "writes acked", n, kRunAudit | kFolderAudit, {},
        false);
    add("unknown", audit(&A::unknown), "unanswered", n, kFolderAudit, {}, false);
    add("rows", audit(&A::rows), "rows", n, kRunAudit | kFolderAudit, {W::votes}, false);
    add("live_votes", audit(&A::live), "live", n, kRunAudit | kFolderAudit, {W::votes}, false);
    add("sum_of_counters", audit(&A::sum), "sum", n, kRunAudit, {W::counters}, false);
    add("failed", audit(&A::failed));
    add("unsent", audit(&A::unsent));
    add("items", audit(&A::items));
    add("queued", audit(&A::queued), "queued", n, kRunAudit | kCompare, {W::counters}, false);
    add("refused", audit(&A::refused), "refused", n, kAll, {W::limiter, W::zset});
    // Findings.
    add("drift", audit(&A::drift), "drift", n, kAll, {W::votes});
    add("over_admitted", audit(&A::over_admitted), "over-admitted", n, kAll, {W::limiter});
    add("rogue_sets", audit(&A::rogue_sets), "rogue sets", n, kAll, {W::zset});
    add("late_writes", audit(&A::late_writes), "late writes", n, kAll, {W::zset});
    add("wrong_scores", audit(&A::wrong_scores), "wrong scores", n, kAll, {W::zset});
    add("wrong_refusals", audit(&A::wrong_refusals), "wrong refusals", n, kAll,
        {W::limiter, W::zset});
    add("keys_without_ttl", audit(&A::keys_without_ttl), "no TTL", n, kAll,
        {W::limiter, W::counters});
    add("keys_without_ttl_per_million",
        [](const A& found) { return per_million(found.keys_without_ttl, found.acknowledged); },
        "no TTL per M", Format::decimal, kAll, {W::counters});
    add("rogue_sets_per_million",
        [](const A& found) { return per_million(found.rogue_sets, found.acknowledged); },
        "rogue per M", Format::decimal, kAll, {W::zset});
    add("lost", audit(&A::lost), "lost", n, kAll, {W::votes, W::counters, W::zset});
    add("double", audit(&A::doubled), "double", n, kAll, counted);
    add("ghost", audit(&A::ghost), "ghost", n, kAll, counted);
    add(
        "", [](const A& found) { return found.counts_agree() && found.wrong_answers == 0; },
        "counts right", Format::yes_no, kAll, counted);
    add("", stale_p99_ms, "stale p99_ms", Format::decimal, kAll, counted);
    add("told_wrong", audit(&A::told_wrong), "told wrong", n, kAll, counted);
    add("", audit(&A::word), "audit", Format::words, kAll);
    // In JSON alone.
    add("passed", audit(&A::passed));
    add("counts_equal_live_votes", audit(&A::counts_agree));
    add("lost_rows", audit(&A::lost_rows));
    add("lost_in_failover", audit(&A::lost_in_failover));
    add("double_rows", audit(&A::double_rows));
    add("vote_count_low", audit(&A::stored_low));
    add("vote_count_high", audit(&A::stored_high));
    add("count_low", audit(&A::counted_low));
    add("count_high", audit(&A::counted_high));
    add("wrong_answers", audit(&A::wrong_answers));
    add("stale_reads", audit(&A::stale_reads));
    add("wrong_reads", audit(&A::wrong_reads));
    add("backward_reads", audit(&A::backward_reads));
    add("wrong_casts", audit(&A::wrong_casts));
    add("casts_checked", audit(&A::casts));
    add("reads/checked", audit(&A::reads));
    add("reads/stale", audit(&A::reads_stale));
    add("reads/never_right", audit(&A::reads_never_right));
    add("reads/went_back", audit(&A::reads_went_back));
    add("reads/staleness_ms", staleness_ms);
    add("reads/versions_behind", versions_behind);
    add("declared", audit(&A::allowed_breaches));
    add("examples", audit(&A::examples));
    return all;
}

}  // namespace

const std::vector<AuditColumn>& audit_columns() {
    static const std::vector<AuditColumn> kColumns = make_audit_columns();
    return kColumns;
}

}  // namespace hotcount::loadtest
