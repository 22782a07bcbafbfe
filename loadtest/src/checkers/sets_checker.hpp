// Compares sorted sets that live for a time with what was written and with when each set lived.
//
// The life of a set is known only between two times: it lives at least until
// `lives_until_ns` and is gone from `dead_from_ns` on. Between the two nothing is a finding.
//
//   rogue set      there, though it was never made, or must have expired: an upsert made it
//   late write     answered `applied` at a time when no set can have been there
//   wrong refusal  not answered `applied` while the set must have lived
//   wrong score    a score that is not the last one written
//   lost, ghost    a member written and not there; there and never written
//
// Pure functions of values; target code gathers them.
#pragma once

#include <cstdint>
#include <hotcount/live_sets.hpp>
#include <optional>
#include <span>
#include <vector>

#include "checker.hpp"

namespace hotcount::loadtest {

/// Nanoseconds from the start of the run, as in the ledger.
struct SetLife {
    bool made{false};
    std::int64_t lives_until_ns{INT64_MAX};  ///< It must live before this ...
    std::int64_t dead_from_ns{INT64_MAX};    ///< ... and must be gone from this on.
};

struct SetWrite {
    std::int64_t member;
    std::int64_t score;  ///< 0: a remove.
    std::int64_t sent_ns;
    std::int64_t done_ns;
    Status status;
    Upsert answer;  ///< Valid if the status is ok.
};

struct SetMember {
    std::int64_t member;
    std::int64_t score;
};

/// What was found in the store, at `looked_ns`.
struct SetFound {
    bool expires{false};
    bool anchored{false};              ///< The member it was made with is there.
    std::vector<SetMember> members{};  ///< But that one.
    std::int64_t looked_ns{0};         ///< Not later than this.
};

/// Checks one set. `may_make_sets`: the contract of the method says that it makes sets that nobody
/// created.
void check_set(std::int64_t item, const SetLife& life, std::span<const SetWrite> writes,
               const std::optional<SetFound>& found, bool may_make_sets, AuditResult& result);

}  // namespace hotcount::loadtest
