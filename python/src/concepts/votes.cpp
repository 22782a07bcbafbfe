// hotcount.Votes and hotcount.aio.Votes: declared in hotcount/votes.py and hotcount/aio/votes.py.
#include <algorithm>
#include <array>
#include <hotcount/detail/base/interrupt.hpp>
#include <hotcount/detail/votes/session_statements.hpp>
#include <hotcount/votes.hpp>

#include "native/bind.hpp"
#include "native/native_calls.hpp"
#include "native/options.hpp"
#include "native/result.hpp"
#include "native/rows.hpp"
#include "values/paired_columns.hpp"

namespace hotcount::python {
namespace {

/// A Count as Python has it: the moment in seconds, for columns.
struct CountRow {
    std::int64_t value;
    bool exact;
    double as_of;
    std::string source;
    std::int64_t pending;
};

CountRow to_row(Count count) {
    const std::chrono::duration<double> since_epoch = count.as_of.time_since_epoch();
    return {count.value, count.exact, since_epoch.count(), std::move(count.source), count.pending};
}

ResultClass drift_class{"Drift", std::array{"item", "counted", "actual"}};

struct Item {
    sql::Id id;
};

struct User {
    sql::Id id;
};

/// Items that must all be good: calls that have no answer for each.
struct Items {
    std::vector<sql::Id> ids;
    operator std::span<const sql::Id>() const { return ids; }
};

/// A vote of value 0.
struct Retraction : Ballot {};

/// Of cast_many; of four Python parameters.
struct Ballots {
    std::vector<Ballot> ballots;  // Without those that are refused.
    Refusals refusals;
};

class BoundVotes final : public Bound<Votes> {
  public:
    BoundVotes(std::shared_ptr<Votes> votes, StoreReference reference,
               std::optional<StoreReference> cache)
        : Bound(std::move(votes), std::move(reference), &kTag<BoundVotes>),
          cache_(std::move(cache)) {}

    std::string shown_options() const override;
    bool closed() const override { return store.closed() || (cache_ && cache_->closed()); }
    void close() override {
        store.close();
        if (cache_) cache_->close();
    }
    void check_open() const {
        store.check_open();
        if (cache_) cache_->check_open();
    }
    /// The message says which of two stores failed.
    void tell(Error& error, Timeout timeout) const {
        if (!cache_) store.tell(error, timeout);
    }
    Deadline deadline(Timeout timeout) const {
        return store.backend<sql::Database>()->deadline(timeout);
    }

    py::object to_python(Count count) const;
    py::object to_python(std::vector<Count> counts) const;
    py::object to_python(const std::vector<Drift>& drifts) const;
    py::object to_python(const VotesStats& stats) const;
    py::object to_python(const std::vector<Voter>& voters) const;
    py::object to_python(const std::vector<ItemCount>& top) const;
    py::object to_python(std::vector<std::int64_t> votes) const;
    py::object to_python(const Erased& erased) const;
    py::object to_batch(std::vector<Result<Cast>> casts, const Refusals& refusals,
                        OnErrors on_errors) const;

  private:
    std::optional<StoreReference> cache_;
};

class BoundWorker final : public Bound<SyncWorker> {
  public:
    BoundWorker(std::shared_ptr<SyncWorker> worker, std::shared_ptr<BoundVotes> votes)
        : Bound(std::move(worker), votes->store, &kTag<BoundWorker>), votes_(std::move(votes)) {}

    std::string repr(const std::string& title) const override {
        return "hotcount." + title + "(" + votes_->repr("") + ")";
    }
    void check_open() const { votes_->check_open(); }
    void tell(Error& error, Timeout timeout) const { votes_->tell(error, timeout); }

