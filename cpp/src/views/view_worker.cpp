#include "view_writer.hpp"

#include <algorithm>
#include <hotcount/detail/sql/transaction.hpp>
#include <limits>
#include <set>
#include <utility>

#include "redis/cluster_client.hpp"
#include "votes/cache/rounds.hpp"

namespace hotcount {
namespace {

// The time limit of one page of a round: it bounds the stop of run() when a server stalls.
constexpr Duration kPage = std::chrono::seconds{10};
constexpr std::size_t kCellsPerPage = 1000;
// A worker looks for rows of old writers this often, and deletes them in at most this many
// transactions a round. Further rows wait for the next round, so that adds do not wait for them.
constexpr Duration kForgetEvery = std::chrono::hours{1};
constexpr int kPurgesPerRound = 20;

Deadline page_of(Deadline round) {
    return Deadline::after(std::min<Duration>(kPage, round.remaining()));
}

class ViewWorker final : public SyncWorker {
  public:
    explicit ViewWorker(std::shared_ptr<ViewSettings> settings) : settings_(std::move(settings)) {}

    Result<SyncRound> run_once(Timeout timeout) override {
        return one_round(timeout, [](Duration) { return false; });
    }

    Result<void> run(const StopRounds& stop) override {
        return run_rounds([this](const StopRounds& stops) { return one_round({}, stops); },
                          settings_->options.interval, stop);
    }

    Stats stats() const override {
        const std::lock_guard lock(mutex_);
        return stats_;
    }

  private:
    // A stopped round ends after its page.
    Result<SyncRound> one_round(Timeout timeout, const StopRounds& stop) {
        const Deadline deadline = Deadline::after(timeout.value_or(kRoundTimeout));
        const std::unique_lock one_at_a_time(round_mutex_, deadline.time());
        if (!one_at_a_time) {
            return make_error(ErrorCode::deadline,
                              "another round was under way; nothing was applied");
        }
        bool whole = false;
        auto round = whole_round(deadline, stop, whole);
        const std::lock_guard lock(mutex_);
        if (!round) {
            stats_.fail(round.error());
            return round;
        }
        // A round that was stopped before it had looked at all cells has not shown that rounds
        // work.
        if (whole) ++stats_.rounds;
        add_round(stats_.total, *round);
        return round;
    }

    // The state of one round.
    struct Found {
        const StopRounds& stop;
        SyncRound round{};
        std::optional<Error> refused{};  // The last error that was one key's or one shard's alone.
        bool all{true};                  // Whether it has seen all cells.
        // The second of the oldest writer whose cells may still be applied.
        std::int64_t oldest{std::numeric_limits<std::int64_t>::max()};
    };

    // `whole`: whether it has come to the end, and was not stopped before.
    Result<SyncRound> whole_round(Deadline deadline, const StopRounds& stop, bool& whole) {
        Found found{stop};
        redis::ClusterNodes* const nodes = redis::nodes_of(settings_->cells.client());
        const std::uint64_t version = nodes == nullptr ? 0 : nodes->version();
        for (std::size_t shard = 0; shard < ViewCells::kShards && !stop(Duration{0}); ++shard) {
            auto done = whole_shard(shard, deadline, found);
            if (done) continue;
            // Other shards have their own index, so the round goes on.
            if (done.error().code != ErrorCode::wrong_type) return std::move(done).error();
            found.refused = std::move(done).error();
            found.all = false;
        }
        if (found.refused) return std::move(*found.refused);
        if (stop(Duration{0})) return found.round;
        // A scan's cursor is not valid on another node: the scan may have skipped keys.
        found.all = found.all && (nodes == nullptr || nodes->version() == version);
        // `oldest` keeps the cells that are still in Redis from being refused as too old.
        if (found.all) HOTCOUNT_TRY(forget_old_writers(deadline, found.oldest, stop));
        whole = true;
        return found.round;
    }

