#include <algorithm>
#include <hotcount/detail/base/hash.hpp>
#include <hotcount/detail/base/interrupt.hpp>
#include <hotcount/detail/base/worker_pool.hpp>
#include <hotcount/detail/sql/transaction.hpp>
#include <iterator>
#include <limits>
#include <set>
#include <unordered_map>
#include <utility>

#include "cached_counts.hpp"
#include "rounds.hpp"

namespace hotcount {
namespace {

// Items recounted in one transaction: each sums all votes of its item while voters wait.
constexpr std::size_t kMaxRecounts = 100;
// For how long a round recounts before it saves counts.
constexpr Duration kRecountsFor = std::chrono::seconds{1};
// How long a save waits for an item that other transactions have locked.
constexpr Duration kHeldItemWait = std::chrono::milliseconds{250};
// Between two looks at a node that is away.
constexpr Duration kBetweenLooks = std::chrono::milliseconds{50};
// The history of a shard whose server has not answered since this worker began.
constexpr std::uint64_t kNotHeard = 1;

class Worker final : public SyncWorker {
  public:
    explicit Worker(std::shared_ptr<CachedCounts> cached) : cached_(std::move(cached)) {}

    Result<SyncRound> run_once(Timeout timeout) override {
        const Deadline deadline = Deadline::after(timeout.value_or(kRoundTimeout));
        const std::unique_lock one_at_a_time(round_mutex_, deadline.time());
        if (!one_at_a_time) {
            return make_error(ErrorCode::deadline,
                              "another round was under way; nothing was applied");
        }
        SyncRound round{};
        auto ended = whole_round(deadline, round);
        // A caller with a deadline waits for a node that is away; the rounds of run() do not.
        while (!ended && timeout && silent_.error() && is_away(ended.error().code) &&
               !deadline.passed()) {
            sleep_or_interrupt(kBetweenLooks);
            round.unsettled = round.at_risk = 0;
            ended = whole_round(deadline, round);
        }
        std::lock_guard lock(mutex_);
        if (!ended) {
            stats_.fail(ended.error());
            return std::move(ended).error();
        }
        ++stats_.rounds;
        add_round(stats_.total, round);
        return round;
    }

    Result<void> run(const std::function<bool(Duration)>& stop) override {
        return run_rounds([this](const StopRounds&) { return run_once({}); },
                          cached_->options().interval, stop);
    }

    Stats stats() const override {
        std::lock_guard lock(mutex_);
        return stats_;
    }

  private:
    // A hash as it was last seen. If it is gone before due_at, votes are lost.
    struct Seen {
        std::string token;
        std::int64_t epoch;
        SteadyTime due_at;
        std::uint64_t round;
    };

    Result<void> whole_round(Deadline deadline, SyncRound& round) {
        HOTCOUNT_TRY_ASSIGN(const std::string space, cached_->space(deadline));
        if (space != space_) {
            seen_.clear();
            histories_.clear();
            taken_over_.clear();
            space_ = space;
        }
        ++round_number_;
        silent_.clear();
        HOTCOUNT_TRY(cached_->hand_over(deadline));
        note_histories(deadline);
        HOTCOUNT_TRY(recount(deadline, round));
        HOTCOUNT_TRY(all_pages(deadline, round));
        HOTCOUNT_TRY(look_for_lost(deadline, round));
        HOTCOUNT_TRY(recount_taken_over(deadline, round));
        // A shard whose history changed during this round is recounted in the next one, after its
        // scan: the server may have restored deleted hashes that this round's scan did not see.
        if (!silent_.error()) note_histories(deadline);
        round.unsettled += static_cast<std::int64_t>(taken_over_.size());
        {
            std::lock_guard lock(mutex_);
            if (refused_) return *std::exchange(refused_, std::nullopt);
        }
        if (const auto error = silent_.error()) return *error;
        return {};
    }

    // Repeated, because after a server has lost its data many items are to be recounted.
    Result<void> recount(Deadline deadline, SyncRound& round) {
        const std::size_t most = std::min(kMaxRecounts, cached_->options().page);
        const SteadyTime until = system_clock()->steady_now() + kRecountsFor;
        do {
            HOTCOUNT_TRY_ASSIGN(const auto recounted,
                                cached_->recount(space_, most, silent_, deadline));
            round.recounted += recounted.done;
            round.unsettled = recounted.left;
            if (recounted.done == 0) break;
        } while (round.unsettled > 0 && system_clock()->steady_now() < until);
        return {};
    }

