#include <deque>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/event.hpp>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/random.hpp>
#include <hotcount/detail/base/worker_pool.hpp>
#include <hotcount/live_sets.hpp>
#include <mutex>

#include "backend.hpp"

namespace hotcount {
namespace {

std::string drawn_token() {
    Random& random = thread_random();
    return std::to_string(random.next()) + "-" + std::to_string(random.next());
}

}  // namespace

Error lease_lost(const Build& build, std::string_view why) {
    return make_error(ErrorCode::lease_lost, "the build of " + printable(build.key) + " " +
                                                 std::string{why} + "; nothing was published")
        .about(&ErrorFacts::key, build.key);
}

// The time limit of a call. Without a timeout each script has the store's, because the number of
// scripts depends on the number of members.
struct Rebuild::Limit {
    Timeout left() const { return whole ? Timeout{first.remaining()} : Timeout{}; }

    Deadline first;  // For the wait for other calls and the first script.
    bool whole;      // `first` bounds the whole call.
};

class Rebuild::Work {
  public:
    Work(std::shared_ptr<Builds> builds, Build build)
        : builds_(std::move(builds)), build_(std::move(build)), process_(fork_generation()) {}

    /// Takes the members. True if a chunk is full or the lease needs renewal: then send.
    Result<bool> gather(std::span<const RebuildMember> members) {
        for (const RebuildMember& each : members) {
            HOTCOUNT_TRY(zset::check_member(each.member));
            HOTCOUNT_TRY(zset::check_score(each.score));
        }
        // Before the lock, which a thread of the parent may have held at the fork.
        if (fork_generation() != process_) return forked();
        const std::lock_guard lock(mutex_);
        if (phase_ != Phase::open) return refusal();
        for (const RebuildMember& each : members) {
            gathered_.push_back({std::string{each.member}, each.score, each.version});
        }
        return gathered_.size() >= kChunk || Deadline::at(renew_at_).passed();
    }

    Result<void> begin(const Limit& limit) {
        return in_turn(limit, [&]() -> Result<void> {
            if (phase() != Phase::unsure) HOTCOUNT_TRY(expect(Phase::made));
            Result<void> outcome = builds_->begin(build_, limit.left());
            if (outcome) set_phase(Phase::open);
            // The lease may be taken: the next begin() has the same token, and abandon() ends it.
            if (!outcome && !nothing_applied(outcome.error().code)) set_phase(Phase::unsure);
            return outcome;
        });
    }
    Result<void> send_chunks(const Limit& limit) {
        return in_turn(limit, [&]() -> Result<void> {
            HOTCOUNT_TRY(expect(Phase::open));
            // Another call may have sent them, but only this one looks at the time.
            return send(limit, kChunk, Deadline::at(renew_at()).passed());
        });
    }
    Result<void> renew(const Limit& limit) {
        return in_turn(limit, [&]() -> Result<void> {
            HOTCOUNT_TRY(expect(Phase::open));
            return send(limit, 1, true);
        });
    }
    Result<void> publish(const Limit& limit) {
        return in_turn(limit, [&]() -> Result<void> {
            HOTCOUNT_TRY(expect(Phase::open));
            return publish_in_turn(limit);
        });
    }
    Result<void> finish(const Limit& limit) {
        return in_turn(limit, [&]() -> Result<void> {
            const Phase now = phase();
            if (now == Phase::published || now == Phase::abandoned) return {};
            HOTCOUNT_TRY(expect(Phase::open));
            return publish_in_turn(limit);
        });
    }
    Result<void> abandon(const Limit& limit) {
        return in_turn(limit, [&]() -> Result<void> {
            const Phase now = phase();
            if (now != Phase::open && now != Phase::unsure) return {};
            HOTCOUNT_TRY(builds_->abandon(build_, limit.left()));
            set_phase(Phase::abandoned);
            return {};
        });
    }

  private:
    enum class Phase : std::uint8_t { made, unsure, open, published, unknown, abandoned, lost };

