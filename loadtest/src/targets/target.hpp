// The target of a strategy's run: it is set up, driven, settled and audited.
//
// Votes on a SQL database are in target.cpp, other targets in sql_place.hpp, store_target.hpp and
// driver_session.hpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <hotcount/result.hpp>
#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "checkers/checker.hpp"
#include "checkers/read_checker.hpp"
#include "load/driver.hpp"
#include "load/ledger.hpp"
#include "load/planner.hpp"
#include "load/settings.hpp"

namespace hotcount::loadtest {

/// The work of the database or server during a run.
struct TargetStats {
    std::uint64_t transactions{0};  ///< Write transactions committed.
    std::uint64_t statements{0};
    std::uint64_t busy_waits{0};
};

class Target {
  public:
    virtual ~Target() = default;

    virtual Driver& driver() = 0;
    virtual Contract contract() const = 0;
    /// Where it keeps things and how durably, in one line for people.
    virtual std::string place() const = 0;
    virtual UnvoteValue unvote() const = 0;
    virtual TargetStats stats() const = 0;
    /// The last thing before the load, whose times the audit holds against the target's own.
    virtual Result<void> begin() { return {}; }
    /// After the load: does the work that was put off.
    virtual Result<void> settle() { return {}; }
    /// Brings all counts up to date, then compares everything with the ledger. Call it without
    /// writers.
    virtual Result<AuditResult> audit(const Ledger& ledger) = 0;
    /// The rules for the answers in the ledger; empty: the answers tell nothing to check.
    virtual std::optional<AnswerRules> answer_rules(const Ledger& /*ledger*/) const { return {}; }
    /// Facts that an audit needs and that the store does not hold; null: none. Read after begin() and after
    /// the audit, and passed to recall() of a target that is opened again.
    virtual nlohmann::json evidence() const { return nullptr; }
    virtual Result<void> recall(const nlohmann::json& /*evidence*/) { return {}; }
    /// After the audit: takes away what the run left on a server, unless it is to be kept.
    virtual Result<void> clean_up() { return {}; }
};

/// The rules for a strategy's answers.
AnswerRules rules_for(const Strategy& strategy, std::uint64_t items);

/// A target for a new run: makes the tables and the items; refuses tables in use. `folder` is
/// where its own database goes unless the settings name another.
Result<std::unique_ptr<Target>> make_target(const TrialSettings& settings,
                                            const std::filesystem::path& folder);

/// The target of an earlier run, for auditing it. Creates and repairs nothing.
Result<std::unique_ptr<Target>> reopen_target(const TrialSettings& settings,
                                              const std::filesystem::path& folder);

}  // namespace hotcount::loadtest
