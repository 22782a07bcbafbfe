// The part of the multiplexer for queued calls: combines calls into flights, and encodes the
// flights as bytes to send.
#include <algorithm>
#include <bit>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/hash.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "multiplexer.hpp"

namespace hotcount::redis {
namespace {

// The maximum number of calls in a combined command. It bounds the server's time for the command,
// and the number of calls to send again after a refusal.
constexpr std::size_t kMaxCombined = 256;
// The maximum number of keys in a combined script: 64 upserts with two keys each, or 128 hits of
// limiters, which occupy the server for 0.5 ms.
constexpr std::size_t kMaxCombinedKeys = 128;

bool same_sign(std::int64_t a, std::int64_t b) { return (a < 0) == (b < 0); }

}  // namespace

// Makes flights of queued calls. For each key it knows the last flight that touches it. A call may join
// a flight only if no later flight touches one of the call's keys.
class Multiplexer::Combiner {
  public:
    explicit Combiner(std::size_t calls)
        : single_(calls == 1), last_(std::min(calls, kReserved) + 1) {
        flights_.reserve(std::min(calls, kReserved));
    }

    /// Adds the call to a flight, or begins a new one. True if it was added to one.
    bool take(OperationPtr operation) {
        if (single_) {  // No other call will join it.
            begin(std::move(operation), [](std::size_t) {});
            return false;
        }
        const Request& request = operation->request_;
        if (request.kind_ == Request::Kind::add) {
            const LastFlights::Key key{request.key_};
            if (!operation->alone_ && join_add(operation, key)) return true;
            begin(std::move(operation), [&](std::size_t index) { last_.put(key, index); });
            return false;
        }
        keys_.clear();
        if (request.kind_ == Request::Kind::script) {
            for (std::size_t i = 0; i < request.keys_.size(); ++i) {
                keys_.emplace_back(request.keys_[i]);
            }
            if (!operation->alone_ && request.script_->combinable() && join_script(operation)) {
                return true;
            }
        }
        begin(std::move(operation), [&](std::size_t index) {
            for (const LastFlights::Key& key : keys_) last_.put(key, index);
        });
        return false;
    }

    std::vector<Flight>& flights() { return flights_; }

  private:
    static constexpr std::size_t kReserved = 1024;
    static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
    static constexpr std::size_t kMostSlots = 64;

    template <class Note>
    void begin(OperationPtr operation, const Note& note) {
        const std::size_t index = flights_.size();
        const Request& request = operation->request_;
        Flight flight;
        switch (request.kind_) {
            case Request::Kind::add:
                flight.total = request.n_;
                note(index);
                break;
            case Request::Kind::script:
                flight.keys = request.keys_.size();
                flight.with_text = operation->with_text_;
                note(index);
                if (!operation->alone_ && request.script_->combinable()) {
                    scripts_.push_back(index);
                }
                break;
            default:  // It may touch any key.
                last_.clear();
                scripts_.clear();
        }
        flight.asking = operation->route.asking;
        flight.first = std::move(operation);
        flights_.push_back(std::move(flight));
    }

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

    bool join_add(const OperationPtr& operation, const LastFlights::Key& key) {
        const std::size_t found = last_.find(key);
        if (found == kNone) return false;
        Flight& flight = flights_[found];
        if (!flight.first->is(Request::Kind::add) || flight.first->alone_) return false;
        const std::int64_t n = operation->request_.n_;
        const auto total = checked_add(flight.total, n);
        if (!total || !same_sign(flight.total, n) || flight.calls() >= kMaxCombined) return false;
        flight.total = *total;
        flight.rest.push_back(operation);
        return true;
    }

    bool join_script(const OperationPtr& operation) {
        const Request& request = operation->request_;
        const std::uint16_t slot = operation->route.slot;
        // In a cluster most calls are of a slot of their own: only the last flights are looked at.
        const std::size_t begin = slot == Operation::Route::kNone || scripts_.size() < kMostSlots
                                      ? 0
                                      : scripts_.size() - kMostSlots;
        for (std::size_t at = begin; at < scripts_.size(); ++at) {
            const std::size_t index = scripts_[at];
            Flight& flight = flights_[index];
            const Request& first = flight.first->request_;
            if (flight.first->route.slot != slot) continue;
            const bool shares =
                first.shared_ == request.shared_ || *first.shared_ == *request.shared_;
            if (first.script_ != request.script_ || !shares ||
                flight.with_text != operation->with_text_ ||
                flight.keys + request.keys_.size() > kMaxCombinedKeys) {
                continue;
            }
            const bool overtakes =
                std::any_of(keys_.begin(), keys_.end(), [&](const LastFlights::Key& key) {
                    const std::size_t found = last_.find(key);
                    return found != kNone && found > index;
                });
            if (overtakes) continue;
            flight.keys += request.keys_.size();
            flight.rest.push_back(operation);
            for (const LastFlights::Key& key : keys_) last_.put(key, index);
            return true;
        }
        return false;
    }

