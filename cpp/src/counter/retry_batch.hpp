// The part that RetryingCounter and RetryingPeriodCounter share: batches of adds for a retry queue,
// and callers that block for answers.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "retry_engine.hpp"

namespace hotcount {

/// Begins an add and waits for its answer until the deadline, plus the time that a disk takes.
Result<Added> wait_for_added(std::string_view key, Deadline deadline,
                             const std::function<void(Completion<Added>)>& begin);

/// A batch of adds. The queue gets the next slice when all adds of the previous one are answered:
/// so other adds get their turn, and a batch of any length fits below max_queue.
class RetryBatch : public std::enable_shared_from_this<RetryBatch> {
  public:
    struct Element {
        std::size_t index;  ///< In the caller's batch.
        std::string key;
        std::int64_t n;
    };
    /// Hands an element to the queue, and may move from it.
    using Push = std::function<void(Element& element, Completion<Added> settle)>;

    /// `result`: has the length of the caller's batch, and the errors of elements already refused.
    RetryBatch(const RetrySettings& settings, std::vector<Element> elements,
               BatchResult<Added> result, Push push, Completion<BatchResult<Added>> done);

    /// Hands in the next slice.
    void go_on();
    /// For a caller that leaves: begins no further slice and returns the results known so far. Null
    /// if all are known.
    std::optional<BatchResult<Added>> leave();

  private:
    bool is_last() { return under_way_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
    std::pair<std::size_t, std::size_t> next_slice();
    void settle(std::size_t i, Result<Added> outcome);
    void end();

    const std::size_t slice_;
    const Push push_;
    std::vector<Element> elements_;
    std::atomic<std::size_t> under_way_{0};
    std::mutex mutex_;
    // Guarded by the mutex.
    std::size_t next_{0};
    bool left_{false};
    std::vector<bool> answered_;
    BatchResult<Added> result_;
    Completion<BatchResult<Added>> done_;
};

/// Begins the batch that `make` makes and waits for its end until the deadline, plus the time that
/// a disk takes.
BatchResult<Added> wait_for_batch(
    Deadline deadline,
    const std::function<std::shared_ptr<RetryBatch>(Completion<BatchResult<Added>>)>& make);

}  // namespace hotcount
