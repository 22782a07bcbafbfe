// hotcount.LiveSets and hotcount.aio.LiveSets: declared in hotcount/live_sets.py and
// hotcount/aio/live_sets.py.
#include <array>

#include "live_sets.hpp"
#include "native/native.hpp"
#include "native/options.hpp"
#include "native/result.hpp"
#include "native/rows.hpp"
#include "values/convert.hpp"

namespace hotcount::python {
namespace {

EnumClass upsert_class{"Upsert", {"FAILED", "APPLIED", "ABSENT", "STALE", "EXPIRING", "NO_TTL"}};
ResultClass sweep_class{"SweepReport", std::array{"scanned", "found", "deleted", "keys"}};

/// An Upsert as columns have it.
struct UpsertRow {
    std::int8_t status{0};
    bool applied{false};
};

/// The elements of a batch and the size of its parts; of six Python parameters.
struct SetRows {
    std::vector<py::tuple> held;  // Elements view what is in them.
    std::vector<UpsertItem> items;
    Refusals refusals;
    std::size_t size;

    void add(py::handle key, const Where& key_name, py::handle member, const Where& member_name,
             double score, std::optional<std::int64_t> version);
    void add_rows(const Argument& rows);
    void add_columns(const Argument* columns);
};

/// The members that create() puts into a set.
struct CreatedMembers {
    std::vector<ScoredMember> members;
};

/// An argument of a call that reads much: the GIL is released in memory too.
template <class T>
struct OfMany {
    T value;
};

/// The class str or bytes.
struct MemberType {
    bool is_text;
};

}  // namespace

// -- the table, for what sets alone have ----------------------------------------------------------

template <class T>
struct From<OfMany<T>> {
    static constexpr bool kReleasesGil = true;
    static OfMany<T> read(const Argument& argument) { return {From<T>::read(argument)}; }
    static auto pass(const OfMany<T>& held) { return std::tuple<const T&>(held.value); }
};

template <>
struct From<CreatedMembers> {
    static constexpr bool kReleasesGil = true;

    static CreatedMembers read(const Argument& argument) {
        const py::handle given = argument.value;
        const py::object pairs = is_mapping(given) ? py::object(given.attr("items")())
                                                   : py::reinterpret_borrow<py::object>(given);
        CreatedMembers made;
        for (const auto& pair :
             to_elements(pairs, argument.name, "a mapping or a sequence of (member, score)")) {
            const std::size_t i = made.members.size();
            if (!py::isinstance<py::tuple>(pair) || py::len(pair) != 2) {
                raise_wrong_type(Where{argument.name, i}, "(member, score)", pair);
            }
            const auto both = py::reinterpret_borrow<py::tuple>(pair);
            const py::object member = both[0];
            made.members.push_back(
                {std::string{to_bytes(member, Where{argument.name, i})},
                 From<Score>::read(py::object(both[1]), Where{"score of members", i})});
        }
        return made;
    }
    static auto pass(const CreatedMembers& made) {
        return std::tuple<const std::vector<ScoredMember>&>(made.members);
    }
};

template <>
struct From<SetRows> {
    static constexpr std::size_t kTakes = 6;
    static constexpr bool kIsBatch = true;
    enum Place : std::uint8_t { rows, batch, keys, members, scores, versions };

