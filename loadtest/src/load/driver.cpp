#include "driver.hpp"

#include <array>
#include <charconv>
#include <cstring>
#include <string_view>

namespace hotcount::loadtest {
namespace {

template <class T>
Answer answer_from(const Result<T>& result) {
    if (result.ok()) return {};
    const ErrorCode code = result.error().code;
    return {nothing_applied(code) ? Outcome::failed : Outcome::unknown, code};
}

/// "item:123" or "user:123", without an allocation.
class Name {
  public:
    Name(std::string_view prefix, std::int64_t number) {
        std::memcpy(text_.data(), prefix.data(), prefix.size());
        end_ = std::to_chars(text_.data() + prefix.size(), text_.data() + text_.size(), number).ptr;
    }
    std::string_view view() const {
        return {text_.data(), static_cast<std::size_t>(end_ - text_.data())};
    }

  private:
    std::array<char, 32> text_;
    char* end_;
};

Name item_name(std::int64_t item) { return {"item:", item}; }

Ballot ballot_of(const Operation& operation) {
    const std::int64_t value = operation.kind == OperationKind::vote ? 1 : 0;
    return {sql::Id{operation.item}, sql::Id{operation.user}, value, {}};
}

}  // namespace

Answer VotesDriver::apply(const Operation& operation) {
    switch (operation.kind) {
        case OperationKind::read:
            return answer_from(votes_->count(sql::Id{operation.item}, timeout_));
        case OperationKind::vote:
        case OperationKind::unvote:
            break;
    }
    return answer_from(votes_->cast(ballot_of(operation), timeout_));
}

void VotesDriver::start(const Operation& operation, Done done) {
    const auto answer = [done = std::move(done)](const auto& result) { done(answer_from(result)); };
    if (operation.kind == OperationKind::read) {
        votes_->count_async(sql::Id{operation.item}, answer, timeout_);
    } else {
        votes_->cast_async(ballot_of(operation), answer, timeout_);
    }
}

Answer CounterDriver::apply(const Operation& operation) {
    const Name key = item_name(operation.item);
    if (operation.kind == OperationKind::read) {
        return answer_from(counter_->get(key.view(), timeout_));
    }
    const std::int64_t amount = operation.kind == OperationKind::vote ? 1 : -1;
    const auto value = counter_->add(key.view(), amount, timeout_);
    Answer answer = answer_from(value);
    if (value) answer.returned = static_cast<std::int32_t>(*value);
    return answer;
}

Answer LimiterDriver::apply(const Operation& operation) {
    const Name key = item_name(operation.item);
    const auto decision = operation.kind == OperationKind::read
                              ? limiter_->peek(key.view(), timeout_)
                              : limiter_->hit(key.view(), 1, {}, timeout_);
    Answer answer = answer_from(decision);
    if (decision) {
        answer.refused = !decision->allowed;
        answer.returned = decision->allowed ? 1 : 0;
    }
    return answer;
}

Answer SetsDriver::apply(const Operation& operation) {
    const Name key = item_name(operation.item);
    if (operation.kind == OperationKind::read) {
        return answer_from(sets_->top(key.view(), 10, timeout_));
    }
    const Name member("user:", operation.user);
    const auto done = operation.kind == OperationKind::vote
                          ? sets_->upsert(key.view(), member.view(),
                                          static_cast<double>(operation.value), {}, timeout_)
                          : sets_->remove(key.view(), member.view(), {}, timeout_);
    Answer answer = answer_from(done);
    if (done) {
        answer.refused = *done != Upsert::applied;
        answer.returned = static_cast<std::int32_t>(*done);
    }
    return answer;
}

std::string item_key(std::int64_t item) { return std::string{item_name(item).view()}; }
std::string member_name(std::int64_t user) { return std::string{Name("user:", user).view()}; }

}  // namespace hotcount::loadtest
