// The parts that algorithms share: the base class over Redis, and stepped<Law>(), which registers
// an algorithm that is pure arithmetic.
//
// A law is the arithmetic of an algorithm at one rate: (state, now, cost) in, (change, outcome)
// out; no I/O, no clock. It has
//
//   State                                       the stored state of a key. time(): when it was
//                                               changed last, or its window began
//   static Result<Law> make(rate, options)      checks the rate
//   limit()                                     the hits that an idle key admits at once
//   step(const State*, now_us, cost, take, outcome&)
//                                               a hit: fills a new Outcome, returns the change to
//                                               keep for reset_after_us, if any. Null: the key is
//                                               absent. A state that lies_ahead() is moved to now:
//                                               then there is a change although nothing was taken.
//                                               A law of Take::ahead has a last parameter `ahead`
//   give_back(const State&, now_us, n, outcome&)
//                                               a refund of n hits: sets `remaining` and the time
//                                               until the state can be dropped, returns the change
//   apply(State&, change)                       if a change is less than a whole new State
//   holds(const State&)                         whether hits at this rate can have led to it:
//                                               other programs can write the row
//   script(), script_arguments()                step() in Lua, and its three numbers
//   kStepName, step_text()                      if its state is one string: its part of hit_all.lua
//
// Several<Law> is a law of several rates. The memory store runs the C++, a Redis the Lua, which
// calculates in doubles: a law refuses a rate for which a number would leave 2^53.
// tests/contract/limiter_vectors.json holds both to the same answers.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "limiter/algorithm.hpp"
#include "limiter/memory_backend.hpp"
#include "limiter/stored_law.hpp"
#include "redis/scripts.hpp"

namespace hotcount {

/// The integers that a double, and so Lua, holds exactly.
inline constexpr std::int64_t kExact = std::int64_t{1} << 53;

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Divides by a constant divisor with a multiplication: a third of a division's time.
///
/// Exact for 0 <= n < 2^53 and divisors of 1 to 2^53. With s the bits of divisor - 1, the factor is
/// 2^(63 + s) / divisor rounded up, so by less than 1. Then n * factor is above
/// n * 2^(63 + s) / divisor by less than n, and the next whole quotient is further away than that.
class Divisor {
  public:
    explicit Divisor(std::int64_t divisor) {
        const auto by = static_cast<std::uint64_t>(divisor);
        shift_ = static_cast<unsigned>(std::bit_width(by - 1));
        factor_ = static_cast<std::uint64_t>(((Wide{1} << (63 + shift_)) + by - 1) / by);
    }
    /// n / divisor, rounded down.
    std::int64_t divide(std::int64_t n) const {
        const Wide product = Wide{factor_} * (static_cast<std::uint64_t>(n) << 1);
        return static_cast<std::int64_t>(static_cast<std::uint64_t>(product >> 64) >> shift_);
    }

  private:
    __extension__ using Wide = unsigned __int128;

    std::uint64_t factor_;
    unsigned shift_;
};

/// A law at several rates: all of them take a hit, or none.
template <class Law>
class Several {
    using OneChange = ChangeOf<Law>;

  public:
    using State = std::vector<typename Law::State>;
    using Change = std::vector<std::optional<OneChange>>;

    static Result<Several> make(const LimiterOptions& options) {
        Several several;
        for (const Rate& rate : options.rates) {
            HOTCOUNT_TRY_ASSIGN(Law law, Law::make(rate, options));
            several.laws_.push_back(std::move(law));
        }
        several.charge_denied_ = options.charge_denied;
        return several;
    }

    std::span<const Law> laws() const { return laws_; }
    /// The hits that an idle key admits at once.
    std::int64_t limit() const {
        std::int64_t least = laws_.front().limit();
        for (const Law& law : laws_) least = std::min(least, law.limit());
        return least;
    }

