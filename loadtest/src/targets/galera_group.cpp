#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <hotcount/sql.hpp>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "managed_group.hpp"

namespace hotcount::loadtest {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kGaleraNodes = 3;
constexpr const char* kGaleraProviders[] = {"/usr/lib/galera/libgalera_smm.so",
                                            "/usr/lib64/galera-4/libgalera_smm.so"};
// A node that says nothing is left out after 2 s: Galera's own default is 5 s.
constexpr const char* kGaleraTimes =
    "evs.keepalive_period=PT0.3S;evs.suspect_timeout=PT2S;evs.inactive_timeout=PT6S";

/// Starts a node where it ended, also if it was killed, so that it gets from the others what it has
/// missed and no copy of all. It is what servers call for a state transfer as well: a joiner has its
/// own state already, and a donor has nothing to copy. The first start of all begins a cluster.
constexpr const char* kNodeStarter = R"sh(#!/bin/sh
case "$*" in
*"--role joiner"*)
    echo "ready 127.0.0.1:1/none"
    echo "$GALERA_POSITION"
    exit ;;
*"--role donor"*--bypass*)
    for word; do
        [ "$before" = --gtid ] && echo "done $word"
        before=$word
    done
    exit ;;
*"--role donor"*)
    exit 1 ;;
esac
here=$(dirname "$0")
state=$here/data/grastate.dat
field() { sed -n "s/^$1: *//p" "$state"; }
if [ -e "$state" ]; then
    GALERA_POSITION=$(field uuid):$(field seqno)
    if [ "$(field seqno)" = -1 ]; then
        "$@" --wsrep-recover --log-error="$here/recovered.log"
        GALERA_POSITION=$(sed -n "s/.*Recovered position: *//p" "$here/recovered.log" | tail -n 1)
        rm "$here/recovered.log"
    fi
    first=$(field safe_to_bootstrap)
    set -- "$@" --wsrep-start-position="$GALERA_POSITION"
else
    first=1
fi
[ "$first" = 1 ] && set -- "$@" --wsrep-new-cluster
export GALERA_POSITION PATH="$here:$PATH"
exec "$@"
)sh";

constexpr const char* kClusterSize =
    "SELECT CAST(VARIABLE_VALUE AS SIGNED) FROM information_schema.GLOBAL_STATUS WHERE "
    "VARIABLE_NAME = 'WSREP_CLUSTER_SIZE'";
constexpr const char* kNodeSynced =
    "SELECT COUNT(*) FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = "
    "'WSREP_LOCAL_STATE_COMMENT' AND VARIABLE_VALUE = 'Synced'";
constexpr const char* kIsolateNode = "SET GLOBAL wsrep_provider_options = 'gmcast.isolate={}'";
constexpr const char* kMakeUser = "CREATE USER hotcount@'%';\nGRANT ALL ON *.* TO hotcount@'%';\n";
constexpr Duration kAtOnce = std::chrono::seconds{10};

/// A commit is answered when every node has the transaction: the end of one node loses no commit.
class GaleraGroup final : public ServerGroup {
  public:
    Result<void> start(const std::atomic<bool>& interrupt) {
        HOTCOUNT_TRY_ASSIGN(const std::string provider, find_provider());
        HOTCOUNT_TRY_ASSIGN(const auto ports, free_ports(3 * kGaleraNodes));
        std::vector<std::string> hosts;
        for (std::size_t node = 0; node < kGaleraNodes; ++node) {
            HOTCOUNT_TRY(add_node(node, ports, provider, interrupt));
            hosts.push_back(fmt::format("127.0.0.1:{}", ports[node]));
        }
        HOTCOUNT_TRY(wait_until("the three nodes are one cluster", interrupt,
                                [this] { return all_of_size(kGaleraNodes); }));
        HOTCOUNT_TRY(make_user());
        url_ = fmt::format("mariadb://hotcount@{}/hotcount", fmt::join(hosts, ","));
        return {};
    }

    Result<Strike> strike(const Fault& fault) override {
        struck_ = next_++ % kGaleraNodes;
        const SteadyTime now = std::chrono::steady_clock::now();
        switch (fault.kind) {
            case FaultKind::db_failover:
                struck().end();
                break;
            case FaultKind::db_cut:
                HOTCOUNT_TRY(ask_number(struck(), fmt::format(fmt::runtime(kIsolateNode), 1)));
                break;
            default:
                HOTCOUNT_TRY(struck().strike(fault));
        }
        return Strike{now, SteadyTime::max()};
    }

