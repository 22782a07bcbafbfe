// A database that does what a server may do to a transaction, at the moment that a test chooses:
// a deadlock, a lost connection, a row lock that somebody else holds.
//
// Its one table is a list of numbers; a statement appends its first parameter.
#pragma once

#include <condition_variable>
#include <deque>
#include <hotcount/sql.hpp>
#include <mutex>
#include <optional>
#include <vector>

namespace hotcount::testing {

enum class Step : std::uint8_t { begin, write, commit };

class ScriptedDatabase final : public sql::Database {
  public:
    ScriptedDatabase() : Database("scripted", {}) {}

    /// The next `step` fails. A commit that fails so was not applied, unless `applied`.
    void fail_next(Step step, Error error, bool applied = false) {
        const std::lock_guard lock(mutex_);
        faults_.push_back({step, std::move(error), applied});
    }
    /// From now on `step` waits, and no other; one that writes gives up at its transaction's
    /// deadline, as one that waits for a row lock does, and a commit as one whose answer is late.
    void hold(Step step) {
        const std::lock_guard lock(mutex_);
        held_ = step;
        arrived_ = 0;
        changed_.notify_all();
    }
    void release() {
        const std::lock_guard lock(mutex_);
        held_.reset();
        changed_.notify_all();
    }
    /// Waits until `count` calls have come to the held step.
    void await_held(int count = 1) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return arrived_ >= count; });
    }
    std::vector<std::int64_t> rows() const {
        const std::lock_guard lock(mutex_);
        return rows_;
    }
    int connections() const {
        const std::lock_guard lock(mutex_);
        return connections_;
    }

    sql::Dialect dialect() const override { return *sql::dialect_of("postgresql"); }
    Result<sql::Lease> writer(Deadline) override {
        const std::lock_guard lock(mutex_);
        if (idle_ == nullptr) {
            idle_ = std::make_unique<Connection>(*this);
            ++connections_;
        }
        return sql::Lease{idle_.release(), [this](sql::Connection* back) {
                              std::unique_ptr<Connection> returned{static_cast<Connection*>(back)};
                              returned->rollback();
                              const std::lock_guard held(mutex_);
                              if (!returned->broken()) idle_ = std::move(returned);
                          }};
    }
    Result<sql::Lease> reader(Deadline deadline) override { return writer(deadline); }
    void close() override {}
    bool closed() const override { return false; }
    Stats stats() const override { return Stats{0, 0, 0, retries()}; }

  private:
    struct Fault {
        Step step;
        Error error;
        bool applied;
    };

    class Connection final : public sql::Connection {
      public:
        explicit Connection(ScriptedDatabase& database) : database_(database) {}
        Result<void> begin(Deadline deadline) override {
            deadline_ = deadline;
            open_ = true;
            return database_.pass(*this, Step::begin);
        }
        Result<void> begin_read(Deadline deadline) override { return begin(deadline); }
        Result<void> commit() override {
            open_ = false;
            return database_.pass(*this, Step::commit);
        }
        bool commit_is_open() const override { return open_commit; }
        Result<void> await_commit(Deadline deadline) override {
            deadline_ = deadline;
            open_commit = false;
            lost = false;
            return database_.pass(*this, Step::commit);
        }
        void rollback() override {
            open_ = false;
            written.clear();
        }
        bool in_transaction() const override { return open_; }
        bool broken() const override { return lost; }
        Result<std::int64_t> run(const sql::Statement&, std::span<const sql::Value> parameters,
                                 const sql::RowVisitor*) override {
            HOTCOUNT_TRY(database_.pass(*this, Step::write));
            written.push_back(std::get<std::int64_t>(parameters[0]));
            return 1;
        }
        Result<void> run_script(const std::string&) override { return {}; }
        Deadline deadline() const { return deadline_; }

        std::vector<std::int64_t> written{};
        bool lost{false};
        bool open_commit{false};

      private:
        ScriptedDatabase& database_;
        Deadline deadline_{Deadline::at(SteadyTime::max())};
        bool open_{false};
    };

    Result<void> pass(Connection& connection, Step step) {
        std::unique_lock lock(mutex_);
        if (held_ == step) {
            ++arrived_;
            changed_.notify_all();
            const auto free = [&] { return held_ != step; };
            if (step == Step::begin) {
                changed_.wait(lock, free);
            } else if (!changed_.wait_until(lock, connection.deadline().time(), free)) {
                if (step == Step::write) {
                    return make_error(ErrorCode::deadline, "canceling statement", "57014",
                                      SqlCondition::query_canceled);
                }
                connection.open_commit = true;
                connection.lost = true;
                return make_error(ErrorCode::outcome_unknown, "COMMIT is not answered");
            }
        }
        bool applied = true;
        Result<void> result;
        if (!faults_.empty() && faults_.front().step == step) {
            const Fault fault = std::move(faults_.front());
            faults_.pop_front();
            connection.lost = fault.error.code == ErrorCode::unavailable ||
                              fault.error.code == ErrorCode::outcome_unknown;
            applied = fault.applied;
            result = fault.error;
        }
        if (step == Step::commit) {
            if (applied) {
                rows_.insert(rows_.end(), connection.written.begin(), connection.written.end());
            }
            connection.written.clear();
        }
        return result;
    }

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Fault> faults_;
    std::optional<Step> held_;
    int arrived_{0};
    int connections_{0};
    std::vector<std::int64_t> rows_;
    std::unique_ptr<Connection> idle_;
};

}  // namespace hotcount::testing
