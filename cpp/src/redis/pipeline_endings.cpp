// The pipeline's other half: calls that end without a reply, and what is then known of them.
#include <algorithm>
#include <hotcount/base/interrupt.hpp>
#include <string>
#include <string_view>

#include "encode.hpp"
#include "pipeline.hpp"

namespace hotcount::redis {
namespace {

// A connection on which a given-up call stays unanswered for so long is taken for dead.
constexpr Duration kGrace = std::chrono::milliseconds{250};

}  // namespace

Result<Reply> Pipeline::give_up(const OperationPtr& operation) {
    const std::string who = options_.address() + ": ";
    const bool waited = operation->state_ != Operation::State::in_flight;
    operation->state_ = Operation::State::abandoned;
    if (waited) {
        std::erase(queue_, operation);
        std::erase(postponed_, operation);
    } else if (!unanswered_since_ && !interrupted()) {  // Ctrl-C says nothing of the server.
        unanswered_since_ = std::chrono::steady_clock::now();
    }
    const Error not_sent =
        make_error(ErrorCode::deadline, who + "the deadline passed before " + operation->name() +
                                            " was sent; nothing was applied");
    const Error not_answered =
        operation->repeat() == Repeat::reads
            ? make_error(ErrorCode::deadline,
                         who + "the deadline passed before " + operation->name() + " was answered")
            : make_error(ErrorCode::outcome_unknown,
                         who + operation->name() +
                             " was sent and not answered before the deadline; it may or may not "
                             "be applied");
    if (operation->is(Request::Kind::batch)) {
        std::size_t sent = operation->answered_before_;
        for (const Flight& flight : flights_) {
            if (flight.first == operation) sent += commands_sent(flight);
        }
        if (sent > 0) return Reply{parts_of(*operation, sent, not_answered, not_sent)};
    }
    return waited && !operation->maybe_ran_ ? not_sent : not_answered;
}

void Pipeline::expire(SteadyTime now) {
    if (unwaited_ == 0) return;
    Operations late;
    const auto look = [&](const OperationPtr& operation) {
        const bool pending = operation->state_ != Operation::State::abandoned &&
                             operation->state_ != Operation::State::done;
        if (pending && !operation->waited_for() && operation->deadline_.time() <= now) {
            late.push_back(operation);
        }
    };
    for (const Flight& flight : flights_) flight.for_each(look);
    std::for_each(queue_.begin(), queue_.end(), look);
    std::for_each(postponed_.begin(), postponed_.end(), look);
    for (const OperationPtr& operation : late) {
        auto outcome = give_up(operation);
        operation->outcome_.emplace(std::move(outcome));
        ++counts_.commands;
        --unwaited_;
        finished_.push_back(operation);
    }
}

void Pipeline::fail_queued(const Error& error) {
    for (const OperationPtr& operation : queue_) finish_unsent(operation, error);
    for (const OperationPtr& operation : postponed_) finish_unsent(operation, error);
    queue_.clear();
    postponed_.clear();
}

// It is not on its way and will not be sent any more. An earlier connection may have taken it.
void Pipeline::finish_unsent(const OperationPtr& operation, const Error& why) {
    if (operation->maybe_ran_) return finish(operation, unknown(*operation, why));
    if (operation->answered_before_ == 0) return finish(operation, why);
    finish(operation, Reply{parts_of(*operation, operation->answered_before_, why, why)});
}

Error Pipeline::unknown(const Operation& operation, const Error& why) {
    return make_error(ErrorCode::outcome_unknown,
                      why.message + "; " + operation.name() +
                          " was sent and not answered: it may or may not be applied");
}

bool Pipeline::stuck(SteadyTime now) const {
    return unanswered_since_ && now - *unanswered_since_ >= kGrace;
}

void Pipeline::connected() {
    encoded_ = 0;
    sent_ = 0;
    answered_ = 0;
    unanswered_since_.reset();
}

void Pipeline::lost(const Error& why, bool resend) {
    out_.clear();
    replies_due_ = 0;
    unanswered_since_.reset();
    std::deque<Flight> flights;
    flights.swap(flights_);
    Operations again;
    for (const Flight& flight : flights) lose(flight, why, resend, again);
    put_back(again);
}

void Pipeline::lose(const Flight& flight, const Error& why, bool resend, Operations& again) {
    // The server runs a command only when it has all of it.
    const bool batch = flight.first->is(Request::Kind::batch);
    const bool may_have_run = batch ? commands_sent(flight) > 0 : flight.end <= sent_;
    flight.for_each([&](const OperationPtr& member) {
        if (member->state_ != Operation::State::in_flight) return;
        const bool repeats = member->repeat() != Repeat::never;
        if (may_have_run && batch && !repeats) {
            if (!lose_part(flight, why)) {
                return finish(member, Reply{std::move(member->replies_)});
            }
        } else if (may_have_run) {
            member->maybe_ran_ = member->repeat() != Repeat::reads;
            member->replies_.clear();
        }
        if (resend && !member->resent_ && (repeats || !member->maybe_ran_)) {
            member->resent_ = true;
            again.push_back(member);
            return;
        }
        finish_unsent(
            member, make_error(why.code,
                               why.message + (member->maybe_ran_ ? "" : "; nothing was applied")));
    });
}

// How many of a batch's commands have left as a whole by this connection.
std::size_t Pipeline::commands_sent(const Flight& flight, std::size_t* bytes) const {
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
ReplyArray Pipeline::parts_of(const Operation& batch, std::size_t sent, const Error& not_answered,
                              const Error& not_sent) {
    ReplyArray parts = batch.replies_;
    while (parts.size() < batch.request_.replies_) {
        const Error& error = parts.size() < sent ? not_answered : not_sent;
        parts.push_back(Reply{ReplyError{error.message, error.code}});
    }
    return parts;
}

// A batch that was cut: what was answered is known, what was sent and not answered is unknown, and
// the rest is left in it to be sent. False where nothing is left.
bool Pipeline::lose_part(const Flight& flight, const Error& why) {
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
