#include "retry_batch.hpp"

#include <algorithm>
#include <hotcount/detail/base/event.hpp>

namespace hotcount {
namespace {

// The engine answers by the deadline, but for the time that the disk takes.
constexpr Duration kDisk = std::chrono::seconds{60};
// Adds of a batch that the queue has at once: some ten script calls, or one write to the journal.
constexpr std::size_t kSlice = 1024;

Error left_too_early() {
    return make_error(ErrorCode::outcome_unknown,
                      "the add was not answered before its caller left; it is counted once or not "
                      "at all");
}

}  // namespace

Result<Added> wait_for_added(std::string_view key, Deadline deadline,
                             const std::function<void(Completion<Added>)>& begin) {
    struct Call {
        Event settled;
        std::optional<Result<Added>> outcome;
    };
    const auto call = std::make_shared<Call>();
    begin([call](Result<Added> outcome) {
        call->outcome.emplace(std::move(outcome));
        call->settled.set();
    });
    if (call->settled.wait(Deadline::at(deadline.time() + kDisk))) {
        return std::move(*call->outcome);
    }
    return left_too_early().about(&ErrorFacts::key, std::string{key});
}

RetryBatch::RetryBatch(const RetrySettings& settings, std::vector<Element> elements,
                       BatchResult<Added> result, Push push, Completion<BatchResult<Added>> done)
    : slice_(std::clamp<std::size_t>(settings.client->options().max_queue / 2, 1, kSlice)),
      push_(std::move(push)),
      elements_(std::move(elements)),
      answered_(elements_.size(), false),
      result_(std::move(result)),
      done_(std::move(done)) {}

// under_way_ counts one more until the whole slice is handed in: an add that is answered at once
// does not begin the next slice inside of this one.
void RetryBatch::go_on() {
    do {
        const auto [begin, stop] = next_slice();
        if (begin == stop) return end();
        under_way_ = stop - begin + 1;
        for (std::size_t i = begin; i < stop; ++i) {
            push_(elements_[i], [self = shared_from_this(), i](Result<Added> outcome) {
                self->settle(i, std::move(outcome));
                if (self->is_last()) self->go_on();
            });
        }
    } while (is_last());
}

std::optional<BatchResult<Added>> RetryBatch::leave() {
    const std::lock_guard lock(mutex_);
    if (!done_) return {};
    left_ = true;
    for (std::size_t i = 0; i < answered_.size(); ++i) {
        if (answered_[i]) continue;
        result_.errors.emplace(
            elements_[i].index,
            i < next_ ? left_too_early()
                      : make_error(ErrorCode::deadline,
                                   "its caller left before the add was sent; nothing was applied"));
    }
    return std::move(result_);
}

std::pair<std::size_t, std::size_t> RetryBatch::next_slice() {
    const std::lock_guard lock(mutex_);
    const std::size_t begin = next_;
    if (!left_) next_ = std::min(answered_.size(), begin + slice_);
    return {begin, next_};
}

void RetryBatch::settle(std::size_t i, Result<Added> outcome) {
    const std::lock_guard lock(mutex_);
    if (left_) return;
    answered_[i] = true;
    const std::size_t index = elements_[i].index;
    if (outcome) {
        result_.values[index] = *outcome;
    } else {
        result_.errors.emplace(index, std::move(outcome).error());
    }
}

void RetryBatch::end() {
    std::unique_lock lock(mutex_);
    const auto done = std::exchange(done_, {});
    BatchResult<Added> result = std::move(result_);
    lock.unlock();
    done(std::move(result));
}

BatchResult<Added> wait_for_batch(
    Deadline deadline,
    const std::function<std::shared_ptr<RetryBatch>(Completion<BatchResult<Added>>)>& make) {
    struct Call {
        Event settled;
        BatchResult<Added> result;
    };
    const auto call = std::make_shared<Call>();
    const auto batch = make([call](Result<BatchResult<Added>> result) {
        call->result = std::move(*result);
        call->settled.set();
    });
    batch->go_on();
    if (call->settled.wait(Deadline::at(deadline.time() + kDisk))) return std::move(call->result);
    if (auto known = batch->leave()) return std::move(*known);
    (void)call->settled.wait(Deadline::after(kDisk));  // It is being set.
    return std::move(call->result);
}

}  // namespace hotcount
