// The part of the multiplexer for commands and replies: queued calls are encoded, each reply goes to
// the calls of the oldest flight, and a reply that cannot belong to them ends the connection.
// multiplexer_endings.cpp ends calls without a reply, multiplexer_retries.cpp resends refused calls.
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

// -- sending --------------------------------------------------------------------------------------

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
        if (operation->is_cancelled()) {
            if (!operation->waited_for()) --unwaited_;
            operation->drop();
            continue;
        }
        operation->move(Operation::State::in_flight);
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
    if (flight.asking) {
        const std::string_view asking[] = {"ASKING"};
        encode_command(out_, asking);
    }
    Combining::encode(flight, out_);
    encoded_ += out_.size() - before;
    flight.end = encoded_;
}

// -- replies --------------------------------------------------------------------------------------

bool Multiplexer::settle(Reply reply, SteadyTime now) {
    if (flights_.empty()) return does_not_fit("a reply that no command asked for");
    Flight& front = flights_.front();
    if (front.asking && !front.asked && front.begin < sent_) {
        front.asked = true;
        if (replies_due_ > 0) --replies_due_;
        return true;
    }
    if (!belongs(front, reply)) return false;
    // A refusal acknowledges nothing that could be lost.
    if (!std::holds_alternative<ReplyError>(reply.value) && outlived_its_node(front, now)) {
        return does_not_fit("this node was replaced after " + front.first->name() + " was sent");
    }
    if (replies_due_ > 0) --replies_due_;
    Operation& first = *front.first;
    const bool is_batch = first.request_.is_batch();
    if (is_batch && first.replies_.size() + 1 < first.request_.replies_) {
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
    if (doubted_) held_since_ = std::min(held_since_, flight.encoded_at);
    if (is_lane() && leaves_whole(flight, reply)) return true;
    if (refused_whole(flight, reply)) return true;
    if (is_batch) {
        // Without the reply to the ECHO the number of the command's replies is unknown.
        const bool not_checked = !flight.first->request_.echo_.empty() &&
                                 std::holds_alternative<ReplyError>(reply.value);
        settle_batch(flight, std::move(reply));
        return !not_checked || does_not_fit("ECHO was refused");
    }
    Combining::Split split{flight, reply};
    flight.for_each([&](const OperationPtr& member) {
        Reply part = split.next(*member);
        // An integer hides no refusal: the usual answer to an add.
        if (std::holds_alternative<std::int64_t>(part.value))
            return finish(member, std::move(part));
        answer(member, std::move(part));
    });
    return true;
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
    const bool batch = first.request_.is_batch();
    if (batch ? flight.begin >= sent_ : flight.end > sent_) {
        const auto* error = std::get_if<ReplyError>(&reply.value);
        return does_not_fit("a reply came before its command, " + first.name() + ", was sent" +
                            (error == nullptr ? "" : ": " + error->message));
    }
    if (batch) return belongs_to_batch(flight, reply);
    return Combining::fits(flight, reply) ||
           does_not_fit(first.name() + " got a reply of another shape");
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

// -- refusals -----------------------------------------------------------------------------------

// Queues the calls of a refused command again: it has applied nothing.
bool Multiplexer::refused_whole(Flight& flight, const Reply& reply) {
    const auto* error = std::get_if<ReplyError>(&reply.value);
    if (error == nullptr || flight.first->request_.is_batch()) return false;
    const Combining::Again in = Combining::after_refusal(flight, *error);
    if (in == Combining::Again::no) return false;
    Operations again;
    flight.for_each([&](const OperationPtr& member) {
        if (member->state_ != Operation::State::in_flight) return;
        Combining::set_form(*member, in);
        again.push_back(member);
    });
    put_back(again);
    return true;
}

void Multiplexer::settle_batch(Flight& flight, Reply reply) {
    Operation& batch = *flight.first;
    batch.replies_.push_back(std::move(reply));
    if (ask_again(flight.first)) return;
    finish(flight.first, Reply{std::move(batch.replies_)});
}

void Multiplexer::answer(const OperationPtr& operation, Reply&& reply) {
    const auto* error = std::get_if<ReplyError>(&reply.value);
    if (error == nullptr) {
        if (Combining::is_many(*operation)) {
            if (ask_again(operation, std::get<ReplyArray>(reply.value))) return;
        } else if (Combining::may_hide_refusals(*operation) && refused_inside(reply)) {
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
    const bool says_nothing = operation->maybe_ran() && refused_before_it_ran(error->message);
    finish(operation, says_nothing ? unknown(*operation, refused) : refused);
}

Error Multiplexer::error_of(const ReplyError& error, const std::string& name) const {
    return error_from_reply(error.message, options_.address() + ": " + name);
}

// -- endings ------------------------------------------------------------------------------------

void Multiplexer::finish(const OperationPtr& operation, Result<Reply> outcome) {
    if (operation->has_ended()) return;
    if (doubted_ && outcome.ok() && operation->state_ == Operation::State::in_flight) {
        operation->move(Operation::State::held);
        operation->outcome_.emplace(std::move(outcome));
        held_.push_back(operation);
        return;
    }
    operation->move(Operation::State::done);
    if (operation->parts_ != nullptr) outcome = whole(*operation, std::move(outcome));
    operation->outcome_.emplace(std::move(outcome));
    ++counts_.commands;
    if (!operation->waited_for()) --unwaited_;
    finished_.push_back(operation);
    operation->wake_caller();
}

std::vector<OperationPtr> Multiplexer::take_finished() {
    std::vector<OperationPtr> finished;
    finished.swap(finished_);
    return finished;
}

// Puts the calls at the head of the queue, in order, behind those put back since the last send.
void Multiplexer::put_back(const Operations& operations) {
    for (const OperationPtr& operation : operations) operation->move(Operation::State::queued);
    const auto behind = static_cast<std::ptrdiff_t>(std::min(returned_, queue_.size()));
    queue_.insert(queue_.begin() + behind, operations.begin(), operations.end());
    returned_ += operations.size();
}

void Multiplexer::requeue_due(SteadyTime now) {
    const auto due = std::stable_partition(
        postponed_.begin(), postponed_.end(),
        [&](const OperationPtr& operation) { return operation->retry_at_ > now; });
    for (auto it = due; it != postponed_.end(); ++it) {
        (*it)->move(Operation::State::queued);
        queue_.push_back(std::move(*it));
    }
    postponed_.erase(due, postponed_.end());
}

}  // namespace hotcount::redis