  private:
    std::shared_ptr<BoundVotes> votes_;
};

}  // namespace

template <>
inline ResultRow<&Cast::counted, &Cast::changed, &Cast::previous, &Cast::value> kResultRow<Cast>{
    "Cast", {"counted", "changed", "previous", "value"}};
template <>
inline ResultRow<&CountRow::value, &CountRow::exact, &CountRow::as_of, &CountRow::source,
                 &CountRow::pending>
    kResultRow<CountRow>{"Count", {"value", "exact", "as_of", "source", "pending"}};
template <>
inline ResultRow<&Tally::up, &Tally::down, &Tally::score> kResultRow<Tally>{
    "Tally", {"up", "down", "score"}};
template <>
inline ResultRow<&FlushReport::acked, &FlushReport::pending, &FlushReport::at_risk>
    kResultRow<FlushReport>{"FlushReport", {"acked", "pending", "at_risk"}};
template <>
inline ResultRow<&Contract::strategy, &Contract::acknowledged, &Contract::may_lose,
                 &Contract::durable, &Contract::exact>
    kResultRow<Contract>{"Contract", {"strategy", "acknowledged", "may_lose", "durable", "exact"}};
template <>
inline ResultRow<&SyncRound::scanned, &SyncRound::filled, &SyncRound::saved, &SyncRound::deleted,
                 &SyncRound::recounted, &SyncRound::unsettled, &SyncRound::at_risk>
    kResultRow<SyncRound>{
        "SyncRound",
        {"scanned", "filled", "saved", "deleted", "recounted", "unsettled", "at_risk"}};

// -- the table, for what votes alone have ---------------------------------------------------------

template <>
struct From<VoteStrategy> {
    static VoteStrategy read(const Argument& argument) {
        return static_cast<VoteStrategy>(
            to_choice(argument.value, argument.name, {"naive", "slotted", "batched", "cached"}));
    }
};
template <>
struct To<VoteStrategy> {
    static py::object make(VoteStrategy strategy) {
        return To<std::string_view>::make(to_string(strategy));
    }
};

template <>
struct From<MissingItem> {
    static MissingItem read(const Argument& argument) {
        return static_cast<MissingItem>(
            to_choice(argument.value, argument.name, {"refuse", "create"}));
    }
};
template <>
struct To<MissingItem> {
    static py::object make(MissingItem missing) {
        return py::str(missing == MissingItem::create ? "create" : "refuse");
    }
};

template <>
struct From<IdType> {
    static IdType read(const Argument& argument) {
        return to_id_type(argument.value, argument.name);
    }
};
template <>
struct To<IdType> {
    static py::object make(IdType type) {
        if (type == IdType::integer) return py::type::of(py::int_());
        if (type == IdType::text) return py::type::of(py::str());
        return import_module("uuid").attr("UUID");
    }
};

/// None: refuse.
template <>
struct From<ExistingCounts> {
    static ExistingCounts read(const Argument& argument) {
        if (argument.value == Py_None) return ExistingCounts::refuse;
        return to_choice(argument.value, argument.name, {"keep", "recount"}) == 0
                   ? ExistingCounts::keep
                   : ExistingCounts::recount;
    }
};

/// None: there is no such column.
struct ColumnOrNone {
    ColumnOrNone(std::string column = {}) : name(std::move(column)) {}
    std::string name;
    operator std::string() const { return name; }
};
template <>
struct From<ColumnOrNone> {
    static ColumnOrNone read(const Argument& argument) {
        if (argument.value == Py_None) return {};
        auto name = From<std::string>::read(argument);
        if (name.empty()) raise_config(std::string{argument.name} + " is empty");
        return {std::move(name)};
    }
};
template <>
struct To<ColumnOrNone> {
    static py::object make(const ColumnOrNone& column) {
        return column.name.empty() ? py::object{py::none()} : py::object{py::str(column.name)};
    }
};

template <>
struct From<Consistency> {
    static Consistency read(const Argument& argument) {
        return static_cast<Consistency>(
            to_choice(argument.value, argument.name, {"cached", "exact"}));
    }
};

template <>
struct From<Item> {
    static Item read(const Argument& argument, const BoundVotes& self) {
        return {to_id(argument.value, self.options().item_type, argument.name)};
    }
};

template <>
struct From<User> {
    static User read(const Argument& argument, const BoundVotes& self) {
        return {to_id(argument.value, self.options().user_type, argument.name)};
    }
};

template <>
struct From<std::optional<User>> {
    static std::optional<User> read(const Argument& argument, const BoundVotes& self) {
        if (argument.value == Py_None) return std::nullopt;
        return From<User>::read(argument, self);
    }
};

template <>
struct From<Items> {
    static Items read(const Argument& argument, const BoundVotes& self) {
        Refusals refusals;
        auto ids = to_ids(argument.value, self.options().item_type, argument.name, refusals);
        if (!refusals.by_index.empty()) raise(refusals.by_index.begin()->second);
        return {std::move(ids)};
    }
};

namespace {

/// Of "item user" and "version".
Ballot read_ballot(const Argument* ids, const Argument& version, const BoundVotes& self) {
    return {.item = From<Item>::read(ids[0], self).id,
            .user = to_id(ids[1].value, self.options().user_type, ids[1].name),
            .version = read_as<std::optional<std::int64_t>>(version)};
}

}  // namespace

template <>
struct From<Ballot> {
    static constexpr std::size_t kTakes = 5;  // item user value version op_id

