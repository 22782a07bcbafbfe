// How calls that wait together travel as one command. Adds to one key become one INCRBY, and calls
// of one combinable script one EVALSHA. The multiplexer knows neither command:
//
//   Combiner: queued calls --may_join()--> Flights --encode()--> bytes
//   reply --fits()--> Split: the part of the reply for each call
//
// No call is moved past another call that touches one of its keys. A combined command that is
// refused has applied nothing: after_refusal() tells whether, and how, its calls are sent again.
#pragma once

#include <hotcount/detail/base/hash.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "operation.hpp"

namespace hotcount::redis {

/// One command on its way, or one batch of commands, and the calls that its reply answers.
struct Flight {
    OperationPtr first;
    std::vector<OperationPtr> rest{};  ///< Combined with the first.
    /// The calls together.
    struct Sum {
        std::int64_t amount{0};  ///< Of adds.
        std::size_t keys{0};     ///< Of calls of a script.
        bool with_text{false};   ///< The script is sent by its text.
    };
    Sum sum{};
    std::size_t memory{0};   ///< Of a batch's replies so far.
    bool asking{false};      ///< ASKING goes before it,
    bool asked{false};       ///< and was answered.
    std::uint64_t begin{0};  ///< Its first byte, counted from the start of this connection.
    std::uint64_t end{0};
    SteadyTime encoded_at{};

    std::size_t calls() const { return 1 + rest.size(); }
    template <class F>
    void for_each(F&& f) const {
        f(first);
        for (const OperationPtr& operation : rest) f(operation);
    }
};

/// The commands that calls can share.
class Combining {
  public:
    /// The keys that a call touches.
    enum class Touches : std::uint8_t { one_key, its_keys, any_key };
    static Touches touches(const Operation& call);
    template <class F>
    static void for_each_key(const Operation& call, const F& f) {
        if (call.kind() == Operation::Kind::add) return f(std::string_view{call.key()});
        for (std::size_t i = 0; i < call.keys().size(); ++i) f(call.keys()[i]);
    }
    /// Whether calls on other keys may join its command.
    static bool takes_other_keys(const Operation& call);

    static Flight flight_of(OperationPtr call);
    /// Whether the call may travel in this command. A call that touches one key is asked about
    /// commands on its key alone.
    static bool may_join(const Flight& flight, const Operation& call);
    static void join(Flight& flight, OperationPtr call);
    static void encode(const Flight& flight, std::string& out);

    /// Whether the reply has the shape of the flight's answer. The flight is no batch.
    static bool fits(const Flight& flight, const Reply& reply);
    /// The parts of a reply that fits, for the calls in their order. Moves them out of the reply.
    class Split {
      public:
        Split(const Flight& flight, Reply& reply);
        Reply next(const Operation& call);

      private:
        enum class Kind : std::uint8_t {
            whole,     // All get the reply.
            running,   // Each gets the value after its own add.
            elements,  // An element for each call,
            rows,      // or `row_` integers.
        };
        Reply take_one();

        Kind kind_{Kind::whole};
        Reply& reply_;
        std::size_t left_;
        std::int64_t value_{0};
        std::size_t at_{0};
        std::size_t row_{0};
    };

    enum class Again : std::uint8_t { no, alone, with_text };
    /// Whether the calls of a refused command are sent again, and in which form.
    static Again after_refusal(const Flight& flight, const ReplyError& refusal);
    static void set_form(Operation& call, Again again);

    /// Whether a reply may have refusals in it: scripts catch errors.
    static bool may_hide_refusals(const Operation& call) { return call.script() != nullptr; }
    /// Whether the operation holds several calls (Request::run_many()).
    static bool is_many(const Operation& call) { return call.calls() > 0; }
    /// Removes all calls but those with these indexes.
    static void keep(Operation& many, std::span<const std::size_t> calls);

  private:
    static bool is_combinable(const Operation& call) {
        return call.script() != nullptr && call.script()->combinable();
    }
    static std::size_t calls_of(const Operation& call) {
        return std::max<std::size_t>(call.calls(), 1);
    }
    static void encode_script(const Flight& flight, std::string& out);
    static bool script_fits(const Flight& flight, const Reply& reply);
    static bool is_rows(const Flight& flight, const ReplyArray& answers);
};

/// Makes flights of queued calls. For each key it knows the last flight that touches it. A call may
/// join a flight only if no later flight touches one of the call's keys.
class Combiner {
  public:
    explicit Combiner(std::size_t calls)
        : single_(calls == 1), last_(std::min(calls, kReserved) + 1) {
        flights_.reserve(std::min(calls, kReserved));
    }

