// The calls of a Votes object, written once for its two faces: hotcount.Votes waits for the outcome,
// hotcount.aio.Votes returns what is awaited for it.
//
// A Face says how a call is made and what it returns:
//   Self                     the bound object
//   returns(type)            what the signature says of a call that comes to `type`
//   cast(self, timeout, now, start, convert)   a vote, or many
//     now(votes)             makes the call and waits
//     start(votes, done)     makes it without waiting
//     convert(outcome)       the Python object that it comes to
//   slow(self, timeout, now, convert)          what a thread does by itself
//     now(votes, timeout)    holds all that it needs
#pragma once

#include <hotcount/votes/votes.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "batch.hpp"
#include "convert.hpp"
#include "function.hpp"
#include "gil.hpp"
#include "paired_columns.hpp"
#include "signature_text.hpp"
#include "store.hpp"
#include "sync_worker.hpp"
#include "value.hpp"

namespace hotcount::python {

// What both faces hold.
class VotesHolder {
  public:
    VotesHolder(std::shared_ptr<Votes> votes, StoreReference store,
                std::optional<StoreReference> cache)
        : votes_(std::move(votes)), store_(std::move(store)), cache_(std::move(cache)) {}

    void check_open() const {
        store_.check_open();
        if (cache_) cache_->check_open();
    }
    Votes& votes() const { return *votes_; }
    const StoreReference& store() const { return store_; }
    Deadline deadline(Timeout timeout) const {
        return store_.backend<sql::Database>()->deadline(timeout);
    }
    IdType item_type() const { return votes_->options().item_type; }
    IdType user_type() const { return votes_->options().user_type; }

    void close() {
        store_.close();
        if (cache_) cache_->close();
    }
    bool closed() const { return store_.closed() || (cache_ && cache_->closed()); }
    std::string repr() const { return store_.repr(); }

  private:
    std::shared_ptr<Votes> votes_;
    StoreReference store_;
    std::optional<StoreReference> cache_;
};

/// From the arguments of a constructor (votes_signature).
VotesHolder make_votes(const Arguments& arguments, const char* title);
/// "(self, db: ..., cache ...) -> None", and what it says.
std::string votes_signature();
extern const char* const kVotesInitText;

// A Count as Python has it: the moment in seconds, for columns.
struct CountRow {
    std::int64_t value;
    bool exact;
    double as_of;
    std::string source;
    std::int64_t pending;
};
// A Drift with its item in the type that the caller's tables have.
struct DriftRow {
    IdObject item;
    std::int64_t counted;
    std::int64_t actual;
};
using Casts = RowBatch<Cast>;
using Counts = RowBatch<CountRow>;

inline CountRow to_row(Count count) {
    const std::chrono::duration<double> since_epoch = count.as_of.time_since_epoch();
    return {count.value, count.exact, since_epoch.count(), std::move(count.source), count.pending};
}

inline Consistency to_consistency(py::handle value) {
    if (!value) return Consistency::cached;
    return to_choice(value, "consistency", {"cached", "exact"}) == 0 ? Consistency::cached
                                                                     : Consistency::exact;
}

// Ids that must all be good: calls that have no answer per element.
inline std::vector<sql::Id> to_good_ids(py::handle value, IdType type, const char* argument) {
    Refusals refusals;
    auto ids = to_ids(value, type, argument, refusals);
    if (!refusals.by_index.empty()) raise(refusals.by_index.begin()->second);
    return ids;
}

inline std::optional<std::int64_t> to_version(py::handle value) {
    if (!value || value.is_none()) return std::nullopt;
    return to_option(value, "version");
}

inline ExistingCounts to_existing_counts(py::handle value) {
    if (!value || value.is_none()) return ExistingCounts::refuse;
    return to_choice(value, "existing_counts", {"keep", "recount"}) == 0 ? ExistingCounts::keep
                                                                         : ExistingCounts::recount;
}

inline py::object to_dict(const VotesStats& stats, IdType type) {
    const auto seconds = [](Duration time) { return std::chrono::duration<double>(time).count(); };
    py::dict dict;
    dict["votes"] = stats.votes;
    dict["failed_votes"] = stats.failed;
    dict["batches"] = stats.batches;
    dict["mean_batch_votes"] = stats.batches == 0 ? 0.0
                                                  : static_cast<double>(stats.batched_votes) /
                                                        static_cast<double>(stats.batches);
    dict["retried_transactions"] = stats.retries;
    dict["waiting_votes"] = stats.waiting;
    dict["held_votes"] = stats.held_votes;
    dict["held_votes_s"] = seconds(stats.held_votes_for);
    dict["median_call_s"] = seconds(stats.median);
    dict["p99_call_s"] = seconds(stats.p99);
    dict["longest_call_s"] = seconds(stats.longest);
    dict["folds"] = stats.folds;
    dict["folded_rows"] = stats.folded_rows;
    dict["failed_folds"] = stats.failed_folds;
    dict["fold_error"] = stats.fold_error;
    dict["last_fold_s"] = seconds(stats.fold_took);
    dict["pending_rows"] = stats.pending_rows;
    dict["pending_items"] = stats.pending_items;
    dict["oldest_pending_s"] = seconds(stats.oldest);
    dict["held_items"] = stats.held_items;
    py::dict refused;
    for (const auto& [item, why] : stats.refused_items) refused[from_id(item, type)] = why;
    dict["refused_items"] = refused;
    return dict;
}

template <class Face>
struct VotesCalls {
    using Self = typename Face::Self;

