// Units of a limit that a process takes in advance and spends by itself (LimiterOptions::lease).
//
// The store counts them when they are taken. At most lease - 1 of a key are held when no hit is
// being decided, until the window in which they were taken ends or the shortest period has passed
// since the call that took them was sent. While a call takes units of a key, other hits of it ask
// the store for themselves, so no hit waits for another one.
//
// Thread-safe. A forked child begins without leases.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>

#include "limiter/wrapped_backend.hpp"

namespace hotcount {

// The units that a limiter holds of each key, and the call that takes a lease of it, if any.
class Leases {
  public:
    /// Units that are held, or were taken out of the held units.
    struct HeldUnits {
        std::int64_t n{0};
        SteadyTime ends{};
    };

    /// The last outcome of a key from the store.
    struct LastAnswer {
        Outcome outcome{};
        SteadyTime reset{};
    };

    explicit Leases(std::int64_t size)
        : size_(size), table_([] { return std::make_unique<Table>(); }) {}

    std::int64_t size() const { return size_; }

    struct Begun {
        std::optional<Outcome> spent{};  ///< The held units were enough.
        std::uint64_t taking{0};         ///< Else the id of the call that takes one, or 0.
        HeldUnits held{};                ///< The units with which that call begins.
    };
    Begun begin(const std::string& key, std::int64_t cost) {
        if (cost > size_) return {};
        Table& table = table_.get();
        const std::lock_guard lock(table.mutex);
        const SteadyTime now = std::chrono::steady_clock::now();
        Lease* const lease = table.find_or_make(key, now);
        if (lease == nullptr) return {};
        if (now >= lease->held.ends) lease->held.n = 0;
        if (lease->held.n >= cost) return {.spent = spend(*lease, cost, now)};
        if (lease->taking != 0) return {};
        // Unique in each process: a forked child goes on from the ids that it inherits.
        static std::atomic<std::uint64_t> last{0};
        lease->taking = ++last;
        return {{}, lease->taking, std::exchange(lease->held, {})};
    }
    /// For a hit that takes no lease: its outcome if the held units are enough.
    std::optional<Outcome> spend_held(const std::string& key, std::int64_t cost) {
        Table& table = table_.get();
        const std::lock_guard lock(table.mutex);
        Lease* const lease = current(table, key);
        if (lease == nullptr || lease->held.n < cost) return std::nullopt;
        return spend(*lease, cost, std::chrono::steady_clock::now());
    }

    /// Ends a call that took a lease, and holds the units that it has not spent.
    void end(const std::string& key, std::uint64_t taking, const HeldUnits& rest,
             const LastAnswer* answer) {
        Table& table = table_.get();
        const std::lock_guard lock(table.mutex);
        Lease* const lease = table.find(key);
        // It was dropped meanwhile, or is another process's.
        if (lease == nullptr || lease->taking != taking) return;
        table.ended.notify_all();
        if (rest.n == 0) return table.erase(key);
        lease->taking = 0;
        lease->held = rest;
        if (answer != nullptr) lease->last = *answer;
    }

    /// Takes out as much of n as is held.
    HeldUnits take_out(const std::string& key, std::int64_t n) {
        Table& table = table_.get();
        const std::lock_guard lock(table.mutex);
        Lease* const lease = current(table, key);
        if (lease == nullptr) return {};
        const HeldUnits out{std::min(lease->held.n, n), lease->held.ends};
        lease->held.n -= out.n;
        return out;
    }
    /// Returns unspent units of take_out(). They are lost if the lease was dropped or replaced.
    void put_back(const std::string& key, const HeldUnits& out) {
        Table& table = table_.get();
        const std::lock_guard lock(table.mutex);
        Lease* const lease = current(table, key);
        if (lease != nullptr && lease->held.ends == out.ends) lease->held.n += out.n;
    }
    /// For a hit that the store denied: waits, until `deadline`, for the call that takes a lease of
    /// the key. Returns the hit's outcome if the held units are enough then.
    std::optional<Outcome> spend_taken(const std::string& key, std::int64_t cost,
                                       SteadyTime deadline) {
        Table& table = table_.get();
        std::unique_lock lock(table.mutex);
        table.ended.wait_until(lock, deadline, [&] {
            const Lease* const lease = table.find(key);
            return lease == nullptr || lease->taking == 0;
        });
        Lease* const lease = current(table, key);
        if (lease == nullptr || lease->held.n < cost) return std::nullopt;
        return spend(*lease, cost, std::chrono::steady_clock::now());
    }
    std::int64_t held(const std::string& key) {
        Table& table = table_.get();
        const std::lock_guard lock(table.mutex);
        const Lease* const lease = current(table, key);
        return lease == nullptr ? 0 : lease->held.n;
    }