    const bool single_;
    std::vector<Flight> flights_;
    LastFlights last_;
    std::vector<LastFlights::Key> keys_;  // Of the call that is being taken.
    std::vector<std::size_t> scripts_;    // Flights of combinable scripts.
};

std::size_t Multiplexer::request_replies(const Operation& operation) {
    return operation.request_.replies_ - operation.answered_before_;
}

bool Multiplexer::can_encode() const {
    return !queue_.empty() && !draining_ && encoded_ - answered_ < options_.max_send_bytes &&
           replies_due_ < options_.max_in_flight;
}

std::string Multiplexer::take() {
    if (out_.empty() && can_encode()) encode();
    std::string taken;
    taken.swap(out_);
    sent_ += taken.size();
    return taken;
}

void Multiplexer::put_back_unsent(std::string rest) {
    sent_ -= rest.size();
    out_ = std::move(rest);
}

void Multiplexer::encode() {
    returned_ = 0;
    const SteadyTime now = std::chrono::steady_clock::now();
    Combiner combiner{queue_.size()};
    std::size_t bytes = encoded_ - answered_;
    std::size_t replies = replies_due_;
    while (!queue_.empty() && bytes < options_.max_send_bytes && replies < options_.max_in_flight) {
        OperationPtr operation = std::move(queue_.front());
        queue_.pop_front();
        if (operation->cancelled_ != nullptr && *operation->cancelled_) {
            operation->state_ = Operation::State::abandoned;
            if (!operation->waited_for()) --unwaited_;
            operation->done_ = nullptr;
            continue;
        }
        operation->state_ = Operation::State::in_flight;
        const Request& request = operation->request_;
        bytes += request.bytes_.size() + request.key_.size() + 64;
        const std::size_t own_replies = request_replies(*operation);
        if (combiner.take(std::move(operation))) {
            ++counts_.combined;
        } else {
            replies += own_replies;
        }
    }
    if (flights_.empty()) heard_at_ = now;
    for (Flight& flight : combiner.flights()) {
        flight.begin = encoded_;
        flight.encoded_at = now;
        encode(flight);
        replies_due_ += request_replies(*flight.first) + (flight.asking ? 1 : 0);
        calls_in_flight_ += flight.calls();
        flights_.push_back(std::move(flight));
    }
}

void Multiplexer::encode(Flight& flight) {
    const std::size_t before = out_.size();
    const Request& request = flight.first->request_;
    if (flight.asking) {
        const std::string_view asking[] = {"ASKING"};
        encode_command(out_, asking);
    }
    switch (request.kind_) {
        case Request::Kind::add:
            encode_add(out_, request.key_, flight.total);
            break;
        case Request::Kind::script:
            encode_script(flight);
            break;
        default:
            out_ += request.bytes_;
    }
    encoded_ += out_.size() - before;
    flight.end = encoded_;
}

void Multiplexer::encode_script(const Flight& flight) {
    const Request& request = flight.first->request_;
    std::size_t arguments = 0;
    flight.for_each(
        [&](const OperationPtr& operation) { arguments += operation->request_.arguments_count_; });
    encode_header(out_, 3 + flight.keys + request.shared_->count + arguments);
    encode_word(out_, flight.with_text ? "EVAL" : "EVALSHA");
    encode_word(out_, flight.with_text ? request.script_->text() : request.script_->sha1());
    encode_word(out_, std::to_string(flight.keys));
    flight.for_each(
        [&](const OperationPtr& operation) { out_ += operation->request_.keys_.encoded(); });
    out_ += request.shared_->encoded;
    flight.for_each([&](const OperationPtr& operation) { out_ += operation->request_.bytes_; });
}

}  // namespace hotcount::redis
