#include "count_mirror.hpp"

#include <algorithm>
#include <hotcount/base/check.hpp>
#include <hotcount/sql/transaction.hpp>

#include "count_cache.hpp"
#include "sql_votes.hpp"
#include "vote_rows.hpp"

namespace hotcount {
namespace {

// Votes wait for a publish for no longer; a second without one follows.
constexpr Duration kPatience = std::chrono::milliseconds{100};
constexpr Duration kPause = std::chrono::seconds{1};

std::string placeholder(std::size_t number) { return "?" + std::to_string(number); }

class MirroredWriter final : public sql::BatchWriter {
  public:
    MirroredWriter(std::shared_ptr<sql::BatchWriter> writer, std::shared_ptr<CountMirror> mirror)
        : writer_(std::move(writer)), mirror_(std::move(mirror)) {}

    Result<void> write(sql::Connection& connection,
                       std::span<const std::shared_ptr<sql::Ticket>> batch) override {
        moved_ = {};
        HOTCOUNT_TRY(writer_->write(connection, batch));
        std::vector<sql::Id> items;
        for (const auto& ticket : batch) {
            const auto& vote = static_cast<const VoteTicket&>(*ticket);
            if (!vote.error && vote.cast.changed) items.push_back(vote.ballot.item);
        }
        std::sort(items.begin(), items.end());
        items.erase(std::unique(items.begin(), items.end()), items.end());
        HOTCOUNT_TRY_ASSIGN(moved_, mirror_->moved(connection, items));
        return {};
    }

    void committed() override {
        writer_->committed();
        mirror_->publish(moved_);
    }

    void before_answers(std::span<const sql::TicketAnswer> answers) override {
        writer_->before_answers(answers);
    }

  private:
    const std::shared_ptr<sql::BatchWriter> writer_;
    const std::shared_ptr<CountMirror> mirror_;
    CountMirror::Moved moved_{};  // One leader at a time writes.
};

}  // namespace

CountMirror::CountMirror(std::shared_ptr<sql::Database> database, const VotesOptions& options,
                         std::shared_ptr<const Layout> layout, std::unique_ptr<MirrorStore> store)
    : CountMirror(database, options, std::move(layout), std::move(store),
                  VoteNames{options, sql::Grammar{database->dialect()}},
                  sql::Grammar{database->dialect()}) {}

CountMirror::CountMirror(std::shared_ptr<sql::Database> database, const VotesOptions& options,
                         std::shared_ptr<const Layout> layout, std::unique_ptr<MirrorStore> store,
                         const VoteNames& n, const sql::Grammar& g)
    : database_(std::move(database)),
      options_(options),
      layout_(std::move(layout)),
      store_(std::move(store)),
      read_space_("SELECT value FROM " + n.meta + " WHERE name = 'mirror_id'"),
      write_space_("INSERT INTO " + n.meta + " (name, value) VALUES ('mirror_id', ?1)" +
                   g.or_nothing("name")),
      read_cells_("SELECT slot, n, ver FROM " + n.cell + " WHERE item = ?1"),
      read_moved_("SELECT item, n, ver FROM " + n.cell + " WHERE slot = 0 AND item IN (",
                  placeholder, 1, ", ", ")"),
      known_([] { return std::make_unique<Known>(); }) {}

// -- what votes publish -------------------------------------------------------------------------

Result<CountMirror::Moved> CountMirror::moved(sql::Connection& connection,
                                              std::span<const sql::Id> items) {
    HOTCOUNT_TRY_ASSIGN(std::string space, read_space(connection));
    if (space.empty() || items.empty() || cache_is_away()) return Moved{};
    std::vector<MirrorStore::Cell> cells;
    cells.reserve(items.size());
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        cells.push_back({to_text(row.id(0)), row.integer(1), row.integer(2)});
        return {};
    };
    HOTCOUNT_TRY(read_moved_.run_padded(connection, items, &read));
    return Moved{std::move(space), std::move(cells)};
}

void CountMirror::publish(const Moved& moved) {
    if (moved.cells.empty()) return;
    note_cache(store_->publish(moved.space, moved.cells, kPatience).ok());
}

bool CountMirror::cache_is_away() {
    Known& known = known_.get();
    const std::lock_guard lock(known.mutex);
    return options_.clock->steady_now() < known.cache_away_until;
}

void CountMirror::note_cache(bool answered) {
    if (answered) return;
    Known& known = known_.get();
    const std::lock_guard lock(known.mutex);
    known.cache_away_until = options_.clock->steady_now() + kPause;
}

// -- the tables' name ---------------------------------------------------------------------------

std::string CountMirror::known_space() {
    Known& known = known_.get();
    const SteadyTime now = options_.clock->steady_now();
    const std::lock_guard lock(known.mutex);
    return now < known.space_until ? known.space : std::string{};
}

// Empty where the tables have no name yet.
Result<std::string> CountMirror::read_space(sql::Connection& connection) {
    std::string found = known_space();
    if (!found.empty()) return found;
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        found = row.text(0);
        return {};
    };
    HOTCOUNT_TRY(connection.query(read_space_, {}, read));
    Known& known = known_.get();
    const std::lock_guard lock(known.mutex);
    known.space = found;
    known.space_until = options_.clock->steady_now() + options_.max_age;
    return found;
}

Result<void> CountMirror::name_tables(Deadline deadline) {
    HOTCOUNT_TRY(space(deadline));
    return {};
}