    void drop(const std::string& key) {
        Table& table = table_.get();
        const std::lock_guard lock(table.mutex);
        table.erase(key);
        table.ended.notify_all();
    }

  private:
    // The most keys with a lease. Hits of further keys ask the store.
    static constexpr std::size_t kMost = 100'000;

    struct Lease {
        HeldUnits held{};
        std::uint64_t taking{0};  // The id of the call that takes units for it, or 0.
        LastAnswer last{};

        SteadyTime removable_at() const {
            if (taking != 0) return SteadyTime::max();
            return held.n > 0 ? held.ends : SteadyTime::min();
        }
    };
    struct Table : KeyTable<Lease> {
        Table() : KeyTable(kMost, false) {}
        std::condition_variable ended{};  // Notified when a call that took a lease ends.
    };

    static Lease* current(Table& table, const std::string& key) {
        Lease* const lease = table.find(key);
        if (lease != nullptr && std::chrono::steady_clock::now() >= lease->held.ends) {
            lease->held.n = 0;
        }
        return lease;
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

    const std::int64_t size_;
    ForkLocal<Table> table_;
};

namespace {

/// How long units of a limiter are held.
struct LeaseTerms {
    std::chrono::microseconds longest;  ///< The shortest of its periods.
    bool ends_with_window;              ///< When that ends, reset_after says.

    Duration life(const Outcome& taken) const {
        if (!ends_with_window) return longest;
        return std::min(longest, std::chrono::microseconds{taken.reset_after_us});
    }
};

/// A hit that takes a lease. When it is decided or dropped, its unspent units are held.
class LeaseTaking {
  public:
    LeaseTaking(std::shared_ptr<Leases> leases, const LeaseTerms& terms, const std::string& key,
                std::int64_t cost, const Leases::Begun& begun)
        : leases_(std::move(leases)),
          terms_(terms),
          key_(key),
          taking_(begun.taking),
          cost_(cost),
          held_(begun.held) {}
    LeaseTaking(const LeaseTaking&) = delete;
    LeaseTaking& operator=(const LeaseTaking&) = delete;
    ~LeaseTaking() { end(); }

    /// The units to ask the store for with Take::what_fits.
    std::int64_t wanted() const { return leases_->size() - held_.n; }
    /// How much more this hit costs than is held.
    std::int64_t missing() const { return cost_ - held_.n; }

    /// Holds the units that the store gave for a hit that was cancelled meanwhile.
    void keep(const Outcome& given) {
        drop_ended();
        const std::optional older = held_.n > 0 ? std::optional{held_.ends} : std::nullopt;
        take(given);
        if (older) held_.ends = std::min(held_.ends, *older);
        held_.n = given.blocked ? 0 : std::min(held_.n, leases_->size() - 1);
        end();
    }

    /// Takes the units that the store gave. Returns the hit's outcome; null: ask the store for
    /// missing().
    std::optional<Outcome> give(const Outcome& given) {
        if (given.blocked) return refuse(given);
        drop_ended();
        const std::int64_t taken = take(given);
        if (missing() <= 0) return spend(given);
        // With Take::what_fits and no room, a store answers as to a hit of 1.
        if (taken == 0 && missing() == 1) return refuse(given);
        return std::nullopt;
    }

    /// The hit's outcome from the store's answer to a hit of missing().
    Outcome finish(Outcome answered) {
        if (!answered.allowed) return refuse(answered);
        if (held_.n > 0 && drop_ended()) {
            // The rest of the cost was taken in a window or period that has ended meanwhile.
            answered.allowed = false;
            answered.retry_after_us = 1;
            return refuse(answered);
        }
        held_.n = cost_;
        return spend(answered);
    }

