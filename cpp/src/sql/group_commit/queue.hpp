// The callers of one GroupCommit, in groups, and who leads. See group_commit.hpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <hotcount/detail/base/event.hpp>
#include <hotcount/detail/base/log.hpp>
#include <hotcount/detail/base/portions.hpp>
#include <hotcount/detail/base/worker_pool.hpp>
#include <hotcount/detail/sql/group_commit.hpp>
#include <map>
#include <mutex>
#include <unordered_map>

namespace hotcount::sql {

/// The writes of one transaction.
struct WriteGroup {
    // Under the queue's mutex while the group is queued; they do not change afterwards.
    std::vector<std::shared_ptr<QueuedWrite>> writes{};
    // Under the mutex.
    SteadyTime expiry{SteadyTime::max()};  // Lower bound of its asynchronous writes' deadlines.
    enum class Stage : std::uint8_t {
        queued,   // Waits for a leader; writes come and go.
        held,     // Waits for the held thread; writes come and go.
        writing,  // Being written; a member may still leave with nothing applied.
        sealed,   // The same after BatchTurn::seal(): no member can leave.
        settled,  // Each write's error is final; BatchWriter::before_answers() follows.
    };
    Stage stage{Stage::queued};
    bool withdrawn{false};  // A member has left while the group was being written.

    Event turn{};      // The caller of the first write must lead; also set with `answered`.
    Event answered{};  // Every write's error is final, or the write has moved to another group.
};

/// A part of a call of many writes, and their indexes in that call.
struct Portion {
    std::vector<std::size_t> places{};
    std::vector<std::shared_ptr<QueuedWrite>> writes{};
    void add(std::size_t place, std::shared_ptr<QueuedWrite> write) {
        places.push_back(place);
        writes.push_back(std::move(write));
    }
};

class GroupQueue final : public std::enable_shared_from_this<GroupQueue> {
  public:
    GroupQueue(std::shared_ptr<Database> database, std::shared_ptr<BatchWriter> writer,
               GroupCommitOptions options);

    Result<void> submit(const std::shared_ptr<QueuedWrite>& write, Deadline deadline);
    void submit_all(const ManyWrites& writes, Deadline deadline);
    void submit_async(std::shared_ptr<QueuedWrite> write, Deadline deadline, Completion<void> done);
    void submit_all_async(ManyWrites writes, Deadline deadline, std::function<void()> done);
    void close();
    GroupCommit::Stats stats() const;

  private:
    friend class LeaderTurn;
    using Group = WriteGroup;
    using Stage = WriteGroup::Stage;
    using Writes = std::span<const std::shared_ptr<QueuedWrite>>;
    // A row that another transaction has locked, and the writes that wait for it.
    struct Held {
        // In order. Empty only while the held thread writes earlier ones.
        std::shared_ptr<Group> group;
        SteadyTime since;
        std::uint64_t turn;  // The held thread waits for the row with the lowest.
        // The group that was being written when the held thread found the row locked. The rest of
        // it precedes the waiting writes.
        std::shared_ptr<Group> follows;
        // The held thread is writing writes that it has taken out of `group`.
        bool being_written{false};
        SteadyTime next_try;  // The held thread's next attempt.
        Duration pause;       // Between the last attempt and the next.
    };
    using HeldByKey = std::unordered_map<std::uint64_t, Held>;

    bool has_room(std::size_t writes) const;
    Error full();
    void enqueue(Writes writes, Deadline deadline, bool large, std::shared_ptr<QueuedWrite>& leads);
    Result<bool> enqueue_async(Writes writes, Deadline deadline, bool large);

    // bulk_calls.cpp
    Portion next_portion(const ManyWrites& writes, std::size_t begun) const;
    bool enqueue_in_time(Writes writes, Deadline until, bool large,
                         std::shared_ptr<QueuedWrite>& leads);
    void await_all(const Portion& portion, const ManyWrites& call, Deadline until,
                   const QueuedWrite* led, std::optional<Result<void>> answer, Portion* behind);
    std::vector<std::optional<Result<void>>> leave(Writes writes);
    void hand_in(const std::shared_ptr<BulkCall>& call);
    void stop_waiting_for(QueuedWrite& write);
    void end_one(const std::shared_ptr<BulkCall>& call);

    // How long a write waits after its deadline while its statement runs. A statement that meets a
    // locked row ends within that time, and its error then says that nothing was applied.
    static constexpr Duration kGrace = std::chrono::milliseconds{200};
    // A statement that may wait for a lock is not repeated for a write with less time than this.
    static constexpr Duration kNoTime = std::chrono::milliseconds{110};
    bool is_in_statement(const Group& group) const {
        return group.stage == Stage::sealed && writer_->commits_by_itself();
    }
    // True if the held thread has the group's writes.
    bool waits_for_rows(const Group& group) const {
        const bool being_written = group.stage == Stage::writing || group.stage == Stage::sealed;
        return group.stage == Stage::held || (being_written && &group != current_.get());
    }

    std::optional<Result<void>> await(const std::shared_ptr<QueuedWrite>& write, Deadline deadline,
                                      bool unless_held);
    Error give_up(QueuedWrite& write);
    Error late_in_queue() const;
    Error late_while_held() const;
    Error closed_early() const;
    static void join(const std::shared_ptr<Group>& group,
                     const std::shared_ptr<QueuedWrite>& write);
    static void note_expiry(Group& group, const QueuedWrite& write) {
        if (!write.waited_for_) group.expiry = std::min(group.expiry, write.deadline_.time());
    }
    template <class Leaves>
    void take_out(const std::shared_ptr<Group>& group, Leaves&& leaves);
    void put_back(const std::vector<std::shared_ptr<QueuedWrite>>& writes);