    static py::object to_none(bool) { return py::none(); }

    static py::object create_tables(Self& self, const Arguments& arguments) {
        const ExistingCounts existing = to_existing_counts(arguments[0]);
        return Face::slow(
            self, to_timeout(arguments[1]),
            [existing](Votes& votes, Timeout timeout) -> Result<bool> {
                HOTCOUNT_TRY(votes.create_tables(timeout, existing));
                return true;
            },
            to_none);
    }

    static py::object schema(Self& self, const Arguments&) {
        return py::str(self.holder().votes().schema());
    }

    static py::object add_items(Self& self, const Arguments& arguments) {
        auto items = to_good_ids(arguments[0], self.holder().item_type(), "items");
        return Face::slow(
            self, to_timeout(arguments[1]),
            [items = std::move(items)](Votes& votes, Timeout timeout) -> Result<bool> {
                HOTCOUNT_TRY(votes.add_items(items, timeout));
                return true;
            },
            to_none);
    }

    static py::object cast_ballot(Self& self, const Ballot& ballot, Timeout timeout) {
        return Face::template cast<Cast>(
            self, timeout, [&](Votes& votes) { return votes.cast(ballot, timeout); },
            [&](Votes& votes, auto done) { votes.cast_async(ballot, std::move(done), timeout); },
            [](const Cast& cast) -> py::object { return py::cast(cast); });
    }

    static py::object cast(Self& self, const Arguments& arguments) {
        const Timeout timeout = to_timeout(arguments[5]);
        if (arguments.given(4)) {
            return cast_ballot(self, to_anonymous(self, arguments), timeout);
        }
        Ballot ballot{to_id(arguments[0], self.holder().item_type(), "item"),
                      to_id(arguments[1], self.holder().user_type(), "user")};
        if (arguments[2]) ballot.value = to_amount(arguments[2], "value");
        ballot.version = to_version(arguments[3]);
        return cast_ballot(self, ballot, timeout);
    }

    static Ballot to_anonymous(Self& self, const Arguments& arguments) {
        auto item = to_id(arguments[0], self.holder().item_type(), "item");
        if (!arguments[1].is_none()) {
            raise_config(
                "op_id is for votes without a user (user=None); a user's vote may be cast again "
                "without one");
        }
        if (arguments.given(3)) raise_config("version is for votes of a user, and user is None");
        const std::int64_t value = arguments[2] ? to_amount(arguments[2], "value") : 1;
        return unwrap(Ballot::anonymous(std::move(item), to_text(arguments[4], "op_id"), value));
    }