  private:
    // Drops the older units if they ended while the store was asked. Returns whether they had.
    bool drop_ended() {
        if (std::chrono::steady_clock::now() < held_.ends) return false;
        held_.n = 0;
        return true;
    }
    // Adds the given units to the held ones. Returns their number.
    std::int64_t take(const Outcome& given) {
        const std::int64_t taken = given.allowed ? given.taken : 0;
        if (taken > 0) {
            // The older units are spent first. If this hit is refused, all units end together.
            const SteadyTime ends = sent_ + terms_.life(given);
            const bool spends_older = held_.n == 0 || missing() <= taken;
            held_ = {held_.n + taken, spends_older ? ends : std::min(ends, held_.ends)};
            answer_ = {given, sent_ + std::chrono::microseconds{given.reset_after_us}};
        }
        return taken;
    }
    Outcome spend(Outcome outcome) {
        held_.n -= cost_;
        outcome.remaining += held_.n;
        outcome.taken = cost_;
        end();
        return outcome;
    }
    Outcome refuse(Outcome outcome) {
        // A block of the key also drops the held units.
        if (outcome.blocked) held_.n = 0;
        outcome.remaining += held_.n;
        end();
        return outcome;
    }
    // Called before the hit completes, so that the caller's next hit finds the held units.
    void end() {
        if (std::exchange(ended_, true)) return;
        leases_->end(key_, taking_, held_, answer_ ? &*answer_ : nullptr);
    }

    const std::shared_ptr<Leases> leases_;
    const LeaseTerms terms_;
    const std::string key_;
    const std::uint64_t taking_;
    const std::int64_t cost_;
    const SteadyTime sent_{std::chrono::steady_clock::now()};
    Leases::HeldUnits held_;
    std::optional<Leases::LastAnswer> answer_{};
    bool ended_{false};
};

/// How long a denied hit without a timeout waits for a lease that another hit takes.
constexpr Duration kWaits = std::chrono::seconds{1};

class LeaseBackend final : public WrappedBackend {
  public:
    LeaseBackend(std::unique_ptr<LimiterBackend> backend, std::shared_ptr<Leases> leases,
                 const LeaseTerms& terms, std::int64_t limit)
        : WrappedBackend(std::move(backend)),
          leases_(std::move(leases)),
          terms_(terms),
          limit_(limit) {}

    void run(const std::string& key, const LimitRequest& request, const AsyncCall& call,
             Completion<Outcome> done) override {
        const HitRequest* const hit = request.hit();
        if (hit != nullptr && may_spend(*hit)) {
            return spend(key, hit->cost, hit->take, call, std::move(done));
        }
        if (request.blocks() || request.resets()) done = dropping(key, std::move(done));
        backend_->run(key, request, call, std::move(done));
    }

    void hit_many(std::vector<std::string> keys, std::vector<std::int64_t> costs,
                  const AsyncCall& call, Completion<std::vector<Result<Outcome>>> done) override {
        const auto asked = std::make_shared<AskedElements>(keys, costs, spend_held());
        backend_->hit_many(
            asked->keys, asked->costs, call,
            [asked, done = std::move(done)](Result<std::vector<Result<Outcome>>> outcomes) {
                if (outcomes) *outcomes = asked->join(std::move(*outcomes));
                done(std::move(outcomes));
            });
    }