    // held_writes.cpp
    static std::shared_ptr<Group> make_held_group();
    HeldByKey::iterator find_held(const QueuedWrite& write);
    void hold(HeldByKey::iterator where, const std::shared_ptr<QueuedWrite>& write);
    void leave_held(QueuedWrite& write);
    template <class Leaves>
    void take_out_held(Leaves&& leaves);
    void return_left(const std::vector<std::shared_ptr<QueuedWrite>>& left, const HeldByKey& known,
                     std::vector<WriteAnswer>& answers);
    void forget_empty();
    void hold_queued();
    void hold_rows_apart();
    void schedule_held();
    void write_held(SteadyTime scheduled);
    struct HeldBatch;
    void take_held(HeldBatch& batch);
    void take_held(HeldByKey::iterator where, HeldBatch& batch);
    void end_held_turn(const HeldBatch& batch);

    void lead_in_pool();
    std::optional<Result<void>> lead_once(QueuedWrite* own, Deadline deadline);
    std::optional<Result<void>> leave_commit_to_pool(QueuedWrite& own, bool own_is_settled,
                                                     std::shared_ptr<LeaderTurn> leader,
                                                     std::shared_ptr<Group> group,
                                                     SteadyTime started);
    void end_turn(std::shared_ptr<LeaderTurn> leader, const std::shared_ptr<Group>& group,
                  SteadyTime started);
    static void wake(Group& group);
    void wake_when_done(std::vector<std::shared_ptr<Group>> groups, Deadline deadline);
    static std::vector<std::shared_ptr<QueuedWrite>> settle(const std::shared_ptr<Group>& group,
                                                            std::vector<WriteAnswer>& answers);
    std::shared_ptr<Group> fail_first(QueuedWrite* own, Deadline deadline, const Error& error,
                                      bool& own_is_settled);
    void linger(Deadline deadline);
    std::shared_ptr<Group> take_group(const QueuedWrite* own, bool& has_own);
    void pass_leadership();
    void ask_pool_to_lead();

    void expire_at(SteadyTime time);
    void expire(SteadyTime scheduled);
    std::vector<WriteAnswer> take_expired(SteadyTime now);
    void answer(std::vector<WriteAnswer> answers);
    void answer_in_pool(std::vector<WriteAnswer> answers);

    const std::shared_ptr<Database> database_;
    const std::shared_ptr<BatchWriter> writer_;
    const GroupCommitOptions options_;
    PortionSize portion_;  // For calls of many writes.

    mutable std::mutex mutex_;
    std::condition_variable gathered_;
    std::condition_variable none_in_flight_;
    std::deque<std::shared_ptr<Group>> groups_;  // Written in this order; none is empty.
    std::shared_ptr<Group> current_;             // Being written.
    std::size_t queued_{0};                      // Writes in groups_.
    HeldByKey held_;                             // None of these rows is in groups_.
    std::vector<std::shared_ptr<Group>> held_being_written_;  // By the held thread.
    std::size_t waits_held_{0};                               // Writes in held_.
    std::uint64_t turns_{0};                                  // The last Held::turn given.
    bool held_thread_writes_{false};                          // Its turn is under way.
    SteadyTime next_held_turn_{SteadyTime::max()};            // Scheduled turn of the held thread.
    SteadyTime next_wait_{};        // The held thread waits for no row until then.
    bool wait_was_put_off_{false};  // By its last turn, because a row was locked only just before.
    std::size_t in_flight_{0};      // Calls whose completions have not run.
    bool leading_{false};
    bool closed_{false};
    std::size_t wanted_{0};    // Number of queued writes that wakes the gathering leader; 0: none.
    std::size_t expected_{1};  // Callers known at the end of the previous transaction.
    Duration patience_{0};     // Half of the previous transaction's duration.
    SteadyTime expiry_{SteadyTime::max()};  // Next check of the deadlines of calls in flight.

    std::atomic<std::uint64_t> batches_{0};
    std::atomic<std::uint64_t> writes_{0};

    Trouble full_queue_{database_->name(), kFull, kHasRoom};

    WorkerPool pool_;
    WorkerPool held_thread_{1};
};

// Requires the mutex. Takes writes out of a queued group. If the first one leaves, the others form a
// new group, so that they wake and the next of them waits for its turn.
template <class Leaves>
void GroupQueue::take_out(const std::shared_ptr<Group>& group, Leaves&& leaves) {
    auto& writes = group->writes;
    const std::shared_ptr<QueuedWrite> first = writes.front();
    queued_ -= std::erase_if(writes, leaves);
    if (!writes.empty() && writes.front() == first) return;
    const auto where = std::find(groups_.begin(), groups_.end(), group);
    if (writes.empty()) {
        groups_.erase(where);
    } else {
        *where = std::make_shared<Group>();
        (*where)->expiry = group->expiry;
        (*where)->writes.swap(writes);
        for (const auto& left : (*where)->writes) left->group_ = *where;
    }
    group->answered.set();
    group->turn.set();
}

// Requires the mutex. Takes writes out of the groups that wait for the held thread.
template <class Leaves>
void GroupQueue::take_out_held(Leaves&& leaves) {
    for (auto& [key, held] : held_) waits_held_ -= std::erase_if(held.group->writes, leaves);
    forget_empty();
}

}  // namespace hotcount::sql
