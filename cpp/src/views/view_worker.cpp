#include "view_worker.hpp"

#include <algorithm>
#include <hotcount/detail/sql/transaction.hpp>
#include <limits>
#include <set>
#include <utility>

namespace hotcount {
namespace {

constexpr Duration kRound = std::chrono::seconds{60};
// Rows of old writers are looked for so often by one worker.
constexpr Duration kForgetEvery = std::chrono::hours{1};

// Of a server that is away, or of one key: other keys and later rounds are none the worse.
bool passes(ErrorCode code) {
    return code != ErrorCode::config && code != ErrorCode::closed && code != ErrorCode::auth &&
           code != ErrorCode::permission_denied;
}

class ViewWorker final : public SyncWorker {
  public:
    explicit ViewWorker(std::shared_ptr<ViewSettings> settings) : settings_(std::move(settings)) {}

    Result<SyncRound> run_once(Timeout timeout) override {
        const Deadline deadline = Deadline::after(timeout.value_or(kRound));
        const std::lock_guard one_at_a_time(round_mutex_);
        auto round = whole_round(deadline);
        const std::lock_guard lock(mutex_);
        if (!round) {
            ++stats_.failed;
            return round;
        }
        ++stats_.rounds;
        SyncRound& total = stats_.total;
        total.scanned += round->scanned;
        total.saved += round->saved;
        total.deleted += round->deleted;
        total.unsettled = round->unsettled;
        total.at_risk = round->at_risk;
        return round;
    }

    Result<void> run(const std::function<bool(Duration)>& stop) override {
        while (!stop(Duration{0})) {
            const auto round = run_once({});
            if (!round && !passes(round.error().code)) return round.error();
            if (stop(settings_->options.interval)) break;
        }
        return {};
    }

    Stats stats() const override {
        const std::lock_guard lock(mutex_);
        return stats_;
    }

  private:
    Result<SyncRound> whole_round(Deadline deadline) {
        SyncRound round{};
        std::optional<Error> refused;
        for (std::size_t shard = 0; shard < ViewCells::kShards; ++shard) {
            HOTCOUNT_TRY(whole_shard(shard, deadline, round, refused));
        }
        // What is still in Redis must not become too old by what this worker does.
        if (!refused && round.unsettled == 0) HOTCOUNT_TRY(forget_old_writers(deadline));
        if (refused) return std::move(*refused);
        return round;
    }

    Result<void> whole_shard(std::size_t shard, Deadline deadline, SyncRound& round,
                             std::optional<Error>& refused) {
        const ViewCells& redis = settings_->cells;
        const std::size_t most = settings_->options.page;
        std::string cursor = "0";
        do {
            HOTCOUNT_TRY_ASSIGN(const ViewCells::Page page,
                                redis.scan(shard, cursor, most, deadline));
            cursor = page.next;
            // A scan may name a key twice.
            const std::set<std::string> unique(page.keys.begin(), page.keys.end());
            const std::vector<std::string> keys(unique.begin(), unique.end());
            HOTCOUNT_TRY_ASSIGN(std::vector<ViewCell> cells, redis.read(keys, deadline, &refused));
            sort_and_merge(cells);
            std::vector<ViewCell> gone;
            const auto empty = [](const ViewCell& each) { return each.writer.empty(); };
            std::copy_if(cells.begin(), cells.end(), std::back_inserter(gone), empty);
            std::erase_if(cells, empty);
            HOTCOUNT_TRY(redis.retire(gone, deadline));
            std::span<const ViewCell> left{cells};
            while (!left.empty()) {
                const auto part = left.first(std::min(left.size(), most));
                left = left.subspan(part.size());
                HOTCOUNT_TRY(settle(part, deadline, round, refused));
            }
        } while (cursor != "0");
        return {};
    }

    // In one transaction. If one key's cells are refused, each key in one of its own, so that the
    // others go on.
    Result<void> settle(std::span<const ViewCell> cells, Deadline deadline, SyncRound& round,
                        std::optional<Error>& refused) {
        round.scanned += static_cast<std::int64_t>(cells.size());
        auto old = apply(cells, deadline);
        if (!old && cells.front().key != cells.back().key &&
            (sql::may_be_one_writes_fault(old.error()) ||
             old.error().code == ErrorCode::overflow)) {
            round.scanned -= static_cast<std::int64_t>(cells.size());
            while (!cells.empty()) {
                const auto end = std::find_if(cells.begin(), cells.end(), [&](const auto& each) {
                    return each.key != cells.front().key;
                });
                const auto size = static_cast<std::size_t>(end - cells.begin());
                HOTCOUNT_TRY(settle(cells.first(size), deadline, round, refused));
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
            refused = old.error();
        } else {
            return old.error();
        }
        for (std::size_t i = 0; i < cells.size(); ++i) {
            if (old && !(*old)[i]) continue;
            ++round.unsettled;
            round.at_risk += cells[i].sum.up + cells[i].sum.down;
        }
        round.saved += static_cast<std::int64_t>(done.size());
        HOTCOUNT_TRY_ASSIGN(const std::int64_t retired, settings_->cells.retire(done, deadline));
        round.deleted += retired;
        return {};
    }

    Result<std::vector<bool>> apply(std::span<const ViewCell> cells, Deadline deadline) {
        return sql::transact(*settings_->database, deadline, [&](sql::Connection& connection) {
            return settings_->tables.apply(connection, cells);
        });
    }

    Result<void> forget_old_writers(Deadline deadline) {
        const SteadyTime now = std::chrono::steady_clock::now();
        if (now < next_forget_) return {};
        sql::Database& database = *settings_->database;
        HOTCOUNT_TRY(sql::transact(database, deadline, [&](sql::Connection& connection) {
            return settings_->tables.forget(connection, settings_->options.horizon);
        }));
        std::size_t purged = 0;
        do {
            HOTCOUNT_TRY_ASSIGN(purged,
                                sql::transact(database, deadline, [&](sql::Connection& connection) {
                                    return settings_->tables.purge(connection);
                                }));
        } while (purged > 0);
        next_forget_ = now + kForgetEvery;
        return {};
    }

    const std::shared_ptr<ViewSettings> settings_;
    std::mutex round_mutex_;  // One round at a time; taken before the other.
    SteadyTime next_forget_{};
    mutable std::mutex mutex_;
    Stats stats_{};
};

}  // namespace

std::shared_ptr<SyncWorker> make_view_worker(std::shared_ptr<ViewSettings> settings) {
    return std::make_shared<ViewWorker>(std::move(settings));
}

}  // namespace hotcount