    // Threads take pages from one cursor. It lives as long as the round, so that a page whose
    // thread died comes again in the next round.
    Result<void> all_pages(Deadline deadline, SyncRound& round) {
        Pages pages;
        Result<void> own = one_page(pages, deadline, round);
        if (own.ok() && !pages.done) {
            // This thread takes no page meanwhile: an interruption of its wait ends all helpers.
            HelperThreads helpers;
            std::size_t started = 0;
            while (started < cached_->options().workers &&
                   helpers.start([&] { (void)pages_until_done(pages, deadline, round); })) {
                ++started;
            }
            if (started == 0) own = pages_until_done(pages, deadline, round);
        }
        if (!own) return own;
        if (pages.failed) return *pages.failed;
        return {};
    }

    struct Pages {
        std::mutex mutex;
        std::string cursor{"0"};
        std::set<std::string> found{};  // And in no page yet.
        bool scanned{false};
        bool done{false};
        std::optional<Error> failed{};
    };

    Result<void> pages_until_done(Pages& pages, Deadline deadline, SyncRound& round) {
        while (true) {
            {
                std::lock_guard lock(pages.mutex);
                if (pages.done || pages.failed) return {};
            }
            if (auto done = one_page(pages, deadline, round); !done) {
                std::lock_guard lock(pages.mutex);
                if (!pages.failed) pages.failed = done.error();
                return done;
            }
        }
    }

    Result<void> one_page(Pages& pages, Deadline deadline, SyncRound& round) {
        std::vector<std::string> items;
        {
            std::lock_guard lock(pages.mutex);
            if (pages.done) return {};
            HOTCOUNT_TRY_ASSIGN(items, next_page(pages, deadline));
        }
        if (items.empty()) return {};
        HOTCOUNT_TRY_ASSIGN(const SyncRound part, settle(items, deadline));
        std::lock_guard lock(mutex_);
        add(round, part);
        return {};
    }

    // Under the mutex of the pages. Among other keys a scan finds fewer hashes than requested, and
    // at times more. Pages are filled up, because each costs the same statements.
    Result<std::vector<std::string>> next_page(Pages& pages, Deadline deadline) {
        const std::size_t most = cached_->options().page;
        while (!pages.scanned && pages.found.size() < most) {
            HOTCOUNT_TRY_ASSIGN(
                CountCache::Page page,
                cached_->cache().scan(space_, pages.cursor, most, deadline.remaining()));
            if (page.failed) {
                HOTCOUNT_TRY(silent_.leave(cached_->cache(), std::nullopt, *page.failed));
            }
            pages.cursor = page.next;
            pages.scanned = page.next == "0";
            // SCAN may name a key twice.
            pages.found.insert(std::make_move_iterator(page.items.begin()),
                               std::make_move_iterator(page.items.end()));
        }
        std::vector<std::string> items;
        while (!pages.found.empty() && items.size() < most) {
            items.push_back(std::move(pages.found.extract(pages.found.begin()).value()));
        }
        pages.done = pages.scanned && pages.found.empty();
        return items;
    }

    struct Found {
        std::string text;
        sql::Id item;
        CacheEntry entry;
        SaveState state{SaveState::saved};
    };

    Result<SyncRound> settle(std::span<const std::string> items, Deadline deadline) {
        SyncRound part{};
        HOTCOUNT_TRY_ASSIGN(std::vector<Found> found, look(items, deadline));
        part.scanned = static_cast<std::int64_t>(found.size());
        HOTCOUNT_TRY(save(found, deadline));

        std::vector<CountCache::Mark> marks;
        std::vector<CountCache::Mark> removable;
        std::vector<CountCache::Outdated> outdated;
        std::vector<CachedCounts::Unfilled> unfilled;
        for (const Found& each : found) {
            const CacheEntry& entry = each.entry;
            if (!entry.filled() || each.state == SaveState::fenced) {
                unfilled.push_back({each.text, entry.token});
            } else if (each.state == SaveState::outdated) {
                outdated.push_back({each.text, entry.epoch + 1});
            } else if (each.state == SaveState::gone) {
                outdated.push_back({each.text, std::numeric_limits<std::int64_t>::max()});
            } else if (each.state == SaveState::saved) {
                const CountCache::Mark mark{each.text, entry.gen, entry.version};
                if (entry.unsaved()) marks.push_back(mark);
                if (entry.due()) removable.push_back(mark);
                continue;
            }
            if (each.state == SaveState::behind) continue;  // SQL has it, and more.
            ++part.unsettled;
            part.at_risk += entry.version - entry.saved_version;
        }
        CountCache& cache = cached_->cache();
        const auto left = [&](const Error& error) {
            return silent_.leave(cache, std::nullopt, error);
        };
        if (!marks.empty()) {
            const auto marked = cache.mark(space_, marks, cached_->patience(deadline));
            if (!marked) HOTCOUNT_TRY(left(marked.error()));
        }
        part.saved = static_cast<std::int64_t>(marks.size());
        if (!removable.empty()) {
            const auto removed = cache.remove(space_, removable, cached_->patience(deadline));
            if (!removed) HOTCOUNT_TRY(left(removed.error()));
            part.deleted = removed ? *removed : 0;
        }
        if (!outdated.empty()) {
            const auto dropped = cache.drop(space_, outdated, cached_->patience(deadline));
            if (!dropped) HOTCOUNT_TRY(left(dropped.error()));
        }
        if (!unfilled.empty()) {
            const auto filled = cached_->fill(space_, unfilled, deadline);
            if (filled.error) HOTCOUNT_TRY(left(*filled.error));
            part.filled = static_cast<std::int64_t>(unfilled.size() - filled.failed.size());
        }
        return part;
    }