    Result<void> publish_in_turn(const Limit& limit) {
        HOTCOUNT_TRY(send(limit, 1, false));
        std::string cursor = "0";
        do {
            HOTCOUNT_TRY_ASSIGN(cursor, builds_->carry(build_, cursor, limit.left()));
        } while (cursor != "0");
        Result<void> outcome = builds_->publish(build_, chunks_, limit.left());
        if (outcome) set_phase(Phase::published);
        if (!outcome && !nothing_applied(outcome.error().code)) set_phase(Phase::unknown);
        return outcome;
    }
    Error forked() const {
        return lease_lost(build_, "belongs to the process that made it, and this is another");
    }
    // Requires the mutex.
    Error refusal() const {
        switch (phase_) {
            case Phase::made:
            case Phase::unsure:
                return make_error(ErrorCode::config,
                                  "a build takes members after it has begun: "
                                  "with sets.rebuild(...) as build");
            case Phase::open:
                return make_error(ErrorCode::config, "the build has begun already");
            case Phase::published:
                return make_error(ErrorCode::config, "the build is published; begin another one");
            case Phase::unknown:
                return make_error(
                    ErrorCode::config,
                    "it is unknown whether the build was published; begin another one");
            case Phase::abandoned:
                return make_error(ErrorCode::config, "the build was given up; begin another one");
            case Phase::lost:
                break;
        }
        return lease_lost(build_, "has lost its lease");
    }
    Result<void> expect(Phase wanted) const {
        const std::lock_guard lock(mutex_);
        if (phase_ != wanted) return refusal();
        return {};
    }
    Phase phase() const {
        const std::lock_guard lock(mutex_);
        return phase_;
    }
    void set_phase(Phase next) {
        const std::lock_guard lock(mutex_);
        phase_ = next;
        renew_at_ = std::chrono::steady_clock::now() + build_.lease / 3;
    }
    SteadyTime renew_at() const {
        const std::lock_guard lock(mutex_);
        return renew_at_;
    }

    // Sends gathered members while there are `least` or more. With `heard`, sends at least one
    // request, an empty one if need be.
    Result<void> send(const Limit& limit, std::size_t least, bool heard) {
        while (true) {
            if (unsettled_.empty()) {
                const std::lock_guard lock(mutex_);
                const std::size_t size = std::min(kChunk, gathered_.size());
                if (size > 0 && (size >= least || heard)) {
                    const auto end = gathered_.begin() + static_cast<std::ptrdiff_t>(size);
                    unsettled_.assign(std::move_iterator(gathered_.begin()),
                                      std::move_iterator(end));
                    gathered_.erase(gathered_.begin(), end);
                }
            }
            if (unsettled_.empty() && !heard) return {};
            const std::uint64_t number = chunks_ + (unsettled_.empty() ? 0 : 1);
            // After an error the members are sent again under the same number, by which the store
            // recognises a repeat.
            HOTCOUNT_TRY(builds_->add(build_, number, unsettled_, limit.left()));
            chunks_ = number;
            unsettled_.clear();
            heard = false;
            set_phase(Phase::open);
        }
    }

    template <class Step>
    Result<void> in_turn(const Limit& limit, const Step& step) {
        if (fork_generation() != process_) return forked();
        while (true) {
            const std::uint32_t seen = turns_.epoch();
            {
                const std::lock_guard lock(mutex_);
                if (!busy_) {
                    busy_ = true;
                    break;
                }
            }
            if (limit.first.passed()) {
                return make_error(ErrorCode::deadline,
                                  "another call of this build is under way; nothing was sent")
                    .about(&ErrorFacts::key, build_.key);
            }
            (void)turns_.wait(seen, limit.first);
        }
        Result<void> outcome = step();
        {
            const std::lock_guard lock(mutex_);
            busy_ = false;
            if (!outcome && outcome.error().code == ErrorCode::lease_lost &&
                phase_ == Phase::open) {
                phase_ = Phase::lost;
                gathered_.clear();
            }
        }
        turns_.wake();
        return outcome;
    }

