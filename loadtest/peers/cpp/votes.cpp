// Votes from several processes of C++ callers in a closed loop; prints one line of JSON.
//
//   hotcount-peers-votes --db URL --strategy batched --processes 12 --callers 1 --items 10000
//
// Each process has a Votes object and connections of its own, as each worker of a web server has.
// All of them vote for the same items, each vote by a different user. The tables are the default
// ones, made in an empty database or schema; loadtest/peers/vote_processes.py makes one for each
// load.
//
// Strategy "alone" inserts the same vote rows and does nothing else: it updates no count, and only
// the foreign key reads the item. With one caller a process, each vote is an autocommit statement.
// With more callers, votes go through the group commit of batched: one autocommit statement a
// batch. Its rate is the upper limit for every strategy on this path.
//
// --aside: votes for item 1 do not wait (cast_async), so that their callers go on with other items.
// --hold: another connection locks item 1's row FOR UPDATE for the whole measurement; it implies
// --aside.
//
// Afterwards, per item: votes in the table = votes acknowledged = count() = vote_count after
// flush(). A read that is below what was acknowledged before it fails the run as well.
// Exit code: 0, 1 if a vote or read failed, was lost or doubled, 2 on bad usage.

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "load/histogram.hpp"
#include "votes.hpp"

namespace hotcount::peers {
namespace {

using loadtest::Histogram;
using std::chrono::milliseconds;

constexpr Duration kSetUpTimeout = std::chrono::minutes{2};
constexpr std::size_t kItemsAtOnce = 1000;

Result<void> set_up(const Settings& settings) {
    HOTCOUNT_TRY_ASSIGN(auto database, open_database(settings));
    HOTCOUNT_TRY_ASSIGN(auto votes, make_votes(database, settings.strategy));
    HOTCOUNT_TRY(votes->create_tables(ExistingCounts::refuse, OutsideWrites::leave, kSetUpTimeout));
    std::vector<sql::Id> items;
    for (std::int64_t item = 1; item <= settings.items; ++item) items.emplace_back(item);
    return votes->add_items(items, kSetUpTimeout);
}

/// Opens the window of measurement, locks item 1 with --hold, closes the window.
Result<void> watch(const Settings& settings, const Board& board, Children& children) {
    const auto wait_until = [&](const auto& over) {
        while (!over() && !board->failed.load()) {
            children.check(board);
            std::this_thread::sleep_for(milliseconds{5});
        }
    };
    wait_until([&] { return board->ready.load() == settings.processes; });
    board->go.store(true);
    const std::int64_t warm_ns = now_ns() + in_ns(settings.warm_up);
    wait_until([&] { return now_ns() >= warm_ns; });

    std::shared_ptr<sql::Database> database;
    std::optional<sql::Lease> holder;  // After the database, which it must not outlive.
    if (settings.hold) {
        HOTCOUNT_TRY_ASSIGN(database, sql::open_database(settings.url));
        const Deadline deadline = Deadline::after(kTimeout);
        HOTCOUNT_TRY_ASSIGN(sql::Lease lease, database->writer(deadline));
        const sql::Statement lock("SELECT id FROM item WHERE id = ?1 FOR UPDATE");
        HOTCOUNT_TRY(lease->begin(deadline));
        HOTCOUNT_TRY(lease->execute(lock, {kAsideItem}));
        holder.emplace(std::move(lease));
    }
    const std::int64_t opens_ns = now_ns();
    const std::int64_t closes_ns = opens_ns + in_ns(settings.seconds);
    board->opens_ns.store(opens_ns);
    board->closes_ns.store(closes_ns);
    wait_until([&] { return now_ns() >= closes_ns; });
    if (holder) (*holder)->rollback();
    holder.reset();
    wait_until([&] { return children.ended(); });
    if (board->failed.load()) return make_error(ErrorCode::database, board->error);
    return {};
}

Result<void> audit(const Settings& settings, const Board& board) {
    HOTCOUNT_TRY_ASSIGN(auto database, open_database(settings));
    HOTCOUNT_TRY_ASSIGN(auto votes, make_votes(database, settings.strategy));
    const bool counted = settings.strategy != "alone";
    std::vector<std::int64_t> rows(static_cast<std::size_t>(settings.items) + 1);
    std::vector<std::int64_t> shown(rows.size());
    if (counted) {
        HOTCOUNT_TRY_ASSIGN(const FlushReport flushed, votes->flush(kSetUpTimeout));
        if (flushed.pending > 0) return make_error(ErrorCode::database, "flush() left counts");
    }
    {
        const Deadline deadline = Deadline::after(kSetUpTimeout);
        HOTCOUNT_TRY_ASSIGN(sql::Lease reader, database->reader(deadline));
        HOTCOUNT_TRY(reader->begin_read(deadline));
        const auto into = [](std::vector<std::int64_t>& numbers) {
            return sql::RowVisitor{[&numbers](const sql::Row& row) -> Result<void> {
                numbers.at(static_cast<std::size_t>(row.integer(0))) = row.integer(1);
                return {};
            }};
        };
        const sql::Statement of_votes("SELECT item_id, COUNT(*) FROM vote GROUP BY item_id");
        const sql::Statement of_items("SELECT id, COALESCE(vote_count, 0) FROM item");
        HOTCOUNT_TRY(reader->query(of_votes, {}, into(rows)));
        HOTCOUNT_TRY(reader->query(of_items, {}, into(shown)));
        reader->rollback();
    }
    const auto differ = [](std::int64_t item, const char* what, std::int64_t is,
                           std::int64_t expected) {
        return make_error(ErrorCode::database, "item " + std::to_string(item) + ": " + what + " " +
                                                   std::to_string(is) + ", not " +
                                                   std::to_string(expected));
    };
    for (std::int64_t item = 1; item <= settings.items; ++item) {
        const auto said = static_cast<std::int64_t>(board.acknowledged(item).load());
        const std::int64_t there = rows[static_cast<std::size_t>(item)];
        const std::int64_t column = shown[static_cast<std::size_t>(item)];
        if (there != said) return differ(item, "acknowledged votes found", there, said);
        if (counted && column != said) return differ(item, "vote_count is", column, said);
    }
    for (std::int64_t first = 1; counted && first <= settings.items; first += kItemsAtOnce) {
        std::vector<sql::Id> items;
        for (std::int64_t item = first; item <= settings.items && items.size() < kItemsAtOnce;
             ++item) {
            items.emplace_back(item);
        }
        HOTCOUNT_TRY_ASSIGN(const auto counts,
                            votes->count_many(items, Consistency::cached, kSetUpTimeout));
        for (std::size_t i = 0; i < counts.size(); ++i) {
            const std::int64_t item = first + static_cast<std::int64_t>(i);
            const std::int64_t there = rows[static_cast<std::size_t>(item)];
            if (counts[i].value != there) return differ(item, "count() is", counts[i].value, there);
        }
    }
    return {};
}

nlohmann::json latency(const Number* cells) {
    std::uint64_t total = 0;
    for (std::size_t cell = 0; cell < histogram_cells(); ++cell) total += cells[cell].load();
    const auto at = [&](double quantile) {
        const auto wanted =
            static_cast<std::uint64_t>(std::ceil(quantile * static_cast<double>(total)));
        std::uint64_t seen = 0;
        for (std::size_t cell = 0; cell < histogram_cells(); ++cell) {
            seen += cells[cell].load();
            if (seen >= wanted && seen > 0) {
                return static_cast<double>(Histogram::cell_end(cell)) * 1e-3;
            }
        }
        return 0.0;
    };
    return {{"p50", at(0.5)}, {"p99", at(0.99)}, {"max", at(1)}};
}

Result<nlohmann::json> run(const Settings& settings) {
    const Board board(settings.items);
    // Forks before this process opens a connection: each child opens its own, as a worker does.
    Children children(settings, board);
    HOTCOUNT_TRY(set_up(settings));
    board->tables_made.store(true);
    HOTCOUNT_TRY(watch(settings, board, children));
    HOTCOUNT_TRY(audit(settings, board));
    std::uint64_t acknowledged = 0;
    for (std::int64_t item = 1; item <= settings.items; ++item) {
        acknowledged += board.acknowledged(item).load();
    }
    return nlohmann::json{
        {"votes", board->votes.load()},
        {"reads", board->reads.load()},
        {"seconds", settings.seconds},
        {"vote_us", latency(board.vote_cells())},
        {"read_us", latency(board.read_cells())},
        {"acknowledged", acknowledged},
        {"aside",
         {{"sent", board->aside_sent.load()},
          {"landed", board->aside_landed.load()},
          {"diverted", board->aside_diverted.load()},
          {"worst_us", static_cast<double>(board->aside_worst_ns.load()) * 1e-3}}}};
}

}  // namespace
}  // namespace hotcount::peers