    Result<std::vector<Found>> look(std::span<const std::string> items, Deadline deadline) {
        // Before the read: due_at must not be later than the first time at which a worker may delete.
        const SteadyTime asked = system_clock()->steady_now();
        CountCache& cache = cached_->cache();
        auto entries = cache.read(space_, items, cached_->patience(deadline));
        std::vector<Found> found;
        found.reserve(items.size());
        for (std::size_t i = 0; i < items.size(); ++i) {
            if (!entries[i]) {
                const Error& error = entries[i].error();
                if (error.code == ErrorCode::wrong_type) continue;  // Not ours.
                HOTCOUNT_TRY(silent_.leave(cache, cache.shard_of(items[i]), error));
                continue;
            }
            const auto item = cached_->to_item(items[i]);
            if (!item || !entries[i]->has_value()) continue;
            found.push_back({items[i], *item, std::move(**entries[i])});
        }
        std::vector<sql::Id> lost;
        {
            const SteadyTime now = system_clock()->steady_now();
            std::lock_guard lock(mutex_);
            for (const Found& each : found) {
                const CacheEntry& entry = each.entry;
                Seen& seen = seen_[each.text];
                if (!seen.token.empty() && seen.token != entry.token && now < seen.due_at &&
                    entry.epoch <= seen.epoch) {
                    lost.push_back(each.item);
                }
                seen = {entry.token, entry.epoch, asked + entry.left, round_number_};
            }
        }
        HOTCOUNT_TRY(ask_recounts(lost, deadline));
        return found;
    }

    Result<void> save(std::span<Found> found, Deadline deadline) {
        const auto wanted = [](const Found& each) {
            return each.entry.filled() && each.entry.unsaved();
        };
        std::vector<Found*> unsaved;
        std::vector<SyncTable::ToSave> saves;
        for (Found& each : found) {
            if (!wanted(each)) continue;
            unsaved.push_back(&each);
            saves.push_back({each.item, &each.entry});
        }
        if (unsaved.empty()) return {};
        std::vector<std::string> behind;
        const auto save_all = [&](sql::Connection& connection) -> Result<void> {
            behind.clear();
            const SyncTable& table = cached_->table();
            HOTCOUNT_TRY_ASSIGN(const std::string id, table.cache_id(connection, true));
            if (id != space_) {
                return make_error(ErrorCode::unavailable,
                                  "the tables were taken over by another strategy meanwhile");
            }
            HOTCOUNT_TRY_ASSIGN(const auto states, table.save_all(connection, saves));
            std::vector<sql::Id> doubtful;
            for (std::size_t i = 0; i < unsaved.size(); ++i) {
                unsaved[i]->state = states[i];
                if (states[i] == SaveState::doubtful) doubtful.push_back(unsaved[i]->item);
                if (states[i] == SaveState::behind) behind.push_back(unsaved[i]->text);
            }
            return table.ask_recounts(connection, doubtful);
        };
        const std::size_t most = cached_->table().saves_at_once();
        if (most > 0) return save_in_parts(found, unsaved, saves, most, deadline);
        auto saved = sql::transact(cached_->database(), deadline, save_all);
        if (!saved && sql::may_be_one_writes_fault(saved.error())) {
            return save_apart(found, saved.error(), deadline);
        }
        HOTCOUNT_TRY(saved);
        return check_behind(found, behind, deadline);
    }

