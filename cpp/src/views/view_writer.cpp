#include "view_writer.hpp"

#include <algorithm>
#include <array>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/worker_pool.hpp>
#include <hotcount/detail/sql/transaction.hpp>
#include <utility>

namespace hotcount {
namespace {

// How often SQL is asked which cells it has, and for how many cells at a time. The next page is
// asked at once while SQL has most cells of the last page.
constexpr Duration kAskEvery = std::chrono::seconds{1};
constexpr std::size_t kCellsPerAsk = 1000;
// A cell that SQL does not have after this time is sent again: Redis may have lost it in a way that
// is not noticed otherwise, such as DEL.
constexpr Duration kSendAgainAfter = std::chrono::seconds{30};
// Cells of one flush that are copied at a time.
constexpr std::size_t kCellsPerSend = 10'000;
constexpr int kWritersPerHorizon = 7;
constexpr Duration kStopWait = std::chrono::seconds{2};

SteadyTime steady_now() { return std::chrono::steady_clock::now(); }

CellSum plus(const CellSum& a, const CellSum& b) { return {a.up + b.up, a.down + b.down}; }
CellSum minus(const CellSum& a, const CellSum& b) { return {a.up - b.up, a.down - b.down}; }
bool is_beyond(const CellSum& a, const CellSum& b) { return a.up > b.up || a.down > b.down; }

}  // namespace

struct ViewWriter::Cell {
    std::string key;
    std::string writer;
    WallTime since{};  // The time of its writer's id.
    CellSum sum{};
    CellSum open{};     // Of adds whose callers have no answer yet.
    CellSum cached{};   // Redis has this much.
    CellSum applied{};  // SQL has this much.
    // The only add that has sent the present sum; 0: a flush or several adds have.
    std::uint64_t carrier{0};
    SteadyTime waits_since{};  // Since when SQL has not caught up with it.
    bool sealed{false};
    bool is_dirty{false};
    bool is_unapplied{false};
    std::optional<std::list<CellPointer>::iterator> settled{};