    /// Adds the call to a flight, or begins a new one. True if it was added to one.
    bool take(OperationPtr call) {
        if (single_) {  // No other call will join it.
            flights_.push_back(Combining::flight_of(std::move(call)));
            return false;
        }
        const auto touches = Combining::touches(*call);
        keys_.clear();
        if (touches == Combining::Touches::any_key) {
            last_.clear();
            open_.clear();
        } else {
            Combining::for_each_key(*call, [&](std::string_view key) { keys_.emplace_back(key); });
        }
        const bool by_key = touches == Combining::Touches::one_key;
        const bool is_open = !by_key && Combining::takes_other_keys(*call);
        std::size_t index = by_key ? find_on_key(*call) : is_open ? find_open(*call) : kNone;
        const bool joins = index != kNone;
        if (joins) {
            Combining::join(flights_[index], std::move(call));
            if (by_key) return true;
        } else {
            index = flights_.size();
            if (is_open) open_.push_back(index);
            flights_.push_back(Combining::flight_of(std::move(call)));
        }
        for (const LastFlights::Key& key : keys_) last_.put(key, index);
        return joins;
    }

    std::vector<Flight>& flights() { return flights_; }

  private:
    static constexpr std::size_t kReserved = 1024;
    static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
    static constexpr std::size_t kMostSlots = 64;

    // Key -> the last flight that touches it; a table with open addressing. With a
    // std::unordered_map, which allocates a node for each key, 64 adds to 64 keys took 15 us from the
    // queue to their replies; with this table they take 10 (combine_adds in redis_bench.cpp). Keys
    // are views of strings that flights hold. Each key is hashed once, also when the table grows.
    class LastFlights {
      public:
        struct Key {
            explicit Key(std::string_view name) : text(name), hash(keyed_hash(name)) {}
            std::string_view text;
            std::size_t hash;
        };

        explicit LastFlights(std::size_t keys) : first_size_(std::bit_ceil(2 * keys)) {}

        std::size_t find(const Key& key) const {
            if (count_ == 0) return kNone;
            const Place& place = places_[place_of(key.text, key.hash)];
            return place.flight == kFree ? kNone : place.flight;
        }
        void put(const Key& key, std::size_t flight) {
            if (2 * (count_ + 1) > places_.size()) grow();
            Place& place = places_[place_of(key.text, key.hash)];
            if (place.flight == kFree) ++count_;
            place = {key.text, key.hash, flight};
        }
        void clear() {
            if (count_ > 0) std::fill(places_.begin(), places_.end(), Place{});
            count_ = 0;
        }

      private:
        static constexpr std::size_t kFree = kNone;
        struct Place {
            std::string_view key{};
            std::size_t hash{0};
            std::size_t flight{kFree};
        };

        std::size_t place_of(std::string_view key, std::size_t hash) const {
            std::size_t at = hash;
            while (true) {
                const Place& place = places_[at & (places_.size() - 1)];
                if (place.flight == kFree || (place.hash == hash && place.key == key)) break;
                ++at;
            }
            return at & (places_.size() - 1);
        }
        void grow() {
            std::vector<Place> before(std::max(first_size_, 2 * places_.size()));
            before.swap(places_);
            for (const Place& place : before) {
                if (place.flight != kFree) places_[place_of(place.key, place.hash)] = place;
            }
        }

        const std::size_t first_size_;
        std::vector<Place> places_;  // Their number is a power of two; at most half are taken.
        std::size_t count_{0};
    };

    std::size_t find_on_key(const Operation& call) const {
        const std::size_t found = last_.find(keys_.front());
        return found != kNone && Combining::may_join(flights_[found], call) ? found : kNone;
    }
    std::size_t find_open(const Operation& call) const {
        // In a cluster most calls are of a slot of their own: only the last flights are looked at.
        const bool all = call.route.slot == Operation::Route::kNone || open_.size() < kMostSlots;
        for (std::size_t at = all ? 0 : open_.size() - kMostSlots; at < open_.size(); ++at) {
            const std::size_t index = open_[at];
            const auto overtakes = [&](const LastFlights::Key& key) {
                const std::size_t found = last_.find(key);
                return found != kNone && found > index;
            };
            if (Combining::may_join(flights_[index], call) &&
                std::ranges::none_of(keys_, overtakes))
                return index;
        }
        return kNone;
    }

    const bool single_;
    std::vector<Flight> flights_;
    LastFlights last_;
    std::vector<LastFlights::Key> keys_;  // Of the call that is being taken.
    std::vector<std::size_t> open_;       // Flights that calls on other keys may join.
};

}  // namespace hotcount::redis