  private:
    void spend(const std::string& key, std::int64_t cost, Take take, const AsyncCall& call,
               Completion<Outcome> done) {
        if (take == Take::nothing) {
            const std::int64_t held = leases_->held(key);
            return backend_->run(key, {HitRequest{std::max<std::int64_t>(cost - held, 1), take}},
                                 call,
                                 [held, cost, done = std::move(done)](Result<Outcome> looked) {
                                     if (looked) *looked = beside(*looked, held, cost);
                                     done(std::move(looked));
                                 });
        }
        if (take == Take::what_fits) {
            const Leases::HeldUnits out = leases_->take_out(key, cost);
            if (out.n == cost) return done(all_of(cost));
            return backend_->run(
                key, {HitRequest{cost - out.n, take}}, call,
                [leases = leases_, key, out, done = std::move(done)](Result<Outcome> taken) {
                    done(with_units(*leases, key, out, std::move(taken)));
                });
        }
        const auto begun = leases_->begin(key, cost);
        if (begun.spent) return done(*begun.spent);
        if (begun.taking == 0) {
            // A blocking caller waits until then for the hit that takes the lease.
            const SteadyTime until = std::chrono::steady_clock::now() +
                                     (call.waits ? call.timeout.value_or(kWaits) : Duration{0});
            return backend_->run(key, {HitRequest{cost, take}}, call,
                                 [leases = leases_, key, cost, until,
                                  done = std::move(done)](Result<Outcome> outcome) {
                                     // Another hit of this object may just be taking the
                                     // units.
                                     if (is_denied(outcome)) {
                                         if (auto spent = leases->spend_taken(key, cost, until))
                                             return done(*spent);
                                     }
                                     done(std::move(outcome));
                                 });
        }
        const auto taking = std::make_shared<LeaseTaking>(leases_, terms_, key, cost, begun);
        // Other hits may spend the lease, so cancelling this hit does not withdraw it.
        const AsyncCall own{call.channel, call.timeout, nullptr, call.waits};
        backend_->run(key, {HitRequest{taking->wanted(), Take::what_fits}}, own,
                      [taking, backend = backend_, key, take, call,
                       done = std::move(done)](Result<Outcome> given) {
                          if (!given) return done(std::move(given));
                          if (call.cancelled != nullptr && *call.cancelled) {
                              taking->keep(*given);
                              return done(std::move(given));
                          }
                          if (const auto outcome = taking->give(*given)) return done(*outcome);
                          backend->run(key, {HitRequest{taking->missing(), take}}, call,
                                       [taking, done](Result<Outcome> answered) {
                                           if (answered) *answered = taking->finish(*answered);
                                           done(std::move(answered));
                                       });
                      });
    }

    Completion<Outcome> dropping(const std::string& key, Completion<Outcome> done) const {
        leases_->drop(key);
        return [leases = leases_, key, done = std::move(done)](Result<Outcome> outcome) {
            leases->drop(key);  // Units that were taken meanwhile.
            done(std::move(outcome));
        };
    }
    // Hits of hit_all(), which are Take::all_free, and hits with an op_id spend no held units.
    bool may_spend(const HitRequest& hit) const {
        return hit.once == nullptr && hit.take != Take::all_free &&
               (hit.take == Take::what_fits || hit.cost <= limit_);
    }

    static bool is_denied(const Result<Outcome>& outcome) {
        return outcome && !outcome->allowed && !outcome->blocked;
    }

    // The outcome of a look: the store was asked for the missing units, or for 1.
    static Outcome beside(Outcome looked, std::int64_t held, std::int64_t cost) {
        if (looked.blocked) return looked;
        looked.remaining += held;
        if (held < cost) return looked;
        looked.allowed = true;
        looked.retry_after_us = 0;
        looked.violated = 0;
        return looked;
    }

    // at_most() returns how much was taken and nothing else.
    static Outcome all_of(std::int64_t n) {
        Outcome outcome{};
        outcome.allowed = true;
        outcome.taken = n;
        return outcome;
    }
    static Result<Outcome> with_units(Leases& leases, const std::string& key,
                                      const Leases::HeldUnits& out, Result<Outcome> taken) {
        if (!taken) {
            leases.put_back(key, out);
            return taken;
        }
        if (taken->blocked) {
            leases.drop(key);
            return taken;
        }
        if (out.n > 0) *taken = all_of(out.n + (taken->allowed ? taken->taken : 0));
        return taken;
    }

    AskedElements::Known spend_held() const {
        return [this](const std::string& key, std::int64_t cost) {
            return leases_->spend_held(key, cost);
        };
    }

    const std::shared_ptr<Leases> leases_;
    const LeaseTerms terms_;
    const std::int64_t limit_;
};

}  // namespace

std::shared_ptr<Leases> make_leases(const LimiterOptions& options) {
    return options.lease > 1 ? std::make_shared<Leases>(options.lease) : nullptr;
}

std::unique_ptr<LimiterBackend> with_leases(std::unique_ptr<LimiterBackend> backend,
                                            std::shared_ptr<Leases> leases,
                                            const LimiterOptions& options) {
    if (leases == nullptr) return backend;
    const LeaseTerms terms{std::ranges::min(options.rates, {}, &Rate::period).period,
                           info(options.algorithm).window == WindowKind::store_clock};
    return std::make_unique<LeaseBackend>(std::move(backend), std::move(leases), terms,
                                          std::ranges::min(options.rates, {}, &Rate::burst).burst);
}

}  // namespace hotcount