    Result<void> whole_shard(std::size_t shard, Deadline deadline, Found& found) {
        const ViewCells& redis = settings_->cells;
        std::string cursor = "0";
        do {
            const Deadline until = page_of(deadline);
            HOTCOUNT_TRY_ASSIGN(const redis::ScanPage page,
                                redis.scan(shard, cursor, kCellsPerPage, until));
            cursor = page.next;
            // A scan may name a key twice.
            const std::set<std::string> unique(page.items.begin(), page.items.end());
            const std::vector<std::string> keys(unique.begin(), unique.end());
            std::optional<Error> bad;
            HOTCOUNT_TRY_ASSIGN(std::vector<ViewCell> cells, redis.read(keys, until, &bad));
            if (bad) {
                found.refused = std::move(bad);
                found.all = false;
            }
            sort_and_merge(cells);
            std::vector<ViewCell> gone;
            const auto empty = [](const ViewCell& each) { return each.writer.empty(); };
            std::copy_if(cells.begin(), cells.end(), std::back_inserter(gone), empty);
            std::erase_if(cells, empty);
            HOTCOUNT_TRY(redis.retire(gone, until));
            std::span<const ViewCell> left{cells};
            while (!left.empty()) {
                const auto part = left.first(std::min(left.size(), kCellsPerPage));
                left = left.subspan(part.size());
                HOTCOUNT_TRY(settle(part, deadline, found));
            }
        } while (cursor != "0" && !found.stop(Duration{0}));
        found.all = found.all && cursor == "0";
        return {};
    }

    // In one transaction. If one key's cells are refused, each key in one of its own, so that the
    // others go on.
    Result<void> settle(std::span<const ViewCell> cells, Deadline deadline, Found& found) {
        SyncRound& round = found.round;
        round.scanned += static_cast<std::int64_t>(cells.size());
        const Deadline until = page_of(deadline);
        auto old = apply(cells, until);
        if (!old && cells.front().key != cells.back().key &&
            (sql::may_be_one_writes_fault(old.error()) ||
             old.error().code == ErrorCode::overflow)) {
            round.scanned -= static_cast<std::int64_t>(cells.size());
            while (!cells.empty()) {
                const auto end = std::find_if(cells.begin(), cells.end(), [&](const auto& each) {
                    return each.key != cells.front().key;
                });
                const auto size = static_cast<std::size_t>(end - cells.begin());
                HOTCOUNT_TRY(settle(cells.first(size), deadline, found));
                cells = cells.subspan(size);
            }
            return {};
        }
        std::vector<ViewCell> done;
        if (old) {
            for (std::size_t i = 0; i < cells.size(); ++i) {
                if (!(*old)[i]) done.push_back(cells[i]);
            }
        } else if (sql::may_be_one_writes_fault(old.error()) ||
                   old.error().code == ErrorCode::overflow) {
            found.refused = old.error();
        } else {
            return old.error();
        }
        for (std::size_t i = 0; i < cells.size(); ++i) {
            if (old && !(*old)[i]) continue;
            ++round.unsettled;
            round.at_risk = plus_size_of(round.at_risk, cells[i].sum);
            if (!old) found.oldest = std::min(found.oldest, second_of(cells[i].writer));
        }
        round.saved += static_cast<std::int64_t>(done.size());
        HOTCOUNT_TRY_ASSIGN(const std::int64_t retired, settings_->cells.retire(done, until));
        round.deleted += retired;
        return {};
    }

    Result<std::vector<bool>> apply(std::span<const ViewCell> cells, Deadline deadline) {
        return sql::transact(*settings_->database, deadline, [&](sql::Connection& connection) {
            return settings_->tables.apply(connection, cells);
        });
    }

    Result<void> forget_old_writers(Deadline deadline, std::int64_t before,
                                    const StopRounds& stop) {
        const SteadyTime now = std::chrono::steady_clock::now();
        if (now < next_forget_) return {};
        sql::Database& database = *settings_->database;
        HOTCOUNT_TRY(sql::transact(database, page_of(deadline), [&](sql::Connection& connection) {
            return settings_->tables.forget(connection, before);
        }));
        for (int i = 0; i < kPurgesPerRound && !stop(Duration{0}); ++i) {
            HOTCOUNT_TRY_ASSIGN(
                const std::size_t purged,
                sql::transact(database, page_of(deadline), [&](sql::Connection& connection) {
                    return settings_->tables.purge(connection);
                }));
            if (purged > 0) continue;
            next_forget_ = now + kForgetEvery;
            break;
        }
        return {};
    }

    const std::shared_ptr<ViewSettings> settings_;
    std::timed_mutex round_mutex_;  // One round at a time; taken before the other.
    SteadyTime next_forget_{};
    mutable std::mutex mutex_;
    Stats stats_{};
};

}  // namespace

std::shared_ptr<SyncWorker> make_view_worker(std::shared_ptr<ViewSettings> settings) {
    return std::make_shared<WorkerOfProcess<ViewWorker>>(std::move(settings));
}

}  // namespace hotcount