    // Each part in one statement.
    Result<void> save_in_parts(std::span<Found> found, std::span<Found* const> unsaved,
                               std::span<const SyncTable::ToSave> saves, std::size_t most,
                               Deadline deadline) {
        const auto save_part = [&](std::size_t first, std::size_t size, bool waits,
                                   Deadline until) -> Result<void> {
            const auto save = [&](sql::Connection& connection) -> Result<std::vector<SaveState>> {
                HOTCOUNT_TRY(connection.begin(until));
                return cached_->table().save_at_once(connection, saves.subspan(first, size), waits,
                                                     space_, until);
            };
            HOTCOUNT_TRY_ASSIGN(const auto states,
                                sql::transact_alone(cached_->database(), until, save));
            for (std::size_t i = 0; i < size; ++i) unsaved[first + i]->state = states[i];
            return {};
        };
        for (std::size_t first = 0; first < saves.size(); first += most) {
            const auto saved =
                save_part(first, std::min(most, saves.size() - first), false, deadline);
            if (!saved && sql::may_be_one_writes_fault(saved.error())) {
                return save_apart(found, saved.error(), deadline);
            }
            HOTCOUNT_TRY(saved);
        }
        std::vector<std::string> behind;
        std::vector<sql::Id> doubtful;
        for (std::size_t i = 0; i < unsaved.size(); ++i) {
            Found& each = *unsaved[i];
            if (each.state == SaveState::held) {
                // Held by its voters, one after the other, or by one long transaction. No other
                // item is locked during the wait; if it is in vain, the next round comes back to
                // the item.
                const SteadyTime until = Deadline::after(kHeldItemWait).time();
                (void)save_part(i, 1, true, Deadline::at(std::min(deadline.time(), until)));
            }
            if (each.state == SaveState::doubtful) doubtful.push_back(each.item);
            if (each.state == SaveState::behind) behind.push_back(each.text);
        }
        HOTCOUNT_TRY(ask_recounts(doubtful, deadline));
        return check_behind(found, behind, deadline);
    }

    // The database refuses the count of one item, for example by a trigger: the other items are
    // saved, and the round fails at its end.
    Result<void> save_apart(std::span<Found> found, const Error& error, Deadline deadline) {
        if (found.size() == 1) {
            found.front().state = SaveState::refused;
            std::lock_guard lock(mutex_);
            if (!refused_) refused_ = error;
            return {};
        }
        const std::size_t half = found.size() / 2;
        HOTCOUNT_TRY(save(found.first(half), deadline));
        return save(found.subspan(half), deadline);
    }

    // Behind is usual if another worker was faster. A cache that went back to an older state, after
    // a failover to a replica, looks the same and stays behind.
    Result<void> check_behind(std::span<Found> found, std::span<const std::string> behind,
                              Deadline deadline) {
        if (behind.empty()) return {};
        CountCache& cache = cached_->cache();
        const auto now = cache.read(space_, behind, cached_->patience(deadline));
        std::vector<sql::Id> lost;
        for (std::size_t i = 0; i < behind.size(); ++i) {
            if (!now[i]) {
                HOTCOUNT_TRY(silent_.leave(cache, cache.shard_of(behind[i]), now[i].error()));
                continue;
            }
            const auto was = std::find_if(found.begin(), found.end(), [&](const Found& each) {
                return each.text == behind[i];
            });
            const auto& is = *now[i];
            if (is && is->gen == was->entry.gen && is->version == was->entry.version &&
                is->token == was->entry.token) {
                was->state = SaveState::doubtful;
                lost.push_back(was->item);
            }
        }
        return ask_recounts(lost, deadline);
    }

