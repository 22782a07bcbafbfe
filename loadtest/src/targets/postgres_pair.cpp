#include <fmt/core.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "managed_group.hpp"

namespace hotcount::loadtest {
namespace {

constexpr const char* kStandby = "standby";

/// A commit is answered when the standby has it on its disk: a promotion loses no commit. The
/// promoted server has no standby to wait for.
class PostgresPair final : public ServerGroup {
  public:
    Result<void> start(const std::atomic<bool>& interrupt) {
        HOTCOUNT_TRY_ASSIGN(const auto program, ManagedServer::find(ServerKind::postgres));
        HOTCOUNT_TRY_ASSIGN(const auto ports, free_ports(2));
        ManagedOptions options;
        options.port = ports[0];
        HOTCOUNT_TRY(add_node(options, interrupt));
        options.port = ports[1];
        const std::string from = fmt::format("host=127.0.0.1 port={} user=postgres", ports[0]);
        options.prepare = [&](const std::filesystem::path& data) {
            return std::vector<std::string>{program.parent_path() / "pg_basebackup",
                                            "--pgdata",
                                            data,
                                            "--dbname",
                                            fmt::format("{} application_name={}", from, kStandby),
                                            "--write-recovery-conf",
                                            "--wal-method=stream",
                                            "--checkpoint=fast",
                                            "--no-sync"};
        };
        HOTCOUNT_TRY(add_node(options, interrupt));
        HOTCOUNT_TRY(wait_until("the standby receives what the primary writes", interrupt, [this] {
            return answers_with(
                primary(), "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'", 1);
        }));
        // After the copy: in the copy's settings it would make the promoted server wait for a standby.
        HOTCOUNT_TRY(ask_number(
            primary(), fmt::format("ALTER SYSTEM SET synchronous_standby_names = '{}'", kStandby)));
        HOTCOUNT_TRY(ask_number(primary(), "SELECT pg_reload_conf()"));
        HOTCOUNT_TRY(wait_until("each commit waits for the standby", interrupt, [this] {
            return answers_with(
                primary(), "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'", 1);
        }));
        url_ = fmt::format(
            "postgresql://postgres@127.0.0.1:{},127.0.0.1:{}/postgres"
            "?target_session_attrs=read-write",
            ports[0], ports[1]);
        return {};
    }

    Result<Strike> strike(const Fault& fault) override {
        if (promoted_) {
            return make_error(ErrorCode::unavailable,
                              "the standby is the primary since the first fault, and has none");
        }
        const SteadyTime now = std::chrono::steady_clock::now();
        if (fault.kind == FaultKind::db_failover) {
            primary().end();
            HOTCOUNT_TRY(promote());
        } else {
            HOTCOUNT_TRY(primary().strike(fault));
        }
        // Whenever it is acknowledged, the standby has it.
        return Strike{now, SteadyTime::max()};
    }

    Result<void> mend(const Fault& fault) override {
        if (fault.kind == FaultKind::db_cut) primary().kill9();  // It would take writes again.
        if (fault.kind == FaultKind::db_kill9 || fault.kind == FaultKind::db_cut) return promote();
        return lasts_by_itself(fault.kind) ? Result<void>{} : primary().mend(fault);
    }

    bool replaced() override { return promoted_; }

  private:
    Result<void> add_node(const ManagedOptions& options, const std::atomic<bool>& interrupt) {
        HOTCOUNT_TRY_ASSIGN(auto node,
                            ManagedServer::start(ServerKind::postgres, interrupt, options));
        nodes_.push_back(std::move(node));
        return {};
    }
    /// Returns when it takes writes.
    Result<void> promote() {
        HOTCOUNT_TRY(ask_number(standby(), "SELECT pg_promote(true, 30)"));
        promoted_ = true;
        return {};
    }

    ManagedServer& primary() { return *nodes_[0]; }
    ManagedServer& standby() { return *nodes_[1]; }

    bool promoted_{false};
};

}  // namespace

Result<std::unique_ptr<Managed>> start_postgres_pair(const std::atomic<bool>& interrupt) {
    auto pair = std::make_unique<PostgresPair>();
    HOTCOUNT_TRY(pair->start(interrupt));
    return std::unique_ptr<Managed>(std::move(pair));
}

}  // namespace hotcount::loadtest
