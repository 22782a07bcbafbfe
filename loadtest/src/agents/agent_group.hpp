// The coordinator's side: one load, driven in parts by agents on this machine or others.
//
//   connect()   says hello to all; each opens the target and makes ready for its part
//   begin()     agrees on an instant for the start, on the clock of each
//   watch()     until the load has ended; brings the ledgers together
//
// The plan is a function of the settings, so each agent makes its part itself. Its records come back
// in that order, and are held against the plan of this program before they are taken.
//
// An agent that vanishes (nothing heard for 5 s, hung up, no frame of the protocol) ends the load: the
// others are told to stop, and their part is kept.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <hotcount/result.hpp>
#include <memory>
#include <string>
#include <vector>

#include "load/processes.hpp"
#include "load/runner.hpp"
#include "load/settings.hpp"

namespace hotcount::loadtest {

/// What became of one agent.
struct AgentReport {
    std::string address;
    std::int64_t offset_ns{0};       ///< Its monotonic clock less this machine's.
    std::int64_t clock_error_ns{0};  ///< How far that may be off.
    std::uint64_t operations{0};     ///< Sent by it, warm-up included.
    std::string problem{};           ///< Why its part is missing; empty: it is there.
};

struct GroupResult {
    LoadResult load{};
    std::vector<AgentReport> agents{};
    Processes::Faults faults{};
    std::int64_t clock_error_ns{0};  ///< The largest of all agents.

    /// Whether each part of the plan came back; if not, nobody can say what was sent.
    bool whole() const {
        return std::all_of(agents.begin(), agents.end(),
                           [](const AgentReport& agent) { return agent.problem.empty(); });
    }
};

class AgentGroup {
  public:
    /// `settings` are those of the whole; the agents in it get a share of the workers each. An error
    /// names the agent that cannot be reached, is of another version, busy, or cannot open the target.
    static Result<std::unique_ptr<AgentGroup>> connect(const TrialSettings& settings,
                                                       UnvoteValue unvote,
                                                       const std::atomic<bool>& interrupt);
    ~AgentGroup();
    AgentGroup(const AgentGroup&) = delete;
    AgentGroup& operator=(const AgentGroup&) = delete;

    /// Once: agrees on the start of the load, which is a quarter of a second away. Its records go to
    /// `ledger`, which must outlive this.
    SteadyTime begin(const LoadSettings& load, Ledger& ledger);
    /// Until it has ended, and what it did is in the ledger.
    GroupResult watch(const LoadObserver& observe);

  private:
    class Agent;
    struct Shared;

    AgentGroup(const std::atomic<bool>& interrupt);

    const std::atomic<bool>& interrupt_;
    std::unique_ptr<Shared> shared_;
    std::vector<std::unique_ptr<Agent>> agents_;
};

}  // namespace hotcount::loadtest
