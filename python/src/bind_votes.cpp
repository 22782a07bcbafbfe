#include <hotcount/votes/votes.hpp>

#include "batch.hpp"
#include "bind.hpp"
#include "convert.hpp"
#include "function.hpp"
#include "gil.hpp"
#include "rows.hpp"
#include "signature_text.hpp"
#include "store.hpp"
#include "sync_worker.hpp"
#include "value.hpp"

namespace hotcount::python {
namespace {

class BoundVotes {
  public:
    BoundVotes(std::shared_ptr<Votes> votes, StoreReference store,
               std::optional<StoreReference> cache)
        : votes_(std::move(votes)),
          store_(std::move(store)),
          cache_(std::move(cache)),
          item_type_(votes_->options().item_type),
          user_type_(votes_->options().user_type) {}

    template <class F>
    auto call(F&& f) {
        check_open();
        return without_gil([&] { return f(*votes_); });
    }
    void check_open() const {
        store_.check_open();
        if (cache_) cache_->check_open();
    }
    const Votes& votes() const { return *votes_; }
    IdType item_type() const { return item_type_; }
    IdType user_type() const { return user_type_; }

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
    IdType item_type_;
    IdType user_type_;
};

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

CountRow to_row(Count count) {
    const std::chrono::duration<double> since_epoch = count.as_of.time_since_epoch();
    return {count.value, count.exact, since_epoch.count(), std::move(count.source), count.pending};
}

VoteStrategy to_strategy(py::handle value) {
    constexpr VoteStrategy kStrategies[]{VoteStrategy::naive, VoteStrategy::slotted,
                                         VoteStrategy::batched, VoteStrategy::cached};
    return kStrategies[to_choice(value, "strategy",
                                 {to_string(kStrategies[0]), to_string(kStrategies[1]),
                                  to_string(kStrategies[2]), to_string(kStrategies[3])})];
}

VoteCache to_cache(const StoreReference& store) {
    if (store.kind() == StoreKind::memory) return store.backend<memory::Store>();
    return store.backend<redis::Client>();
}

Consistency to_consistency(py::handle value) {
    if (!value) return Consistency::cached;
    return to_choice(value, "consistency", {"cached", "exact"}) == 0 ? Consistency::cached
                                                                     : Consistency::exact;
}

BoundVotes make_votes(const Arguments& arguments) {
    VotesOptions options;
    if (arguments[2]) options.strategy = to_strategy(arguments[2]);
    if (arguments[3]) options.slots = to_option(arguments[3], "slots");
    if (arguments[4]) options.item_table = to_text(arguments[4], "item_table");
    if (arguments[5]) options.item_id = to_text(arguments[5], "item_id");
    if (arguments[6]) options.item_count = to_text(arguments[6], "item_count");
    if (arguments[7]) options.vote_table = to_text(arguments[7], "vote_table");
    if (arguments[8]) options.vote_item = to_text(arguments[8], "vote_item");
    if (arguments[9]) options.vote_user = to_text(arguments[9], "vote_user");
    if (arguments[10]) options.item_type = to_id_type(arguments[10], "item_type");
    if (arguments[11]) options.user_type = to_id_type(arguments[11], "user_type");
    if (arguments[12]) options.max_age = to_duration(arguments[12], "max_age");
    if (arguments[13]) options.retention = to_duration(arguments[13], "retention");
    if (arguments[14]) options.page = to_size(arguments[14], "page");
    if (arguments[15]) options.interval = to_duration(arguments[15], "interval");
    if (arguments[16]) options.workers = to_size(arguments[16], "workers");
    if (arguments[17]) options.commit.max_batch = to_size(arguments[17], "max_batch");
    if (arguments[18]) options.commit.max_delay = to_delay(arguments[18], "max_delay");
    if (arguments[19]) {
        options.missing_item = to_choice(arguments[19], "missing_items", {"refuse", "create"}) == 0
                                   ? MissingItem::refuse
                                   : MissingItem::create;
    }
    StoreReference store(arguments[0], "db", "Votes", {StoreKind::database});
    std::optional<StoreReference> cache;
    VoteCache where;
    if (arguments.given(1)) {
        cache.emplace(arguments[1], "cache", "Votes",
                      std::initializer_list<StoreKind>{StoreKind::memory, StoreKind::redis});
        where = to_cache(*cache);
    }
    auto votes =
        unwrap(Votes::make(store.backend<sql::Database>(), std::move(options), std::move(where)));
    return {std::move(votes), std::move(store), std::move(cache)};
}

py::object votes_create_tables(BoundVotes& self, const Arguments& arguments) {
    const Timeout timeout = to_timeout(arguments[0]);
    unwrap(self.call([&](Votes& votes) { return votes.create_tables(timeout); }));
    return py::none();
}

py::object votes_schema(BoundVotes& self, const Arguments&) {
    return py::str(self.votes().schema());
}

// Ids that must all be good: calls that have no answer per element.
std::vector<sql::Id> to_good_ids(py::handle value, IdType type, const char* argument) {
    Refusals refusals;
    auto ids = to_ids(value, type, argument, refusals);
    if (!refusals.by_index.empty()) raise(refusals.by_index.begin()->second);
    return ids;
}

py::object votes_add_items(BoundVotes& self, const Arguments& arguments) {
    const auto items = to_good_ids(arguments[0], self.item_type(), "items");
    const Timeout timeout = to_timeout(arguments[1]);
    unwrap(self.call([&](Votes& votes) { return votes.add_items(items, timeout); }));
    return py::none();
}

py::object cast_ballot(BoundVotes& self, const Ballot& ballot, Timeout timeout) {
    return py::cast(unwrap(self.call([&](Votes& votes) { return votes.cast(ballot, timeout); })));
}

std::optional<std::int64_t> to_version(py::handle value) {
    if (!value || value.is_none()) return std::nullopt;
    return to_option(value, "version");
}

py::object votes_cast(BoundVotes& self, const Arguments& arguments) {
    Ballot ballot{to_id(arguments[0], self.item_type(), "item"),
                  to_id(arguments[1], self.user_type(), "user")};
    if (arguments[2]) ballot.value = to_amount(arguments[2], "value");
    ballot.version = to_version(arguments[3]);
    return cast_ballot(self, ballot, to_timeout(arguments[4]));
}

py::object votes_retract(BoundVotes& self, const Arguments& arguments) {
    Ballot ballot{to_id(arguments[0], self.item_type(), "item"),
                  to_id(arguments[1], self.user_type(), "user"), 0};
    ballot.version = to_version(arguments[2]);
    return cast_ballot(self, ballot, to_timeout(arguments[3]));
}

py::object votes_cast_many(BoundVotes& self, const Arguments& arguments) {
    Refusals refusals;
    auto items = to_ids(arguments[0], self.item_type(), "items", refusals);
    auto users = to_ids(arguments[1], self.user_type(), "users", refusals);
    if (users.size() != items.size()) {
        raise_config("users has " + std::to_string(users.size()) + " elements for " +
                     std::to_string(items.size()) + " items");
    }
    const auto values = to_amounts(arguments[2], "values", items.size(), 1, refusals);
    const OnErrors on_errors = to_on_errors(arguments[3]);
    const Timeout timeout = to_timeout(arguments[4]);

    std::vector<Ballot> ballots;
    ballots.reserve(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
        ballots.push_back({std::move(items[i]), std::move(users[i]), values[i], std::nullopt});
    }
    ballots = refusals.strip(std::move(ballots));
    auto results = self.call([&](Votes& votes) { return votes.cast_many(ballots, timeout); });
    py::dict errors;
    auto casts = gather(std::move(results), refusals, errors);
    return finish(Casts{std::move(casts), std::move(errors)}, on_errors);
}

py::object votes_count(BoundVotes& self, const Arguments& arguments) {
    const auto item = to_id(arguments[0], self.item_type(), "item");
    const Consistency consistency = to_consistency(arguments[1]);
    const Timeout timeout = to_timeout(arguments[2]);
    return py::cast(to_row(
        unwrap(self.call([&](Votes& votes) { return votes.count(item, timeout, consistency); }))));
}

py::object votes_count_many(BoundVotes& self, const Arguments& arguments) {
    const auto items = to_good_ids(arguments[0], self.item_type(), "items");
    const Consistency consistency = to_consistency(arguments[1]);
    const Timeout timeout = to_timeout(arguments[2]);
    auto counts = unwrap(
        self.call([&](Votes& votes) { return votes.count_many(items, timeout, consistency); }));
    std::vector<CountRow> rows;
    rows.reserve(counts.size());
    for (Count& count : counts) rows.push_back(to_row(std::move(count)));
    return py::cast(Counts{std::move(rows), py::dict()});
}

py::object votes_reconcile(BoundVotes& self, const Arguments& arguments) {
    std::vector<sql::Id> named;
    std::optional<std::span<const sql::Id>> items;
    if (arguments.given(0)) {
        named = to_good_ids(arguments[0], self.item_type(), "items");
        items = named;
    }
    const bool dry_run = arguments[1] && to_bool(arguments[1], "dry_run");
    const Timeout timeout = to_timeout(arguments[2]);
    const auto drifts =
        unwrap(self.call([&](Votes& votes) { return votes.reconcile(items, dry_run, timeout); }));
    py::list result;
    for (const Drift& drift : drifts) {
        result.append(
            DriftRow{IdObject(from_id(drift.item, self.item_type())), drift.counted, drift.actual});
    }
    return result;
}

py::object votes_flush(BoundVotes& self, const Arguments& arguments) {
    const Timeout timeout =
        arguments.given(0) ? to_timeout(arguments[0]) : Timeout{std::chrono::seconds{5}};
    return py::cast(unwrap(self.call([&](Votes& votes) { return votes.flush(timeout); })));
}

py::object votes_sync_worker(BoundVotes& self, const Arguments&) {
    auto worker = unwrap(self.call([&](Votes& votes) { return votes.sync_worker(); }));
    return py::cast(
        BoundWorker{std::move(worker), py::cast(self, py::return_value_policy::reference)});
}

py::object votes_contract(BoundVotes& self, const Arguments&) {
    return py::cast(self.votes().contract());
}

void bind_values(py::module_& module) {
    bind_value(module, "Cast", "What a cast or retract came to.",
               Field{"counted", &Cast::counted, "The user's vote counts now: value is not 0."},
               Field{"changed", &Cast::changed,
                     "This call changed it; a repeat, or an older version, does not."},
               Field{"previous", &Cast::previous, "The vote before this call, 0 for none."},
               Field{"value", &Cast::value, "The vote now."});
    bind_value(module, "Count", "An item's count; int(count) is its value.",
               Field{"value", &CountRow::value,
                     "The sum over the item's votes; their number where all are 1."},
               Field{"exact", &CountRow::exact, "Whether it agrees with the votes as of as_of."},
               Field{"as_of", &CountRow::as_of, "When it was read, in seconds since 1970 UTC."},
               Field{"source", &CountRow::source, "Where it was read: 'sql' or 'cache'."},
               Field{"pending", &CountRow::pending, "Votes acknowledged but not yet in value."})
        .def("__int__", [](const CountRow& self) { return self.value; })
        .def("__bool__", [](const CountRow& self) { return self.value != 0; });
    bind_value(module, "Drift", "An item whose stored count differed from its votes.",
               Field{"item", &DriftRow::item, "The item's id."},
               Field{"counted", &DriftRow::counted, "What the count said."},
               Field{"actual", &DriftRow::actual, "What the votes say."});
    bind_value(
        module, "FlushReport", "What flush() came to.",
        Field{"acked", &FlushReport::acked,
              "Items whose count in the item table was brought up to date."},
        Field{"pending", &FlushReport::pending, "Items not reached before the deadline."},
        Field{"at_risk", &FlushReport::at_risk, "Acknowledged votes that a crash now could lose."});
    bind_value(
        module, "Contract", "What an acknowledgement means, and what may be lost.",
        Field{"strategy", &Contract::strategy, "The strategy's name."},
        Field{"acknowledged", &Contract::acknowledged, "What is true when cast returns."},
        Field{"may_lose", &Contract::may_lose, "What may be lost, and when."},
        Field{"durable", &Contract::durable,
              "An acknowledged vote survives the death of this process."},
        Field{"exact", &Contract::exact, "count() equals the committed votes at all times."});

    auto casts =
        bind_rows<Cast>(module, "Casts", "Cast",
                        "What cast_many came to: an immutable Sequence of Cast, in order.\n\n"
                        "NumPy takes each column without copying. A failed element is\n"
                        "Cast(False, False, 0, 0) here and has its exception in .errors.");
    define_column(casts, "counted", &Cast::counted, "bool: the vote counts now.");
    define_column(casts, "changed", &Cast::changed, "bool: this call changed it.");
    define_column(casts, "previous", &Cast::previous, "int64: the vote before.");
    define_column(casts, "value", &Cast::value, "int64: the vote now.");

    auto counts = bind_rows<CountRow>(
        module, "Counts", "Count",
        "What count_many read: an immutable Sequence of Count, in the order of the items.\n\n"
        "NumPy takes each column without copying.");
    define_column(counts, "value", &CountRow::value, "int64: the counts.");
    define_column(counts, "exact", &CountRow::exact, "bool: agrees with the votes as of as_of.");
    define_column(counts, "as_of", &CountRow::as_of, "float64: seconds since 1970 UTC.");
    define_column(counts, "pending", &CountRow::pending,
                  "int64: votes acknowledged but not yet in value.");
}

py::type type_of(IdType type) {
    switch (type) {
        case IdType::integer:
            return py::type::of(py::int_());
        case IdType::text:
            return py::type::of(py::str());
        case IdType::uuid:
            break;
    }
    return py::module_::import("uuid").attr("UUID");
}

// What the integrations write statements from.
void define_names(py::class_<BoundVotes>& cls) {
    const auto text = [&](const char* name, std::string VotesOptions::*field, const char* doc) {
        cls.def_property_readonly(
            name, [field](const BoundVotes& self) { return self.votes().options().*field; }, doc);
    };
    text("item_table", &VotesOptions::item_table, "The items' table.");
    text("item_id", &VotesOptions::item_id, "Its column of ids.");
    text("item_count", &VotesOptions::item_count, "Its column of counts.");
    text("vote_table", &VotesOptions::vote_table, "The votes' table.");
    text("vote_item", &VotesOptions::vote_item, "Its column of items.");
    text("vote_user", &VotesOptions::vote_user, "Its column of users.");
    cls.def_property_readonly(
        "strategy",
        [](const BoundVotes& self) {
            return std::string{to_string(self.votes().options().strategy)};
        },
        "The strategy's name.");
    cls.def_property_readonly(
        "slots", [](const BoundVotes& self) { return self.votes().options().slots; },
        "Cells per item of 'slotted'.");
    cls.def_property_readonly(
        "missing_items",
        [](const BoundVotes& self) {
            return self.votes().options().missing_item == MissingItem::create ? "create" : "refuse";
        },
        "'refuse' or 'create'.");
    cls.def_property_readonly(
        "item_type", [](const BoundVotes& self) { return type_of(self.item_type()); },
        "int, str or uuid.UUID.");
    cls.def_property_readonly(
        "user_type", [](const BoundVotes& self) { return type_of(self.user_type()); },
        "int, str or uuid.UUID.");
}

}  // namespace

void bind_votes(py::module_& module) {
    bind_values(module);

    const VotesOptions defaults;
    const std::string id = "int | str | uuid.UUID";
    const std::string ids = "collections.abc.Iterable[" + id + "]";
    const std::string id_type = "type[int] | type[str] | type[uuid.UUID]";
    const std::string cache = "hotcount._core.Redis | hotcount._core.Memory | str | None";
    const std::string consistency = "consistency: typing.Literal['cached', 'exact'] = 'cached'";

    py::class_<BoundVotes> cls(
        module, "Votes",
        "One user, one vote per item, and a count that is exact at every commit.\n\n"
        "A vote is a state: cast sets it, retract sets it to 0, and doing either again changes\n"
        "nothing, so every call may be retried after any failure. cast returns after the vote is\n"
        "committed. Strategies: 'naive' (one transaction per vote, the item's row updated in it),\n"
        "'slotted' (one transaction per vote, one of the item's cells), 'batched' (concurrent\n"
        "votes share a transaction), 'cached' (like it, with the count in Redis or memory, which\n"
        "sync_worker() saves: contract() says what that means). Safe from many threads and across\n"
        "fork.");
    define_init<&make_votes>(
        cls,
        "(self, db: hotcount._core.Database | str, cache: " + cache +
            " = None, strategy: typing.Literal['naive', 'slotted', 'batched', 'cached'] = " +
            literal(std::string{to_string(defaults.strategy)}) + ", slots: int = " +
            literal(defaults.slots) + ", item_table: str = " + literal(defaults.item_table) +
            ", item_id: str = " + literal(defaults.item_id) + ", item_count: str = " +
            literal(defaults.item_count) + ", vote_table: str = " + literal(defaults.vote_table) +
            ", vote_item: str = " + literal(defaults.vote_item) +
            ", vote_user: str = " + literal(defaults.vote_user) + ", item_type: " + id_type +
            " = int, user_type: " + id_type + " = int, max_age: " + kTime + " = " +
            literal(defaults.max_age) + ", retention: " + kTime + " = " +
            literal(defaults.retention) +
            ", page: int = " + literal(static_cast<std::int64_t>(defaults.page)) +
            ", interval: " + kTime + " = " + literal(defaults.interval) +
            ", workers: int = " + literal(static_cast<std::int64_t>(defaults.workers)) +
            ", max_batch: int = " + literal(static_cast<std::int64_t>(defaults.commit.max_batch)) +
            ", max_delay: " + kTime + " = " + literal(defaults.commit.max_delay) +
            ", missing_items: typing.Literal['refuse', 'create'] = 'refuse') -> None",
        "db: an object or its URL. cache: the same, for 'cached', which needs one; a Memory "
        "counts\n"
        "for one process. slots: cells per item of 'slotted'. item_... and vote_...: the\n"
        "names of tables and columns. item_type, user_type: int, str or uuid.UUID, as the tables\n"
        "have them. For 'cached': retention, the seconds that a count stays in the cache after "
        "its\n"
        "last vote; page, the counts that a worker saves at once; interval, its pause in seconds;\n"
        "workers, its threads; max_age, the seconds that count() trusts what it knows of the\n"
        "tables. max_batch: most votes in one transaction of 'batched' and 'cached'; max_delay:\n"
        "seconds a transaction waits for company. missing_items: a vote for an item that has no "
        "row is an\n"
        "IntegrityError ('refuse') or makes the row ('create'). Bad values: ConfigError.");
    define<&votes_create_tables>(cls, "create_tables", "(self, *, " + kTimeout + ") -> None",
                                 "Creates the tables and indexes that are missing. Idempotent.\n\n"
                                 "Tables that another strategy counted are reconciled.");
    define<&votes_schema>(cls, "schema", "(self) -> str", "The SQL that create_tables runs.");
    define<&votes_add_items>(
        cls, "add_items", "(self, items: " + ids + ", *, " + kTimeout + ") -> None",
        "Adds rows to the item table, in one transaction; those there already stay as they are.");
    define<&votes_cast>(
        cls, "cast",
        "(self, item: " + id + ", user: " + id +
            ", value: int = 1, *, "
            "version: int | None = None, " +
            kTimeout + ") -> hotcount._core.Cast",
        "Sets the user's vote for the item; committed when it returns. Idempotent.\n\n"
        "value: any int64; 0 retracts. version: applied only where higher than the row's. An item\n"
        "or user of another type than item_type, user_type is a TypeError. IntegrityError: the\n"
        "item has no row. DeadlineError: the database was locked until then; nothing was applied.\n"
        "OutcomeUnknownError: cast it again. timeout in seconds; None: the database's.");
    define<&votes_retract>(cls, "retract",
                           "(self, item: " + id + ", user: " + id +
                               ", *, version: int | None = None, " + kTimeout +
                               ") -> hotcount._core.Cast",
                           "Sets the user's vote to 0. Idempotent; also where there was no vote.");
    define<&votes_cast_many>(
        cls, "cast_many",
        "(self, items: " + ids + ", users: " + ids +
            ", values: int | collections.abc.Iterable[int] = 1, *, " + kOnErrors + ", " + kTimeout +
            ") -> hotcount._core.Casts",
        "Casts many votes, in order: the k-th user votes for the k-th item.\n\n"
        "'batched' takes as few transactions as max_batch allows, the others one per vote. A\n"
        "failed element does not stop the others. errors='raise': BatchError with .result and\n"
        ".errors once all are settled. A wrong type is a TypeError naming the index, before\n"
        "anything is cast; columns of unequal length are a ConfigError.");
    define<&votes_count>(
        cls, "count",
        "(self, item: " + id + ", *, " + consistency + ", " + kTimeout +
            ") -> hotcount._core.Count",
        "The item's count. consistency, of 'cached': 'cached' reads the cache, and the\n"
        "item table where it has none; 'exact' sums the votes. Other strategies\n"
        "are exact either way.");
    define<&votes_count_many>(
        cls, "count_many",
        "(self, items: " + ids + ", *, " + consistency + ", " + kTimeout +
            ") -> hotcount._core.Counts",
        "The counts of many items, in order, all from one snapshot; from a cache, each\n"
        "as it is found there.");
    define<&votes_reconcile>(
        cls, "reconcile",
        "(self, items: " + ids + " | None = None, *, dry_run: bool = False, " + kTimeout +
            ") -> list[hotcount._core.Drift]",
        "Finds counts that disagree with the votes and sets them right, voters undisturbed.\n\n"
        "items: None for all. dry_run: only look. Returns what differed.");
    define<&votes_flush>(
        cls, "flush", "(self, timeout: " + kTime + " | None = 5.0) -> hotcount._core.FlushReport",
        "Brings the count in the item table up to date where the strategy does not by itself.");
    define<&votes_sync_worker>(cls, "sync_worker", "(self) -> hotcount._core.SyncWorker",
                               "A worker that brings the counts of 'cached' to the item table; a\n"
                               "ConfigError with a strategy that needs none.");
    define<&votes_contract>(cls, "contract", "(self) -> hotcount._core.Contract",
                            "What an acknowledgement means with this strategy.");
    define_names(cls);
    define_lifetime(cls, "Ends this object; a database opened from a URL for it ends too.");
}

}  // namespace hotcount::python