    static SetRows read(const Argument* all) {
        const auto given = [all](Place place) { return all[place].value != Py_None; };
        const bool by_columns = given(keys) || given(members) || given(scores);
        if (by_columns && given(rows)) {
            raise_type("upsert_many takes items, or keys, members and scores, not both");
        }
        SetRows items{{}, {}, {}, to_size(all[batch].value, all[batch].name)};
        if (given(rows)) {
            items.add_rows(all[rows]);
        } else {
            items.add_columns(all + keys);
        }
        items.items = items.refusals.strip(std::move(items.items));
        return items;
    }
    static auto pass(const SetRows& items) {
        return std::tuple<const std::vector<UpsertItem>&, const std::size_t&>(items.items,
                                                                              items.size);
    }
    static void check(const Argument* all, const std::string& function) {
        if (to_size(all[batch].value, all[batch].name) == LiveSets::kDefaultBatch) return;
        raise_import(function + " declares batch=" + std::string(py::repr(all[batch].value)) +
                     " where C++ has " + std::to_string(LiveSets::kDefaultBatch));
    }
};

template <>
inline constexpr std::array<std::string_view, 2> kWords<UpsertMethod>{"script", "ttl_gate"};
template <>
struct From<UpsertMethod> {
    static UpsertMethod read(const Argument& argument) {
        refuse_ways(argument.value, argument.name,
                    {"watch", "exists_then_add", "unguarded_pipeline"});
        return static_cast<UpsertMethod>(
            to_choice(argument.value, argument.name, kWords<UpsertMethod>));
    }
};

template <>
struct From<MemberType> {
    static MemberType read(const Argument& argument) {
        if (argument.value == reinterpret_cast<PyObject*>(&PyUnicode_Type)) return {true};
        if (argument.value == reinterpret_cast<PyObject*>(&PyBytes_Type)) return {false};
        raise_type(std::string{argument.name} + " must be str or bytes, the class itself");
    }
};
template <>
struct To<MemberType> {
    static py::object make(MemberType type) {
        return py::reinterpret_borrow<py::object>(
            reinterpret_cast<PyObject*>(type.is_text ? &PyUnicode_Type : &PyBytes_Type));
    }
};

template <>
struct To<Upsert> {
    static py::object make(Upsert upsert) {
        return upsert_class.make(static_cast<std::size_t>(upsert));
    }
};
template <>
struct To<UpsertRow> {
    static py::object make(const UpsertRow& row) {
        return To<Upsert>::make(static_cast<Upsert>(row.status));
    }
};
template <>
struct From<UpsertRow> {
    static UpsertRow read(const Argument& argument) {
        const auto number = upsert_class.find(argument.value);
        if (!number) raise_wrong_type(argument.name, "Upsert", argument.value);
        const auto upsert = static_cast<Upsert>(*number);
        return {static_cast<std::int8_t>(*number), upsert == Upsert::applied};
    }
};

namespace {

void SetRows::add(py::handle key, const Where& key_name, py::handle member,
                  const Where& member_name, double score, std::optional<std::int64_t> version) {
    const std::size_t index = items.size();
    auto key_bytes = read_bytes(key, key_name);
    auto member_bytes = read_bytes(member, member_name);
    if (!key_bytes || !member_bytes) {
        refusals.add(index, key_bytes ? member_bytes.error() : key_bytes.error());
        items.push_back({});
    } else {
        items.push_back({*key_bytes, *member_bytes, score, version});
    }
}

std::optional<std::int64_t> to_version(py::handle value, const Where& where) {
    if (value.is_none()) return std::nullopt;
    return to_option(value, where);
}

py::handle at(const py::tuple& tuple, std::size_t index) {
    return PyTuple_GET_ITEM(tuple.ptr(), static_cast<py::ssize_t>(index));
}

void SetRows::add_rows(const Argument& rows) {
    constexpr const char* kExpected = "(key, member, score) or (key, member, score, version)";
    const py::tuple elements =
        to_elements(rows.value, rows.name, "a sequence of (key, member, score)");
    held.push_back(elements);
    for (std::size_t i = 0; i < elements.size(); ++i) {
        const py::object element = elements[i];
        if (!py::isinstance<py::tuple>(element) && !py::isinstance<py::list>(element)) {
            raise_wrong_type(Where{rows.name, i}, kExpected, element);
        }
        const py::tuple row = to_elements(element, rows.name, kExpected);
        if (row.size() != 3 && row.size() != 4) {
            raise_type(Where{rows.name, i}.str() + " must be " + kExpected + ", not " +
                       std::to_string(row.size()) + " values");
        }
        held.push_back(row);
        add(at(row, 0), Where{"key of items", i}, at(row, 1), Where{"member of items", i},
            From<Score>::read(at(row, 2), Where{"score of items", i}),
            row.size() == 4 ? to_version(at(row, 3), Where{"version of items", i}) : std::nullopt);
    }
}

void SetRows::add_columns(const Argument* columns) {
    const auto take = [&](const Argument& column, const char* expected) {
        if (column.value == Py_None) {
            raise_type(std::string{column.name} +
                       " is missing: upsert_many takes items, or keys, members and scores");
        }
        require_order(column.value, column.name);
        const py::tuple taken = to_elements(column.value, column.name, expected);
        if (!held.empty() && taken.size() != held.front().size()) {
            raise_config(std::string{column.name} + " has " + std::to_string(taken.size()) +
                         " elements for a batch of " + std::to_string(held.front().size()));
        }
        held.push_back(taken);
        return taken;
    };
    const py::tuple keys = take(columns[0], "a sequence of str or bytes");
    const py::tuple members = take(columns[1], "a sequence of str or bytes");
    const py::tuple scores = take(columns[2], "a sequence of float");
    const bool versioned = columns[3].value != Py_None;
    const py::tuple versions = versioned ? take(columns[3], "a sequence of int") : py::tuple();
    for (std::size_t i = 0; i < keys.size(); ++i) {
        add(at(keys, i), Where{columns[0].name, i}, at(members, i), Where{columns[1].name, i},
            From<Score>::read(at(scores, i), Where{columns[2].name, i}),
            versioned ? to_version(at(versions, i), Where{columns[3].name, i}) : std::nullopt);
    }
}

constexpr std::array kLiveSetsOptions{option<&LiveSetsOptions::gate, std::optional<Delay>>(),
                                      always_shown(option<&LiveSetsOptions::method>()),
                                      option<&LiveSetsOptions::prefix, KeyText>()};

class BoundLiveSets : public Bound<LiveSets> {
  public:
    /// Upserts that are no script, and sweep().
    static constexpr bool kEndsElsewhere = true;