    bool safe() const { return !is_beyond(sum, larger(cached, applied)); }
    bool done() const { return !is_beyond(sum, applied); }
    CellSum acknowledged() const { return minus(sum, open); }
};

struct ViewWriter::Sent {
    std::vector<CellPointer> cells;
    std::vector<ViewCell> values;
    std::uint64_t epoch{0};
};

ViewWriter::ViewWriter(std::shared_ptr<ViewSettings> settings)
    : settings_(std::move(settings)), reconnects_(settings_->cells.changes_of_server()) {
    renew_writer();
}

void ViewWriter::renew_writer() {
    writer_ = new_writer(*settings_->options.clock);
    writer_since_ = settings_->options.clock->wall_now();
    ++stats_.writers;
}

Result<void> ViewWriter::start() {
    if (!flushes_) {
        HOTCOUNT_TRY(spawn_thread([self = shared_from_this()] { self->flush_often(); }));
        flushes_ = true;
    }
    if (!asks_) {
        HOTCOUNT_TRY(spawn_thread([self = shared_from_this()] { self->ask_often(); }));
        asks_ = true;
    }
    return {};
}

// -- adds -----------------------------------------------------------------------------------------

Result<ViewWriter::Open> ViewWriter::begin(std::string_view key, std::int64_t n, Ack ack) {
    const CellSum amount{std::max<std::int64_t>(n, 0), n < 0 ? -n : 0};
    const std::lock_guard lock(mutex_);
    if (closed_) {
        return make_error(ErrorCode::closed, "the counter is closed; nothing was applied");
    }
    HOTCOUNT_TRY(start());
    auto found = cell_of(key, amount);
    if (!found) {
        ++stats_.failed;
        return std::move(found).error();
    }
    const CellPointer& cell = *found;
    if (cell->done()) cell->waits_since = steady_now();
    cell->sum = plus(cell->sum, amount);
    mark_unapplied(cell);
    Open add{.cell = cell, .value = {}, .amount = amount, .ack = ack};
    if (ack == Ack::local) {
        ++stats_.adds;
        cell->carrier = 0;
        mark_dirty(cell);
        return add;
    }
    cell->open = plus(cell->open, amount);
    cell->carrier = add.number = next_number_++;
    add.epoch = epoch_;
    add.value = {cell->key, cell->writer, cell->sum};
    return add;
}

Result<void> ViewWriter::end(const Open& add, Result<void> outcome) {
    const std::lock_guard lock(mutex_);
    Cell& cell = *add.cell;
    cell.open = minus(cell.open, add.amount);
    if (outcome) {
        ++stats_.adds;
        if (add.ack == Ack::sql) {
            learn_applied(add.cell, add.value.sum);
        } else if (add.epoch == epoch_) {
            cell.cached = larger(cell.cached, add.value.sum);
        }
        // If Redis has lost the add since, or a flush found a loss, this process sends it again.
        if (!cell.safe()) mark_dirty(add.cell);
        return outcome;
    }
    ++stats_.failed;
    // No later add is in the sum, and nothing else has sent it.
    const bool alone = cell.carrier == add.number && cell.sum == add.value.sum;
    if (alone && nothing_applied(outcome.error().code)) {
        cell.sum = minus(cell.sum, add.amount);
        cell.carrier = 0;
        if (!cell.safe()) mark_dirty(add.cell);
        return outcome;
    }
    mark_dirty(add.cell);
    const Error& why = outcome.error();
    return make_error(ErrorCode::outcome_unknown,
                      why.message +
                          "; the add stays in this process, which sends it again until it is "
                          "counted: it is lost only if the process ends before",
                      why.server_code)
        .about(&ErrorFacts::key, cell.key);
}

// -- cells ----------------------------------------------------------------------------------------

// The cell of the key that takes this amount.
Result<ViewWriter::CellPointer> ViewWriter::cell_of(std::string_view key, const CellSum& amount) {
    const WallTime now = settings_->options.clock->wall_now();
    const Duration most = kViewHorizon / kWritersPerHorizon;
    if (const auto found = cells_.find(key); found != cells_.end()) {
        const CellPointer cell = found->second;
        const bool fits = checked_add(cell->sum.up, amount.up).has_value() &&
                          checked_add(cell->sum.down, amount.down).has_value();
        if (fits && now - cell->since < most) return cell;
        // It goes on by itself until SQL has it; the key's next adds are another writer's.
        cells_.erase(found);
        forget_settled(cell);
        cell->sealed = true;
        old_cells_.emplace(cell->key, cell);
        ++sealed_;
        mark_unapplied(cell);
        if (writer_ == cell->writer) renew_writer();
    }
    if (now - writer_since_ >= most) renew_writer();
    HOTCOUNT_TRY(make_room());
    auto cell = std::make_shared<Cell>();
    cell->key = key;
    cell->writer = writer_;
    cell->since = writer_since_;
    cells_.emplace(cell->key, cell);
    return cell;
}

// Drops cells that SQL has, many at a time: after it, ids are renewed.
Result<void> ViewWriter::make_room() {
    const std::size_t most = settings_->options.max_cells;
    if (cell_count() < most) return {};
    std::size_t dropped = 0;
    const std::size_t wanted = std::max<std::size_t>(most / 8, 1);
    while (!settled_.empty() && dropped < wanted) {
        const CellPointer cell = settled_.front();
        forget_settled(cell);
        if (!cell->done() || cell->open != CellSum{}) continue;
        // The cell may have been dropped while SQL was asked for it. Then the key has another
        // cell or no cell.
        const auto found = cells_.find(cell->key);
        if (found == cells_.end() || found->second != cell) continue;
        cells_.erase(found);
        ++dropped;
    }
    if (dropped > 0) {
        renew_writer();
        return {};
    }
    return make_error(ErrorCode::capacity,
                      std::to_string(most) +
                          " cells of this process (max_cells) are not in SQL yet; is a sync_worker "
                          "running? Nothing was applied");
}

void ViewWriter::mark_dirty(const CellPointer& cell) {
    mark_unapplied(cell);
    if (std::exchange(cell->is_dirty, true)) return;
    dirty_.push_back(cell);
}

void ViewWriter::mark_unapplied(const CellPointer& cell) {
    if (std::exchange(cell->is_unapplied, true)) return;
    unapplied_.push_back(cell);
    if (unapplied_.size() == 1) changed_.notify_all();
}

void ViewWriter::learn_applied(const CellPointer& cell, const CellSum& sum) {
    const CellSum before = std::exchange(cell->applied, larger(cell->applied, sum));
    if (before != cell->applied) cell->waits_since = steady_now();
    // A sealed cell is dropped when SQL is asked for it.
    if (!cell->done() || cell->settled || cell->sealed) return;
    cell->settled = settled_.insert(settled_.end(), cell);
}

void ViewWriter::forget_settled(const CellPointer& cell) {
    if (!cell->settled) return;
    settled_.erase(*cell->settled);
    cell->settled.reset();
}

std::vector<ViewCell> ViewWriter::own_cells(std::string_view key) const {
    std::vector<ViewCell> own;
    const auto take = [&](const Cell& cell) {
        own.push_back({cell.key, cell.writer, cell.acknowledged()});
    };
    const std::lock_guard lock(mutex_);
    if (const auto found = cells_.find(key); found != cells_.end()) take(*found->second);
    const auto [first, last] = old_cells_.equal_range(key);
    for (auto each = first; each != last; ++each) take(*each->second);
    return own;
}

// -- flushing -------------------------------------------------------------------------------------

FlushReport ViewWriter::flush(Deadline deadline) {
    std::vector<CellPointer> wanted;
    {
        const std::lock_guard lock(mutex_);
        wanted.assign(unapplied_.begin(), unapplied_.end());
    }
    const auto done = flush_now(deadline);
    const std::lock_guard lock(mutex_);
    stats_.flush_error = done ? "" : done.error().message;
    FlushReport report{};
    for (const CellPointer& cell : wanted) {
        if (cell->safe()) {
            ++report.acked;
        } else {
            ++report.pending;
            const CellSum have = larger(cell->cached, cell->applied);
            report.at_risk = plus_size_of(report.at_risk, beyond(cell->acknowledged(), have));
        }
    }
    return report;
}

Result<void> ViewWriter::flush_now(Deadline deadline) {
    const std::unique_lock turn(flush_mutex_, deadline.time());
    if (!turn) return make_error(ErrorCode::deadline, "another flush took too long");
    HOTCOUNT_TRY(look_for_losses(deadline));
    return publish_dirty(deadline);
}

// Redis has lost cells if a shard's name is another one, and perhaps if the connection was lost or
// the server is another one.
Result<void> ViewWriter::look_for_losses(Deadline deadline) {
    std::array<bool, ViewCells::kShards> used{};
    {
        const std::lock_guard lock(mutex_);
        for (const CellPointer& cell : unapplied_) used[ViewCells::shard_of(cell->key)] = true;
    }
    std::vector<std::size_t> shards;
    for (std::size_t shard = 0; shard < used.size(); ++shard) {
        if (used[shard]) shards.push_back(shard);
    }
    if (shards.empty()) return {};
    HOTCOUNT_TRY_ASSIGN(const auto names, settings_->cells.identities(shards, deadline));
    const std::uint64_t reconnects = settings_->cells.changes_of_server();
    const bool broke = std::exchange(reconnects_, reconnects) != reconnects;
    std::array<bool, ViewCells::kShards> lost_shards{};
    bool any = false;
    bool surely = broke;
    for (std::size_t i = 0; i < shards.size(); ++i) {
        std::string& known = identities_[shards[i]];
        if (known == names[i] && !broke) continue;
        // At the first reading the previous name is unknown.
        surely = surely || !known.empty();
        known = names[i];
        lost_shards[shards[i]] = any = true;
    }
    if (broke) {
        // Cells in the unused shards may be lost too, but this writer has none to send there.
        for (std::size_t shard = 0; shard < used.size(); ++shard) {
            if (!used[shard]) identities_[shard].clear();
        }
    }
    if (!any) return {};
    const std::lock_guard lock(mutex_);
    if (surely) ++stats_.losses;
    lost(lost_shards);
    return {};
}

void ViewWriter::lost(const std::array<bool, ViewCells::kShards>& shards) {
    ++epoch_;
    const std::vector<CellPointer> all(unapplied_.begin(), unapplied_.end());
    for (const CellPointer& cell : all) {
        if (!shards[ViewCells::shard_of(cell->key)]) continue;
        cell->cached = {};
        if (!cell->done()) mark_dirty(cell);
    }
}

Result<void> ViewWriter::publish_dirty(Deadline deadline) {
    std::optional<Error> failed;
    while (!failed) {
        Sent sent;
        {
            const std::lock_guard lock(mutex_);
            sent.epoch = epoch_;
            while (!dirty_.empty() && sent.cells.size() < kCellsPerSend) {
                CellPointer cell = std::move(dirty_.back());
                dirty_.pop_back();
                cell->is_dirty = false;
                if (cell->safe()) continue;
                cell->carrier = 0;
                sent.values.push_back({cell->key, cell->writer, cell->sum});
                sent.cells.push_back(std::move(cell));
            }
        }
        if (sent.cells.empty()) break;
        std::vector<Result<void>> outcomes(sent.cells.size());
        settings_->cells.publish_all(
            sent.values, settings_->client->waiting(), deadline,
            [&](std::size_t i, Result<void> outcome) { outcomes[i] = std::move(outcome); }, [] {});
        const std::lock_guard lock(mutex_);
        for (std::size_t i = 0; i < outcomes.size(); ++i) {
            Cell& cell = *sent.cells[i];
            if (!outcomes[i]) {
                failed = outcomes[i].error();
            } else if (sent.epoch == epoch_) {
                cell.cached = larger(cell.cached, sent.values[i].sum);
                ++stats_.flushed;
            }
            if (!cell.safe()) mark_dirty(sent.cells[i]);
        }
    }
    if (failed) return std::move(*failed);
    return {};
}

// Asks SQL for the cells that have waited the longest; for each at most once.
Result<void> ViewWriter::ask_applied(Deadline deadline) {
    std::size_t left = 0;
    {
        const std::lock_guard lock(mutex_);
        left = unapplied_.size();
    }
    while (left > 0) {
        const std::size_t size = std::min(left, kCellsPerAsk);
        HOTCOUNT_TRY_ASSIGN(const bool most_are_done, ask_page(size, deadline));
        if (!most_are_done) break;
        left -= size;
    }
    return {};
}

// Whether SQL has most of them.
Result<bool> ViewWriter::ask_page(std::size_t size, Deadline deadline) {
    std::vector<CellPointer> asked;
    std::vector<ViewCell> values;
    {
        const std::lock_guard lock(mutex_);
        // They stay in the list until there is an answer, so a loss meanwhile concerns them too.
        asked.assign(unapplied_.begin(), unapplied_.begin() + static_cast<std::ptrdiff_t>(size));
        for (const CellPointer& cell : asked) values.push_back({cell->key, cell->writer, {}});
    }
    const auto known = sql::read_snapshot(
        *settings_->database, deadline,
        [&](sql::Connection& connection) { return settings_->tables.applied(connection, values); });
    std::map<std::pair<std::string_view, std::string_view>, CellSum> sums;
    if (known) {
        for (const ViewCell& each : *known) sums[{each.key, each.writer}] = each.sum;
    }
    const SteadyTime now = steady_now();
    std::size_t done = 0;
    const std::lock_guard lock(mutex_);
    for (const CellPointer& cell : asked) {
        unapplied_.pop_front();
        if (const auto found = sums.find({cell->key, cell->writer}); found != sums.end()) {
            learn_applied(cell, found->second);
        }
        cell->is_unapplied = false;
        if (cell->done()) ++done;
        if (!cell->done()) {
            if (now - cell->waits_since > kSendAgainAfter) {
                cell->waits_since = now;
                cell->cached = {};
                mark_dirty(cell);
            }
            mark_unapplied(cell);
        } else if (cell->sealed) {
            const auto [first, last] = old_cells_.equal_range(cell->key);
            const auto place =
                std::find_if(first, last, [&](const auto& each) { return each.second == cell; });
            if (cell->open == CellSum{} && place != last) {
                old_cells_.erase(place);
                --sealed_;
            } else {
                mark_unapplied(cell);
            }
        }
    }
    if (!known) return known.error();
    return done > asked.size() / 2;
}

// -- the threads ----------------------------------------------------------------------------------

// Waits until there is something to do and `every` has passed; false: the thread must end.
bool ViewWriter::rests(std::unique_lock<std::mutex>& lock, Duration every) {
    SteadyTime next = steady_now() + every;
    if (unapplied_.empty()) {
        changed_.wait(lock, [this] { return stop_ || !unapplied_.empty(); });
        next = std::max(next, steady_now() + every);
    }
    return !changed_.wait_until(lock, next, [this] { return stop_; });
}

// After an error the cells stay and are sent again in the next turn.
void ViewWriter::flush_often() {
    std::unique_lock lock(mutex_);
    while (rests(lock, settings_->options.flush_interval)) {
        lock.unlock();
        const auto done = flush_now(settings_->client->deadline({}));
        lock.lock();
        stats_.flush_error = done ? "" : done.error().message;
    }
    flushes_ = false;
    changed_.notify_all();
}

void ViewWriter::ask_often() {
    std::unique_lock lock(mutex_);
    while (rests(lock, kAskEvery)) {
        lock.unlock();
        (void)ask_applied(settings_->database->deadline({}));
        lock.lock();
    }
    asks_ = false;
    changed_.notify_all();
}

std::int64_t ViewWriter::close(Deadline deadline) {
    bool has_to_send = false;
    {
        const std::lock_guard lock(mutex_);
        if (std::exchange(closed_, true)) return 0;
        // The cells that a flush is sending now count too: if it fails, this call sends them.
        has_to_send = std::any_of(unapplied_.begin(), unapplied_.end(),
                                  [](const CellPointer& cell) { return !cell->safe(); });
    }
    if (has_to_send) (void)flush(deadline);
    std::unique_lock lock(mutex_);
    stop_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, kStopWait, [this] { return !flushes_ && !asks_; });
    lock.unlock();
    return stats().at_risk;
}

WriteBehindStats ViewWriter::stats() const {
    const std::lock_guard lock(mutex_);
    WriteBehindStats stats = stats_;
    stats.cells = static_cast<std::int64_t>(cell_count());
    const auto look = [&](const Cell& cell) {
        if (!cell.done()) ++stats.unapplied;
        const CellSum have = larger(cell.cached, cell.applied);
        if (is_beyond(cell.sum, have)) ++stats.pending;
        stats.at_risk = plus_size_of(stats.at_risk, beyond(cell.acknowledged(), have));
    };
    for (const CellPointer& cell : unapplied_) look(*cell);
    return stats;
}

}  // namespace hotcount