    static py::object retract(Self& self, const Arguments& arguments) {
        Ballot ballot{to_id(arguments[0], self.holder().item_type(), "item"),
                      to_id(arguments[1], self.holder().user_type(), "user"), 0};
        ballot.version = to_version(arguments[2]);
        return cast_ballot(self, ballot, to_timeout(arguments[3]));
    }

    static py::object cast_many(Self& self, const Arguments& arguments) {
        Refusals refusals;
        auto items = to_ids(arguments[0], self.holder().item_type(), "items", refusals);
        const bool anonymous = arguments.given(3);
        require_order(arguments[0], "items");
        require_order(arguments[anonymous ? 3 : 1], anonymous ? "op_ids" : "users");
        if (anonymous && !arguments[1].is_none()) {
            raise_config("op_ids is for votes without a user (users=None)");
        }
        const char* const column = anonymous ? "op_ids" : "users";
        const IdType type = anonymous ? IdType::text : self.holder().user_type();
        auto users = to_ids(arguments[anonymous ? 3 : 1], type, column, refusals);
        if (users.size() != items.size()) {
            raise_config(std::string{column} + " has " + std::to_string(users.size()) +
                         " elements for " + std::to_string(items.size()) + " items");
        }
        const auto values = to_amounts(arguments[2], "values", items.size(), 1, refusals);
        const OnErrors on_errors = to_on_errors(arguments[4]);
        const Timeout timeout = to_timeout(arguments[5]);

        std::vector<Ballot> ballots;
        ballots.reserve(items.size());
        for (std::size_t i = 0; i < items.size(); ++i) {
            Ballot ballot{std::move(items[i]), std::move(users[i]), values[i]};
            // Not text: refused already.
            if (const auto* op_id = std::get_if<std::string>(&ballot.user); anonymous && op_id) {
                auto checked = Ballot::anonymous(ballot.item, *op_id, ballot.value);
                if (!checked) refusals.add(i, checked.error());
                if (checked) ballot = std::move(*checked);
            }
            ballots.push_back(std::move(ballot));
        }
        ballots = refusals.strip(std::move(ballots));
        using Results = std::vector<Result<Cast>>;
        return Face::template cast<Results>(
            self, timeout,
            [&](Votes& votes) -> Result<Results> { return votes.cast_many(ballots, timeout); },
            [&](Votes& votes, Completion<Results> done) {
                votes.cast_many_async(
                    ballots,
                    [done = std::move(done)](Results results) { done(std::move(results)); },
                    timeout);
            },
            // Copied in other threads: nothing of Python in here.
            [refusals, on_errors](Results results) -> py::object {
                py::dict errors;
                auto casts = gather(std::move(results), refusals, errors);
                return finish(std::make_shared<Casts>(std::move(casts), std::move(errors)), on_errors);
            });
    }

    static py::object count(Self& self, const Arguments& arguments) {
        auto item = to_id(arguments[0], self.holder().item_type(), "item");
        const Consistency consistency = to_consistency(arguments[1]);
        return Face::slow(
            self, to_timeout(arguments[2]),
            [item = std::move(item), consistency](Votes& votes, Timeout timeout) {
                return votes.count(item, timeout, consistency);
            },
            [](Count counted) -> py::object { return py::cast(to_row(std::move(counted))); });
    }

    static py::object count_many(Self& self, const Arguments& arguments) {
        auto items = to_good_ids(arguments[0], self.holder().item_type(), "items");
        const Consistency consistency = to_consistency(arguments[1]);
        return Face::slow(
            self, to_timeout(arguments[2]),
            [items = std::move(items), consistency](Votes& votes, Timeout timeout) {
                return votes.count_many(items, timeout, consistency);
            },
            [](std::vector<Count> counts) -> py::object {
                std::vector<CountRow> rows;
                rows.reserve(counts.size());
                for (Count& each : counts) rows.push_back(to_row(std::move(each)));
                return finish(std::make_shared<Counts>(std::move(rows), py::dict()), OnErrors::keep);
            });
    }

