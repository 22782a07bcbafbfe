// Shared by Votes, SyncWorker and WriteBehindCounter: the conversions of votes, items and options,
// BoundVotes and BoundViews.
#pragma once

#include <hotcount/votes.hpp>
#include <hotcount/write_behind_counter.hpp>

#include "native/native.hpp"
#include "native/native_calls.hpp"
#include "native/options.hpp"
#include "native/result.hpp"
#include "native/rows.hpp"
#include "values/convert.hpp"

namespace hotcount::python {

/// A Count as Python has it: the moment in seconds, for columns.
struct CountRow {
    std::int64_t value;
    bool exact;
    double as_of;
    std::string source;
    std::int64_t pending;
};

inline CountRow to_row(Count count) {
    const std::chrono::duration<double> since_epoch = count.as_of.time_since_epoch();
    return {count.value, count.exact, since_epoch.count(), std::string{count.source},
            count.pending};
}

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
/// Of cast.
struct CountedBallot : Ballot {};
/// Of toggle.
struct Toggle : Ballot {};

/// Of cast_many; of four Python parameters.
struct Ballots {
    std::vector<Ballot> ballots;  // Without those that are refused.
    Refusals refusals;
};

/// reconcile()'s: called after each page, in the thread that reconciles. Without one: None.
struct Progress {
    std::shared_ptr<PyObject> call{};
};

struct Reconciled {
    std::vector<Drift> drifts;
    std::exception_ptr raised;  ///< By the caller's `progress`, which ended it.
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
    /// The message says which of two stores failed; what a constraint refuses is the database's.
    void add_facts(Error& error, Timeout timeout) const {
        if (!cache_ || error.code == ErrorCode::integrity) store.add_facts(error, timeout);
    }
    Deadline deadline(Timeout timeout) const {
        return store.backend<sql::Database>()->deadline(timeout);
    }

    py::object to_python(const Cast& cast) const;
    py::object to_python(const FlushReport& report) const;
    py::object to_python(Count count) const;
    py::object to_python(std::vector<Count> counts) const;
    py::object to_python(const Reconciled& reconciled) const;
    py::object to_python(const VotesStats& stats) const;
    py::object to_python(const std::vector<Voter>& voters) const;
    py::object to_python(const std::vector<ItemCount>& top) const;
    py::object to_python(std::vector<std::int64_t> votes) const;
    py::object to_python(const Erased& erased) const;
    py::object to_batch(std::vector<Result<Cast>> casts, const Refusals& refusals,
                        OnErrors on_errors) const;

    /// Trouble in the background, and its end, go to the log with the next answer.
    void log_event_of_core() const;

  private:
    std::optional<StoreReference> cache_;
    mutable bool told_of_scan_{false};  // Under the GIL.
};

template <>
inline ResultRow<&CountRow::value, &CountRow::exact, &CountRow::as_of, &CountRow::source,
                 &CountRow::pending>
    kResultRow<CountRow>{"Count"};
template <>
struct To<Count> {
    static py::object make(Count count) { return To<CountRow>::make(to_row(std::move(count))); }
};
template <>
struct From<Count> {
    static Count read(const Argument& argument) {
        CountRow row = kResultRow<CountRow>.read(argument);
        const std::chrono::duration<double> since_epoch{row.as_of};
        return {row.value, row.exact, WallTime{std::chrono::round<WallTime::duration>(since_epoch)},
                std::move(row.source), row.pending};
    }
};
inline ResultClass cast_class{
    "Cast", std::array{"counted", "changed", "previous", "value", "pending", "count"}};
/// `changed` is None for a pending vote: its effect is not known yet.
template <>
struct To<Cast> {
    static py::object make(const Cast& cast) {
        using Changed = std::optional<bool>;
        using Previous = std::optional<std::int64_t>;
        return cast_class.make(cast.counted, cast.pending ? Changed{} : cast.changed,
                               cast.pending ? Previous{} : cast.previous, cast.value, cast.pending,
                               cast.count ? std::optional{*cast.count} : std::nullopt);
    }
};
template <>
struct From<Cast> {
    static Cast read(const Argument& argument) {
        if (!cast_class.is(argument.value)) {
            raise_wrong_type(argument.name, cast_class.name(), argument.value);
        }
        const py::handle object = argument.value;
        Cast cast{cast_class.get<bool>(object, 0),
                  cast_class.get<std::optional<bool>>(object, 1).value_or(false),
                  cast_class.get<std::optional<std::int64_t>>(object, 2).value_or(0),
                  cast_class.get<std::int64_t>(object, 3), cast_class.get<bool>(object, 4)};
        if (auto count = cast_class.get<std::optional<Count>>(object, 5)) {
            cast.count = std::make_shared<const Count>(*std::move(count));
        }
        return cast;
    }
};
template <>
inline ResultRow<&Tally::up, &Tally::down, &Tally::score> kResultRow<Tally>{"Tally"};
template <>
inline ResultRow<&FlushReport::acked, &FlushReport::pending, &FlushReport::at_risk>
    kResultRow<FlushReport>{"FlushReport"};
template <>
inline ResultRow<&Contract::strategy, &Contract::acknowledged, &Contract::may_lose,
                 &Contract::durable, &Contract::exact>
    kResultRow<Contract>{"Contract"};
template <>
struct BoundOf<Votes> {
    using type = BoundVotes;
};

// -- the table, for what votes alone have ---------------------------------------------------------

template <>
inline constexpr std::array<std::string_view, 5> kWords<VoteStrategy>{"naive", "slotted", "batched",
                                                                      "cached", "write_behind"};
template <>
inline constexpr std::array<std::string_view, 2> kWords<MissingItem>{"refuse", "create"};
template <>
inline constexpr std::array<std::string_view, 2> kWords<Consistency>{"cached", "exact"};

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

/// None: leave.
template <>
struct From<OutsideWrites> {
    static OutsideWrites read(const Argument& argument) {
        if (argument.value == Py_None) return OutsideWrites::leave;
        constexpr std::array kForms{OutsideWrites::none, OutsideWrites::deletes,
                                    OutsideWrites::count};
        return kForms.at(to_choice(argument.value, argument.name, {"none", "deletes", "count"}));
    }
};

/// A URL that shows no password; None: there is none.
struct UrlOrNone : TextOrNone {};
template <>
struct From<UrlOrNone> {
    static UrlOrNone read(const Argument& argument) { return {From<TextOrNone>::read(argument)}; }
};
template <>
struct To<UrlOrNone> {
    static py::object make(const std::string& text) {
        if (text.empty()) return py::none();
        const auto url = parse_url(text);
        return py::str(url ? url->str() : "***");
    }
};

template <>
struct From<Item> {
    static Item read(const Argument& argument, const BoundVotes& self) {
        return {to_id(argument.value, self.options().item_type, argument.name)};
    }
    static auto pass(const Item& item) { return std::tie(item.id); }
};

template <>
struct From<User> {
    static User read(const Argument& argument, const BoundVotes& self) {
        return {to_id(argument.value, self.options().user_type, argument.name)};
    }
    static auto pass(const User& user) { return std::tie(user.id); }
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

/// Of "item user" and "version".
inline Ballot read_ballot(const Argument* ids, const Argument& version, const BoundVotes& self) {
    return {.item = From<Item>::read(ids[0], self).id,
            .user = to_id(ids[1].value, self.options().user_type, ids[1].name),
            .version = read_as<std::optional<std::int64_t>>(version)};
}

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
    static constexpr std::size_t kTakes = 4;  // item user version with_count

