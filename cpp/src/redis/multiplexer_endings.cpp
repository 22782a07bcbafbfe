// The part of the multiplexer for calls that end without a reply, and for their outcomes.
#include <algorithm>
#include <string>
#include <string_view>

#include "commands.hpp"
#include "multiplexer.hpp"

namespace hotcount::redis {

Result<Reply> Multiplexer::give_up(const OperationPtr& operation) {
    const bool held = operation->state_ == Operation::State::held;
    const bool was_sent = held || operation->state_ == Operation::State::in_flight;
    operation->move(Operation::State::abandoned);
    std::size_t sent = operation->answered_before_;
    if (held) {
        std::erase(held_, operation);
    } else if (!was_sent) {
        std::erase(queue_, operation);
        std::erase(postponed_, operation);
    } else if (operation->request_.is_batch()) {
        for (const Flight& flight : flights_) {
            if (flight.first == operation) sent += commands_sent(flight);
        }
    }
    auto known = known_of(*operation, was_sent, sent);
    return operation->parts_ == nullptr ? known : whole(*operation, std::move(known));
}

Error Multiplexer::refuse(Operation& operation, const Error& why) {
    operation.move(Operation::State::abandoned);
    return operation.maybe_ran() ? unknown(operation, why) : why;
}

Result<Reply> Multiplexer::known_of(const Operation& operation, bool was_sent,
                                    std::size_t commands_sent) const {
    const std::string who = options_.address() + ": ";
    // The last refusal of the server says why it did not serve the call.
    if (!was_sent && operation.outcome_) {
        if (!operation.maybe_ran()) return *operation.outcome_;
        if (!operation.outcome_->ok()) return unknown(operation, operation.outcome_->error());
    }
    const auto not_answered = [&] {
        return operation.repeat() == Repeat::reads
                   ? make_error(ErrorCode::deadline, who + "the deadline passed before " +
                                                         operation.name() + " was answered")
                   : make_error(ErrorCode::outcome_unknown,
                                who + operation.name() +
                                    " was sent and not answered before the deadline; it may or "
                                    "may not be applied");
    };
    if (operation.request_.is_batch() && commands_sent > 0) {
        return Reply{parts_of(operation, commands_sent, not_answered(), not_sent(operation))};
    }
    return was_sent || operation.maybe_ran() ? not_answered() : not_sent(operation);
}

// The error of a call that waited until its deadline, for its turn or for a connection.
Error Multiplexer::not_sent(const Operation& operation) const {
    if (unreachable_) {
        return make_error(unreachable_->code,
                          unreachable_->message + "; the deadline passed before " +
                              operation.name() + " was sent; nothing was applied",
                          unreachable_->server_code);
    }
    return make_error(ErrorCode::deadline, options_.address() + ": the deadline passed before " +
                                               operation.name() + " was sent; nothing was applied");
}

void Multiplexer::expire(SteadyTime now, std::size_t most) {
    if (unwaited_ > 0 && now >= next_expiry_) find_late(now);
    end_late(most);
}

// A single pass over the calls, however many of them are late.
void Multiplexer::find_late(SteadyTime now) {
    next_expiry_ = SteadyTime::max();
    const auto take_late = [&](const OperationPtr& operation, const Flight* flight) {
        const bool sent_before = operation->state_ == Operation::State::held;
        if (operation->has_ended() || operation->waited_for()) return false;
        if (operation->deadline_.time() > now) {
            next_expiry_ = std::min(next_expiry_, operation->deadline_.time());
            return false;
        }
        const bool batch = operation->request_.is_batch();
        const std::size_t sent = batch && flight != nullptr ? commands_sent(*flight) : 0;
        late_.push_back(
            {operation, flight != nullptr || sent_before, operation->answered_before_ + sent});
        operation->move(Operation::State::abandoned);
        return true;
    };
    for (const Flight& flight : flights_) {
        flight.for_each([&](const OperationPtr& operation) { take_late(operation, &flight); });
    }
    const auto is_late = [&](const OperationPtr& operation) {
        return take_late(operation, nullptr);
    };
    std::erase_if(queue_, is_late);
    std::erase_if(postponed_, is_late);
    std::erase_if(held_, is_late);
}

void Multiplexer::end_late(std::size_t most) {
    for (; most > 0 && !late_.empty(); --most) {
        const Late late = std::move(late_.front());
        late_.pop_front();
        auto known = known_of(*late.operation, late.was_sent, late.commands_sent);
        if (late.operation->parts_ != nullptr) known = whole(*late.operation, std::move(known));
        late.operation->outcome_.emplace(std::move(known));
        ++counts_.commands;
        --unwaited_;
        finished_.push_back(late.operation);
    }
}

void Multiplexer::fail_queued(const Error& error) {
    for (const OperationPtr& operation : queue_) finish_unsent(operation, error);
    for (const OperationPtr& operation : postponed_) finish_unsent(operation, error);
    queue_.clear();
    postponed_.clear();
    Operations held;
    held.swap(held_);
    for (const OperationPtr& operation : held) {
        finish(operation, unknown(*operation, error));
    }
}

// The call is not on its way and will not be sent any more; an earlier connection may have taken it.
void Multiplexer::finish_unsent(const OperationPtr& operation, const Error& why) {
    if (operation->maybe_ran()) return finish(operation, unknown(*operation, why));
    if (operation->answered_before_ == 0) return finish(operation, why);
    finish(operation, Reply{parts_of(*operation, operation->answered_before_, why, why)});
}

Error Multiplexer::unknown(const Operation& operation, const Error& why) {
    return make_error(ErrorCode::outcome_unknown,
                      why.message + "; " + operation.name() +
                          " was sent and not answered: it may or may not be applied");
}

Error Multiplexer::silent_error() const {
    const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(options_.silence());
    return make_error(ErrorCode::unavailable, options_.address() +
                                                  ": the server said nothing for " +
                                                  std::to_string(limit.count()) +
                                                  " ms (silence_limit) while it owed replies");
}

void Multiplexer::connected() {
    unreachable_.reset();
    draining_ = false;
    demoted_ = false;
    encoded_ = 0;
    sent_ = 0;
    answered_ = 0;
}

void Multiplexer::lost(const Error& why, bool resend) {
    out_.clear();
    draining_ = false;
    replies_due_ = 0;
    std::deque<Flight> flights;
    flights.swap(flights_);
    calls_in_flight_ = 0;
    Operations again;
    for (const Flight& flight : flights) lose(flight, why, resend, again);
    connected();  // The byte counts of the lost connection must not limit the next one.
    if (!is_lane()) return put_back(again);
    if (!resend) return;  // It is closed.
    // In the order of submission, so that no call on a key overtakes another.
    again.insert(again.end(), queue_.begin(), queue_.end());
    queue_.clear();
    for (const OperationPtr& operation : again) {
        depart(operation, {Operation::Departure::Why::lost, why, {}});
    }
}

void Multiplexer::lose(const Flight& flight, const Error& why, bool resend, Operations& again) {
    // The server runs a command only when it has all of its bytes.
    const bool batch = flight.first->request_.is_batch();
    const bool may_have_run = batch ? commands_sent(flight) > 0 : flight.end <= sent_;
    flight.for_each([&](const OperationPtr& member) {
        if (member->state_ != Operation::State::in_flight) return;
        using enum Operation::Attempt;
        const bool repeats = member->repeat() != Repeat::never;
        const bool is_first = member->attempt_ == first;
        if (may_have_run && batch && !repeats) {
            if (!lose_part(flight, why)) {
                return finish(member, Reply{std::move(member->replies_)});
            }
        } else if (may_have_run) {
            if (member->repeat() != Repeat::reads) member->attempt_ = after_maybe_run;
            member->replies_.clear();
        }
        // The owner of a slot may change several times before a call of it leaves at all.
        const bool again_and_again = is_lane() && !may_have_run;
        if (resend && (is_first || again_and_again) && (repeats || !member->maybe_ran())) {
            if (!member->maybe_ran()) member->attempt_ = second;
            again.push_back(member);
            return;
        }
        finish_unsent(
            member, make_error(why.code,
                               why.message + (member->maybe_ran() ? "" : "; nothing was applied")));
    });
}

// The number of a batch's commands that were sent completely over this connection.
std::size_t Multiplexer::commands_sent(const Flight& flight, std::size_t* bytes) const {
    const std::string_view commands = flight.first->request_.bytes_;
    std::size_t at = 0;
    std::size_t sent = 0;
    while (at < commands.size()) {
        const std::size_t end = at + end_of_first(commands.substr(at));
        if (flight.begin + end > sent_) break;
        at = end;
        ++sent;
    }
    if (bytes != nullptr) *bytes = at;
    return sent;
}

// The replies that came, and errors for the others: `sent` commands may have been run.
ReplyArray Multiplexer::parts_of(const Operation& batch, std::size_t sent,
                                 const Error& not_answered, const Error& not_sent) {
    ReplyArray parts = batch.replies_;
    while (parts.size() < batch.request_.replies_) {
        const Error& error = parts.size() < sent ? not_answered : not_sent;
        parts.push_back(Reply{ReplyError{error.message, error.code}});
    }
    return parts;
}

// Splits a batch after its connection was lost: answered commands keep their replies, the outcome
// of sent commands without a reply is unknown, the rest stays to be sent. False if no command is
// left.
bool Multiplexer::lose_part(const Flight& flight, const Error& why) {
    Operation& batch = *flight.first;
    std::size_t bytes = 0;
    const std::size_t sent = batch.answered_before_ + commands_sent(flight, &bytes);
    const Error lost = unknown(batch, why);
    while (batch.replies_.size() < sent) {
        batch.replies_.push_back(Reply{ReplyError{lost.message, lost.code}});
    }
    batch.request_.bytes_.erase(0, bytes);
    batch.answered_before_ = sent;
    return sent < batch.request_.replies_;
}

}  // namespace hotcount::redis
