#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cluster_bus.hpp"
#include "managed_group.hpp"

namespace hotcount::loadtest {
namespace {

constexpr std::size_t kPrimaries = 3;
constexpr std::size_t kNodes = 2 * kPrimaries;
constexpr std::size_t kSlots = 16384;
constexpr const char* kMovedAtOnce = "100";

/// Node n and node n + 3 are a pair: one of them is the primary.
class ClusterGroup final : public RedisGroup {
  public:
    explicit ClusterGroup(const std::atomic<bool>& interrupt) : interrupt_(&interrupt) {}

    Result<void> start(bool durable) {
        HOTCOUNT_TRY_ASSIGN(ports_, free_ports(3 * kNodes));
        for (std::size_t node = 0; node < kNodes; ++node) {
            HOTCOUNT_TRY(
                add_node(ports_[node], durable,
                         {"--cluster-enabled", "yes", "--cluster-node-timeout", "2000",
                          "--cluster-port", std::to_string(bus_port(node)),
                          "--cluster-announce-bus-port", std::to_string(announced_port(node))},
                         *interrupt_));
        }
        HOTCOUNT_TRY(join());
        std::vector<std::string> hosts;
        for (std::size_t node = 0; node < kNodes; ++node) {
            hosts.push_back(fmt::format("127.0.0.1:{}", ports_[node]));
        }
        url_ = fmt::format("redis+cluster://{}", fmt::join(hosts, ","));
        return {};
    }

  protected:
    Result<std::size_t> next_struck() override { return primary_of(next_pair_++ % kPrimaries); }

    std::vector<std::size_t> heirs_of(std::size_t primary) override {
        return {(primary + kPrimaries) % kNodes};
    }

    bool serves(std::size_t node) override {
        return is_primary(node) &&
               wires_[node]->field({"CLUSTER", "INFO"}, "cluster_state") == "ok";
    }

    Result<void> fail_over() override {
        HOTCOUNT_TRY(wires_[heirs_[0]]->ask({"CLUSTER", "FAILOVER"}));
        return {};
    }

    Result<void> reshard(std::uint32_t slots) override {
        const std::size_t pair = struck_ % kPrimaries;
        HOTCOUNT_TRY_ASSIGN(const std::size_t target, primary_of((pair + 1) % kPrimaries));
        std::vector<std::size_t> moving;
        for (std::size_t slot = 0; slot < kSlots && moving.size() < slots; ++slot) {
            if (owners_[slot] == pair) moving.push_back(slot);
        }
        HOTCOUNT_TRY_ASSIGN(const bool at_once, migrate(moving, struck_, target));
        for (std::size_t moved = 0; moved < moving.size(); ++moved) {
            if (!at_once && *interrupt_) {
                return make_error(
                    ErrorCode::unavailable,
                    fmt::format("it was interrupted after {} of {} slots", moved, moving.size()));
            }
            if (!at_once) HOTCOUNT_TRY(move(std::to_string(moving[moved]), struck_, target));
            owners_[moving[moved]] = target % kPrimaries;
        }
        return {};
    }

    // The replica neither hears of its primary nor is it sent what that one goes on to acknowledge.
    Result<void> cut_off() override {
        for (const std::size_t heir : heirs_) {
            HOTCOUNT_TRY(tell(heir, {"CONFIG", "SET", "masteruser", "nobody"}));
            HOTCOUNT_TRY(tell(heir, {"CONFIG", "SET", "masterauth", "nothing"}));
        }
        bus_.cut_off(struck_);
        for (const std::size_t heir : heirs_) {
            HOTCOUNT_TRY(tell(heir, {"CLIENT", "KILL", "TYPE", "master"}));
        }
        return {};
    }
    Result<void> let_back() override {
        for (const std::size_t heir : heirs_) {
            HOTCOUNT_TRY(tell(heir, {"CONFIG", "SET", "masteruser", ""}));
            HOTCOUNT_TRY(tell(heir, {"CONFIG", "SET", "masterauth", ""}));
        }
        bus_.let_back();
        return {};
    }
    bool refuses(std::size_t node) override {
        return wires_[node]->field({"CLUSTER", "INFO"}, "cluster_state") != "ok";
    }

  private:
    Result<void> tell(std::size_t node, const std::vector<std::string>& words) {
        HOTCOUNT_TRY(wires_[node]->ask(words));
        return {};
    }

    Result<std::size_t> primary_of(std::size_t pair) {
        for (const std::size_t node : {pair, pair + kPrimaries}) {
            if (serves(node)) return node;
        }
        return make_error(ErrorCode::unavailable,
                          "a part of the cluster has no primary at present");
    }

