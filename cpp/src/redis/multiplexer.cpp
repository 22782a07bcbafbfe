#include "multiplexer.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/hash.hpp>

#include "commands.hpp"
#include "encode.hpp"
#include "error_word.hpp"
#include "reply_reader.hpp"

namespace hotcount::redis {
namespace {

// Calls in one combined command, or keys of one script: bounds the server's time for it to about a
// millisecond, and what one refusal makes us send again.
constexpr std::size_t kMaxCombined = 256;

bool same_sign(std::int64_t a, std::int64_t b) { return (a < 0) == (b < 0); }

template <std::size_t N>
bool is_one_of(std::string_view word, const std::array<std::string_view, N>& words) {
    return std::find(words.begin(), words.end(), word) != words.end();
}

std::string_view first_word(std::string_view text) { return text.substr(0, text.find(' ')); }

// An EVALSHA that was refused with one of these has not begun to run.
bool refused_before_it_ran(std::string_view error) {
    static constexpr std::array<std::string_view, 14> kBefore{
        "NOPERM",   "NOAUTH",    "LOADING",  "BUSY", "MOVED",   "ASK",        "CLUSTERDOWN",
        "TRYAGAIN", "CROSSSLOT", "READONLY", "OOM",  "MISCONF", "MASTERDOWN", "NOREPLICAS"};
    return is_one_of(first_word(error), kBefore);
}

}  // namespace

// -- combining ----------------------------------------------------------------------------------

// Makes flights of queued calls. For each key it knows the last flight that touches it, and a call
// may join a flight only where none after it touches one of the call's keys.
class Pipeline::Combiner {
  public:
    explicit Combiner(std::size_t calls)
        : single_(calls == 1), last_(std::min(calls, kReserved) + 1) {
        flights_.reserve(std::min(calls, kReserved));
    }

    /// Puts the call into a flight that is there, and is true then, or begins one.
    bool take(OperationPtr operation) {
        if (single_) {  // Nobody comes to join it.
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
            for (const std::string& key : request.keys_) keys_.emplace_back(key);
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
                if (!operation->alone_ && request.script_->combinable()) scripts_.push_back(index);
                break;
            default:  // It may touch any key.
                last_.clear();
                scripts_.clear();
        }
        flight.first = std::move(operation);
        flights_.push_back(std::move(flight));
    }

