// What the calls of a limiter hold of each key, and which of them takes a lease: leases.cpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/hash.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "limiter/backends.hpp"

namespace hotcount {

class Leases {
  public:
    /// Units that are held, or were taken out of what is held.
    struct HeldUnits {
        std::int64_t n{0};
        SteadyTime ends{};
    };

    /// What the store last said of a key.
    struct LastAnswer {
        Outcome outcome{};
        SteadyTime reset{};
    };

    explicit Leases(std::int64_t size)
        : size_(size), table_([] { return std::make_unique<Table>(); }) {}

    std::int64_t size() const { return size_; }

    struct Begun {
        std::optional<Outcome> spent{};  ///< What is held was enough.
        std::uint64_t taking{0};         ///< Else the call that takes a lease; 0: take none.
        HeldUnits held{};                ///< What that call begins with.
    };
    Begun begin(const std::string& key, std::int64_t cost) {
        if (cost > size_) return {};
        Table& table = table_.get();
        const std::lock_guard lock(table.mutex);
        const SteadyTime now = std::chrono::steady_clock::now();
        auto found = table.by_key.find(key);
        if (found != table.by_key.end()) {
            Lease& lease = found->second;
            if (now >= lease.held.ends) lease.held.n = 0;
            if (lease.held.n >= cost) return {.spent = spend(lease, cost, now)};
            if (lease.taking != 0) return {};
        } else {
            if (table.by_key.size() >= kMost && !make_room(table, now)) return {};
            found = table.by_key.try_emplace(key).first;
        }
        // Not used twice in the processes of a fork: a child's are greater than those it inherits.
        static std::atomic<std::uint64_t> last{0};
        found->second.taking = ++last;
        return {{}, found->second.taking, std::exchange(found->second.held, {})};
    }
    /// For a hit that takes no lease: its outcome if what is held is enough.
    std::optional<Outcome> spend_held(const std::string& key, std::int64_t cost) {
        Table& table = table_.get();
        const std::lock_guard lock(table.mutex);
        Lease* const lease = find(table, key);
        if (lease == nullptr || lease->held.n < cost) return std::nullopt;
        return spend(*lease, cost, std::chrono::steady_clock::now());
    }

    /// Ends a call that took a lease, and holds what it has not spent.
    void end(const std::string& key, std::uint64_t taking, const HeldUnits& rest,
             const LastAnswer* answer) {
        Table& table = table_.get();
        const std::lock_guard lock(table.mutex);
        const auto found = table.by_key.find(key);
        // It was dropped meanwhile, or is another process's.
        if (found == table.by_key.end() || found->second.taking != taking) return;
        table.ended.notify_all();
        if (rest.n == 0) {
            table.by_key.erase(found);
            return;
        }
        found->second.taking = 0;
        found->second.held = rest;
        if (answer != nullptr) found->second.last = *answer;
    }

    /// Takes out as much of n as is held.
    HeldUnits take_out(const std::string& key, std::int64_t n) {
        Table& table = table_.get();
        const std::lock_guard lock(table.mutex);
        Lease* const lease = find(table, key);
        if (lease == nullptr) return {};
        const HeldUnits out{std::min(lease->held.n, n), lease->held.ends};
        lease->held.n -= out.n;
        return out;
    }
    /// What was not spent of that. It is lost if the lease was dropped, or another one taken.
    void put_back(const std::string& key, const HeldUnits& out) {
        Table& table = table_.get();
        const std::lock_guard lock(table.mutex);
        Lease* const lease = find(table, key);
        if (lease != nullptr && lease->held.ends == out.ends) lease->held.n += out.n;
    }
    /// For a hit that the store denied: its outcome if what is held is enough, once nobody takes a
    /// lease of the key any more. Waits for that, until `deadline`.
    std::optional<Outcome> spend_taken(const std::string& key, std::int64_t cost,
                                       SteadyTime deadline) {
        Table& table = table_.get();
        std::unique_lock lock(table.mutex);
        table.ended.wait_until(lock, deadline, [&] {
            const auto found = table.by_key.find(key);
            return found == table.by_key.end() || found->second.taking == 0;
        });
        Lease* const lease = find(table, key);
        if (lease == nullptr || lease->held.n < cost) return std::nullopt;
        return spend(*lease, cost, std::chrono::steady_clock::now());
    }
    std::int64_t held(const std::string& key) {
        Table& table = table_.get();
        const std::lock_guard lock(table.mutex);
        const Lease* const lease = find(table, key);
        return lease == nullptr ? 0 : lease->held.n;
    }

    void drop(const std::string& key) {
        Table& table = table_.get();
        const std::lock_guard lock(table.mutex);
        table.by_key.erase(key);
        table.ended.notify_all();
    }

  private:
    // How many keys have a lease at once; hits of more ask the store.
    static constexpr std::size_t kMost = 100'000;

    struct Lease {
        HeldUnits held{};
        std::uint64_t taking{0};  // The call that takes units for it; 0: none.
        LastAnswer last{};
    };
    struct Table {
        std::mutex mutex;
        std::condition_variable ended;  // Of a call that took a lease.
        std::unordered_map<std::string, Lease, KeyedHash> by_key;
        std::size_t bucket{0};  // Where make_room() goes on.
    };

    static Lease* find(Table& table, const std::string& key) {
        const auto found = table.by_key.find(key);
        if (found == table.by_key.end()) return nullptr;
        if (std::chrono::steady_clock::now() >= found->second.held.ends) found->second.held.n = 0;
        return &found->second;
    }

    static Outcome spend(Lease& lease, std::int64_t cost, SteadyTime now) {
        lease.held.n -= cost;
        Outcome outcome = lease.last.outcome;
        outcome.remaining += lease.held.n;
        outcome.taken = cost;
        const auto left = std::chrono::ceil<std::chrono::microseconds>(lease.last.reset - now);
        outcome.reset_after_us = std::max<std::int64_t>(left.count(), 0);
        return outcome;
    }

    // Looks at a few leases for one that holds nothing any more, and goes on there the next time.
    static bool make_room(Table& table, SteadyTime now) {
        constexpr int kLooksAt = 16;
        for (int i = 0; i < kLooksAt; ++i) {
            table.bucket = (table.bucket + 1) % table.by_key.bucket_count();
            for (auto one = table.by_key.begin(table.bucket); one != table.by_key.end(table.bucket);
                 ++one) {
                const Lease& lease = one->second;
                if (lease.taking != 0 || (lease.held.n > 0 && now < lease.held.ends)) continue;
                table.by_key.erase(table.by_key.find(one->first));
                return true;
            }
        }
        return false;
    }

    const std::int64_t size_;
    ForkLocal<Table> table_;
};

}  // namespace hotcount
