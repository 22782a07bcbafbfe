// Where a run's tables are, and what the targets on SQL have in common.
#pragma once

#include <filesystem>
#include <hotcount/result.hpp>
#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "load/settings.hpp"
#include "target.hpp"

namespace hotcount::loadtest {

/// Setting up is not under test: a slow disk may take its time to make the tables.
inline constexpr Duration kSetUpTimeout = std::chrono::minutes{2};

/// The run's prefix and a name, as a table may be called.
std::string table_name(std::string_view prefix, std::string_view name);

/// The options that name tables and columns of the user's own, and where Votes has them.
std::span<const std::pair<const char*, std::string VotesOptions::*>> table_options();
/// The contract for people, without the long prefix of a run's tables on a server.
Contract readable(Contract contract, const std::string& key_prefix);

struct SqlPlace {
    std::shared_ptr<sql::Database> database{};
    std::vector<std::shared_ptr<sql::Database>>
        nodes{};                   ///< Others of its cluster, with sessions of their own.
    std::filesystem::path file{};  ///< SQLite's; empty on a server.
};
/// The database that the settings name, else a file in `folder`, which `fresh` makes and an audit wants
/// to be there. On a server: at most `writers` connections that write, where 0 is the library's default.
Result<SqlPlace> open_place(const TrialSettings& settings, const std::filesystem::path& folder,
                            bool fresh, std::size_t writers);

class SqlTarget : public Target {
  public:
    std::string place() const override { return place_; }
    TargetStats stats() const override;

  protected:
    SqlTarget(const TrialSettings& settings, SqlPlace sql);

    /// Asks the database what place() says: where the tables are kept and how durably.
    Result<void> describe_place(const std::string& more);
    /// Drops what the run made on a server, unless it is kept.
    Result<void> drop(const std::string& name, const std::vector<std::string>& table_suffixes,
                      const std::vector<std::string>& view_suffixes = {}) const;

    const TrialSettings settings_;
    const SqlPlace sql_;

  private:
    std::string place_{};
};

/// Runs a worker beside the load, as in service, until the thread is asked to stop. What it could not
/// save, the audit finds.
std::jthread run_in_thread(std::shared_ptr<SyncWorker> worker);

/// Counters in tables: slotted ones, and those that are written behind Redis. `fresh`: for a new run,
/// which makes its tables and refuses those in use; otherwise those of an earlier run, to audit it.
Result<std::unique_ptr<Target>> make_sql_counters_target(const TrialSettings& settings,
                                                         const Strategy& strategy,
                                                         const std::filesystem::path& folder,
                                                         bool fresh);

}  // namespace hotcount::loadtest