    const std::shared_ptr<Builds> builds_;
    const Build build_;
    const std::uint64_t process_;

    mutable std::mutex mutex_;  // Guards the fields up to the empty line. Not held while sending.
    Phase phase_{Phase::made};
    bool busy_{false};
    std::deque<BuildMember> gathered_;
    SteadyTime renew_at_{};

    // Used only by the call that has set busy_.
    std::vector<BuildMember> unsettled_;  // The chunk that was sent last, until it is answered.
    std::uint64_t chunks_{0};             // Chunks that the store has.
    Signal turns_;
};

Rebuild::Rebuild(std::shared_ptr<LiveSetsBackend> backend, std::string key, std::string companion,
                 Duration ttl, Duration lease)
    : backend_(std::move(backend)),
      work_(std::make_shared<Work>(backend_->builds(), Build{std::move(key), std::move(companion),
                                                             drawn_token(), ttl, lease})) {}
Rebuild::~Rebuild() = default;

Rebuild::Limit Rebuild::limit(Timeout timeout) const {
    return {backend_->deadline(timeout), timeout.has_value()};
}

Result<void> Rebuild::begin(Timeout timeout) { return work_->begin(limit(timeout)); }

Result<void> Rebuild::add(std::string_view member, double score,
                          std::optional<std::int64_t> version, Timeout timeout) {
    const RebuildMember one{member, score, version};
    return add_many({&one, 1}, timeout);
}

Result<void> Rebuild::add_many(std::span<const RebuildMember> members, Timeout timeout) {
    HOTCOUNT_TRY_ASSIGN(const bool is_due, work_->gather(members));
    return is_due ? work_->send_chunks(limit(timeout)) : Result<void>{};
}

Result<void> Rebuild::renew(Timeout timeout) { return work_->renew(limit(timeout)); }

Result<void> Rebuild::publish(Timeout timeout) { return work_->publish(limit(timeout)); }

Result<void> Rebuild::finish(Timeout timeout) { return work_->finish(limit(timeout)); }

Result<void> Rebuild::abandon(Timeout timeout) { return work_->abandon(limit(timeout)); }

void Rebuild::later(const AsyncCall& call, Completion<void> done,
                    Result<void> (Work::*step)(const Limit&)) {
    const Limit limit = this->limit(call.timeout);
    WaitingCalls* const threads = backend_->waiting_calls();
    if (threads == nullptr) return done(((*work_).*step)(limit));
    // Without a timeout: begins by the store's, and ends when its last script has.
    threads->run<void>(limit.first, call.cancelled, std::move(done),
                       [work = work_, step, limit] { return ((*work).*step)(limit); });
}

void Rebuild::begin_async(Completion<void> done, AsyncCall call) {
    later(call, std::move(done), &Work::begin);
}

void Rebuild::add_async(std::string_view member, double score, std::optional<std::int64_t> version,
                        Completion<void> done, AsyncCall call) {
    const RebuildMember one{member, score, version};
    add_many_async({&one, 1}, std::move(done), call);
}

void Rebuild::add_many_async(std::span<const RebuildMember> members, Completion<void> done,
                             AsyncCall call) {
    const auto is_due = work_->gather(members);
    if (!is_due) return done(is_due.error());
    if (!*is_due) return done(Result<void>{});
    later(call, std::move(done), &Work::send_chunks);
}

void Rebuild::renew_async(Completion<void> done, AsyncCall call) {
    later(call, std::move(done), &Work::renew);
}

void Rebuild::publish_async(Completion<void> done, AsyncCall call) {
    later(call, std::move(done), &Work::publish);
}

void Rebuild::finish_async(Completion<void> done, AsyncCall call) {
    later(call, std::move(done), &Work::finish);
}

void Rebuild::abandon_async(Completion<void> done, AsyncCall call) {
    later(call, std::move(done), &Work::abandon);
}

}  // namespace hotcount
