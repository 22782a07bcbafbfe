// The state of a limiter's key as a database stores it, and a law's decisions on it.
//
// A row's text is integers, in decimal. A state that consists of integers alone is
// written as it is; another one has append_numbers() and take_numbers().
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "limiter/algorithm.hpp"

namespace hotcount {

/// One key while a transaction holds its row.
class StoredKey {
  public:
    virtual ~StoredKey() = default;

    // As LimiterBackend has them.
    virtual Outcome hit(std::int64_t now_us, std::int64_t cost, Take take) = 0;
    virtual Outcome refund(std::int64_t now_us, std::int64_t n) = 0;
    virtual Outcome block(std::int64_t now_us, std::chrono::microseconds life) = 0;
    /// As if it had never been hit.
    virtual void forget() = 0;
    /// The text that the row must hold; empty if there must be no row.
    virtual std::string text() const = 0;

    /// Whether the row must be written. True after a look, too, if the clock was set back.
    bool changed() const { return changed_; }
    /// The time from which the row can be removed, in microseconds since the epoch.
    std::int64_t expires_us() const { return expires_us_; }

  protected:
    void keep_until(std::int64_t us) {
        changed_ = true;
        expires_us_ = us;
    }

  private:
    bool changed_{false};
    std::int64_t expires_us_{0};
};

/// A law over states that are text. Stateless, thread-safe.
class StoredLaw {
  public:
    virtual ~StoredLaw() = default;
    /// The hits that an idle key admits at once.
    virtual std::int64_t limit() const = 0;
    /// The key with this stored text; an empty text means an absent key. Null if the text is no
    /// state of this law. The result must not outlive the law.
    virtual std::unique_ptr<StoredKey> open(std::string_view text) const = 0;
};

/// The error for a limit above the largest that a database stores.
Error too_much_stored(const LimiterOptions& options, std::int64_t most);

// -- states as numbers ----------------------------------------------------------------------------

std::string text_of(std::span<const std::int64_t> numbers);
/// The inverse. Empty if the text is something else, or a number is below 0 or above 2^53.
std::vector<std::int64_t> numbers_of(std::string_view text);

template <class State>
void append_numbers(const State& state, std::vector<std::int64_t>& numbers) {
    if constexpr (requires { state.append_numbers(numbers); }) {
        state.append_numbers(numbers);
    } else {
        static_assert(std::is_trivially_copyable_v<State> && sizeof(State) % 8 == 0);
        const auto plain = std::bit_cast<std::array<std::int64_t, sizeof(State) / 8>>(state);
        numbers.insert(numbers.end(), plain.begin(), plain.end());
    }
}
/// Takes the state off the front; false if the numbers are no state.
template <class State>
bool take_numbers(std::span<const std::int64_t>& numbers, State& state) {
    if constexpr (requires { state.take_numbers(numbers); }) {
        return state.take_numbers(numbers);
    } else {
        std::array<std::int64_t, sizeof(State) / 8> plain;
        if (numbers.size() < plain.size()) return false;
        std::copy_n(numbers.begin(), plain.size(), plain.begin());
        numbers = numbers.subspan(plain.size());
        state = std::bit_cast<State>(plain);
        return true;
    }
}

/// The states of several rates.
template <class State>
void append_numbers(const std::vector<State>& states, std::vector<std::int64_t>& numbers) {
    for (const State& state : states) append_numbers(state, numbers);
}
template <class State>
bool take_numbers(std::span<const std::int64_t>& numbers, std::vector<State>& states) {
    for (State& state : states) {
        if (!take_numbers(numbers, state)) return false;
    }
    return true;
}

// -- a law over such states -----------------------------------------------------------------------

/// The text of a key: until when it is blocked, in microseconds since the epoch, then the law's
/// state if there is one, and of a blocked one for how long.
template <class Law>
class StoredLawOf final : public StoredLaw {
    using State = typename Law::State;

