// What algorithms share: a base over each store, and stepped<Law>(), which makes an algorithm of pure
// arithmetic into a registration.
//
// A law is the arithmetic of an algorithm at a given rate: (state, now, cost) in, (state, outcome)
// out; no I/O, no clock. It has
//
//   State                                       what is kept of a key
//   static Result<Law> make(options)            checks the rate
//   limit()                                     what an idle key admits at once
//   step(state, now_us, cost, take)             a hit; no state when the key is absent. A clock that
//                                               went backwards stands still
//   kScript, script_arguments()                 the same in Lua, and its ARGV[4] to ARGV[6]
//
// The memory store runs the C++, a Redis the Lua, which calculates in doubles: a law refuses a rate
// for which a number would leave 2^53. tests/contract/limiter_vectors.json holds both to the same
// answers.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "limiter/algorithm.hpp"
#include "redis/scripts.hpp"

namespace hotcount {

template <class State>
struct StepResult {
    Outcome outcome{};
    /// To keep for reset_after_us; none when nothing changed.
    std::optional<State> state{};
};

// -- over memory ----------------------------------------------------------------------------------

class MemoryLimiterBackend : public LimiterBackend {
  public:
    MemoryLimiterBackend(std::shared_ptr<memory::Store> store, std::int64_t limit)
        : store_(std::move(store)), limit_(limit) {}

    std::string_view store_prefix() const override { return store_->options().prefix; }

    Result<void> reset(const std::string& key, Timeout) override {
        return store_->remove(key, [](const memory::Entry*) { return Result<void>{}; });
    }

  protected:
    // A hit that a full store could not keep, as `when_full` says. An idle key would have admitted it:
    // a cost above the limit does not come here.
    Result<Outcome> or_untracked(Result<Outcome> outcome, std::int64_t cost) {
        if (outcome.ok() || !store_->admits_untracked(outcome.error())) return outcome;
        return Outcome{true, limit_ - cost, 0, 0, true};
    }

    std::shared_ptr<memory::Store> store_;
    std::int64_t limit_;
};

/// Runs the law under the key's lock.
template <class Law>
class SteppedInMemory final : public MemoryLimiterBackend {
    using State = typename Law::State;

  public:
    SteppedInMemory(std::shared_ptr<memory::Store> store, const Law& law)
        : MemoryLimiterBackend(std::move(store), law.limit()), law_(law) {}

    Result<Outcome> decide(const std::string& key, std::int64_t cost, bool take, std::string_view,
                           Timeout) override {
        // What can only be denied must not leave an absent key behind.
        if (!take || cost > limit_) {
            return store_->read(key, [&](const memory::Entry* entry) -> Result<Outcome> {
                const State* const state = entry ? entry->as<State>() : nullptr;
                if (entry != nullptr && state == nullptr) return no_limit_state(key);
                return step(state, store_->now(), cost, take).outcome;
            });
        }
        auto outcome =
            store_->upsert(key, [&](memory::Entry& entry, bool fresh) -> Result<Outcome> {
                auto* const state = entry.as<State>(fresh);
                if (state == nullptr) return no_limit_state(key);
                const SteadyTime now = store_->now();
                const StepResult<State> next = step(fresh ? nullptr : state, now, cost, take);
                if (next.state) *state = *next.state;
                if (next.state || !entry.expires_at) {
                    // From the whole microsecond that was decided on, as the outcome says.
                    entry.expires_at = SteadyTime{std::chrono::microseconds{
                        to_us(now.time_since_epoch()) + next.outcome.reset_after_us}};
                }
                return next.outcome;
            });
        return or_untracked(std::move(outcome), cost);
    }

  private:
    static std::int64_t to_us(Duration duration) {
        return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
    }
    StepResult<State> step(const State* state, SteadyTime now, std::int64_t cost, bool take) const {
        // The store's time, not the limiter's own: limiters of one name share their states.
        return law_.step(state ? std::optional{*state} : std::nullopt,
                         to_us(now.time_since_epoch()) + to_us(store_->epoch()), cost, take);
    }

