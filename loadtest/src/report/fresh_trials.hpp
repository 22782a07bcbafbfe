// Trials one after another, each in a folder of its own and on tables of its own.
//
// So no trial meets what another one left: what `compare` and `run --each` run.
// Used from one thread.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <hotcount/result.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "load/settings.hpp"
#include "progress.hpp"
#include "trial.hpp"

namespace hotcount::loadtest {

/// What all trials of a command share. It outlives them.
struct TrialContext {
    const std::filesystem::path& folder;  ///< Those of the trials are below it.
    bool keep;                            ///< The trials' folders stay.
    const nlohmann::json& provenance;     ///< As run_trial() takes it.
    const std::atomic<bool>& interrupt;
    ManagedServer* redis;                     ///< As TrialHooks have it.
    std::optional<GeneratorCeiling> ceiling;  ///< The same.
    Progress& progress;
    std::vector<ManagedServer*> databases{};  ///< The same.

    /// They refer to this.
    TrialHooks hooks() const;
};

class FreshTrials {
  public:
    explicit FreshTrials(const TrialContext& context) : context_(context) {}

    /// `name` is that of the trial's folder, with - for what a file name should not have. With a database URL of SQLite it makes
    /// a file beside that: votes.db becomes votes-closed-01-naive.db. `label` is for progress. Errors
    /// are those of run_trial().
    /// `keep`: as the context says; otherwise the folder goes in any case.
    Result<TrialResult> run(TrialSettings settings, std::string name, const std::string& label,
                            bool keep = true);

    bool interrupted() const { return context_.interrupt; }

  private:
    TrialContext context_;
};

}  // namespace hotcount::loadtest