    BoundLiveSets(std::shared_ptr<LiveSets> sets, StoreReference reference, MemberType type)
        : Bound(std::move(sets), std::move(reference), &kTag<BoundLiveSets>), member_type(type) {}

    std::string shown_options() const override {
        return python::shown_options<LiveSetsOptions, kLiveSetsOptions>(core->options()) +
               (member_type.is_text ? "" : ", member_type=bytes");
    }

    py::object to_python(const std::vector<ScoredMember>& members) const {
        py::list all(members.size());
        for (std::size_t i = 0; i < members.size(); ++i) {
            all[i] = py::make_tuple(name(members[i].member), members[i].score);
        }
        return all;
    }
    py::object to_python(const SweepReport& report) const {
        py::tuple keys(report.keys.size());
        for (std::size_t i = 0; i < report.keys.size(); ++i) keys[i] = name(report.keys[i]);
        return sweep_class.make(report.scanned, report.found, report.deleted, py::object(keys));
    }

    py::object to_batch(std::vector<Result<Upsert>> upserts, const Refusals& refusals,
                        OnErrors on_errors) const {
        auto rows = to_rows(std::move(upserts), [](Upsert upsert) {
            return UpsertRow{static_cast<std::int8_t>(upsert), upsert == Upsert::applied};
        });
        return python::to_batch(std::move(rows), refusals, on_errors);
    }

    const MemberType member_type;

  private:
    // UTF-8 as str, if that is wanted; the rest as it is.
    py::object name(const std::string& bytes) const {
        return member_type.is_text ? To<KeyText>::make(bytes) : py::bytes(bytes);
    }
};

std::shared_ptr<BoundBase> make_live_sets(const std::string& title, py::handle where,
                                          const LiveSetsOptions& options, MemberType member_type) {
    StoreReference store(where, "store", title.c_str(), {StoreKind::memory, StoreKind::redis});
    auto sets = store.kind() == StoreKind::memory
                    ? unwrap(LiveSets::make(store.backend<memory::Store>(), options))
                    : unwrap(LiveSets::make(store.backend<redis::Client>(), options));
    return std::make_shared<BoundLiveSets>(std::move(sets), std::move(store), member_type);
}

}  // namespace

template <>
struct BoundOf<LiveSets> {
    using type = BoundLiveSets;
};

std::shared_ptr<Bound<LiveSets>> live_sets_of(py::handle object, const char* name) {
    if (!BoundObject::check(object.ptr())) raise_wrong_type(name, "LiveSets", object);
    const auto& bound = BoundObject::of(object.ptr())->bound;
    if (bound == nullptr) raise_unfinished(object.ptr());
    if (bound->tag() != &kTag<BoundLiveSets>) raise_wrong_type(name, "LiveSets", object);
    return std::static_pointer_cast<BoundLiveSets>(bound);
}

void bind_live_sets() {
    declare_rows<UpsertRow>("Upserts", column<&UpsertRow::status>(), column<&UpsertRow::applied>());

    constructor<&make_live_sets, StoreArgument, Options<LiveSetsOptions, kLiveSetsOptions>,
                MemberType>("LiveSetsBase.__init__",
                            "store " + names_of<kLiveSetsOptions>() + "member_type");
    refuse_keywords("LiveSetsBase.__init__", "keep", "versions outlive their set by an hour");
    attributes<BoundLiveSets, kLiveSetsOptions>("LiveSetsBase");
    attribute<BoundLiveSets>("LiveSetsBase", "member_type", [](const BoundLiveSets& self) {
        return To<MemberType>::make(self.member_type);
    });

    using Key = std::string_view;
    using Version = std::optional<std::int64_t>;
    using Number = OfMany<std::int64_t>;
    method<&LiveSets::upsert, &LiveSets::upsert_async, Key, Key, Score, Version, Timeout>(
        "LiveSets.upsert", "key member score version timeout");
    method<&LiveSets::upsert_many, &LiveSets::upsert_many_async, SetRows, OnErrors, Timeout>(
        "LiveSets.upsert_many", "items batch keys members scores versions errors timeout");
    method<&LiveSets::remove, &LiveSets::remove_async, Key, Key, Version, Timeout>(
        "LiveSets.remove", "key member version timeout");
    method<&LiveSets::top, &LiveSets::top_async, Key, Number, Timeout>("LiveSets.top",
                                                                       "key n timeout");
    method<&LiveSets::range, &LiveSets::range_async, Key, Number, Number, Timeout>(
        "LiveSets.range", "key start stop timeout");
    method<&LiveSets::rank, &LiveSets::rank_async, Key, Key, Timeout>("LiveSets.rank",
                                                                      "key member timeout");
    method<&LiveSets::create, &LiveSets::create_async, Key, Duration, CreatedMembers, Timeout>(
        "LiveSets.create", "key ttl members timeout");
    method<&LiveSets::sweep, &LiveSets::sweep_async, Key, OfMany<bool>, Timeout>(
        "LiveSets.sweep", "match dry_run timeout");
}

}  // namespace hotcount::python
