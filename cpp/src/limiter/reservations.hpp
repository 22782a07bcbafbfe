// The mark of a key, stored before its state: the end of its block and its reservations. And how a
// law decides a hit of a key with a mark.
//
// Reserved units are not charged: a hit is tested with them added to its cost, and charged without
// them. So the end of a reservation's lease needs no refund. lua/frame/hit_keys.lua does the same.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "limiter/algorithm.hpp"

namespace hotcount {

/// Part of a key's limit, for an id until its lease ends, in microseconds since the epoch.
struct Reservation {
    std::string id;
    std::int64_t n;
    std::int64_t ends;
};

struct KeyMark {
    /// Each hit of a key with reservations looks at all of them.
    static constexpr std::size_t kMost = 1000;

    std::int64_t blocked_until{0};
    std::vector<Reservation> live{};

    void drop_ended(std::int64_t now) {
        std::erase_if(live, [=](const Reservation& one) { return one.ends <= now; });
    }
    bool has(std::string_view id) const {
        return std::ranges::find(live, id, &Reservation::id) != live.end();
    }
    void remove(std::string_view id) {
        std::erase_if(live, [=](const Reservation& one) { return one.id == id; });
    }
    std::int64_t held() const {
        std::int64_t sum = 0;
        for (const Reservation& one : live) sum += one.n;
        return sum;
    }
    /// When the last lease ends; 0: there is none.
    std::int64_t lasts() const {
        std::int64_t last = 0;
        for (const Reservation& one : live) last = std::max(last, one.ends);
        return last;
    }
    bool counts(std::int64_t now) const { return blocked_until > now || !live.empty(); }
};

/// The state of a key with a mark. Other keys have the plain state, so that marks cost them
/// nothing.
template <class State>
struct MarkedState {
    std::optional<State> state{};
    KeyMark mark{};
};

/// The state of one of a law's rates; null if the key has none.
template <class Law>
const auto* state_at(const Law&, const typename Law::State* state, std::size_t rate) {
    if constexpr (requires(const Law& law) { law.laws(); }) {
        return state ? &(*state)[rate] : nullptr;
    } else {
        return state;
    }
}

/// Calls each(law, state, rate) for each of a law's rates. Returns the joint outcome.
template <class Law, class Each>
Outcome at_each_rate(const Law& law, const typename Law::State* state, const Each& each) {
    if constexpr (requires { law.laws(); }) {
        std::array<Outcome, LimiterOptions::kMaxRates> outcomes{};
        for (std::size_t i = 0; i < law.laws().size(); ++i) {
            outcomes[i] = each(law.laws()[i], state_at(law, state, i), i);
        }
        return merge(std::span{outcomes}.first(law.laws().size()));
    } else {
        return each(law, state, 0);
    }
}

/// The time until a refused hit would be admitted if no other hit came, in microseconds. Leases end
/// one by one and free their units, so an admitted time stays admitted: a binary search finds it.
template <class Law>
std::optional<std::int64_t> retry_beside(const Law& law, const typename Law::State* state,
                                         std::int64_t now, std::int64_t cost, const KeyMark& mark) {
    std::vector<Reservation> live = mark.live;
    std::ranges::sort(live, {}, &Reservation::ends);
    std::vector<std::int64_t> held(live.size() + 1, 0);
    for (std::size_t i = live.size(); i-- > 0;) held[i] = held[i + 1] + live[i].n;
    constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
    const auto wait_for = [&](std::size_t ended) {
        const Outcome outcome = step_of(law, state, now, cost + held[ended], false).outcome;
        return outcome.allowed ? 0 : outcome.retry_after_us.value_or(kNever);
    };
    std::size_t low = 0;
    std::size_t high = live.size();
    while (low < high) {
        const std::size_t middle = (low + high) / 2;
        if (wait_for(middle) <= live[middle].ends - now) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    const std::int64_t wait = wait_for(low);
    if (wait == kNever) return std::nullopt;
    return std::max(wait, low > 0 ? live[low - 1].ends - now : 0);
}

/// Adds the effect of the reserved units and their leases to the outcome of a law.
inline Outcome beside_held(Outcome outcome, const KeyMark& mark, std::int64_t now) {
    outcome.remaining = std::max<std::int64_t>(outcome.remaining - mark.held(), 0);
    outcome.reset_after_us = std::max(outcome.reset_after_us, mark.lasts() - now);
    return outcome;
}

/// Decides a hit of a key with reservations. The caller checks blocks. `charges`: denied hits are
/// charged.
template <class Law>
auto step_beside(const Law& law, const typename Law::State* state, std::int64_t now,
                 std::int64_t cost, Take take, bool charges, const KeyMark& mark) {
    const std::int64_t held = mark.held();
    bool takes = take != Take::nothing;
    bool admits = true;
    if (take == Take::what_fits) {
        const std::int64_t room = step_of(law, state, now, 1, false).outcome.remaining - held;
        takes = admits = room > 0;
        cost = admits ? std::min(cost, room) : 1;
    } else if (held > 0) {
        admits = step_of(law, state, now, cost + held, false).outcome.allowed;
        takes = takes && (admits || charges);
    }
    auto next = step_of(law, state, now, cost, takes);
    Outcome& outcome = next.outcome;
    if (!admits && held > 0) {
        std::optional<typename Law::State> after;
        if (state != nullptr) after = *state;
        if (next.change) {
            if (!after) after.emplace();
            apply_change(law, *after, *next.change);
        }
        outcome = at_each_rate(
            law, after ? &*after : nullptr,
            [&](const auto& one, const auto* kept, std::size_t rate) {
                Outcome at_rate = step_of(one, kept, now, cost, false).outcome;
                const auto* const before = state_at(law, state, rate);
                at_rate.allowed = step_of(one, before, now, cost + held, false).outcome.allowed;
                at_rate.retry_after_us =
                    at_rate.allowed ? 0 : retry_beside(one, kept, now, cost, mark);
                return at_rate;
            });
    }
    if (takes && outcome.allowed) outcome.taken = cost;
    outcome = beside_held(outcome, mark, now);
    return next;
}

/// Charges the used units as denied hits are charged, up to twice the limit. `law` must have
/// charge_denied. Returns the rates that had no room for them: bit i stands for rate i.
template <class Law>
std::uint8_t charge_used(const Law& law, std::optional<typename Law::State>& state,
                         std::int64_t now, std::int64_t used) {
    const auto charge = [&](const auto& one, auto* known, auto& into) {
        bool fits = true;
        std::int64_t left = used;
        for (int part = 0; part < 2 && left > 0; ++part) {
            const std::int64_t cost = std::min(left, one.limit());
            auto next = step_of(one, known, now, cost, true);
            fits = fits && next.outcome.allowed;
            if (next.change) {
                apply_change(one, into, std::move(*next.change));
                known = &into;
            }
            left -= cost;
        }
        return fits && left == 0;
    };
    if (used == 0) return 0;
    const bool is_new = !state;
    if (is_new) state.emplace();
    if constexpr (requires { law.laws(); }) {
        state->resize(law.laws().size());
        std::uint8_t misfits = 0;
        for (std::size_t i = 0; i < law.laws().size(); ++i) {
            auto& of_rate = (*state)[i];
            const bool fits = charge(law.laws()[i], is_new ? nullptr : &of_rate, of_rate);
            misfits |= static_cast<std::uint8_t>((fits ? 0U : 1U) << i);
        }
        return misfits;
    } else {
        return charge(law, is_new ? nullptr : &*state, *state) ? 0 : 1;
    }
}

}  // namespace hotcount