Result<std::string> CountMirror::space(Deadline deadline) {
    if (std::string known = known_space(); !known.empty()) return known;
    const auto read = [&](sql::Connection& connection) { return read_space(connection); };
    auto there = sql::read_snapshot(*database_, deadline, read);
    if (!there) return explain_missing_table(std::move(there).error());
    if (!there->empty()) return there;
    const std::string drawn = random_name().substr(0, 16);
    const auto write = [&](sql::Connection& connection) -> Result<void> {
        HOTCOUNT_TRY(connection.execute(write_space_, {std::string_view{drawn}}));
        return {};
    };
    HOTCOUNT_TRY(sql::transact(*database_, deadline, write));
    return sql::read_snapshot(*database_, deadline, read);
}

// -- what readers get ---------------------------------------------------------------------------

Timeout CountMirror::patience(Deadline deadline) const {
    return std::min(Duration{deadline.remaining()}, kPatience);
}

Result<std::vector<Count>> CountMirror::counts(std::span<const sql::Id> items, Deadline deadline) {
    std::vector<std::string> texts;
    texts.reserve(items.size());
    for (const sql::Id& item : items) texts.push_back(to_text(item));

    std::vector<std::optional<Count>> counts(items.size());
    const std::string token = random_name();
    std::vector<std::size_t> missing;
    std::vector<bool> to_fill(items.size(), false);
    // A database that may not be written to has no name for its tables, and no mirror then.
    const auto name = cache_is_away() ? Result<std::string>{std::string{}} : space(deadline);
    const bool mirrors = name.ok() && !name->empty();
    if (!name.ok() && name.error().code != ErrorCode::permission_denied) return name.error();
    if (mirrors) {
        const auto copies = store_->read(*name, texts, patience(deadline));
        note_cache(copies.ok());
        const WallTime now = options_.clock->wall_now();
        for (std::size_t i = 0; i < items.size(); ++i) {
            if (!copies || !(*copies)[i]) {
                missing.push_back(i);
                continue;
            }
            const MirrorStore::Copy& copy = *(*copies)[i];
            const auto age = std::chrono::duration_cast<WallTime::duration>(copy.age);
            counts[i] = Count{copy.value, false, now - age, "cache", 0};
        }
        if (copies && !missing.empty()) {
            std::vector<std::string> absent;
            absent.reserve(missing.size());
            for (const std::size_t i : missing) absent.push_back(texts[i]);
            // Before SQL is read: a vote that the snapshot does not have finds the hash there.
            const auto begun = store_->begin(*name, absent, token, patience(deadline));
            note_cache(begun.ok());
            for (std::size_t k = 0; begun && k < absent.size(); ++k) {
                to_fill[missing[k]] = (*begun)[k];
            }
        }
    } else {
        for (std::size_t i = 0; i < items.size(); ++i) missing.push_back(i);
    }
    if (!missing.empty()) {
        std::vector<MirrorStore::Cell> cells;
        const auto read = [&](sql::Connection& connection) -> Result<void> {
            cells.clear();
            HOTCOUNT_TRY(check_place(connection, *layout_, options_));
            const WallTime now = options_.clock->wall_now();
            for (const std::size_t i : missing) {
                HOTCOUNT_TRY_ASSIGN(auto cell, read_cells(connection, items[i], texts[i]));
                counts[i] = Count{cell.n + cell.rest, true, now, "sql", 0};
                if (to_fill[i]) cells.push_back(std::move(cell));
            }
            return {};
        };
        HOTCOUNT_TRY(sql::read_snapshot(*database_, deadline, read));
        if (!cells.empty()) {
            note_cache(store_->land(*name, cells, token, patience(deadline)).ok());
        }
    }
    std::vector<Count> result;
    result.reserve(counts.size());
    for (auto& count : counts) result.push_back(std::move(*count));
    return result;
}

Result<MirrorStore::Cell> CountMirror::read_cells(sql::Connection& connection, const sql::Id& item,
                                                  const std::string& text) {
    MirrorStore::Cell cell{text, 0, 0};
    bool whole = true;
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        if (row.integer(0) == 0) {
            cell.n = row.integer(1);
            cell.ver = row.integer(2);
            return {};
        }
        const auto sum = checked_add(cell.rest, row.integer(1));
        whole = whole && sum;
        cell.rest = sum.value_or(0);
        return {};
    };
    HOTCOUNT_TRY(connection.query(read_cells_, {sql::to_value(item)}, read));
    if (!whole || !checked_add(cell.n, cell.rest)) return count_overflow(item);
    return cell;
}

void CountMirror::drop(std::span<const sql::Id> items, Deadline deadline) {
    if (items.empty() || cache_is_away()) return;
    const auto name = space(deadline);
    if (!name) return;  // Copies that are wrong end by themselves.
    std::vector<std::string> texts;
    texts.reserve(items.size());
    for (const sql::Id& item : items) texts.push_back(to_text(item));
    note_cache(store_->drop(*name, texts, patience(deadline)).ok());
}

std::shared_ptr<sql::BatchWriter> mirrored(std::shared_ptr<sql::BatchWriter> writer,
                                           std::shared_ptr<CountMirror> mirror) {
    return std::make_shared<MirroredWriter>(std::move(writer), std::move(mirror));
}

}  // namespace hotcount