    std::optional<Change> step(const State* state, std::int64_t now, std::int64_t cost, bool take,
                               Outcome& outcome) const {
        if (take) {
            const Outcome looked = run(state, now, cost, false, nullptr);
            take = looked.allowed || (looked.retry_after_us && charge_denied_);
        }
        Change change(laws_.size());
        outcome = run(state, now, cost, take, &change);
        const auto is_change = [](const std::optional<OneChange>& one) { return one.has_value(); };
        if (!take && std::ranges::none_of(change, is_change)) return std::nullopt;
        return change;
    }
    std::optional<Change> give_back(const State& state, std::int64_t now, std::int64_t n,
                                    Outcome& outcome) const {
        std::array<Outcome, LimiterOptions::kMaxRates> outcomes{};
        Change change(laws_.size());
        for (std::size_t i = 0; i < laws_.size(); ++i) {
            auto one = hotcount::give_back(laws_[i], &state[i], now, n);
            outcomes[i] = one.outcome;
            change[i] = std::move(one.change);
        }
        outcome = merge(std::span{outcomes}.first(laws_.size()));
        return change;
    }
    bool holds(const State& state) const {
        for (std::size_t i = 0; i < laws_.size(); ++i) {
            if (!laws_[i].holds(state[i])) return false;
        }
        return true;
    }
    void apply(State& state, Change change) const {
        state.resize(laws_.size());
        for (std::size_t i = 0; i < laws_.size(); ++i) {
            if (change[i]) apply_change(laws_[i], state[i], std::move(*change[i]));
        }
    }

  private:
    Outcome run(const State* state, std::int64_t now, std::int64_t cost, bool take,
                Change* change) const {
        std::array<Outcome, LimiterOptions::kMaxRates> outcomes{};
        for (std::size_t i = 0; i < laws_.size(); ++i) {
            auto one = laws_[i].step(state ? &(*state)[i] : nullptr, now, cost, take, outcomes[i]);
            if (change != nullptr) (*change)[i] = std::move(one);
        }
        return merge(std::span{outcomes}.first(laws_.size()));
    }

    std::vector<Law> laws_{};
    bool charge_denied_{false};
};

// -- over Redis -----------------------------------------------------------------------------------

/// Whether a reply has {allowed, remaining, retry_after or -1, reset_after} for each rate. With
/// Take::what_fits the units taken stand in the place of `allowed`; for a blocked key, -1.
bool is_outcome(const redis::Reply& reply, std::size_t keys);

/// An error of a call about `key`, with the key in it.
Error about_limit(const std::string& key, const Error& error);

/// A script behind the names that it uses: frame/names.lua.
std::string with_names(std::string_view script);
/// The text of a script: that of a law's step(), and the frame that hits keys by it.
std::string framed(std::string_view step);
/// The text of a script whose hits are counted once for each op_id.
std::string once_only(std::string_view script);

/// Runs a law's script, whose calls combine: hits that wait together travel as one call of it.
/// `step_name`: in hit_all.lua; empty when it is not in there.
/// ARGV: the server's clock, the Take, whether denied hits are charged, three numbers for
/// each rate, costs.
/// `once`: the script with once_only().
std::unique_ptr<LimiterBackend> make_script_backend(std::shared_ptr<redis::Client> client,
                                                    const redis::Script& script,
                                                    const redis::Script& once, std::int64_t limit,
                                                    bool charge_denied,
                                                    std::span<const std::int64_t> numbers,
                                                    std::string_view step_name);

// -- the registration of a law --------------------------------------------------------------------

template <class Law>
class SimulatedLawKey final : public SimulatedKey {
  public:
    explicit SimulatedLawKey(const Law& law) : law_(law) {}
    Outcome hit(std::int64_t now_us, std::int64_t cost, bool take) override {
        auto next = step_of(law_, state_ ? &*state_ : nullptr, now_us, cost, take);
        if (next.change) {
            if (!state_) state_.emplace();
            apply_change(law_, *state_, std::move(*next.change));
        }
        return next.outcome;
    }

