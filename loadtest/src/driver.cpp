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

/// "item:123", without an allocation.
class ItemKey {
  public:
    explicit ItemKey(std::int64_t item) {
        std::memcpy(text_.data(), kPrefix.data(), kPrefix.size());
        end_ = std::to_chars(text_.data() + kPrefix.size(), text_.data() + text_.size(), item).ptr;
    }
    std::string_view view() const {
        return {text_.data(), static_cast<std::size_t>(end_ - text_.data())};
    }

  private:
    static constexpr std::string_view kPrefix = "item:";
    std::array<char, 32> text_;
    char* end_;
};

}  // namespace

Answer VotesDriver::apply(const Operation& operation) {
    switch (operation.kind) {
        case OperationKind::read:
            return answer_from(votes_->count(sql::Id{operation.item}, timeout_));
        case OperationKind::vote:
        case OperationKind::unvote:
            break;
    }
    const std::int64_t value = operation.kind == OperationKind::vote ? 1 : 0;
    const Ballot ballot{sql::Id{operation.item}, sql::Id{operation.user}, value, {}};
    return answer_from(votes_->cast(ballot, timeout_));
}

Answer CounterDriver::apply(const Operation& operation) {
    const ItemKey key(operation.item);
    if (operation.kind == OperationKind::read) {
        return answer_from(counter_->get(key.view(), timeout_));
    }
    const std::int64_t amount = operation.kind == OperationKind::vote ? 1 : -1;
    return answer_from(counter_->add(key.view(), amount, timeout_));
}

Result<std::int64_t> CounterDriver::value(std::int64_t item) {
    return counter_->get(ItemKey(item).view(), timeout_);
}

}  // namespace hotcount::loadtest