    /// Returns when the node has all that the others have, and takes votes.
    Result<void> mend(const Fault& fault) override {
        if (fault.kind == FaultKind::db_failover) {
            HOTCOUNT_TRY(struck().restart());
        } else if (fault.kind == FaultKind::db_cut) {
            HOTCOUNT_TRY(ask_number(struck(), fmt::format(fmt::runtime(kIsolateNode), 0)));
        } else {
            HOTCOUNT_TRY(struck().mend(fault));
        }
        // A load that is interrupted is audited nevertheless.
        const std::atomic<bool> never{false};
        return wait_until("the node has joined the others again", never,
                          [this] { return all_of_size(kGaleraNodes); });
    }

    /// Whether the others go on as a cluster of two.
    bool replaced() override {
        return answers_with(*nodes_[(struck_ + 1) % kGaleraNodes], kClusterSize, kGaleraNodes - 1);
    }

  private:
    static Result<std::string> find_provider() {
        for (const char* const provider : kGaleraProviders) {
            if (access(provider, R_OK) == 0) return std::string{provider};
        }
        return make_error(ErrorCode::config,
                          "Galera is not installed (Debian's package: galera-4)");
    }

    /// The first one begins the cluster. The others are copies of it, with its place in the history.
    Result<void> add_node(std::size_t node, const std::vector<std::uint16_t>& ports,
                          const std::string& provider, const std::atomic<bool>& interrupt) {
        std::vector<std::string> group;
        for (std::size_t one = 0; one < kGaleraNodes; ++one) {
            group.push_back(fmt::format("127.0.0.1:{}", ports[kGaleraNodes + one]));
        }
        ManagedOptions options;
        options.port = ports[node];
        options.config = kNodeStarter;
        options.more = {
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
            "--wsrep-on=ON",
            "--wsrep-provider=" + provider,
            "--wsrep-cluster-name=hotcount",
            fmt::format("--wsrep-cluster-address=gcomm://{}", fmt::join(group, ",")),
            fmt::format("--wsrep-node-name=n{}", node),
            "--wsrep-node-address=" + group[node],
            fmt::format("--wsrep-node-incoming-address=127.0.0.1:{}", ports[node]),
            "--wsrep-sst-method=hotcount",
            fmt::format("--wsrep-provider-options=gmcast.listen_addr=tcp://{};ist.recv_addr="
                        "127.0.0.1:{};gcache.size=64M;pc.recovery=no;{}",
                        group[node], ports[2 * kGaleraNodes + node], kGaleraTimes)};
        if (node > 0) {
            options.prepare = [from = copied()](const fs::path& data) {
                return std::vector<std::string>{
                    "/bin/sh", "-c",
                    "cp -rT \"$0\" \"$1\" && sed -i "
                    "'s/^safe_to_bootstrap: 1/safe_to_bootstrap: 0/' \"$1\"/grastate.dat",
                    from, data};
            };
        }
        HOTCOUNT_TRY_ASSIGN(auto server,
                            ManagedServer::start(ServerKind::mariadb, interrupt, options));
        nodes_.push_back(std::move(server));
        return node > 0 ? Result<void>{} : copy_first();
    }

    /// Copies the first node's files while its server is stopped.
    Result<void> copy_first() {
        nodes_[0]->end();
        const fs::path data = nodes_[0]->data_folder() / "data";
        std::error_code failed;
        fs::remove(data / "galera.cache", failed);
        fs::copy(data, copied(), fs::copy_options::recursive, failed);
        if (failed) {
            return make_error(ErrorCode::config,
                              fmt::format("cannot copy {}: {}", data.string(), failed.message()));
        }
        return nodes_[0]->restart();
    }
    fs::path copied() const { return nodes_[0]->data_folder() / "copied"; }

    /// A server's own root comes by its socket alone.
    Result<void> make_user() {
        HOTCOUNT_TRY_ASSIGN(const auto database, sql::open_database(nodes_[0]->url(), {}));
        HOTCOUNT_TRY_ASSIGN(const sql::Lease lease, database->writer(Deadline::after(kAtOnce)));
        return lease->run_script(kMakeUser);
    }

    bool all_of_size(std::int64_t size) {
        for (const auto& node : nodes_) {
            if (!answers_with(*node, kClusterSize, size) || !answers_with(*node, kNodeSynced, 1))
                return false;
        }
        return true;
    }
    ManagedServer& struck() { return *nodes_[struck_]; }

    std::size_t next_{0};
    std::size_t struck_{0};
};

}  // namespace

Result<std::unique_ptr<Managed>> start_galera(const std::atomic<bool>& interrupt) {
    auto group = std::make_unique<GaleraGroup>();
    HOTCOUNT_TRY(group->start(interrupt));
    return std::unique_ptr<Managed>(std::move(group));
}

}  // namespace hotcount::loadtest