    // Hashes that earlier rounds found and this one did not, although they are not due for deletion
    // yet. Items that SQL has not recounted since are recounted.
    Result<void> look_for_lost(Deadline deadline, SyncRound& round) {
        CountCache& cache = cached_->cache();
        std::vector<std::string> missing;
        for (const auto& [text, seen] : seen_) {
            if (seen.round == round_number_ || silent_.has(cache.shard_of(text))) continue;
            missing.push_back(text);
        }
        if (missing.empty()) return {};
        const auto entries = cache.read(space_, missing, cached_->patience(deadline));
        const SteadyTime now = system_clock()->steady_now();
        std::vector<sql::Id> gone;
        std::vector<std::string> texts;
        for (std::size_t i = 0; i < missing.size(); ++i) {
            if (!entries[i]) continue;
            if (entries[i]->has_value()) continue;  // There again, or missed by the scan.
            auto item = cached_->to_item(missing[i]);
            // A hash that was due has been deleted in order. In a shard with a new server it may
            // have had later votes, which this server lacks.
            const bool is_due = now >= seen_[missing[i]].due_at &&
                                !taken_over_.contains(cache.shard_of(missing[i]));
            if (!item || is_due) {
                seen_.erase(missing[i]);
                continue;
            }
            gone.push_back(*std::move(item));
            texts.push_back(missing[i]);
        }
        if (gone.empty()) return {};
        const auto read = [&](sql::Connection& connection) {
            return cached_->table().read_all(connection, gone);
        };
        HOTCOUNT_TRY_ASSIGN(const auto states,
                            sql::read_snapshot(cached_->database(), deadline, read));
        std::vector<sql::Id> lost;
        for (std::size_t i = 0; i < gone.size(); ++i) {
            const bool recounted = !states[i] || states[i]->epoch > seen_[texts[i]].epoch;
            if (!recounted) lost.push_back(gone[i]);
        }
        round.unsettled += static_cast<std::int64_t>(lost.size());
        for (const std::string& text : texts) seen_.erase(text);
        return ask_recounts(lost, deadline);
    }

    // Remembers the shards whose data have another history than at the last look.
    void note_histories(Deadline deadline) {
        const auto now = cached_->cache().histories(space_, deadline.remaining());
        histories_.resize(now.size(), 0);
        for (std::size_t shard = 0; shard < now.size(); ++shard) {
            std::uint64_t& known = histories_[shard];
            if (now[shard] == 0) {
                // Another server may take over the shard before this one has answered.
                if (known == 0) known = kNotHeard;
                if (cached_->cache().is_spread()) silent_.skip(shard);
                continue;
            }
            if (known != 0 && known != now[shard]) taken_over_.insert(shard);
            known = now[shard];
        }
    }

    // The new server of a shard, or one with an older copy of its data, may lack the last votes and
    // still count new ones: a hash there looks like any other. So all items of the shard that have
    // hashes, or had them, are recounted. A shard that moved in order is recounted as well: the cost is one sum for
    // each item.
    Result<void> recount_taken_over(Deadline deadline, SyncRound& round) {
        if (taken_over_.empty()) return {};
        std::set<sql::Id> doubtful;
        const auto add = [&](const std::string& text, sql::Id item) {
            if (taken_over_.contains(cached_->cache().shard_of(text))) {
                doubtful.insert(std::move(item));
            }
        };
        for (const auto& [text, seen] : seen_) {
            if (auto item = cached_->to_item(text)) add(text, *std::move(item));
        }
        // Hashes that were born and lost between two rounds.
        const auto read = [&](sql::Connection& connection) {
            return cached_->table().visit_unsaved(connection, [&](sql::Id item) {
                const std::string text = cached_->to_text(item);
                add(text, std::move(item));
            });
        };
        HOTCOUNT_TRY(sql::read_snapshot(cached_->database(), deadline, read));
        HOTCOUNT_TRY(
            ask_recounts(std::vector<sql::Id>{doubtful.begin(), doubtful.end()}, deadline));
        round.unsettled += static_cast<std::int64_t>(doubtful.size());
        taken_over_.clear();
        return {};
    }

    Result<void> ask_recounts(std::span<const sql::Id> items, Deadline deadline) {
        if (items.empty()) return {};
        for (const sql::Id& item : items) cached_->doubt(item, 0);
        return cached_->hand_over(deadline);
    }

    std::shared_ptr<CachedCounts> cached_;
    std::timed_mutex round_mutex_;
    // Under round_mutex_: written before and after the helpers run.
    std::string space_;
    std::uint64_t round_number_{0};
    std::vector<std::uint64_t> histories_;  // By shard; 0: not asked yet.
    std::set<std::size_t> taken_over_;      // Shards whose items are yet to be recounted.
    SilentShards silent_;                   // In this round.
    mutable std::mutex mutex_;              // Guards all members below.
    std::unordered_map<std::string, Seen, KeyedHash> seen_;
    Stats stats_{};
    std::optional<Error> refused_{};  // The first refusal of this round.
};

}  // namespace

std::shared_ptr<SyncWorker> make_sync_worker(std::shared_ptr<CachedCounts> cached) {
    return std::make_shared<WorkerOfProcess<Worker>>(std::move(cached));
}

}  // namespace hotcount
