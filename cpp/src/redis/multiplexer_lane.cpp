// The part of the multiplexer for lanes; a lane is the connection to one node of a cluster. Calls
// that the node refuses for now, and calls to be sent again after a lost connection, go back to the
// router (cluster_calls.hpp) with their error. Answers that follow a silence longer than
// silence_limit are held until another node confirms that this node still owns its slots: a primary
// that was paused executes and acknowledges the commands in its sockets even if its replica has
// been promoted meanwhile.
#include <algorithm>
#include <string_view>
#include <utility>

#include "commands.hpp"
#include "multiplexer.hpp"

namespace hotcount::redis {
namespace {

using Why = Operation::Departure::Why;

std::optional<Why> why_it_leaves(std::string_view line) {
    const std::string_view word = error_word(line);
    if (word == "MOVED") return Why::moved;
    if (word == "ASK") return Why::ask;
    const bool later = word == "CLUSTERDOWN" || is_transient_refusal(word) ||
                       line.find("attempted to access a non local key") != std::string_view::npos;
    return later ? std::optional{Why::refused} : std::nullopt;
}

}  // namespace

void Multiplexer::depart(const OperationPtr& operation, Operation::Departure departure) {
    if (operation->has_ended()) return;
    operation->move(Operation::State::left);
    operation->replies_.clear();
    operation->outcome_.emplace(departure.error);
    operation->departure_.emplace(std::move(departure));
    if (!operation->waited_for()) {
        --unwaited_;
        ++leaving_[operation->route.slot];
    }
    finished_.push_back(operation);
    operation->wake_caller();
}

// This refusal applied nothing. An earlier attempt may have: maybe_ran() tells.
bool Multiplexer::leaves(const OperationPtr& operation, const Reply& reply) {
    const auto* const error = std::get_if<ReplyError>(&reply.value);
    if (error == nullptr || error->known) return false;
    const auto why = why_it_leaves(error->message);
    if (!why) return false;
    const std::string word{error_word(error->message)};
    // ASKING covers one command only. TRYAGAIN may concern a single key of a combined command.
    if (*why == Why::ask || word == "TRYAGAIN") operation->form_.alone = true;
    depart(operation,
           {*why,
            make_error(ErrorCode::unavailable,
                       options_.address() + ": " + operation->name() + ": " + error->message, word),
            error->message});
    return true;
}

bool Multiplexer::leaves_whole(const Flight& flight, const Reply& reply) {
    const auto* const error = std::get_if<ReplyError>(&reply.value);
    if (error == nullptr || error->known || !why_it_leaves(error->message)) return false;
    if (flight.first->request_.is_batch() && flight.first->request_.replies_ != 1) return false;
    flight.for_each([&](const OperationPtr& member) { (void)leaves(member, reply); });
    return true;
}

void Multiplexer::refuse_queued(const Error& why) {
    const bool transient = why.code == ErrorCode::unavailable || why.code == ErrorCode::deadline;
    return is_lane() && transient ? evict(why) : fail_queued(why);
}

void Multiplexer::evict(const Error& why) {
    Operations queued(queue_.begin(), queue_.end());
    queue_.clear();
    returned_ = 0;
    for (const OperationPtr& operation : queued) depart(operation, {Why::lost, why, {}});
}

void Multiplexer::outstanding(SlotSet& slots) const {
    // Without the calls that were given up. Their callers know that the outcome is unknown, and perhaps
    // no thread reads the reply for which the slot would wait.
    const auto note = [&](const OperationPtr& operation) {
        const bool ended = operation->state_ == Operation::State::abandoned ||
                           operation->state_ == Operation::State::done;
        if (!ended && operation->route.slot < slots.size()) slots.set(operation->route.slot);
    };
    for (const Flight& flight : flights_) flight.for_each(note);
    for (const OperationPtr& operation : queue_) note(operation);
    for (const auto& [slot, calls] : leaving_) {
        if (slot < slots.size()) slots.set(slot);
    }
}

void Multiplexer::handed_back(const std::vector<OperationPtr>& left) {
    for (const OperationPtr& operation : left) {
        const auto found = leaving_.find(operation->route.slot);
        if (found != leaving_.end() && --found->second == 0) leaving_.erase(found);
    }
}

// -- answers after a silence ------------------------------------------------------------------------

void Multiplexer::note_heard(SteadyTime now) {
    const auto doubted = node_heard_->hear(now, options_.silence());
    if (!doubted) return;
    doubted_ = true;
    // After a second silence, an answer to a question from before it settles nothing.
    doubted_at_ = std::max(doubted_at_, *doubted);
}

bool Multiplexer::outlived_its_node(const Flight& flight, SteadyTime now) const {
    return is_lane() && now - flight.encoded_at > options_.silence() &&
           flight.encoded_at < node_heard_->replaced_at();
}

std::optional<bool> Multiplexer::confirm(bool owns, SteadyTime asked_at) {
    if (!doubted_ || asked_at < doubted_at_) return {};
    doubted_ = false;
    if (owns) node_heard_->confirm(asked_at);
    // It may have lost and regained its slots since these calls were sent.
    owns = owns && node_heard_->replaced_at() <= held_since_;
    held_since_ = SteadyTime::max();
    Operations held;
    held.swap(held_);
    const Error replaced = make_error(
        ErrorCode::unavailable,
        options_.address() + ": this node answered after a silence of more than " +
            std::to_string(
                std::chrono::duration_cast<std::chrono::milliseconds>(options_.silence()).count()) +
            " ms (silence_limit), and another node says that it was replaced");
    for (const OperationPtr& operation : held) {
        if (operation->state_ != Operation::State::held) continue;
        if (owns) {
            Result<Reply> answer = std::move(*operation->outcome_);
            finish(operation, std::move(answer));
        } else if (operation->repeat() == Repeat::reads) {
            depart(operation, {Why::lost, replaced, {}});
        } else {
            finish(operation, unknown(*operation, replaced));
        }
    }
    return owns;
}

}  // namespace hotcount::redis
