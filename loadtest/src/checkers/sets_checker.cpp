#include "store_checkers.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>

namespace hotcount::loadtest {
namespace {

struct SetChecker {
    std::int64_t item;
    const SetLife& life;
    bool may_make_sets;
    AuditResult& result;

    void breach(std::uint64_t& count, bool allowed, const std::string& what) {
        ++count;
        if (allowed) ++result.allowed_breaches;
        result.example(what + (allowed ? ", as its contract allows" : ""));
    }

    void answer(const SetWrite& write) {
        const bool upsert = write.score != 0;
        if (write.status != Status::ok || !upsert) return;
        const bool dead = !life.made || write.sent_ns >= life.dead_from_ns;
        if (write.answer == Upsert::applied && dead) {
            breach(result.late_writes, may_make_sets,
                   fmt::format("late write: item {} member {} was applied to a set that {}", item,
                               write.member, life.made ? "had expired" : "was never made"));
        }
        // Before the gate's time and with a TTL, nothing may stand against an upsert; `expiring`
        // is how a gate answers for sets that are to die.
        const bool lives = life.made && write.done_ns < life.lives_until_ns;
        const bool gated = write.answer == Upsert::expiring && life.dead_from_ns != INT64_MAX;
        if (lives && write.answer != Upsert::applied && !gated) {
            breach(result.wrong_refusals, false,
                   fmt::format("wrong refusal: item {} member {} was answered {} while its set "
                               "lived",
                               item, write.member, to_string(write.answer)));
        }
    }

    void score(std::int64_t member, std::span<const Attempt> attempts, std::int64_t actual) {
        if (attempts.empty()) {
            ++result.ghost_rows;
            result.example(
                fmt::format("ghost: item {} has member {}, which nobody wrote", item, member));
            return;
        }
        const AllowedStates allowed(attempts);
        if (allowed.allows(actual)) return;
        if (actual == 0) {
            ++result.lost_rows;
            result.example(
                fmt::format("lost: item {} member {} is not there, its answers allow "
                            "{}",
                            item, member, allowed.describe()));
            return;
        }
        breach(result.wrong_scores, false,
               fmt::format("wrong score: item {} member {} has {}, its answers allow {}", item,
                           member, actual, allowed.describe()));
    }

    void scores(std::span<const SetWrite> writes, const std::vector<SetMember>& members) {
        std::map<std::int64_t, std::vector<Attempt>> attempts;
        for (const SetWrite& write : writes) {
            if (write.status == Status::failed) continue;
            const bool upsert = write.score != 0;
            if (write.status == Status::ok && upsert && write.answer != Upsert::applied) continue;
            attempts[write.member].push_back(
                {item, write.member, write.score, write.sent_ns, write.done_ns, write.status});
        }
        std::map<std::int64_t, std::int64_t> actual;
        for (const SetMember& member : members) actual[member.member] = member.score;
        for (const auto& [member, tried] : attempts) {
            const auto found = actual.find(member);
            score(member, tried, found == actual.end() ? 0 : found->second);
        }
        for (const auto& [member, value] : actual) {
            if (!attempts.contains(member)) score(member, {}, value);
        }
    }
};

}  // namespace

void check_set(std::int64_t item, const SetLife& life, std::span<const SetWrite> writes,
               const std::optional<SetFound>& found, bool may_make_sets, AuditResult& result) {
    SetChecker checker{item, life, may_make_sets, result};
    ++result.items;
    for (const SetWrite& write : writes) checker.answer(write);
    const bool mortal = life.dead_from_ns != INT64_MAX;
    if (found && (!life.made || (mortal && found->looked_ns >= life.dead_from_ns) ||
                  (mortal && !found->expires))) {
        checker.breach(result.rogue_sets, may_make_sets,
                       fmt::format("rogue set: item {} is there with {} members and {} TTL, though "
                                   "it {}",
                                   item, found->members.size(), found->expires ? "a" : "no",
                                   life.made ? "must have expired" : "was never made"));
        return;
    }
    if (!life.made || mortal) return;
    if (!found) {
        ++result.lost_rows;
        result.example(fmt::format("lost: item {} has no set any more, before its time", item));
        return;
    }
    if (!found->expires) {
        checker.breach(result.keys_without_ttl, false,
                       fmt::format("no TTL: the set of item {} has lost its own", item));
    }
    if (!found->anchored) {
        ++result.lost_rows;
        result.example(
            fmt::format("lost: item {} lost the member that its set was made with", item));
    }
    checker.scores(writes, found->members);
}

}  // namespace hotcount::loadtest
