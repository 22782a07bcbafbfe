// The part of the multiplexer for replies: each reply goes to the calls of the oldest flight, and a
// reply that cannot belong to them ends the connection. multiplexer_sending.cpp makes the flights,
// multiplexer_endings.cpp ends calls without a reply, multiplexer_retries.cpp resends refused
// calls.
#include "multiplexer.hpp"

#include <algorithm>
#include <array>
#include <iterator>

#include "commands.hpp"
#include "reply_reader.hpp"

namespace hotcount::redis {
namespace {

// An EVALSHA that is refused with one of these words has not begun to run.
bool refused_before_it_ran(std::string_view error) {
    static constexpr std::array<std::string_view, 14> kBefore{
        "NOPERM",   "NOAUTH",    "LOADING",  "BUSY", "MOVED",   "ASK",        "CLUSTERDOWN",
        "TRYAGAIN", "CROSSSLOT", "READONLY", "OOM",  "MISCONF", "MASTERDOWN", "NOREPLICAS"};
    return std::find(kBefore.begin(), kBefore.end(), error_word(error)) != kBefore.end();
}

}  // namespace

bool Multiplexer::settle(Reply reply, SteadyTime now) {
    if (flights_.empty()) return does_not_fit("a reply that no command asked for");
    Flight& front = flights_.front();
    if (front.asking && !front.asked && front.begin < sent_) {
        front.asked = true;
        if (replies_due_ > 0) --replies_due_;
        return true;
    }
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
    calls_in_flight_ -= flight.calls();
    answered_ = flight.end;
    round_trip_ = now - flight.encoded_at;
    counts_.latency.record(round_trip_);
    if (is_lane() && leaves_whole(flight, reply)) return true;
    if (refused_whole(flight, reply)) return true;
    switch (flight.first->request_.kind_) {
        case Request::Kind::add:
            settle_add(flight, reply);
            return true;
        case Request::Kind::script:
            settle_script(flight, std::move(reply));
            return true;
        case Request::Kind::batch: {
            // Without the reply to the ECHO the number of the command's replies is unknown.
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

bool Multiplexer::does_not_fit(const std::string& why) {
    misfit_ = why;
    return false;
}

Error Multiplexer::misfit() const {
    return make_error(ErrorCode::unavailable, options_.address() + ": " + misfit_);
}

bool Multiplexer::belongs(Flight& flight, const Reply& reply) {
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

bool Multiplexer::belongs_to_batch(Flight& flight, const Reply& reply) {
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

bool Multiplexer::belongs_to_script(const Flight& flight, const Reply& reply) {
    if (std::holds_alternative<ReplyError>(reply.value)) return true;
    const Request& request = flight.first->request_;
    const Script& script = *request.script_;
    if (!script.combinable()) return script.fits(reply, request.keys_.size());
    const auto* const answers = std::get_if<ReplyArray>(&reply.value);
    if (answers == nullptr) return false;
    if (is_rows(flight, *answers)) return true;
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

// Whether the reply is one flat array, with a row of script.row() integers for each call.
bool Multiplexer::is_rows(const Flight& flight, const ReplyArray& answers) {
    std::size_t calls = 0;
    flight.for_each([&](const OperationPtr& member) {
        calls += std::max<std::size_t>(member->request_.calls_, 1);
    });
    const std::size_t row = flight.first->request_.script_->row();
    return row > 0 && calls > 1 && answers.size() == row * calls &&
           std::ranges::all_of(answers, [](const Reply& number) {
               return std::holds_alternative<std::int64_t>(number.value);
           });
}

// -- refusals -----------------------------------------------------------------------------------

// Whether the server may accept single calls of a combined command that it refused. Adds to one key
// may overflow only as a sum. An add of 1 is sent as INCR: an ACL may allow it and deny INCRBY.
bool Multiplexer::splits(const Flight& flight, const ReplyError& error) const {
    if (flight.calls() < 2) return false;
    const Error refused = error_of(error, flight.first->name());
    if (flight.first->is(Request::Kind::script)) return concerns_a_key(refused);
    if (refused.code == ErrorCode::overflow) return true;
    bool some_as_incr = false;
    flight.for_each([&](const OperationPtr& member) { some_as_incr |= member->request_.n_ == 1; });
    return some_as_incr && denies_the_command(refused);
}

// Queues the calls of a refused command again: it has applied nothing. After NOSCRIPT they carry
// the script's text. If the refusal may concern some calls only, each is sent alone, in order.
bool Multiplexer::refused_whole(Flight& flight, const Reply& reply) {
    const auto* error = std::get_if<ReplyError>(&reply.value);
    if (error == nullptr || flight.first->is(Request::Kind::batch)) return false;
    const bool needs_text = flight.first->is(Request::Kind::script) && !flight.with_text &&
                            error_word(error->message) == "NOSCRIPT";
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

// Each caller gets the value before the combined add plus all adds up to and including its own.
void Multiplexer::settle_add(Flight& flight, const Reply& reply) {
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

void Multiplexer::settle_script(Flight& flight, Reply reply) {
    if (!flight.first->request_.script_->combinable()) {
        return answer(flight.first, std::move(reply));
    }
    auto* const answers = std::get_if<ReplyArray>(&reply.value);
    if (answers == nullptr) {
        flight.for_each([&](const OperationPtr& member) { answer(member, reply); });
        return;
    }
    auto next = std::make_move_iterator(answers->begin());
    if (is_rows(flight, *answers)) {
        const auto row = static_cast<std::ptrdiff_t>(flight.first->request_.script_->row());
        const auto take_row = [&] {
            next += row;
            return Reply{ReplyArray(next - row, next)};
        };
        flight.for_each([&](const OperationPtr& member) {
            if (member->request_.calls_ == 0) return finish(member, take_row());
            ReplyArray own;
            own.reserve(member->request_.calls_);
            while (own.size() < member->request_.calls_) own.push_back(take_row());
            finish(member, Reply{std::move(own)});
        });
        return;
    }
    flight.for_each([&](const OperationPtr& member) {
        if (member->request_.calls_ == 0) return answer(member, *next++);
        const auto end = next + static_cast<std::ptrdiff_t>(member->request_.calls_);
        ReplyArray own(next, end);
        next = end;
        if (!ask_again(member, own)) finish(member, Reply{std::move(own)});
    });
}

void Multiplexer::settle_batch(Flight& flight, Reply reply) {
    Operation& batch = *flight.first;
    batch.replies_.push_back(std::move(reply));
    if (ask_again(flight.first)) return;
    finish(flight.first, Reply{std::move(batch.replies_)});
}

void Multiplexer::answer(const OperationPtr& operation, Reply reply) {
    const auto* error = std::get_if<ReplyError>(&reply.value);
    if (error == nullptr) {
        if (operation->is(Request::Kind::script) && refused_inside(reply)) {
            if (is_lane()) {
                return depart(operation, {Operation::Departure::Why::refused,
                                          make_error(ErrorCode::unavailable,
                                                     options_.address() + ": " + operation->name() +
                                                         ": the node refuses writes",
                                                     "READONLY"),
                                          {}});
            }
            if (postpone(operation)) {
                operation->outcome_.emplace(std::move(reply));
                return;
            }
        }
        return finish(operation, std::move(reply));
    }
    const bool soon = refused_for_now(reply) != nullptr;
    const Error refused = error_of(*error, operation->name());
    if (soon && postpone(operation)) {
        operation->outcome_.emplace(refused);
        return;
    }
    // The call was sent twice: the refusal of the second attempt does not tell if the first ran.
    const bool says_nothing = operation->maybe_ran_ && refused_before_it_ran(error->message);
    finish(operation, says_nothing ? unknown(*operation, refused) : refused);
}

Error Multiplexer::error_of(const ReplyError& error, const std::string& name) const {
    return error_from_reply(error.message, options_.address() + ": " + name);
}

// -- endings ------------------------------------------------------------------------------------

void Multiplexer::finish(const OperationPtr& operation, Result<Reply> outcome) {
    if (operation->state_ == Operation::State::abandoned ||
        operation->state_ == Operation::State::done) {
        return;
    }
    if (doubted_ && outcome.ok() && operation->state_ == Operation::State::in_flight) {
        operation->state_ = Operation::State::held;
        operation->outcome_.emplace(std::move(outcome));
        held_.push_back(operation);
        return;
    }
    operation->state_ = Operation::State::done;
    if (operation->parts_ != nullptr) outcome = whole(*operation, std::move(outcome));
    operation->outcome_.emplace(std::move(outcome));
    ++counts_.commands;
    if (!operation->waited_for()) --unwaited_;
    finished_.push_back(operation);
    operation->awake();  // The caller is woken by its signal, and takes no role.
    operation->done_flag_.store(true, std::memory_order_release);
}

std::vector<OperationPtr> Multiplexer::take_finished() {
    std::vector<OperationPtr> finished;
    finished.swap(finished_);
    return finished;
}

// Puts the calls at the head of the queue, in order, behind those put back since the last send.
void Multiplexer::put_back(const Operations& operations) {
    for (const OperationPtr& operation : operations) operation->state_ = Operation::State::queued;
    const auto behind = static_cast<std::ptrdiff_t>(std::min(returned_, queue_.size()));
    queue_.insert(queue_.begin() + behind, operations.begin(), operations.end());
    returned_ += operations.size();
}

void Multiplexer::requeue_due(SteadyTime now) {
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