    // Key -> the last flight that touches it. A table of open addressing: with a node for each key
    // of a std::unordered_map 64 adds to 64 keys took 15 us from the queue to their replies, so
    // they take 10 (combine_adds in redis_bench.cpp). Keys are views into what flights hold. Each
    // is hashed once, and not again to note it or when the table grows.
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
        std::vector<Place> places_;  // As many as a power of two, at most half of them taken.
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
        for (const std::size_t index : scripts_) {
            Flight& flight = flights_[index];
            const Request& first = flight.first->request_;
            if (first.script_ != request.script_ || first.shared_ != request.shared_ ||
                flight.with_text != operation->with_text_ ||
                flight.keys + request.keys_.size() > kMaxCombined) {
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

std::size_t Pipeline::request_replies(const Operation& operation) {
    return operation.request_.replies_ - operation.answered_before_;
}

bool Pipeline::can_encode() const {
    return !queue_.empty() && !draining_ && encoded_ - answered_ < options_.max_send_bytes &&
           replies_due_ < options_.max_in_flight;
}

std::string Pipeline::take() {
    if (out_.empty() && can_encode()) encode();
    std::string taken;
    taken.swap(out_);
    sent_ += taken.size();
    return taken;
}

void Pipeline::put_back_unsent(std::string rest) {
    sent_ -= rest.size();
    out_ = std::move(rest);
}

void Pipeline::encode() {
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
        replies_due_ += request_replies(*flight.first);
        flights_.push_back(std::move(flight));
    }
}

void Pipeline::encode(Flight& flight) {
    const std::size_t before = out_.size();
    const Request& request = flight.first->request_;
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

void Pipeline::encode_script(const Flight& flight) {
    const Request& request = flight.first->request_;
    std::size_t arguments = 0;
    flight.for_each(
        [&](const OperationPtr& operation) { arguments += operation->request_.arguments_count_; });
    encode_header(out_, 3 + flight.keys + request.shared_count_ + arguments);
    encode_word(out_, flight.with_text ? "EVAL" : "EVALSHA");
    encode_word(out_, flight.with_text ? request.script_->text() : request.script_->sha1());
    encode_word(out_, std::to_string(flight.keys));
    flight.for_each([&](const OperationPtr& operation) {
        for (const std::string& key : operation->request_.keys_) encode_word(out_, key);
    });
    out_ += request.shared_;
    flight.for_each([&](const OperationPtr& operation) { out_ += operation->request_.bytes_; });
}

// -- replies ------------------------------------------------------------------------------------

bool Pipeline::settle(Reply reply, SteadyTime now) {
    if (flights_.empty()) return does_not_fit("a reply that no command asked for");
    Flight& front = flights_.front();
    if (!belongs(front, reply)) return false;
    if (replies_due_ > 0) --replies_due_;
    Operation& first = *front.first;
    if (first.is(Request::Kind::batch) && first.replies_.size() + 1 < first.request_.replies_) {
        if (first.replies_.empty()) first.replies_.reserve(first.request_.replies_);
        first.replies_.push_back(std::move(reply));
        return true;
    }
    Flight flight = std::move(front);
    flights_.pop_front();
    answered_ = flight.end;
    counts_.latency.record(now - flight.encoded_at);
    if (refused_whole(flight, reply)) return true;
    switch (flight.first->request_.kind_) {
        case Request::Kind::add:
            settle_add(flight, reply);
            return true;
        case Request::Kind::script:
            settle_script(flight, std::move(reply));
            return true;
        case Request::Kind::batch: {
            // Nobody can say whether the command before answered once.
            const bool not_checked = !flight.first->request_.echo_.empty() &&
                                     std::holds_alternative<ReplyError>(reply.value);
            settle_batch(flight, std::move(reply));
            return !not_checked || does_not_fit("ECHO was refused");
        }
        default:
            answer(flight.first, std::move(reply));
            return true;
    }
}

// -- replies that cannot be a call's ---------------------------------------------------------------

bool Pipeline::does_not_fit(const std::string& why) {
    misfit_ = why;
    return false;
}

Error Pipeline::misfit() const {
    return make_error(ErrorCode::unavailable, options_.address() + ": " + misfit_);
}

bool Pipeline::belongs(Flight& flight, const Reply& reply) {
    const Operation& first = *flight.first;
    const bool batch = first.is(Request::Kind::batch);
    if (batch ? flight.begin >= sent_ : flight.end > sent_) {
        const auto* error = std::get_if<ReplyError>(&reply.value);
        return does_not_fit("a reply came before its command, " + first.name() + ", was sent" +
                            (error == nullptr ? "" : ": " + error->message));
    }
    const auto whole = [&](bool fitting) {
        return fitting || does_not_fit(first.name() + " got a reply of another shape");
    };
    switch (first.request_.kind_) {
        case Request::Kind::add:
            return whole(fits(Shape::integer, reply));
        case Request::Kind::script:
            return whole(belongs_to_script(flight, reply));
        case Request::Kind::batch:
            return belongs_to_batch(flight, reply);
        default:
            return whole(fits(first.request_.shape_, reply));
    }
}

bool Pipeline::belongs_to_batch(Flight& flight, const Reply& reply) {
    const Operation& batch = *flight.first;
    const Request& request = batch.request_;
    const std::size_t index = batch.replies_.size();
    const Shape shape =
        request.shapes_.empty() ? request.shape_ : static_cast<Shape>(request.shapes_[index]);
    if (!fits(shape, reply)) return does_not_fit(batch.name() + " got a reply of another shape");
    flight.memory += memory_of(reply);
    if (flight.memory > options_.max_reply_bytes) {
        return does_not_fit("the replies of " + batch.name() + " are larger than max_reply_bytes");
    }
    if (request.echo_.empty()) return true;
    const auto* const text = std::get_if<std::string>(&reply.value);
    const bool is_echo = text != nullptr && *text == request.echo_;
    const bool is_error = std::holds_alternative<ReplyError>(reply.value);
    const bool last = index + 1 == request.replies_;
    if (last ? is_echo || is_error : !is_echo) return true;
    return does_not_fit(batch.name() + (last ? " got more than one reply" : " got no reply"));
}

bool Pipeline::belongs_to_script(const Flight& flight, const Reply& reply) {
    if (std::holds_alternative<ReplyError>(reply.value)) return true;
    const Request& request = flight.first->request_;
    const Script& script = *request.script_;
    if (!script.combinable()) return script.fits(reply, request.keys_.size());
    const auto* const answers = std::get_if<ReplyArray>(&reply.value);
    if (answers == nullptr) return false;
    auto next = answers->begin();
    bool fitting = true;
    flight.for_each([&](const OperationPtr& member) {
        const std::size_t calls = std::max<std::size_t>(member->request_.calls_, 1);
        const std::size_t keys_each = member->request_.keys_.size() / calls;
        for (std::size_t i = 0; i < calls && fitting; ++i) {
            fitting = next != answers->end() && script.fits(*next, keys_each);
            if (fitting) ++next;
        }
    });
    return fitting && next == answers->end();
}

// -- refusals -----------------------------------------------------------------------------------

// Whether what refuses a combined command need not refuse each of its members: an INCRBY's are of
// one key, and together they may be too much; a single 1 goes as INCR.
bool Pipeline::splits(const Flight& flight, const ReplyError& error) const {
    if (flight.calls() < 2) return false;
    const Error refused = error_of(error, flight.first->name());
    if (flight.first->is(Request::Kind::script)) return concerns_a_key(refused);
    if (refused.code == ErrorCode::overflow) return true;
    bool some_as_incr = false;
    flight.for_each([&](const OperationPtr& member) { some_as_incr |= member->request_.n_ == 1; });
    return some_as_incr && denies_the_command(refused);
}

// Nothing of it was applied, and it is worth another try: with the script's text, or, where it was
// combined and the refusal may be for some only, each by itself, in order, for its own answer.
bool Pipeline::refused_whole(Flight& flight, const Reply& reply) {
    const auto* error = std::get_if<ReplyError>(&reply.value);
    if (error == nullptr || flight.first->is(Request::Kind::batch)) return false;
    const bool needs_text = flight.first->is(Request::Kind::script) && !flight.with_text &&
                            first_word(error->message) == "NOSCRIPT";
    if (!needs_text && !splits(flight, *error)) return false;
    Operations again;
    flight.for_each([&](const OperationPtr& member) {
        if (member->state_ != Operation::State::in_flight) return;
        if (needs_text) {
            member->with_text_ = true;
        } else {
            member->alone_ = true;
        }
        again.push_back(member);
    });
    put_back(again);
    return true;
}

// Each caller's own value: what stood before the combined add, and then one after the other.
void Pipeline::settle_add(Flight& flight, const Reply& reply) {
    const auto* value = std::get_if<std::int64_t>(&reply.value);
    if (value == nullptr) {
        flight.for_each([&](const OperationPtr& member) { answer(member, reply); });
        return;
    }
    std::int64_t running = *value - flight.total;
    flight.for_each([&](const OperationPtr& member) {
        running += member->request_.n_;
        finish(member, Reply{running});
    });
}

void Pipeline::settle_script(Flight& flight, Reply reply) {
    if (!flight.first->request_.script_->combinable()) {
        return answer(flight.first, std::move(reply));
    }
    auto* const answers = std::get_if<ReplyArray>(&reply.value);
    if (answers == nullptr) {
        flight.for_each([&](const OperationPtr& member) { answer(member, reply); });
        return;
    }
    auto next = std::make_move_iterator(answers->begin());
    flight.for_each([&](const OperationPtr& member) {
        if (member->request_.calls_ == 0) return answer(member, *next++);
        const auto end = next + static_cast<std::ptrdiff_t>(member->request_.calls_);
        ReplyArray own(next, end);
        next = end;
        if (!ask_again(member, own)) finish(member, Reply{std::move(own)});
    });
}

void Pipeline::settle_batch(Flight& flight, Reply reply) {
    Operation& batch = *flight.first;
    batch.replies_.push_back(std::move(reply));
    if (ask_again(flight.first)) return;
    finish(flight.first, Reply{std::move(batch.replies_)});
}

void Pipeline::answer(const OperationPtr& operation, Reply reply) {
    const auto* error = std::get_if<ReplyError>(&reply.value);
    if (error == nullptr) {
        if (operation->is(Request::Kind::script) && refused_inside(reply) && postpone(operation)) {
            operation->outcome_.emplace(std::move(reply));
            return;
        }
        return finish(operation, std::move(reply));
    }
    const bool soon = refused_for_now(reply) != nullptr;
    const Error refused = error_of(*error, operation->name());
    if (soon && postpone(operation)) {
        operation->outcome_.emplace(refused);
        return;
    }
    // Sent twice, and the second time it did not run: that says nothing of the first.
    const bool says_nothing = operation->maybe_ran_ && refused_before_it_ran(error->message);
    finish(operation, says_nothing ? unknown(*operation, refused) : refused);
}

Error Pipeline::error_of(const ReplyError& error, const std::string& name) const {
    return error_from_reply(error.message, options_.address() + ": " + name);
}

// -- endings ------------------------------------------------------------------------------------

void Pipeline::finish(const OperationPtr& operation, Result<Reply> outcome) {
    if (operation->state_ == Operation::State::abandoned ||
        operation->state_ == Operation::State::done) {
        return;
    }
    operation->state_ = Operation::State::done;
    if (operation->parts_ != nullptr) outcome = whole(*operation, std::move(outcome));
    operation->outcome_.emplace(std::move(outcome));
    ++counts_.commands;
    if (!operation->waited_for()) --unwaited_;
    finished_.push_back(operation);
    operation->awake();  // It has to be told, and can take no role from now on.
    operation->done_flag_.store(true, std::memory_order_release);
}

std::vector<OperationPtr> Pipeline::take_finished() {
    std::vector<OperationPtr> finished;
    finished.swap(finished_);
    return finished;
}

// To the head of the queue, in the order that they had.
void Pipeline::put_back(const Operations& operations) {
    for (const OperationPtr& operation : operations) operation->state_ = Operation::State::queued;
    queue_.insert(queue_.begin(), operations.begin(), operations.end());
}

void Pipeline::requeue_due(SteadyTime now) {
    const auto due = std::stable_partition(
        postponed_.begin(), postponed_.end(),
        [&](const OperationPtr& operation) { return operation->retry_at_ > now; });
    for (auto it = due; it != postponed_.end(); ++it) {
        (*it)->state_ = Operation::State::queued;
        queue_.push_back(std::move(*it));
    }
    postponed_.erase(due, postponed_.end());
}

}  // namespace hotcount::redis
