// The part of the multiplexer for temporary refusals: it sends a refused call again, after a pause
// and within the call's deadline. A refused call has applied nothing.
//
// READONLY is such a refusal: the server was demoted, or the name led to a replica. Then the client
// must leave the connection and resolve the name again (take_demoted(), drain()). Of a batch, or of
// many script calls in one request, only the refused part is sent again.
#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "commands.hpp"
#include "multiplexer.hpp"

namespace hotcount::redis {
namespace {

// The first command's name as it was given: "*2\r\n$3\r\nGET\r\n...".
std::string_view name_of(std::string_view command) {
    command.remove_prefix(std::min(command.find('\n') + 1, command.size()));
    command.remove_prefix(std::min(command.find('\n') + 1, command.size()));
    return command.substr(0, command.find('\r'));
}

// Commands that a replica answers. Any other counts as a write, which costs a retry at most.
bool only_reads(std::string_view name) {
    static constexpr std::array<std::string_view, 12> kReaders{
        "GET",   "MGET",    "EXISTS", "TTL",    "PTTL",  "HGET",
        "HMGET", "HGETALL", "ZSCORE", "ZRANGE", "ZCARD", "PING"};
    const auto same = [&](std::string_view reader) {
        return std::equal(reader.begin(), reader.end(), name.begin(), name.end(),
                          [](char a, char b) {
                              return a == (b >= 'a' && b <= 'z' ? static_cast<char>(b - 32) : b);
                          });
    };
    return std::any_of(kReaders.begin(), kReaders.end(), same);
}

}  // namespace

const ReplyError* Multiplexer::refused_for_now(const Reply& reply) {
    const auto* const error = std::get_if<ReplyError>(&reply.value);
    // A known error was made by the client, not by the server.
    if (error == nullptr || error->known || !is_transient_refusal(error_word(error->message)))
        return nullptr;
    if (error_word(error->message) == "READONLY") demoted_ = true;
    return error;
}

// Whether a script that catches errors got READONLY for a write. Then all of its writes were
// refused, and it has applied nothing.
bool Multiplexer::refused_inside(const Reply& reply) {
    const auto* const elements = std::get_if<ReplyArray>(&reply.value);
    return elements != nullptr &&
           std::any_of(elements->begin(), elements->end(), [this](const Reply& element) {
               const ReplyError* const error = refused_for_now(element);
               return error != nullptr && error_word(error->message) == "READONLY";
           });
}

// In a lane, calls leave it instead of waiting.
bool Multiplexer::postpone(const OperationPtr& operation) {
    if (is_lane()) return false;
    operation->pause_ = next_pause(operation->pause_);
    if (operation->state_ != Operation::State::in_flight ||
        operation->deadline_.remaining() <= operation->pause_) {
        return false;
    }
    operation->retry_at_ = std::chrono::steady_clock::now() + operation->pause_;
    operation->move(Operation::State::postponed);
    postponed_.push_back(operation);
    return true;
}

// Keeps the commands of the batch with a temporary refusal, and queues it again. A refused command
// before a write that was applied is not repeated: that would change the order of writes.
bool Multiplexer::ask_again(const OperationPtr& batch) {
    Request& request = batch->request_;
    if (!request.echo_.empty()) {  // A command and its ECHO: both again.
        if (batch->answered_before_ > 0 || refused_for_now(batch->replies_.front()) == nullptr ||
            !postpone(batch)) {
            return false;
        }
        batch->outcome_.emplace(Reply{std::exchange(batch->replies_, {})});
        return true;
    }
    const std::string_view bytes = request.bytes_;
    std::vector<std::string_view> commands;
    for (std::size_t at = 0; at < bytes.size(); at += commands.back().size()) {
        commands.push_back(bytes.substr(at, end_of_first(bytes.substr(at))));
    }
    std::vector<std::size_t> refused;
    for (std::size_t i = batch->replies_.size(); i-- > batch->answered_before_;) {
        const Reply& reply = batch->replies_[i];
        if (refused_for_now(reply) != nullptr) {
            refused.push_back(i);
        } else if (!std::holds_alternative<ReplyError>(reply.value) &&
                   !only_reads(name_of(commands[i - batch->answered_before_]))) {
            break;
        }
    }
    if (refused.empty() || !postpone(batch)) return false;
    std::reverse(refused.begin(), refused.end());
    std::string left;
    std::string shapes;
    for (const std::size_t i : refused) {
        left += commands[i - batch->answered_before_];
        if (!request.shapes_.empty()) shapes += request.shapes_[i];
    }
    keep_parts(*batch, std::exchange(batch->replies_, {}), refused);
    request.bytes_ = std::move(left);
    request.shapes_ = std::move(shapes);
    request.replies_ = refused.size();
    batch->answered_before_ = 0;
    return true;
}

// The same for many script calls in one request. The script ran as a whole, so their order does not
// matter.
bool Multiplexer::ask_again(const OperationPtr& calls, ReplyArray& replies) {
    std::vector<std::size_t> refused;
    for (std::size_t i = 0; i < replies.size(); ++i) {
        if (refused_for_now(replies[i]) != nullptr) refused.push_back(i);
    }
    if (refused.empty() || !postpone(calls)) return false;
    keep_parts(*calls, std::move(replies), refused);
    Combining::keep(*calls, refused);
    return true;
}

// `replies`: those to the last attempt. `missing`: the indexes in it of the calls to send again.
void Multiplexer::keep_parts(Operation& operation, ReplyArray replies,
                             const std::vector<std::size_t>& missing) {
    if (operation.parts_ == nullptr) {
        operation.parts_ = std::make_unique<Operation::Parts>();
        operation.parts_->replies = std::move(replies);
        operation.parts_->missing = missing;
        return;
    }
    Operation::Parts& parts = *operation.parts_;
    for (std::size_t i = 0; i < replies.size(); ++i) {
        parts.replies[parts.missing[i]] = std::move(replies[i]);
    }
    std::vector<std::size_t> places;
    places.reserve(missing.size());
    for (const std::size_t i : missing) places.push_back(parts.missing[i]);
    parts.missing = std::move(places);
}

// The answers so far, completed by the outcome of the rest. A rest that was not sent again keeps its
// refusal.
Result<Reply> Multiplexer::whole(const Operation& operation, Result<Reply> rest) {
    ReplyArray replies = operation.parts_->replies;
    const std::vector<std::size_t>& missing = operation.parts_->missing;
    auto* const parts = rest.ok() ? std::get_if<ReplyArray>(&rest->value) : nullptr;
    for (std::size_t i = 0; i < missing.size(); ++i) {
        if (parts != nullptr && i < parts->size()) {
            replies[missing[i]] = std::move((*parts)[i]);
        } else if (!rest.ok() && rest.error().code == ErrorCode::outcome_unknown) {
            replies[missing[i]] = Reply{ReplyError{rest.error().message, rest.error().code}};
        }
    }
    return Reply{std::move(replies)};
}

}  // namespace hotcount::redis