  public:
    StoredLawOf(const Law& law, std::size_t rates) : law_(law), rates_(rates) {}

    std::int64_t limit() const override { return law_.limit(); }

    std::unique_ptr<StoredKey> open(std::string_view text) const override {
        auto key = std::make_unique<Key>(law_);
        if (text.empty()) return key;
        const auto numbers = numbers_of(text);
        if (numbers.empty()) return nullptr;
        key->blocked_until = numbers.front();
        std::span<const std::int64_t> left = std::span{numbers}.subspan(1);
        const auto take_block = [&] {
            if (key->blocked_until == 0 || left.size() != 1) return left.empty();
            key->blocked_for = left.front();
            return true;
        };
        if (take_block()) return key;
        State& state = key->state.emplace();
        if constexpr (requires { state.resize(rates_); }) state.resize(rates_);
        if (!take_numbers(left, state) || !take_block() || !law_.holds(state)) return nullptr;
        return key;
    }

  private:
    struct Key final : StoredKey {
        explicit Key(const Law& of_law) : law(of_law) {}

        Outcome hit(std::int64_t now, std::int64_t cost, Take take) override {
            const State* const known = kept();
            const std::int64_t left = left_of_block(now);
            bool takes = take != Take::nothing && cost <= law.limit() && left <= 0;
            if (takes && take == Take::all_free) {
                takes = step_of(law, known, now, cost, false).outcome.allowed;
            }
            if (takes && take == Take::what_fits) {
                const std::int64_t room = step_of(law, known, now, 1, false).outcome.remaining;
                takes = room > 0;
                cost = takes ? std::min(cost, room) : 1;
            }
            auto next = step_of(law, known, now, cost, takes, take == Take::ahead);
            if (takes && next.outcome.allowed) next.outcome.taken = cost;
            return keep(std::move(next), now, left);
        }
        Outcome refund(std::int64_t now, std::int64_t n) override {
            const std::int64_t left = left_of_block(now);
            auto next = give_back(law, kept(), now, n);
            const std::int64_t remaining = next.outcome.remaining;
            Outcome outcome = keep(std::move(next), now, left);
            outcome.remaining = remaining;
            return outcome;
        }
        Outcome block(std::int64_t now, std::chrono::microseconds life) override {
            blocked_until = now + life.count();
            blocked_for = life.count();
            const Outcome outcome =
                blocked(step_of(law, kept(), now, 1, false).outcome, life.count());
            keep_until(now + outcome.forget_after_us());
            return outcome;
        }
        void forget() override {
            state.reset();
            blocked_until = 0;
            keep_until(0);
        }
        std::string text() const override {
            if (!state && blocked_until == 0) return {};
            std::vector<std::int64_t> numbers{blocked_until};
            if (state) append_numbers(*state, numbers);
            if (blocked_until > 0 && blocked_for) numbers.push_back(*blocked_for);
            return text_of(numbers);
        }

        const State* kept() const { return state ? &*state : nullptr; }
        // Where the clock was set back, all of a block lies ahead.
        std::int64_t left_of_block(std::int64_t now) {
            moved = blocked_for && lies_ahead(blocked_until, now + *blocked_for);
            if (moved) blocked_until = now + *blocked_for;
            return blocked_until - now;
        }
        Outcome keep(StepResult<ChangeOf<Law>> next, std::int64_t now, std::int64_t left) {
            const Outcome outcome = left > 0 ? blocked(next.outcome, left) : next.outcome;
            if (next.change) {
                if (!state) state.emplace();
                apply_change(law, *state, std::move(*next.change));
                if (left <= 0) blocked_until = 0;
            }
            if (next.change || moved) keep_until(now + outcome.forget_after_us());
            return outcome;
        }

        const Law& law;
        bool moved{false};
        std::optional<State> state{};
        std::int64_t blocked_until{0};
        std::optional<std::int64_t> blocked_for{};
    };

    const Law law_;
    const std::size_t rates_;
};

}  // namespace hotcount