    const Law law_;
};

// -- over Redis -----------------------------------------------------------------------------------

/// {allowed, remaining, retry_after or -1, reset_after}: what every script answers.
inline constexpr redis::Script::Fits kIsOutcome = redis::is_tuple<4, redis::is_integer>;

class RedisLimiterBackend : public LimiterBackend {
  public:
    RedisLimiterBackend(std::shared_ptr<redis::Client> client, std::int64_t limit)
        : client_(std::move(client)), limit_(limit) {}

    std::string_view store_prefix() const override { return client_->options().prefix; }

    Result<Outcome> decide(const std::string& key, std::int64_t cost, bool take,
                           std::string_view who, Timeout timeout) override;
    Result<void> reset(const std::string& key, Timeout timeout) override;
    void reset_async(const std::string& key, const AsyncCall& call, Completion<void> done) override;
    void entries_async(const std::string&, const AsyncCall&,
                       Completion<std::vector<std::string>> done) override {
        done(std::vector<std::string>{});
    }

  protected:
    static Result<Outcome> to_outcome(const std::string& server, const Result<redis::Reply>& reply,
                                      const std::string& key);
    static Error strange_reply(const std::string& server);

    // What outlives a call must not point back here: a limiter may go before its calls end.
    std::string server() const { return client_->options().address(); }
    AsyncCall waiting(Timeout timeout) const { return {&client_->waiting(), timeout, nullptr}; }
    redis::Channel& channel(const AsyncCall& call) const {
        return call.channel != nullptr ? *call.channel : client_->without_waiting();
    }
    void submit(redis::Request request, const AsyncCall& call,
                Completion<redis::Reply> done) const {
        channel(call).submit(std::move(request), client_->deadline(call.timeout), std::move(done),
                             call.cancelled);
    }
    // What no limit admits may be cut: Lua would round a larger number.
    std::string to_price(std::int64_t cost) const {
        return std::to_string(std::min(cost, limit_ + 1));
    }

    std::shared_ptr<redis::Client> client_;
    std::int64_t limit_;
};

/// An error of a call about `key`, with the key in it.
Error about_limit(const std::string& key, const Error& error);

/// Runs a law's script, whose calls combine: hits that wait together travel as one call of it.
/// ARGV: the server's clock, to take or to look, whether denied hits are charged, `arguments`, costs.
std::unique_ptr<LimiterBackend> make_script_backend(std::shared_ptr<redis::Client> client,
                                                    const redis::Script& script, std::int64_t limit,
                                                    bool charge_denied,
                                                    std::array<std::int64_t, 3> arguments);

// -- the registration of a law --------------------------------------------------------------------

template <class Law>
class SimulatedLawKey final : public SimulatedKey {
  public:
    explicit SimulatedLawKey(const Law& law) : law_(law) {}
    Outcome hit(std::int64_t now_us, std::int64_t cost, bool take) override {
        const auto next = law_.step(state_, now_us, cost, take);
        if (next.state) state_ = next.state;
        return next.outcome;
    }

  private:
    const Law law_;
    std::optional<typename Law::State> state_{};
};

template <class Law>
constexpr LimiterAlgorithm stepped(const AlgorithmInfo& info) {
    using Backend = std::unique_ptr<LimiterBackend>;
    LimiterAlgorithm algorithm{info, nullptr, nullptr, nullptr};
    algorithm.over_memory = [](std::shared_ptr<memory::Store> store,
                               const LimiterOptions& options) -> Result<Backend> {
        HOTCOUNT_TRY_ASSIGN(const Law law, Law::make(options));
        return Backend{std::make_unique<SteppedInMemory<Law>>(std::move(store), law)};
    };
    algorithm.over_redis = [](std::shared_ptr<redis::Client> client,
                              const LimiterOptions& options) -> Result<Backend> {
        static const redis::Script kScript{Law::kScript, redis::Script::Kind::combinable,
                                           kIsOutcome};
        HOTCOUNT_TRY_ASSIGN(const Law law, Law::make(options));
        return make_script_backend(std::move(client), kScript, law.limit(), options.charge_denied,
                                   law.script_arguments());
    };
    algorithm.simulate =
        [](const LimiterOptions& options) -> Result<std::unique_ptr<SimulatedKey>> {
        HOTCOUNT_TRY_ASSIGN(const Law law, Law::make(options));
        return std::unique_ptr<SimulatedKey>{std::make_unique<SimulatedLawKey<Law>>(law)};
    };
    return algorithm;
}

}  // namespace hotcount