    Result<void> join() {
        for (std::size_t node = 0; node < kNodes; ++node) {
            HOTCOUNT_TRY_ASSIGN(const auto id, wires_[node]->ask({"CLUSTER", "MYID"}));
            ids_.push_back(id.front());
            // Otherwise the nodes quarrel over one epoch first.
            HOTCOUNT_TRY(tell(node, {"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(node + 1)}));
        }
        const auto announced = ports_.begin() + 2 * kNodes;
        HOTCOUNT_TRY(
            bus_.start(ids_, {announced, ports_.end()}, {ports_.begin() + kNodes, announced}));
        for (std::size_t node = 0; node < kPrimaries; ++node) {
            const std::size_t first = node * kSlots / kPrimaries;
            const std::size_t end = (node + 1) * kSlots / kPrimaries;
            HOTCOUNT_TRY(tell(node, {"CLUSTER", "ADDSLOTSRANGE", std::to_string(first),
                                     std::to_string(end - 1)}));
            std::fill(owners_.begin() + static_cast<std::ptrdiff_t>(first),
                      owners_.begin() + static_cast<std::ptrdiff_t>(end), node);
        }
        for (std::size_t node = 1; node < kNodes; ++node) {
            HOTCOUNT_TRY(tell(0, {"CLUSTER", "MEET", "127.0.0.1", std::to_string(ports_[node]),
                                  std::to_string(announced_port(node))}));
        }
        HOTCOUNT_TRY(wait_until("each node knows the others", *interrupt_, [this] {
            return all([this](std::size_t node) { return knows_all(node); });
        }));
        for (std::size_t node = kPrimaries; node < kNodes; ++node) {
            HOTCOUNT_TRY(tell(node, {"CLUSTER", "REPLICATE", ids_[node - kPrimaries]}));
        }
        return wait_until("each node serves, or follows its primary", *interrupt_, [this] {
            return all([this](std::size_t node) {
                const auto state = wires_[node]->field({"CLUSTER", "INFO"}, "cluster_state");
                return state == "ok" && (node < kPrimaries || follows(node)) && sees_replicas(node);
            });
        });
    }

    bool all(const std::function<bool(std::size_t)>& holds) {
        for (std::size_t node = 0; node < kNodes; ++node) {
            if (!holds(node)) return false;
        }
        return true;
    }
    bool knows_all(std::size_t node) {
        const auto nodes = wires_[node]->ask({"CLUSTER", "NODES"});
        return nodes && std::all_of(ids_.begin(), ids_.end(), [&](const std::string& id) {
                   return nodes->front().find(id) != std::string::npos;
               });
    }
    /// Only those vote for a replica that know it as one.
    bool sees_replicas(std::size_t node) {
        const auto nodes = wires_[node]->ask({"CLUSTER", "NODES"});
        if (!nodes) return false;
        std::size_t seen = 0;
        for (std::size_t primary = 0; primary < kPrimaries; ++primary) {
            const std::string& text = nodes->front();
            if (text.find("slave " + ids_[primary]) != std::string::npos) ++seen;
        }
        return seen == kPrimaries;
    }

    // Valkey 9 moves slots and their keys in one step. False: this server does not.
    Result<bool> migrate(const std::vector<std::size_t>& slots, std::size_t from, std::size_t to) {
        std::vector<std::string> words{"CLUSTER", "MIGRATESLOTS", "SLOTSRANGE"};
        for (std::size_t i = 0; i < slots.size(); ++i) {
            if (i == 0 || slots[i] != slots[i - 1] + 1) words.push_back(std::to_string(slots[i]));
            if (i + 1 == slots.size() || slots[i] + 1 != slots[i + 1]) {
                words.push_back(std::to_string(slots[i]));
            }
        }
        words.insert(words.end(), {"NODE", ids_[to]});
        const std::size_t before = migrations(from);
        if (const auto begun = wires_[from]->ask(words); !begun) {
            if (begun.error().message.find("unknown subcommand") != std::string::npos) return false;
            return begun.error();
        }
        static const std::atomic<bool> kNever{false};
        HOTCOUNT_TRY(
            wait_until("the slots have moved", kNever, [&] { return migrations(from) > before; }));
        return true;
    }
    // How many of a node's migrations have succeeded.
    std::size_t migrations(std::size_t node) {
        const auto told = wires_[node]->ask({"CLUSTER", "GETSLOTMIGRATIONS"});
        std::size_t found = 0;
        for (std::size_t i = 1; told && i < told->size(); ++i) {
            if ((*told)[i - 1] == "state" && (*told)[i] == "success") ++found;
        }
        return found;
    }
    Result<void> move(const std::string& slot, std::size_t from, std::size_t to) {
        HOTCOUNT_TRY(tell(to, {"CLUSTER", "SETSLOT", slot, "IMPORTING", ids_[from]}));
        HOTCOUNT_TRY(tell(from, {"CLUSTER", "SETSLOT", slot, "MIGRATING", ids_[to]}));
        while (true) {
            HOTCOUNT_TRY_ASSIGN(
                auto keys, wires_[from]->ask({"CLUSTER", "GETKEYSINSLOT", slot, kMovedAtOnce}));
            if (keys.empty()) break;
            std::vector<std::string> words{
                "MIGRATE", "127.0.0.1", std::to_string(ports_[to]), "", "0", "5000", "KEYS"};
            words.insert(words.end(), keys.begin(), keys.end());
            HOTCOUNT_TRY(tell(from, words));
        }
        // The target first: in the other order, no node would serve the slot in between.
        for (const std::size_t node : {to, from}) {
            HOTCOUNT_TRY(tell(node, {"CLUSTER", "SETSLOT", slot, "NODE", ids_[to]}));
        }
        return {};
    }

    std::uint16_t bus_port(std::size_t node) const { return ports_[kNodes + node]; }
    std::uint16_t announced_port(std::size_t node) const { return ports_[2 * kNodes + node]; }

    const std::atomic<bool>* interrupt_;
    std::vector<std::uint16_t> ports_{};  // Of clients, of the nodes' bus, of the bus as announced.
    std::vector<std::string> ids_{};
    std::array<std::size_t, kSlots> owners_{};  ///< The pair of each slot.
    std::size_t next_pair_{0};
    ClusterBus bus_{};
};

}  // namespace

Result<std::unique_ptr<Managed>> start_cluster(bool durable, const std::atomic<bool>& interrupt) {
    auto group = std::make_unique<ClusterGroup>(interrupt);
    HOTCOUNT_TRY(group->start(durable));
    return std::unique_ptr<Managed>(std::move(group));
}

}  // namespace hotcount::loadtest