    static py::object reconcile(Self& self, const Arguments& arguments) {
        std::optional<std::vector<sql::Id>> named;
        const IdType type = self.holder().item_type();
        if (arguments.given(0)) named = to_good_ids(arguments[0], type, "items");
        const bool dry_run = arguments[1] && to_bool(arguments[1], "dry_run");
        return Face::slow(
            self, to_timeout(arguments[2]),
            [named = std::move(named), dry_run](Votes& votes, Timeout timeout) {
                std::optional<std::span<const sql::Id>> items;
                if (named) items = *named;
                return votes.reconcile(items, dry_run, timeout);
            },
            [type](const std::vector<Drift>& drifts) -> py::object {
                py::list result;
                for (const Drift& drift : drifts) {
                    result.append(
                        DriftRow{IdObject(from_id(drift.item, type)), drift.counted, drift.actual});
                }
                return result;
            });
    }

    static py::object flush(Self& self, const Arguments& arguments) {
        const Timeout within =
            arguments.given(0) ? to_timeout(arguments[0]) : Timeout{std::chrono::seconds{5}};
        return Face::slow(
            self, within, [](Votes& votes, Timeout timeout) { return votes.flush(timeout); },
            [](const FlushReport& report) -> py::object { return py::cast(report); });
    }

    static py::object stats(Self& self, const Arguments& arguments) {
        const IdType type = self.holder().item_type();
        return Face::slow(
            self, to_timeout(arguments[0]),
            [](Votes& votes, Timeout timeout) { return votes.stats(timeout); },
            [type](const VotesStats& stats) -> py::object { return to_dict(stats, type); });
    }

    static py::object sync_worker(Self& self, const Arguments&) {
        self.holder().check_open();
        auto worker = unwrap(without_gil([&] { return self.holder().votes().sync_worker(); }));
        return py::cast(
            BoundWorker{std::move(worker), py::cast(self, py::return_value_policy::reference)});
    }

