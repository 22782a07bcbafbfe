// Outage: whether a store that limiters share is away, as this process has seen it.
//
// A call that fails for want of the store begins an outage. While it lasts, limiters with a policy
// answer without the store, and one of their calls a second asks it again. Its answer ends the
// outage.
//
// Thread-safe. A forked child begins with what its parent knew. A call while the store is there
// costs one load.
#pragma once

#include <atomic>
#include <cstdint>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/limiter.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace hotcount {

/// Whether an error says that the store is away, too slow or full. What is wrong with the call or
/// with the program says another thing: a bad argument, credentials, rights, a key of another type,
/// a closed store.
constexpr bool is_outage(ErrorCode code) {
    return code == ErrorCode::unavailable || code == ErrorCode::deadline ||
           code == ErrorCode::outcome_unknown || code == ErrorCode::capacity;
}

class Outage final : ForkAware {
  public:
    /// The one of this client: all limiters of a process that share the client share it.
    static Result<std::shared_ptr<Outage>> of(const std::shared_ptr<redis::Client>& client);
    Outage(const std::shared_ptr<redis::Client>& client, std::shared_ptr<memory::Store> local);
    ~Outage() { stop_watching_forks(); }

    /// What a call remembers of the moment when it began: even while the store is there.
    std::uint64_t phase() const { return phase_.load(std::memory_order_acquire); }
    static bool is_away(std::uint64_t phase) { return phase % 2 == 1; }

    /// A call that began in this phase has failed. One that began before the store came back says
    /// nothing of now.
    void begin(std::uint64_t phase, const Error& why);
    /// The store has answered a call.
    void answered() {
        if (doubted_since_.load(std::memory_order_relaxed) != kNever) [[unlikely]]
            doubted_since_.store(kNever, std::memory_order_relaxed);
    }
    /// A call has failed in a way that need not be the store's fault. True when the store has
    /// answered nobody since the first such call, `patience` ago or longer: then it is.
    bool doubted_for(Duration patience);
    /// True for one caller a second: it may send a probe.
    bool takes_probe();
    /// Until the next probe may be sent; 1 us or more.
    Duration next_probe() const;
    /// A probe that was sent in this phase has been answered.
    void end(std::uint64_t phase);

    /// The change that nobody has been told of, if there is one.
    std::optional<OutageEvent> next_event();

    /// Where limiters of the policy `local` count meanwhile.
    const std::shared_ptr<memory::Store>& local() const { return local_; }
    /// A client that is gone may have left its address to another one.
    bool closed() const { return client_.expired(); }

    /// Probes come no faster than this, and wait no longer.
    static constexpr Duration kProbeEvery = std::chrono::seconds{1};
    /// Keys that `local` counts at once.
    static constexpr std::size_t kLocalKeys = 100'000;

  private:
    void before_fork() override { mutex_.lock(); }
    void after_fork(bool) override { mutex_.unlock(); }

    const std::weak_ptr<redis::Client> client_;
    const std::string address_;
    const std::shared_ptr<memory::Store> local_;
    std::atomic<std::uint64_t> phase_{0};  // Odd while the store is away.
    std::atomic<std::uint64_t> told_{0};   // The phase that somebody was told of.
    std::atomic<SteadyTime> next_probe_{SteadyTime{}};
    static constexpr SteadyTime kNever = SteadyTime::max();
    std::atomic<SteadyTime> doubted_since_{kNever};
    std::mutex mutex_;
    std::string why_{};  // Guarded by mutex_, as the next.
    SteadyTime since_{};
};

}  // namespace hotcount
