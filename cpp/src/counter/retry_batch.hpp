// Adds that are handed to a retry queue, and their callers that wait: what RetryingCounter and
// RetryingPeriodCounter have in common.
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

/// Begins an add and waits for its answer, by the deadline and the time that a disk takes.
Result<Added> wait_for_added(std::string_view key, Deadline deadline,
                             const std::function<void(Completion<Added>)>& begin);

/// A batch of adds. The queue gets it in slices, the next one when all adds of the one before are
/// answered: so the adds of others get their turn, and a batch of any length fits below max_queue.
class RetryBatch : public std::enable_shared_from_this<RetryBatch> {
  public:
    struct Element {
        std::size_t index;  ///< In the caller's batch.
        std::string key;
        std::int64_t n;
    };
    /// Hands an element to the queue; it may be moved from.
    using Push = std::function<void(Element& element, Completion<Added> settle)>;

    /// `result`: as long as the caller's batch, with the errors of elements that are refused
    /// already.
    RetryBatch(const RetrySettings& settings, std::vector<Element> elements,
               BatchResult<Added> result, Push push, Completion<BatchResult<Added>> done);

    /// Hands in the next slice.
    void go_on();
    /// What is known so far, for a caller that leaves: no other slice begins. None if all is known.
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

/// Begins the batch that `make` makes and waits for its end, by the deadline and the time that a
/// disk takes.
BatchResult<Added> wait_for_batch(
    Deadline deadline,
    const std::function<std::shared_ptr<RetryBatch>(Completion<BatchResult<Added>>)>& make);

}  // namespace hotcount
