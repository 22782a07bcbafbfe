#include "bind.hpp"
#include "rows.hpp"
#include "votes_face.hpp"
#include "votes_names.hpp"

namespace hotcount::python {
namespace {

class BoundVotes {
  public:
    explicit BoundVotes(VotesHolder holder) : holder_(std::move(holder)) {}

    VotesHolder& holder() { return holder_; }
    void close() { holder_.close(); }
    bool closed() const { return holder_.closed(); }
    std::string repr() const { return holder_.repr(); }

  private:
    VotesHolder holder_;
};

struct WaitingFace {
    using Self = BoundVotes;

    static std::string returns(const std::string& type) { return type; }

    template <class T, class Now, class Start, class Convert>
    static py::object cast(Self& self, Timeout, const Now& now, const Start&,
                           const Convert& convert) {
        self.holder().check_open();
        return convert(unwrap(without_gil([&] { return now(self.holder().votes()); })));
    }

    template <class Now, class Convert>
    static py::object slow(Self& self, Timeout timeout, const Now& now, const Convert& convert) {
        self.holder().check_open();
        return convert(unwrap(without_gil([&] { return now(self.holder().votes(), timeout); })));
    }
};

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

BoundVotes make_bound_votes(const Arguments& arguments) {
    return BoundVotes{make_votes(arguments, "Votes")};
}

// For hotcount.integrations.sqlalchemy.
py::object note_appended(BoundVotes& self, const Arguments& arguments) {
    const std::size_t rows = to_size(arguments[0], "rows");
    self.holder().check_open();
    without_gil([&] { self.holder().votes().note_appended(rows); });
    return py::none();
}

void bind_values(py::module_& module) {
    bind_value(module, "Cast", "What a cast or retract came to.",
               Field{"counted", &Cast::counted, "The user's vote counts now: value is not 0."},
               Field{"changed", &Cast::changed,
                     "This call changed it; a repeat, or an older version, does not."},
               Field{"previous", &Cast::previous, "The vote before this call, 0 for none."},
               Field{"value", &Cast::value, "The vote now."});
    bind_value(
        module, "Count", "An item's count; int(count) is its value.",
        Field{"value", &CountRow::value, "The sum over the item's votes, and its opening balance."},
        Field{"exact", &CountRow::exact, "Whether it agrees with the votes as of as_of."},
        Field{"as_of", &CountRow::as_of,
              "When it was read, in seconds since 1970 UTC; of a copy, when a fold counted it."},
        Field{"source", &CountRow::source, "Where it was read: 'sql' or 'cache'."},
        Field{"pending", &CountRow::pending, "Votes acknowledged but not yet in value."})
        .def("__int__", [](const CountRow& self) { return self.value; })
        .def("__bool__", [](const CountRow& self) { return self.value != 0; });
    bind_value(module, "Drift", "An item whose stored count differed from its votes.",
               Field{"item", &DriftRow::item, "The item's id."},
               Field{"counted", &DriftRow::counted, "What the count said."},
               Field{"actual", &DriftRow::actual, "What the votes say, and the opening balance."});
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

    declare_rows<Cast>("Casts", column<&Cast::counted>("counted"),
                       column<&Cast::changed>("changed"), column<&Cast::previous>("previous"),
                       column<&Cast::value>("value"));
    declare_rows<CountRow>("Counts", column<&CountRow::value>("value"),
                           column<&CountRow::exact>("exact"), column<&CountRow::as_of>("as_of"),
                           column<&CountRow::pending>("pending"));
}

}  // namespace

VotesHolder make_votes(const Arguments& arguments, const char* title) {
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
    if (arguments[20]) options.commit.workers = to_size(arguments[20], "commit_workers");
    if (arguments[21]) options.fold_interval = to_duration(arguments[21], "fold_interval");
    if (arguments[22]) options.foreign_key = to_bool(arguments[22], "foreign_key");
    StoreReference store(arguments[0], "db", title, {StoreKind::database});
    std::optional<StoreReference> cache;
    VoteCache where;
    if (arguments.given(1)) {
        cache.emplace(arguments[1], "cache", title,
                      std::initializer_list<StoreKind>{StoreKind::memory, StoreKind::redis});
        where = to_cache(*cache);
    }
    auto votes =
        unwrap(Votes::make(store.backend<sql::Database>(), std::move(options), std::move(where)));
    return {std::move(votes), std::move(store), std::move(cache)};
}

std::string votes_signature() {
    const VotesOptions defaults;
    const std::string id_type = "type[int] | type[str] | type[uuid.UUID]";
    const std::string cache =
        "hotcount._core.Redis | hotcount._core.Memory | hotcount._core.AsyncRedis | "
        "hotcount._core.AsyncMemory | str | None";
    return "(self, db: hotcount._core.Database | hotcount._core.AsyncDatabase | str, cache: " +
           cache + " = None, strategy: typing.Literal['naive', 'slotted', 'batched', 'cached'] = " +
           literal(std::string{to_string(defaults.strategy)}) +
           ", slots: int = " + literal(defaults.slots) +
           ", item_table: str = " + literal(defaults.item_table) +
           ", item_id: str = " + literal(defaults.item_id) +
           ", item_count: str = " + literal(defaults.item_count) +
           ", vote_table: str = " + literal(defaults.vote_table) +
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
           ", missing_items: typing.Literal['refuse', 'create'] = 'refuse', commit_workers: int "
           "= " +
           literal(static_cast<std::int64_t>(defaults.commit.workers)) +
           ", fold_interval: " + kTime + " = " + literal(defaults.fold_interval) +
           ", foreign_key: bool = True) -> None";
}
const char* const kVotesInitText =
    "db: an object or its URL. cache: the same, for 'cached', which needs one, and 'batched',\n"
    "which then keeps copies of its counts there, published by folds, for count(); a Memory is\n"
    "for one process, and SQLite does without. slots: cells per item of 'slotted'. item_... and\n"
    "vote_...: the names of tables and columns. item_type, user_type: int, str or uuid.UUID, as\n"
    "the tables have them. For 'cached': retention, the seconds that a count stays in the cache\n"
    "after its last vote; page, the counts that a worker saves at once; interval, its pause in\n"
    "seconds; workers, its threads; max_age, the seconds that count() trusts what it knows of the\n"
    "tables. max_age with 'batched': the seconds that a copy lives, and so how old it may be "
    "where\n"
    "a fold could not reach the cache. max_batch: most votes in one transaction of 'batched' and\n"
    "'cached'; max_delay: seconds a transaction waits for company. missing_items: a vote for an\n"
    "item that has no row is an IntegrityError ('refuse') or makes the row ('create').\n"
    "commit_workers: threads of this object that write and answer votes of hotcount.aio, 1 to\n"
    "64; more than 2 gain nothing with 'batched' and 'cached'; callers that wait need none.\n"
    "fold_interval: 'batched' on servers, the least seconds between two folds, 0.01 to 3600: how\n"
    "far item.vote_count lags; exact counts add up what waits. foreign_key: False makes vote\n"
    "tables that do not reference the items, which spares voters a lock on the item's row; the\n"
    "votes of a deleted item stay.\n"
    "Bad values: ConfigError.";

void bind_votes(py::module_& module) {
    bind_values(module);

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
    define_init<&make_bound_votes>(cls, votes_signature(), kVotesInitText);
    define_votes_calls<WaitingFace>(cls);
    define_vote_names(cls);
    define<&note_appended>(cls, "_note_appended", "(self, rows: int) -> None",
                           "The caller's own SQL has committed journal rows: folds them soon.");
    define_lifetime(cls, "Ends this object; a database opened from a URL for it ends too.");
}

}  // namespace hotcount::python