    static py::object contract(Self& self, const Arguments&) {
        return py::cast(self.holder().votes().contract());
    }
};

template <class Face, class... Extra>
void define_votes_calls(py::class_<Extra...>& cls) {
    using Calls = VotesCalls<Face>;
    const std::string id = "int | str | uuid.UUID";
    const std::string ids = "collections.abc.Iterable[" + id + "]";
    const std::string consistency = "consistency: typing.Literal['cached', 'exact'] = 'cached'";
    define<&Calls::create_tables>(
        cls, "create_tables",
        "(self, *, existing_counts: typing.Literal['keep', 'recount'] | None = None, " + kTimeout +
            ") -> " + Face::returns("None"),
        "Creates the tables and indexes that are missing. Idempotent.\n\n"
        "Tables that another strategy counted are reconciled. Tables that hotcount has not\n"
        "counted before may have counts that are not the sum of their votes (NULL is 0): a\n"
        "ConfigError says how many items differ, and nothing is created or changed, unless\n"
        "existing_counts says what is right. 'keep': the difference is the item's opening\n"
        "balance, for good; every count has it, and reconcile() expects it. 'recount': the\n"
        "votes; what was counted is lost. It is ignored where hotcount counts already.");
    define<&Calls::schema>(
        cls, "schema", "(self) -> str",
        "The SQL that create_tables runs, and what brings tables of an older release over.");
    define<&Calls::add_items>(
        cls, "add_items",
        "(self, items: " + ids + ", *, " + kTimeout + ") -> " + Face::returns("None"),
        "Adds rows to the item table, in one transaction; those there already stay as they are.");
    define<&Calls::cast>(
        cls, "cast",
        "(self, item: " + id + ", user: " + id +
            " | None, value: int = 1, *, "
            "version: int | None = None, op_id: str | None = None, " +
            kTimeout + ") -> " + Face::returns("hotcount._core.Cast"),
        "Sets the user's vote for the item; committed when it returns. Idempotent.\n\n"
        "value: -2147483647 to 2147483647; 0 retracts. version: applied only where higher than the "
        "row's. An item\n"
        "or user of another type than item_type, user_type is a TypeError. IntegrityError: the\n"
        "item has no row. DeadlineError: the database was locked until then; nothing was applied.\n"
        "OutcomeUnknownError: cast it again. timeout in seconds; None: the database's.\n"
        "user=None: a vote without a user, whose op_id, 1 to 255 characters, names it for good:\n"
        "the first one under it stands. It takes no version and cannot be retracted.");
    define<&Calls::retract>(cls, "retract",
                            "(self, item: " + id + ", user: " + id +
                                ", *, version: int | None = None, " + kTimeout + ") -> " +
                                Face::returns("hotcount._core.Cast"),
                            "Sets the user's vote to 0. Idempotent; also where there was no vote.");
    define<&Calls::cast_many>(
        cls, "cast_many",
        "(self, items: " + ids + ", users: " + ids +
            " | None, values: int | collections.abc.Iterable[int] = 1, *, "
            "op_ids: collections.abc.Iterable[str] | None = None, " +
            kOnErrors + ", " + kTimeout + ") -> " + Face::returns("hotcount._core.Casts"),
        "Casts many votes, in order: the k-th user votes for the k-th item.\n\n"
        "'batched' takes as few transactions as max_batch allows, the others one per vote. A\n"
        "failed element does not stop the others. errors='raise': BatchError with .result and\n"
        ".errors once all are settled. A wrong type is a TypeError naming the index, before\n"
        "anything is cast; columns of unequal length are a ConfigError. users=None with op_ids:\n"
        "votes without a user.");
    define<&Calls::count>(
        cls, "count",
        "(self, item: " + id + ", *, " + consistency + ", " + kTimeout + ") -> " +
            Face::returns("hotcount._core.Count"),
        "The item's count. consistency, where there is a cache: 'cached' reads it, and the\n"
        "tables where it has nothing (.source says which, .as_of what it has at least); it may be\n"
        "less than one read before, as contract() says. 'exact' reads the tables. Without a cache\n"
        "it is exact either way.");
    define<&Calls::count_many>(
        cls, "count_many",
        "(self, items: " + ids + ", *, " + consistency + ", " + kTimeout + ") -> " +
            Face::returns("hotcount._core.Counts"),
        "The counts of many items, in order, all from one snapshot; from a cache, each\n"
        "as it is found there.");
    define<&Calls::reconcile>(
        cls, "reconcile",
        "(self, items: " + ids + " | None = None, *, dry_run: bool = False, " + kTimeout + ") -> " +
            Face::returns("list[hotcount._core.Drift]"),
        "Finds counts that disagree with the votes and sets them right, voters undisturbed.\n\n"
        "items: None for all. dry_run: only look. Returns what differed.");
    define<&Calls::flush>(
        cls, "flush",
        "(self, timeout: " + kTime + " | None = 5.0) -> " +
            Face::returns("hotcount._core.FlushReport"),
        "Brings the count in the item table up to date where the strategy does not by itself.");
    define<&Calls::stats>(
        cls, "stats", "(self, *, " + kTimeout + ") -> " + Face::returns("dict[str, typing.Any]"),
        "What this object has done in this process, and what waits in the tables.\n\n"
        "votes and failed_votes; batches, the transactions that votes shared, and\n"
        "mean_batch_votes; retried_transactions of the database; waiting_votes, and held_votes,\n"
        "which wait for rows that other transactions have held for held_votes_s; median_call_s,\n"
        "p99_call_s and longest_call_s, within a quarter. Where the counts have a journal: folds,\n"
        "folded_rows, failed_folds, fold_error and last_fold_s of this process; pending_rows and\n"
        "pending_items of all, oldest_pending_s, the age of the oldest at most; held_items;\n"
        "refused_items, a dict of items that folds fail for, and why. Times are seconds.");
    define<&Calls::sync_worker>(cls, "sync_worker", "(self) -> hotcount._core.SyncWorker",
                                "A worker that brings the counts of 'cached' to the item table; a\n"
                                "ConfigError with a strategy that needs none.");
    define<&Calls::contract>(cls, "contract", "(self) -> hotcount._core.Contract",
                             "What an acknowledgement means with this strategy.");
}

}  // namespace hotcount::python