    static Ballot read(const Argument* first, const BoundVotes& self) {
        if (first[4].value != Py_None) return read_anonymous(first, self);
        Ballot ballot = read_ballot(first, first[3], self);
        ballot.value = From<Amount>::read(first[2]);
        return ballot;
    }

  private:
    static Ballot read_anonymous(const Argument* first, const BoundVotes& self) {
        auto item = From<Item>::read(first[0], self).id;
        if (first[1].value != Py_None) {
            raise_config(
                "op_id is for votes without a user (user=None); a user's vote may be cast again "
                "without one");
        }
        if (first[3].value != Py_None) {
            raise_config("version is for votes of a user, and user is None");
        }
        const std::int64_t value = From<Amount>::read(first[2]);
        return unwrap(Ballot::anonymous(std::move(item), From<std::string>::read(first[4]), value));
    }
};

template <>
struct From<Retraction> {
    static constexpr std::size_t kTakes = 3;  // item user version

    static Retraction read(const Argument* first, const BoundVotes& self) {
        Retraction ballot{read_ballot(first, first[2], self)};
        ballot.value = 0;
        return ballot;
    }
};

template <>
struct From<Ballots> {
    static constexpr std::size_t kTakes = 4;  // items users values op_ids
    static constexpr bool kIsBatch = true;