    static Retraction read(const Argument* first, const BoundVotes& self) {
        Retraction ballot{read_ballot(first, first[2], self)};
        ballot.value = 0;
        ballot.with_count = From<bool>::read(first[3]);
        return ballot;
    }
};

template <>
struct From<CountedBallot> {
    static constexpr std::size_t kTakes = From<Ballot>::kTakes + 1;  // ... with_count

    static CountedBallot read(const Argument* first, const BoundVotes& self) {
        CountedBallot ballot{From<Ballot>::read(first, self)};
        ballot.with_count = From<bool>::read(first[From<Ballot>::kTakes]);
        return ballot;
    }
};

template <>
struct From<Toggle> {
    static constexpr std::size_t kTakes = 4;  // item user value with_count

    static Toggle read(const Argument* first, const BoundVotes& self) {
        Toggle ballot;
        ballot.item = From<Item>::read(first[0], self).id;
        ballot.user = From<User>::read(first[1], self).id;
        ballot.value = From<Amount>::read(first[2]);
        ballot.with_count = From<bool>::read(first[3]);
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

template <>
struct From<Progress> {
    static Progress read(const Argument& argument) {
        if (argument.value == Py_None) return {};
        if (PyCallable_Check(argument.value) == 0) {
            raise_wrong_type(argument.name, "a function, or None", argument.value);
        }
        // Let go of in whichever thread is the last.
        return {{Py_NewRef(argument.value), [](PyObject* object) {
                     if (const WithGil gil; gil) Py_DECREF(object);
                 }}};
    }
};

// -- for SyncWorker and WriteBehindCounter ---------------------------------------------------------

class BoundViews final : public Bound<WriteBehindCounter> {
  public:
    BoundViews(std::shared_ptr<WriteBehindCounter> counter, StoreReference database,
               StoreReference cache)
        : Bound(std::move(counter), std::move(database), &kTag<BoundViews>),
          cache_(std::move(cache)) {}

    BoundViews(const BoundViews&) = delete;
    BoundViews& operator=(const BoundViews&) = delete;
    ~BoundViews() override;

    std::string shown_options() const override;
    py::object to_batch(std::vector<Result<Count>> counts, const Refusals& refusals,
                        OnErrors on_errors) const;
    bool closed() const override { return store.closed() || cache_.closed(); }
    void close() override;
    void check_open() const {
        store.check_open();
        cache_.check_open();
    }
    /// The message says which of the two failed.
    void add_facts(Error&, Timeout) const {}
    Deadline deadline(Timeout timeout) const {
        return store.backend<sql::Database>()->deadline(timeout);
    }
    /// Adds travel over the loop's own connection to Redis; the other calls end in threads.
    std::shared_ptr<LoopBinding> loop_binding() const { return cache_.loop_binding(); }
    bool ends_elsewhere() const { return true; }

  private:
    /// The acknowledged adds that are lost with it.
    std::int64_t close_core();
    /// False: a filter has made an error of the warning.
    static bool warn_of(std::int64_t lost);

    StoreReference cache_;
};

template <>
struct BoundOf<WriteBehindCounter> {
    using type = BoundViews;
};

}  // namespace hotcount::python
