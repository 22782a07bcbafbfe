// hotcount.Votes and hotcount.aio.Votes: declared in hotcount/votes.py and hotcount/aio/votes.py.
#include "votes.hpp"

#include <array>
#include <hotcount/detail/votes/integrations.hpp>
#include <utility>

namespace hotcount::python {
namespace {

ResultClass drift_class{"Drift", std::array{"item", "counted", "actual", "orphan"}};

using Commit = sql::GroupCommitOptions;
constexpr std::array kVotesOptions{always_shown(option<&VotesOptions::strategy>()),
                                   option<&VotesOptions::slots>(),
                                   option<&VotesOptions::item_table>(),
                                   option<&VotesOptions::item_id>(),
                                   option<&VotesOptions::item_count, TextOrNone>(),
                                   option<&VotesOptions::vote_table>(),
                                   option<&VotesOptions::vote_item>(),
                                   option<&VotesOptions::vote_user>(),
                                   option<&VotesOptions::item_type>(),
                                   option<&VotesOptions::user_type>(),
                                   option<&VotesOptions::max_age>(),
                                   option<&VotesOptions::retention>(),
                                   option<&VotesOptions::page>(),
                                   option<&VotesOptions::interval>(),
                                   option<&VotesOptions::workers>(),
                                   option_in<&VotesOptions::commit, &Commit::max_batch>(),
                                   option_in<&VotesOptions::commit, &Commit::max_delay, Delay>(),
                                   option<&VotesOptions::missing_item>("missing_items"),
                                   option<&VotesOptions::fold_interval>(),
                                   option<&VotesOptions::foreign_key>(),
                                   option<&VotesOptions::vote_value>(),
                                   option<&VotesOptions::vote_previous>(),
                                   option<&VotesOptions::vote_version>(),
                                   option<&VotesOptions::read_url, UrlOrNone>(),
                                   option<&VotesOptions::read_max_lag>(),
                                   option<&VotesOptions::max_pending>(),
                                   option_in<&VotesOptions::commit, &Commit::max_queue>()};

}  // namespace

std::string BoundVotes::shown_options() const {
    return (cache_ ? ", cache=" + cache_->shown_store() : "") +
           python::shown_options<VotesOptions, kVotesOptions>(options());
}

void BoundVotes::log_event_of_core() const {
    if (const auto event = core->take_event()) {
        log(event->is_trouble ? "warning" : "info", event->text);
    }
}

py::object BoundVotes::to_python(const Cast& cast) const {
    log_event_of_core();
    return To<Cast>::make(cast);
}

py::object BoundVotes::to_python(const FlushReport& report) const {
    log_event_of_core();
    return To<FlushReport>::make(report);
}

py::object BoundVotes::to_python(Count count) const {
    log_event_of_core();
    return To<Count>::make(std::move(count));
}

py::object BoundVotes::to_python(std::vector<Count> counts) const {
    log_event_of_core();
    std::vector<CountRow> rows;
    rows.reserve(counts.size());
    for (Count& each : counts) rows.push_back(to_row(std::move(each)));
    return finish(std::make_shared<RowBatch<CountRow>>(std::move(rows), py::dict()),
                  OnErrors::keep);
}

py::object BoundVotes::to_python(const Reconciled& reconciled) const {
    if (reconciled.raised) std::rethrow_exception(reconciled.raised);
    const std::vector<Drift>& drifts = reconciled.drifts;
    py::list rows(drifts.size());
    for (std::size_t i = 0; i < drifts.size(); ++i) {
        rows[i] = drift_class.make(from_id(drifts[i].item, options().item_type), drifts[i].counted,
                                   drifts[i].actual, drifts[i].orphan);
    }
    return rows;
}

py::object BoundVotes::to_python(const VotesStats& stats) const {
    log_event_of_core();
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
    dict["failing_folds"] = stats.failing_folds;
    dict["failing_folds_s"] = to_seconds(stats.failing_for);
    dict["fold_error"] = stats.fold_error;
    dict["last_fold_s"] = to_seconds(stats.fold_took);
    dict["pending_rows"] = stats.pending_rows;
    dict["pending_items"] = stats.pending_items;
    dict["oldest_pending_s"] = to_seconds(stats.oldest);
    dict["pending_error"] = stats.pending_error;
    dict["held_items"] = stats.held_items;
    py::dict refused;
    for (const auto& [item, why] : stats.refused_items) {
        refused[from_id(item, options().item_type)] = why;
    }
    dict["refused_items"] = refused;
    dict["outside_writes"] = stats.outside_writes;
    py::list cascades;
    for (const std::string& cascade : stats.uncounted_cascades) cascades.append(py::str(cascade));
    dict["uncounted_cascades"] = cascades;
    dict["replica_reads"] = stats.replica_reads;
    dict["replica_fallbacks"] = stats.replica_fallbacks;
    dict["replica_error"] = stats.replica_error;
    dict["replica_lag_s"] = to_seconds(stats.replica_lag);
    dict["pending_votes"] = stats.pending_votes;
    dict["refused_votes"] = stats.refused_votes;
    return dict;
}

py::object BoundVotes::to_python(const std::vector<Voter>& voters) const {
    log_event_of_core();
    py::list rows(voters.size());
    for (std::size_t i = 0; i < voters.size(); ++i) {
        rows[i] = py::make_tuple(from_id(voters[i].user, options().user_type), voters[i].value);
    }
    return rows;
}

py::object BoundVotes::to_python(const std::vector<ItemCount>& top) const {
    log_event_of_core();
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
    if (!erased.missing_index.empty() && !std::exchange(told_of_scan_, true)) {
        log("warning", "erase_user() has scanned all of " + options().vote_table +
                           ": no index begins with " + options().vote_user +
                           ". To spare the scan: " + erased.missing_index);
    }
    return py::int_(erased.votes);
}

py::object BoundVotes::to_batch(std::vector<Result<Cast>> casts, const Refusals& refusals,
                                OnErrors on_errors) const {
    log_event_of_core();
    return python::to_batch(std::move(casts), refusals, on_errors);
}

namespace {

std::shared_ptr<BoundBase> make_votes(const std::string& title, py::handle db, py::handle cache,
                                      VotesOptions options) {
    options.commit.workers = options.workers;
    StoreReference store(db, "db", title.c_str(), {StoreKind::database});
    std::optional<StoreReference> copies;
    VoteCache where;
    if (!cache.is_none()) {
        copies.emplace(cache, "cache", title.c_str(),
                       std::initializer_list<StoreKind>{StoreKind::memory, StoreKind::redis});
        if (copies->kind() == StoreKind::memory) where = copies->backend<memory::Store>();
        if (copies->kind() == StoreKind::redis) where = copies->backend<redis::Client>();
    }
    auto votes = unwrap(without_gil(
        [&] { return Votes::make(store.backend<sql::Database>(), options, std::move(where)); }));
    return std::make_shared<BoundVotes>(std::move(votes), std::move(store), std::move(copies));
}

// True if it returned.
bool tell_progress(PyObject* call, const ReconcileProgress& so_far, IdType type,
                   std::exception_ptr& raised) {
    const py::object last = so_far.last ? from_id(*so_far.last, type) : py::object{py::none()};
    const py::tuple arguments = py::make_tuple(last, so_far.items, so_far.drifts);
    PyObject* const answer =
        call_or_hang([&] { return PyObject_CallObject(call, arguments.ptr()); });
    if (answer == nullptr) {
        raised = std::make_exception_ptr(py::error_already_set{});
        return false;
    }
    Py_DECREF(answer);
    return true;
}

Result<Reconciled> reconcile(Votes& votes, const std::optional<Items>& items, bool dry_run,
                             const std::optional<sql::Id>& after, const Progress& progress,
                             Timeout timeout) {
    Reconciled reconciled;
    ReconcileOptions how;
    how.dry_run = dry_run;
    how.after = after;
    if (progress.call) {
        how.progress = [&](const ReconcileProgress& so_far) {
            const WithGil gil;
            if (!gil) return false;
            return tell_progress(progress.call.get(), so_far, votes.options().item_type,
                                 reconciled.raised);
        };
    }
    std::optional<std::span<const sql::Id>> named;
    if (items) named = std::span<const sql::Id>{items->ids};
    HOTCOUNT_TRY_ASSIGN(reconciled.drifts, votes.reconcile(named, how, timeout));
    return reconciled;
}
// Votes has two of the name.
Result<Cast> toggle(Votes& votes, const Ballot& ballot, Timeout timeout) {
    return votes.toggle(ballot, timeout);
}
Result<void> note_appended(Votes& votes, std::size_t rows) {
    votes.note_appended(rows);
    return {};
}

// These calls need no database, so they work on closed Votes too.
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
py::object checked_user(py::handle, BoundVotes& self, const sql::Id& user) {
    unwrap(check_user(user, self.core->options()));
    return id_parameter(user);
}
py::object checked_item(py::handle, BoundVotes& self, const sql::Id& item) {
    unwrap(check_item(item, self.core->options()));
    return id_parameter(item);
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
py::object tried_fold(py::handle, BoundVotes& self, Timeout timeout) {
    self.check_open();
    const auto database = self.store.backend<sql::Database>();
    const FoldTrial trial = unwrap(without_gil(
        [&] { return try_fold(database, self.core->options(), database->deadline(timeout)); }));
    return py::make_tuple(To<std::string_view>::make(to_string(trial.outcome)), trial.why);
}
py::object contract(py::handle, BoundVotes& self) {
    return To<Contract>::make(self.core->contract());
}

}  // namespace

void bind_votes() {
    declare_rows<Cast>("Casts", column<&Cast::counted>(), column<&Cast::changed>(),
                       column<&Cast::previous>(), column<&Cast::value>(), column<&Cast::pending>());
    declare_rows<CountRow>("Counts", column<&CountRow::value>(), column<&CountRow::exact>(),
                           column<&CountRow::as_of>(), column<&CountRow::pending>());

    constructor<&make_votes, StoreArgument, StoreArgument, Options<VotesOptions, kVotesOptions>>(
        "VotesBase.__init__", "db cache " + names_of<kVotesOptions>());
    refuse_keywords("VotesBase.__init__", "commit_workers", "workers is the number of them");
    attributes<BoundVotes, kVotesOptions>("VotesBase");
    object_method<&schema, BoundVotes>("VotesBase.schema", "");
    object_method<&contract, BoundVotes>("VotesBase.contract", "");
    object_method<&checked_ballot, BoundVotes, Ballot>("VotesBase._checked_ballot",
                                                       "item user value version op_id");
    object_method<&checked_item, BoundVotes, Item>("VotesBase._checked_item", "item");
    object_method<&checked_user, BoundVotes, User>("VotesBase._checked_user", "user");
    object_method<&session_statements, BoundVotes, std::string_view, bool>(
        "VotesBase._session_statements", "dialect anonymous");
    object_method<&tried_fold, BoundVotes, Timeout>("VotesBase._try_fold", "timeout");
    method<&note_appended, nullptr, std::size_t>("VotesBase._note_appended", "rows");

    method<&Votes::cast, &Votes::cast_async, CountedBallot, Timeout>(
        "Votes.cast", "item user value version op_id with_count timeout");
    method<&Votes::cast, &Votes::cast_async, Retraction, Timeout>(
        "Votes.retract", "item user version with_count timeout");
    method<&Votes::cast_many, &Votes::cast_many_async, Ballots, OnErrors, Timeout>(
        "Votes.cast_many", "items users values op_ids errors timeout");
    method<&Votes::migration, InThread{}, ExistingCounts, OutsideWrites, Timeout>(
        "Votes.migration", "existing_counts outside_writes timeout");
    method<&Votes::create_tables, InThread{}, ExistingCounts, OutsideWrites, Timeout>(
        "Votes.create_tables", "existing_counts outside_writes timeout");
    method<&Votes::add_items, InThread{}, Items, Timeout>("Votes.add_items", "items timeout");
    method<&Votes::count, InThread{}, Item, Consistency, Timeout>("Votes.count",
                                                                  "item consistency timeout");
    method<&Votes::count_many, InThread{}, Items, Consistency, Timeout>(
        "Votes.count_many", "items consistency timeout");
    method<&Votes::get, InThread{}, Item, User, Timeout>("Votes.get", "item user timeout");
    method<&Votes::get_many, InThread{}, Items, User, Timeout>("Votes.get_many",
                                                               "items user timeout");
    method<&Votes::voters, InThread{}, Item, std::optional<User>, std::size_t, Consistency,
           Timeout>("Votes.voters", "item after limit consistency timeout");
    method<&Votes::tally, InThread{}, Item, Consistency, Timeout>("Votes.tally",
                                                                  "item consistency timeout");
    method<&Votes::top, InThread{}, std::size_t, Consistency, Timeout>("Votes.top",
                                                                       "n consistency timeout");
    method<&toggle, InThread{}, Toggle, Timeout>("Votes.toggle",
                                                 "item user value with_count timeout");
    method<&Votes::remove_item, InThread{}, Item, bool, Timeout>("Votes.remove_item",
                                                                 "item delete_row timeout");
    method<&Votes::erase_user, InThread{}, User, Timeout>("Votes.erase_user", "user timeout");
    method<&Votes::prune, InThread{}, std::int64_t, Timeout>("Votes.prune", "before timeout");
    method<&reconcile, InThread{}, std::optional<Items>, bool, std::optional<Item>, Progress,
           Timeout>("Votes.reconcile", "items dry_run after progress timeout");
    method<&Votes::flush, InThread{}, Timeout>("Votes.flush", "timeout");
    method<&Votes::stats, InThread{}, Timeout>("Votes.stats", "timeout");
}

}  // namespace hotcount::python