int main(int count, char** words) {
    hotcount::peers::Settings settings;
    CLI::App app{"Votes from several processes of C++ callers, on one database; one line of JSON."};
    app.add_option("--db", settings.url, "postgresql:// or mariadb://, without tables yet")
        ->required();
    app.add_option("--strategy", settings.strategy)
        ->check(CLI::IsMember({"naive", "slotted", "batched", "alone"}));
    app.add_option("--processes", settings.processes)->check(CLI::Range(1, 64));
    app.add_option("--callers", settings.callers, "threads in each")->check(CLI::Range(1, 256));
    app.add_option("--items", settings.items)->check(CLI::Range(1, 1'000'000));
    app.add_option("--zipf", settings.zipf, "exponent; not with --aside, which votes evenly");
    app.add_option("--reads", settings.reads, "share of the calls")->check(CLI::Range(0.0, 0.99));
    app.add_option("--seconds", settings.seconds)->check(CLI::Range(0.01, 600.0));
    app.add_option("--warm-up", settings.warm_up, "seconds")->check(CLI::Range(0.0, 60.0));
    app.add_option("--seed", settings.seed);
    app.add_flag("--aside", settings.aside, "votes for item 1 do not wait");
    app.add_flag("--hold", settings.hold, "another connection holds item 1's row");
    try {
        app.parse(count, words);
        settings.aside = settings.aside || settings.hold;
        if (settings.strategy == "alone" && (settings.reads > 0 || settings.aside)) {
            throw CLI::ValidationError("alone takes neither --reads nor --aside");
        }
        if (settings.aside && settings.items < 2) {
            throw CLI::ValidationError("--aside and --hold take --items of 2 or more");
        }
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    const auto line = hotcount::peers::run(settings);
    if (!line) {
        std::cerr << line.error().message << '\n';
        return 1;
    }
    std::cout << line->dump() << '\n';
    return 0;
}