  private:
    const Law law_;
    std::optional<typename Law::State> state_{};
};

/// Calls `make` with the law that the options ask for: of one rate, or of several.
template <class Law, class Make>
auto with_law(const LimiterOptions& options, const Make& make)
    -> decltype(make(std::declval<const Law&>())) {
    if (options.rates.size() > 1) {
        HOTCOUNT_TRY_ASSIGN(const auto law, Several<Law>::make(options));
        return make(law);
    }
    HOTCOUNT_TRY_ASSIGN(const Law law, Law::make(options.rates.front(), options));
    return make(law);
}

/// Makes a Law, whose type says whether it is of one rate or of several, from the options.
template <class Law>
Result<Law> law_of(const LimiterOptions& options) {
    if constexpr (requires { Law::make(options); }) {
        return Law::make(options);
    } else {
        return Law::make(options.rates.front(), options);
    }
}

template <class Law>
constexpr LimiterAlgorithm stepped(const AlgorithmInfo& info) {
    using Backend = std::unique_ptr<LimiterBackend>;
    LimiterAlgorithm algorithm{info, nullptr, nullptr};
    if constexpr (requires { Law::kStepName; }) {
        algorithm.step_name = Law::kStepName;
        algorithm.step_text = Law::step_text;
    }
    algorithm.over_memory = [](std::shared_ptr<memory::Store> store,
                               const LimiterOptions& options) -> Result<Backend> {
        return with_law<Law>(options, [&]<class Chosen>(const Chosen& law) -> Result<Backend> {
            LimiterOptions charging = options;
            charging.charge_denied = true;
            return Backend{std::make_unique<SteppedInMemory<Chosen>>(
                std::move(store), law, key_prefix(options), law_of<Chosen>(charging),
                options.charge_denied)};
        });
    };
    algorithm.over_redis = [](std::shared_ptr<redis::Client> client,
                              const LimiterOptions& options) -> Result<Backend> {
        static const std::string kText = with_names(Law::script());
        static const redis::Script kScript{kText, redis::Script::Kind::combinable, is_outcome, 4};
        static const std::string kOnceText = with_names(once_only(Law::script()));
        static const redis::Script kOnce{kOnceText, redis::Script::Kind::single, is_outcome};
        std::vector<std::int64_t> numbers;
        std::int64_t most = 0;
        for (const Rate& rate : options.rates) {
            HOTCOUNT_TRY_ASSIGN(const Law law, Law::make(rate, options));
            most = std::max(most, law.limit());
            for (const std::int64_t number : law.script_arguments()) numbers.push_back(number);
        }
        std::string_view step_name;
        if constexpr (requires { Law::kStepName; }) step_name = Law::kStepName;
        return make_script_backend(std::move(client), kScript, kOnce, most, options.charge_denied,
                                   numbers, step_name);
    };
    algorithm.stored = [](const LimiterOptions& options) -> Result<std::unique_ptr<StoredLaw>> {
        if constexpr (requires { Law::kMostStored; }) {
            for (const Rate& rate : options.rates) {
                if (rate.limit > Law::kMostStored)
                    return too_much_stored(options, Law::kMostStored);
            }
        }
        return with_law<Law>(
            options, [&]<class Chosen>(const Chosen& law) -> Result<std::unique_ptr<StoredLaw>> {
                return std::unique_ptr<StoredLaw>{
                    std::make_unique<StoredLawOf<Chosen>>(law, options.rates.size())};
            });
    };
    algorithm.simulate =
        [](const LimiterOptions& options) -> Result<std::unique_ptr<SimulatedKey>> {
        return with_law<Law>(
            options, []<class Chosen>(const Chosen& law) -> Result<std::unique_ptr<SimulatedKey>> {
                return std::unique_ptr<SimulatedKey>{
                    std::make_unique<SimulatedLawKey<Chosen>>(law)};
            });
    };
    return algorithm;
}

}  // namespace hotcount
