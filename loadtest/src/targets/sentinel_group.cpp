#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "managed_group.hpp"

namespace hotcount::loadtest {
namespace {

constexpr std::size_t kServers = 3;
constexpr std::size_t kSentinels = 3;
constexpr const char* kService = "hotcount";

class SentinelGroup final : public RedisGroup {
  public:
    Result<void> start(bool durable, const std::atomic<bool>& interrupt) {
        HOTCOUNT_TRY_ASSIGN(ports_, free_ports(kServers + kSentinels));
        const std::string primary = std::to_string(ports_[0]);
        for (std::size_t node = 0; node < kServers; ++node) {
            std::vector<std::string> more;
            if (node > 0) more = {"--replicaof", "127.0.0.1", primary};
            HOTCOUNT_TRY(add_node(ports_[node], durable, more, interrupt));
        }
        HOTCOUNT_TRY(wait_until("the replicas follow the primary", interrupt,
                                [this] { return follows(1) && follows(2); }));
        for (std::size_t node = 0; node < kSentinels; ++node) {
            HOTCOUNT_TRY(add_sentinel(ports_[kServers + node], interrupt));
        }
        HOTCOUNT_TRY(wait_until("the Sentinels know each other and the replicas", interrupt,
                                [this] { return know_all(); }));
        std::vector<std::string> hosts;
        for (std::size_t node = 0; node < kSentinels; ++node) {
            hosts.push_back(fmt::format("127.0.0.1:{}", ports_[kServers + node]));
        }
        url_ = fmt::format("redis+sentinel://{}/{}/0", fmt::join(hosts, ","), kService);
        return {};
    }

  protected:
    Result<std::size_t> next_struck() override {
        for (std::size_t node = 0; node < kServers; ++node) {
            const auto names_it = [&](const auto& wire) {
                const auto named = wire->ask({"SENTINEL", "GET-MASTER-ADDR-BY-NAME", kService});
                return named && named->size() == 2 && (*named)[1] == std::to_string(ports_[node]);
            };
            const auto named = std::count_if(watchers_.begin(), watchers_.end(), names_it);
            if (2 * static_cast<std::size_t>(named) > kSentinels && is_primary(node)) return node;
        }
        return make_error(ErrorCode::unavailable,
                          "no majority of the Sentinels names a primary at present");
    }

    std::vector<std::size_t> heirs_of(std::size_t primary) override {
        std::vector<std::size_t> heirs;
        for (std::size_t node = 0; node < kServers; ++node) {
            if (node != primary && replication(node, "role") == "slave") heirs.push_back(node);
        }
        return heirs;
    }

    Result<void> fail_over() override {
        HOTCOUNT_TRY(watchers_[0]->ask({"SENTINEL", "FAILOVER", kService}));
        return {};
    }

  private:
    Result<void> add_sentinel(std::uint16_t port, const std::atomic<bool>& interrupt) {
        ManagedOptions options;
        options.port = port;
        options.config = fmt::format(
            "sentinel monitor {0} 127.0.0.1 {1} 2\n"
            "sentinel down-after-milliseconds {0} 1000\n"
            // A second failover may begin twice as long after the first one.
            "sentinel failover-timeout {0} 5000\n",
            kService, ports_[0]);
        options.more = {"--sentinel"};
        HOTCOUNT_TRY_ASSIGN(auto sentinel,
                            ManagedServer::start(ServerKind::redis, interrupt, options));
        watchers_.push_back(std::make_unique<RedisWire>(sentinel->socket()));
        sentinels_.push_back(std::move(sentinel));
        return {};
    }

    /// So that a failover succeeds.
    bool know_all() {
        return std::all_of(watchers_.begin(), watchers_.end(), [](const auto& wire) {
            const auto others = wire->ask({"SENTINEL", "SENTINELS", kService});
            const auto replicas = wire->ask({"SENTINEL", "REPLICAS", kService});
            if (!others || !replicas) return false;
            const auto count = [](const std::vector<std::string>& texts, std::string_view name,
                                  std::string_view value) {
                std::size_t found = 0;
                for (std::size_t at = 1; at < texts.size(); ++at) {
                    if (texts[at - 1] == name && texts[at] == value) ++found;
                }
                return found;
            };
            return count(*others, "flags", "sentinel") == kSentinels - 1 &&
                   count(*replicas, "flags", "slave") == kServers - 1 &&
                   count(*replicas, "master-link-status", "ok") == kServers - 1;
        });
    }

    std::vector<std::uint16_t> ports_{};
    std::vector<std::unique_ptr<ManagedServer>> sentinels_{};
    std::vector<std::unique_ptr<RedisWire>> watchers_{};
};

}  // namespace

Result<std::unique_ptr<Managed>> start_sentinel(bool durable, const std::atomic<bool>& interrupt) {
    auto group = std::make_unique<SentinelGroup>();
    HOTCOUNT_TRY(group->start(durable, interrupt));
    return std::unique_ptr<Managed>(std::move(group));
}

}  // namespace hotcount::loadtest