    static Ballots read(const Argument* first, const BoundVotes& self) {
        Refusals refusals;
        auto items = to_ids(first[0].value, self.options().item_type, first[0].name, refusals);
        const bool anonymous = first[3].value != Py_None;
        const Argument& column = first[anonymous ? 3 : 1];
        require_order(first[0].value, first[0].name);
        require_order(column.value, column.name);
        if (anonymous && first[1].value != Py_None) {
            raise_config("op_ids is for votes without a user (users=None)");
        }
        const IdType type = anonymous ? IdType::text : self.options().user_type;
        auto users = to_ids(column.value, type, column.name, refusals);
        if (users.size() != items.size()) {
            raise_config(std::string{column.name} + " has " + std::to_string(users.size()) +
                         " elements for " + std::to_string(items.size()) + " items");
        }
        const auto values = to_amounts(first[2].value, first[2].name, items.size(), 1, refusals);

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
        return {std::move(ballots), std::move(refusals)};
    }
    static auto pass(const Ballots& batch) {
        return std::tuple<const std::vector<Ballot>&>(batch.ballots);
    }
};

namespace {

using Commit = sql::GroupCommitOptions;
constexpr std::array kOptions{
    option<&VotesOptions::strategy>("strategy", Shown::always),
    option<&VotesOptions::slots>("slots"),
    option<&VotesOptions::item_table>("item_table"),
    option<&VotesOptions::item_id>("item_id"),
    option<&VotesOptions::item_count, ColumnOrNone>("item_count"),
    option<&VotesOptions::vote_table>("vote_table"),
    option<&VotesOptions::vote_item>("vote_item"),
    option<&VotesOptions::vote_user>("vote_user"),
    option<&VotesOptions::item_type>("item_type"),
    option<&VotesOptions::user_type>("user_type"),
    option<&VotesOptions::max_age>("max_age"),
    option<&VotesOptions::retention>("retention"),
    option<&VotesOptions::page>("page"),
    option<&VotesOptions::interval>("interval"),
    option<&VotesOptions::workers>("workers"),
    option_in<&VotesOptions::commit, &Commit::max_batch>("max_batch"),
    option_in<&VotesOptions::commit, &Commit::max_delay, Delay>("max_delay"),
    option<&VotesOptions::missing_item>("missing_items"),
    option_in<&VotesOptions::commit, &Commit::workers>("commit_workers"),
    option<&VotesOptions::fold_interval>("fold_interval"),
    option<&VotesOptions::foreign_key>("foreign_key"),
    option<&VotesOptions::vote_value>("vote_value"),
    option<&VotesOptions::vote_previous>("vote_previous"),
    option<&VotesOptions::vote_version>("vote_version"),
};

std::string BoundVotes::shown_options() const {
    return (cache_ ? ", cache=" + cache_->shown_store() : "") +
           python::shown_options<VotesOptions, kOptions>(options());
}

py::object BoundVotes::to_python(Count count) const {
    return To<CountRow>::make(to_row(std::move(count)));
}

py::object BoundVotes::to_python(std::vector<Count> counts) const {
    std::vector<CountRow> rows;
    rows.reserve(counts.size());
    for (Count& each : counts) rows.push_back(to_row(std::move(each)));
    return finish(std::make_shared<RowBatch<CountRow>>(std::move(rows), py::dict()),
                  OnErrors::keep);
}

py::object BoundVotes::to_python(const std::vector<Drift>& drifts) const {
    py::list rows(drifts.size());
    for (std::size_t i = 0; i < drifts.size(); ++i) {
        rows[i] = drift_class.make(from_id(drifts[i].item, options().item_type), drifts[i].counted,
                                   drifts[i].actual);
    }
    return rows;
}

py::object BoundVotes::to_python(const VotesStats& stats) const {
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
    dict["held_votes_s"] = to_seconds(stats.held_votes_for);
    dict["median_call_s"] = to_seconds(stats.median);
    dict["p99_call_s"] = to_seconds(stats.p99);
    dict["longest_call_s"] = to_seconds(stats.longest);
    dict["folds"] = stats.folds;
    dict["folded_rows"] = stats.folded_rows;
    dict["failed_folds"] = stats.failed_folds;
    dict["fold_error"] = stats.fold_error;
    dict["last_fold_s"] = to_seconds(stats.fold_took);
    dict["pending_rows"] = stats.pending_rows;
    dict["pending_items"] = stats.pending_items;
    dict["oldest_pending_s"] = to_seconds(stats.oldest);
    dict["held_items"] = stats.held_items;
    py::dict refused;
    for (const auto& [item, why] : stats.refused_items) {
        refused[from_id(item, options().item_type)] = why;
    }
    dict["refused_items"] = refused;
    return dict;
}

py::object BoundVotes::to_python(const std::vector<Voter>& voters) const {
    py::list rows(voters.size());
    for (std::size_t i = 0; i < voters.size(); ++i) {
        rows[i] = py::make_tuple(from_id(voters[i].user, options().user_type), voters[i].value);
    }
    return rows;
}

py::object BoundVotes::to_python(const std::vector<ItemCount>& top) const {
    py::list rows(top.size());
    for (std::size_t i = 0; i < top.size(); ++i) {
        rows[i] = py::make_tuple(from_id(top[i].item, options().item_type), top[i].count);
    }
    return rows;
}

py::object BoundVotes::to_python(std::vector<std::int64_t> votes) const {
    return finish(make_int64_batch(std::move(votes), py::dict()), OnErrors::keep);
}

py::object BoundVotes::to_python(const Erased& erased) const {
    if (!erased.missing_index.empty()) {
        log_warning("erase_user() has scanned all of " + options().vote_table +
                    ": no index begins with " + options().vote_user +
                    ". To spare the scan: " + erased.missing_index);
    }
    return py::int_(erased.votes);
}

py::object BoundVotes::to_batch(std::vector<Result<Cast>> casts, const Refusals& refusals,
                                OnErrors on_errors) const {
    py::dict errors;
    auto rows = gather(std::move(casts), refusals, errors);
    return finish(std::make_shared<RowBatch<Cast>>(std::move(rows), std::move(errors)), on_errors);
}

std::shared_ptr<BoundBase> make_votes(const std::string& title, py::handle db, py::handle cache,
                                      const VotesOptions& options) {
    StoreReference store(db, "db", title.c_str(), {StoreKind::database});
    std::optional<StoreReference> copies;
    VoteCache where;
    if (!cache.is_none()) {
        copies.emplace(cache, "cache", title.c_str(),
                       std::initializer_list<StoreKind>{StoreKind::memory, StoreKind::redis});
        if (copies->kind() == StoreKind::memory) where = copies->backend<memory::Store>();
        if (copies->kind() == StoreKind::redis) where = copies->backend<redis::Client>();
    }
    auto votes = unwrap(Votes::make(store.backend<sql::Database>(), options, std::move(where)));
    return std::make_shared<BoundVotes>(std::move(votes), std::move(store), std::move(copies));
}

// -- calls whose parameters stand in another order, or that take no AsyncCall ---------------------

void cast_async(Votes& votes, const Ballot& ballot, Completion<Cast> done, AsyncCall call) {
    votes.cast_async(ballot, std::move(done), call.timeout);
}
using Casts = std::vector<Result<Cast>>;
Result<Casts> cast_many(Votes& votes, const std::vector<Ballot>& ballots, Timeout timeout) {
    return votes.cast_many(ballots, timeout);
}
void cast_many_async(Votes& votes, const std::vector<Ballot>& ballots, Completion<Casts> done,
                     AsyncCall call) {
    votes.cast_many_async(
        ballots, [done = std::move(done)](Casts casts) { done(std::move(casts)); }, call.timeout);
}
Result<std::string> migration(Votes& votes, ExistingCounts existing, Timeout timeout) {
    return votes.migration(timeout, existing);
}
Result<void> create_tables(Votes& votes, ExistingCounts existing, Timeout timeout) {
    return votes.create_tables(timeout, existing);
}
Result<Count> count(Votes& votes, const Item& item, Consistency consistency, Timeout timeout) {
    return votes.count(item.id, timeout, consistency);
}
Result<std::vector<Count>> count_many(Votes& votes, const Items& items, Consistency consistency,
                                      Timeout timeout) {
    return votes.count_many(items, timeout, consistency);
}
Result<std::int64_t> get(Votes& votes, const Item& item, const User& user, Timeout timeout) {
    return votes.get(item.id, user.id, timeout);
}
Result<std::vector<std::int64_t>> get_many(Votes& votes, const Items& items, const User& user,
                                           Timeout timeout) {
    return votes.get_many(items, user.id, timeout);
}
Result<std::vector<Voter>> voters(Votes& votes, const Item& item, const std::optional<User>& after,
                                  std::size_t limit, Timeout timeout) {
    return votes.voters(item.id, after ? std::optional{after->id} : std::nullopt, limit, timeout);
}
Result<Tally> tally(Votes& votes, const Item& item, Timeout timeout) {
    return votes.tally(item.id, timeout);
}
Result<Cast> toggle(Votes& votes, const Item& item, const User& user, std::int64_t value,
                    Timeout timeout) {
    return votes.toggle(item.id, user.id, value, timeout);
}
Result<std::int64_t> remove_item(Votes& votes, const Item& item, bool delete_row, Timeout timeout) {
    return votes.remove_item(item.id, delete_row, timeout);
}
Result<Erased> erase_user(Votes& votes, const User& user, Timeout timeout) {
    return votes.erase_user(user.id, timeout);
}
Result<void> note_appended(Votes& votes, std::size_t rows) {
    votes.note_appended(rows);
    return {};
}

// What needs no database, closed or not.
py::object schema(py::handle, BoundVotes& self) { return py::str(self.core->schema()); }
// Ids as drivers take them: a UUID is text.
py::object id_parameter(const sql::Id& id) { return from_id(id, IdType::text); }

py::object checked_ballot(py::handle, BoundVotes& self, const Ballot& ballot) {
    unwrap(check_ballot(ballot, self.core->options()));
    py::dict made;
    made["item"] = id_parameter(ballot.item);
    made["user"] = id_parameter(ballot.user);
    made["value"] = py::int_(ballot.value);
    made["version"] = ballot.version ? py::object{py::int_(*ballot.version)} : py::none();
    return made;
}
py::object checked_user(py::handle, BoundVotes& self, const User& user) {
    unwrap(check_user(user.id, self.core->options()));
    return id_parameter(user.id);
}
py::object checked_item(py::handle, BoundVotes& self, const Item& item) {
    unwrap(check_item(item.id, self.core->options()));
    return id_parameter(item.id);
}
py::object session_statements(py::handle, BoundVotes& self, std::string_view dialect,
                              bool anonymous) {
    const auto named = unwrap(sql::dialect_of(dialect));
    py::dict made;
    for (const auto& [name, text] :
         vote_session_statements(named, self.core->options(), anonymous)) {
        made[py::str(name)] = py::str(text);
    }
    return made;
}
py::object contract(py::handle, BoundVotes& self) {
    return To<Contract>::make(self.core->contract());
}

// -- the worker -----------------------------------------------------------------------------------

std::shared_ptr<BoundBase> make_worker(const std::string&, py::handle object) {
    if (!BoundObject::check(object.ptr())) raise_wrong_type("votes", "Votes", object);
    const auto& bound = BoundObject::of(object.ptr())->bound;
    if (bound == nullptr) raise_unfinished(object.ptr());
    if (bound->tag() != &kTag<BoundVotes>) raise_wrong_type("votes", "Votes", object);
    auto votes = std::static_pointer_cast<BoundVotes>(bound);
    votes->check_open();
    auto worker = unwrap(without_gil([&] { return votes->core->sync_worker(); }));
    return std::make_shared<BoundWorker>(std::move(worker), std::move(votes));
}

// How soon a worker notices that its event is set.
constexpr Duration kStopLook = std::chrono::milliseconds{20};

py::object run_worker(py::handle, BoundWorker& self, py::handle stop) {
    if (!stop.is_none() && !py::hasattr(stop, "is_set")) {
        raise_wrong_type("stop", "a threading.Event, or None", stop);
    }
    self.check_open();
    std::exception_ptr raised;
    // Without the event's wait(): if a signal handler came while wait() holds the event's lock, and
    // set the event, it would wait for that lock for ever.
    const auto stopped = [&](Duration pause) {
        const Deadline until = Deadline::after(pause);
        const py::gil_scoped_acquire gil;
        try {
            while (true) {
                raise_interrupt();
                if (PyErr_CheckSignals() != 0) throw py::error_already_set();
                // Nobody sets an event of None; Ctrl-C still ends the wait.
                if (!stop.is_none() && stop.attr("is_set")().cast<bool>()) return true;
                self.check_open();
                if (until.passed()) return false;
                without_gil([&] { sleep_or_interrupt(std::min(kStopLook, until.remaining())); });
            }
        } catch (...) {
            raised = std::current_exception();
            return true;
        }
    };
    auto done = without_gil([&] { return self.core->run(stopped); });
    if (raised) std::rethrow_exception(raised);
    unwrap(std::move(done));
    return py::none();
}

py::object worker_stats(py::handle, BoundWorker& self) {
    const SyncWorker::Stats stats = self.core->stats();
    py::dict dict;
    dict["rounds"] = stats.rounds;
    dict["failed"] = stats.failed;
    dict["scanned"] = stats.total.scanned;
    dict["filled"] = stats.total.filled;
    dict["saved"] = stats.total.saved;
    dict["deleted"] = stats.total.deleted;
    dict["recounted"] = stats.total.recounted;
    dict["unsettled"] = stats.total.unsettled;
    dict["at_risk"] = stats.total.at_risk;
    return dict;
}

}  // namespace

template <>
struct BoundOf<Votes> {
    using type = BoundVotes;
};
template <>
struct BoundOf<SyncWorker> {
    using type = BoundWorker;
};

void bind_votes() {
    declare_rows<Cast>("Casts", column<&Cast::counted>("counted"),
                       column<&Cast::changed>("changed"), column<&Cast::previous>("previous"),
                       column<&Cast::value>("value"));
    declare_rows<CountRow>("Counts", column<&CountRow::value>("value"),
                           column<&CountRow::exact>("exact"), column<&CountRow::as_of>("as_of"),
                           column<&CountRow::pending>("pending"));

    constructor<&make_votes, StoreArgument, StoreArgument, Options<VotesOptions, kOptions>>(
        "VotesBase.__init__", "db cache " + names_of<kOptions>());
    attributes<BoundVotes, kOptions>("VotesBase");
    object_method<&schema, BoundVotes>("VotesBase.schema", "");
    object_method<&contract, BoundVotes>("VotesBase.contract", "");
    object_method<&checked_ballot, BoundVotes, Ballot>("VotesBase._checked_ballot",
                                                       "item user value version op_id");
    object_method<&checked_item, BoundVotes, Item>("VotesBase._checked_item", "item");
    object_method<&checked_user, BoundVotes, User>("VotesBase._checked_user", "user");
    object_method<&session_statements, BoundVotes, std::string_view, bool>(
        "VotesBase._session_statements", "dialect anonymous");
    method<&note_appended, nullptr, std::size_t>("VotesBase._note_appended", "rows");

    method<&Votes::cast, &cast_async, Ballot, Timeout>("Votes.cast",
                                                       "item user value version op_id timeout");
    method<&Votes::cast, &cast_async, Retraction, Timeout>("Votes.retract",
                                                           "item user version timeout");
    method<&cast_many, &cast_many_async, Ballots, OnErrors, Timeout>(
        "Votes.cast_many", "items users values op_ids errors timeout");
    method<&migration, InThread{}, ExistingCounts, Timeout>("Votes.migration",
                                                            "existing_counts timeout");
    method<&create_tables, InThread{}, ExistingCounts, Timeout>("Votes.create_tables",
                                                                "existing_counts timeout");
    method<&Votes::add_items, InThread{}, Items, Timeout>("Votes.add_items", "items timeout");
    method<&count, InThread{}, Item, Consistency, Timeout>("Votes.count",
                                                           "item consistency timeout");
    method<&count_many, InThread{}, Items, Consistency, Timeout>("Votes.count_many",
                                                                 "items consistency timeout");
    method<&get, InThread{}, Item, User, Timeout>("Votes.get", "item user timeout");
    method<&get_many, InThread{}, Items, User, Timeout>("Votes.get_many", "items user timeout");
    method<&voters, InThread{}, Item, std::optional<User>, std::size_t, Timeout>(
        "Votes.voters", "item after limit timeout");
    method<&tally, InThread{}, Item, Timeout>("Votes.tally", "item timeout");
    method<&Votes::top, InThread{}, std::size_t, Timeout>("Votes.top", "n timeout");
    method<&toggle, InThread{}, Item, User, Amount, Timeout>("Votes.toggle",
                                                             "item user value timeout");
    method<&remove_item, InThread{}, Item, bool, Timeout>("Votes.remove_item",
                                                          "item delete_row timeout");
    method<&erase_user, InThread{}, User, Timeout>("Votes.erase_user", "user timeout");
    method<&Votes::prune, InThread{}, std::int64_t, Timeout>("Votes.prune", "before timeout");
    method<&Votes::reconcile, InThread{}, std::optional<Items>, bool, Timeout>(
        "Votes.reconcile", "items dry_run timeout");
    method<&Votes::flush, InThread{}, Timeout>("Votes.flush", "timeout");
    method<&Votes::stats, InThread{}, Timeout>("Votes.stats", "timeout");

    constructor<&make_worker, py::handle>("SyncWorker.__init__", "votes");
    method<&SyncWorker::run_once, nullptr, Timeout>("SyncWorker.run_once", "timeout");
    object_method<&run_worker, BoundWorker, py::handle>("SyncWorker.run", "stop");
    object_method<&worker_stats, BoundWorker>("SyncWorker.stats", "");
}

}  // namespace hotcount::python
