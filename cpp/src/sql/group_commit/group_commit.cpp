#include <hotcount/detail/sql/group_commit.hpp>

#include "queue.hpp"

namespace hotcount::sql {

Result<void> check_options(const GroupCommitOptions& options) {
    if (options.max_batch == 0) return bad_value("max_batch", 0, "at least 1");
    if (options.max_queue == 0) return bad_value("max_queue", 0, "at least 1");
    if (options.max_delay < Duration{0}) {
        return bad_option("max_delay", "is negative");
    }
    if (options.workers < 1 || options.workers > 64) {
        return bad_value("commit_workers", options.workers, "it takes 1 to 64");
    }
    return {};
}

GroupCommit::GroupCommit(std::shared_ptr<Database> database, std::shared_ptr<BatchWriter> writer,
                         GroupCommitOptions options)
    : queue_(std::make_shared<GroupQueue>(std::move(database), std::move(writer), options)) {}

GroupCommit::~GroupCommit() { queue_->close(); }

Result<void> GroupCommit::submit(const std::shared_ptr<QueuedWrite>& write, Deadline deadline) {
    return queue_->submit(write, deadline);
}

void GroupCommit::submit_all(const ManyWrites& writes, Deadline deadline) {
    queue_->submit_all(writes, deadline);
}

std::vector<Result<void>> GroupCommit::submit_all(
    std::span<const std::shared_ptr<QueuedWrite>> writes, Deadline deadline) {
    std::vector<Result<void>> results(writes.size());
    submit_all({writes.size(), [&](std::size_t i) { return writes[i]; },
                [&](std::size_t i, const QueuedWrite*, const Result<void>& result) {
                    results[i] = result;
                }},
               deadline);
    return results;
}

void GroupCommit::submit_async(std::shared_ptr<QueuedWrite> write, Deadline deadline,
                               Completion<void> done) {
    queue_->submit_async(std::move(write), deadline, std::move(done));
}

void GroupCommit::submit_all_async(ManyWrites writes, Deadline deadline,
                                   std::function<void()> done) {
    queue_->submit_all_async(std::move(writes), deadline, std::move(done));
}

void GroupCommit::submit_all_async(std::vector<std::shared_ptr<QueuedWrite>> writes,
                                   Deadline deadline,
                                   std::function<void(std::vector<Result<void>>)> done) {
    struct Call {
        std::vector<std::shared_ptr<QueuedWrite>> writes;
        std::vector<Result<void>> results;
    };
    const auto call = std::make_shared<Call>(Call{std::move(writes), {}});
    call->results.resize(call->writes.size());
    submit_all_async({call->writes.size(), [call](std::size_t i) { return call->writes[i]; },
                      [call](std::size_t i, const QueuedWrite*, const Result<void>& result) {
                          call->results[i] = result;
                      }},
                     deadline, [call, done = std::move(done)] { done(std::move(call->results)); });
}

GroupCommit::Stats GroupCommit::stats() const { return queue_->stats(); }

}  // namespace hotcount::sql
