// Outage: whether a server that limiters share is unreachable, as this process has observed it.
// Outages holds the Outage of a store: one, or on a cluster one for each primary, so that keys of
// the other primaries still reach their servers.
//
// A call that fails because of the server begins an outage. While it lasts, limiters with a policy
// answer without the server, and one of their calls a second probes it. The probe's answer ends the
// outage. The outage of a primary that was replaced ends too.
//
// Thread-safe. A forked child inherits the state of a single server, not that of a cluster's nodes.
// While the server is reachable, a call costs one atomic load.
#pragma once

#include <atomic>
#include <cstdint>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/limiter.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "redis/cluster_client.hpp"

namespace hotcount {

/// Whether an error means that the store is unreachable, too slow or full. Errors of the call or of
/// the program are no outage: a bad argument, credentials, rights, a key of another type, a closed
/// store.
constexpr bool is_outage(ErrorCode code) {
    return code == ErrorCode::unavailable || code == ErrorCode::deadline ||
           code == ErrorCode::outcome_unknown || code == ErrorCode::capacity;
}

class Outage final : ForkAware {
  public:
    explicit Outage(std::string address);
    ~Outage() { stop_watching_forks(); }

    /// A call keeps the phase in which it began. The phase is even while the store is reachable.
    std::uint64_t phase() const { return phase_.load(std::memory_order_acquire); }
    static bool is_away(std::uint64_t phase) { return phase % 2 == 1; }

    /// A call that began in this phase has failed. The failure of a call that began in an earlier
    /// phase is ignored.
    void begin(std::uint64_t phase, const Error& why);
    /// The store has answered a call.
    void answered() {
        if (doubted_since_.load(std::memory_order_relaxed) != kNever) [[unlikely]]
            doubted_since_.store(kNever, std::memory_order_relaxed);
    }
    /// A call has failed in a way that need not be the store's fault. True (an outage) if the first
    /// such call failed at least `patience` ago and no call has been answered since.
    bool doubted_for(Duration patience);
    /// True for one caller a second: it may send a probe.
    bool takes_probe();
    /// The time until the next probe may be sent; 1 us or more.
    Duration next_probe() const;
    /// A probe that was sent in this phase has been answered.
    void end(std::uint64_t phase);

    /// The change that has not been reported yet, if there is one.
    std::optional<OutageEvent> next_event();

    /// The least time between two probes, and the longest time that a probe waits.
    static constexpr Duration kProbeEvery = std::chrono::seconds{1};

  private:
    void before_fork() override { mutex_.lock(); }
    void after_fork(bool) override { mutex_.unlock(); }

    const std::string address_;
    std::atomic<std::uint64_t> phase_{0};  // Odd while the store is away.
    std::atomic<std::uint64_t> told_{0};   // The phase reported last.
    std::atomic<SteadyTime> next_probe_{SteadyTime{}};
    static constexpr SteadyTime kNever = SteadyTime::max();
    std::atomic<SteadyTime> doubted_since_{kNever};
    std::mutex mutex_;
    std::string why_{};  // Guarded by mutex_, as is since_.
    SteadyTime since_{};
};

class Outages final {
  public:
    /// The Outages of this client. All limiters of a process that share the client share them.
    static Result<std::shared_ptr<Outages>> of(const std::shared_ptr<redis::Client>& client);
    Outages(const std::shared_ptr<redis::Client>& client, std::shared_ptr<memory::Store> local);
    ~Outages();
    Outages(const Outages&) = delete;
    Outages& operator=(const Outages&) = delete;

    /// The Outage of the server, or of the primary that owns the key's slot now. Valid as long as
    /// this object.
    Outage& of_key(std::string_view key) { return find(slot_of(key)).outage; }
    /// Outage::begin() for a failed call of the key that began in this phase.
    void begin(Outage& outage, std::uint64_t phase, const Error& why, std::string_view key);
    /// Whether one server answers for both keys together.
    bool in_one_step(std::string_view a, std::string_view b) const {
        return slot_of(a) == slot_of(b);
    }
    std::optional<OutageEvent> next_event();

    /// The store in which limiters with the policy `local` count during an outage.
    const std::shared_ptr<memory::Store>& local() const { return local_; }
    /// Whether the client is destroyed. A new client may then have its memory address.
    bool closed() const { return client_.expired(); }

    /// Keys that `local` counts at once.
    static constexpr std::size_t kLocalKeys = 100'000;

  private:
    struct OfNode {
        OfNode(std::string address, std::uint16_t number, std::uint64_t process)
            : outage(std::move(address)), node(number), generation(process) {}
        Outage outage;
        const std::uint16_t node;
        const std::uint64_t generation;      // Numbers of nodes are a process's own.
        std::atomic<std::uint16_t> slot{0};  // The slot of the key whose call began the outage.
        OfNode* next{nullptr};
    };
    std::uint16_t slot_of(std::string_view key) const;
    OfNode& find(std::uint16_t slot);

    const std::weak_ptr<redis::Client> client_;
    redis::ClusterNodes* const nodes_;  // Null: one server.
    const std::string address_;
    const std::shared_ptr<memory::Store> local_;
    std::atomic<OfNode*> first_{nullptr};  // A list that only grows.
};

}  // namespace hotcount
