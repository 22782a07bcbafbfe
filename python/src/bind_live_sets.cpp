#include <cmath>
#include <hotcount/zset/live_sets.hpp>

#include "bind.hpp"
#include "convert.hpp"
#include "function.hpp"
#include "gil.hpp"
#include "paired_columns.hpp"
#include "signature_text.hpp"
#include "store.hpp"
#include "upserts.hpp"

namespace hotcount::python {
namespace {

// Bytes as a caller gives them: what is UTF-8 as str, the rest as they are.
py::object to_name(const std::string& bytes, bool as_text) {
    if (as_text) {
        PyObject* const text =
            PyUnicode_DecodeUTF8(bytes.data(), static_cast<py::ssize_t>(bytes.size()), "strict");
        if (text != nullptr) return py::reinterpret_steal<py::object>(text);
        PyErr_Clear();
    }
    return py::bytes(bytes);
}

class BoundLiveSets {
  public:
    BoundLiveSets(std::shared_ptr<LiveSets> sets, StoreReference store, bool members_as_text)
        : sets_(std::move(sets)),
          store_(std::move(store)),
          members_as_text_(members_as_text),
          in_memory_(store_.kind() == StoreKind::memory) {}

    /// Runs f for one member; in memory it keeps the GIL, as a Counter does.
    template <class F>
    auto one(F&& f) {
        store_.check_open();
        if (in_memory_) return f(*sets_);
        return without_gil([&] { return f(*sets_); });
    }
    template <class F>
    auto many(F&& f) {
        store_.check_open();
        return without_gil([&] { return f(*sets_); });
    }
    py::object name(const std::string& bytes) const { return to_name(bytes, members_as_text_); }

    void close() { store_.close(); }
    bool closed() const { return store_.closed(); }
    std::string repr() const { return store_.repr(); }

  private:
    std::shared_ptr<LiveSets> sets_;
    StoreReference store_;
    bool members_as_text_;
    bool in_memory_;
};

// -- arguments --------------------------------------------------------------

bool is_real(py::handle value) {
    // Never released: it may be asked for while the interpreter shuts down.
    static auto* const type = new py::object(py::module_::import("numbers").attr("Real"));
    return py::isinstance(value, *type);
}

double to_score(py::handle value, const Where& where) {
    // float and int, and what counts as a real number, such as NumPy's; bool does not.
    const bool plain = PyFloat_Check(value.ptr()) || PyLong_CheckExact(value.ptr());
    if (!plain && (PyBool_Check(value.ptr()) || !is_real(value))) {
        raise_wrong_type(where, "float or int", value);
    }
    const double score = PyFloat_AsDouble(value.ptr());
    if (score == -1.0 && PyErr_Occurred() != nullptr) {
        if (PyErr_ExceptionMatches(PyExc_OverflowError) == 0) throw py::error_already_set();
        PyErr_Clear();
        raise_config(where.str() + " is beyond the range of a float");
    }
    if (std::isnan(score)) {
        raise_config(where.str() + " is nan; it takes numbers that have an order");
    }
    return score;
}

std::optional<std::int64_t> to_version(py::handle value, const Where& where) {
    if (!value || value.is_none()) return std::nullopt;
    return to_option(value, where);
}

// A batch's elements, and what keeps the bytes that they view.
struct Items {
    std::vector<py::tuple> held;
    std::vector<UpsertItem> items;
    Refusals refusals;

    void add(py::handle key, const Where& key_name, py::handle member, const Where& member_name,
             double score, std::optional<std::int64_t> version) {
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
};

Items rows_to_items(py::handle rows) {
    constexpr const char* kExpected = "(key, member, score) or (key, member, score, version)";
    Items result;
    result.held.push_back(to_elements(rows, "items", "a sequence of (key, member, score)"));
    // A copy: rows are appended below.
    const py::tuple elements = result.held.front();
    for (std::size_t i = 0; i < elements.size(); ++i) {
        const py::object element = elements[i];
        if (!py::isinstance<py::tuple>(element) && !py::isinstance<py::list>(element)) {
            raise_wrong_type(Where{"items", i}, kExpected, element);
        }
        const py::tuple row = to_elements(element, "items", kExpected);
        if (row.size() != 3 && row.size() != 4) {
            raise_type(Where{"items", i}.str() + " must be " + kExpected + ", not " +
                       std::to_string(row.size()) + " values");
        }
        result.held.push_back(row);
        const auto at = [&](std::size_t column) {
            return py::handle(PyTuple_GET_ITEM(row.ptr(), static_cast<py::ssize_t>(column)));
        };
        result.add(
            at(0), Where{"key of items", i}, at(1), Where{"member of items", i},
            to_score(at(2), Where{"score of items", i}),
            row.size() == 4 ? to_version(at(3), Where{"version of items", i}) : std::nullopt);
    }
    return result;
}

py::tuple column_of(py::handle value, const char* name, const char* expected) {
    if (!value || value.is_none()) {
        raise_type(std::string{name} +
                   " is missing: upsert_many takes items, or keys, members "
                   "and scores");
    }
    return to_elements(value, name, expected);
}

Items columns_to_items(py::handle keys, py::handle members, py::handle scores,
                       py::handle versions) {
    Items result;
    const auto take = [&](py::handle value, const char* name, const char* expected) {
        require_order(value, name);
        py::tuple column = column_of(value, name, expected);
        if (!result.held.empty() && column.size() != result.held.front().size()) {
            raise_config(std::string{name} + " has " + std::to_string(column.size()) +
                         " elements for a batch of " + std::to_string(result.held.front().size()));
        }
        result.held.push_back(column);
        return column;
    };
    const py::tuple key_column = take(keys, "keys", "a sequence of str or bytes");
    const py::tuple member_column = take(members, "members", "a sequence of str or bytes");
    const py::tuple score_column = take(scores, "scores", "a sequence of float");
    const bool versioned = versions && !versions.is_none();
    const py::tuple version_column =
        versioned ? take(versions, "versions", "a sequence of int") : py::tuple();
    for (std::size_t i = 0; i < key_column.size(); ++i) {
        const auto at = [i](const py::tuple& column) {
            return py::handle(PyTuple_GET_ITEM(column.ptr(), static_cast<py::ssize_t>(i)));
        };
        result.add(at(key_column), Where{"keys", i}, at(member_column), Where{"members", i},
                   to_score(at(score_column), Where{"scores", i}),
                   versioned ? to_version(at(version_column), Where{"versions", i}) : std::nullopt);
    }
    return result;
}

UpsertMethod to_method(py::handle value) {
    constexpr UpsertMethod kMethods[]{UpsertMethod::script, UpsertMethod::ttl_gate,
                                      UpsertMethod::watch, UpsertMethod::exists_then_add,
                                      UpsertMethod::unguarded_pipeline};
    return kMethods[to_choice(
        value, "method",
        {to_string(kMethods[0]), to_string(kMethods[1]), to_string(kMethods[2]),
         to_string(kMethods[3]), to_string(kMethods[4])})];
}

bool to_as_text(py::handle value, const char* argument) {
    if (!value || value.ptr() == reinterpret_cast<PyObject*>(&PyUnicode_Type)) return true;
    if (value.ptr() == reinterpret_cast<PyObject*>(&PyBytes_Type)) return false;
    raise_type(std::string{argument} + " must be str or bytes, the class itself");
}

// -- calls ------------------------------------------------------------------

BoundLiveSets make_live_sets(const Arguments& arguments) {
    LiveSetsOptions options;
    if (arguments.given(1)) options.gate = to_delay(arguments[1], "gate");
    if (arguments[2]) options.method = to_method(arguments[2]);
    if (arguments[3]) options.prefix = to_bytes(arguments[3], "prefix");
    if (arguments[4]) options.keep = to_duration(arguments[4], "keep");
    const bool as_text = to_as_text(arguments[5], "member_type");
    StoreReference store(arguments[0], "store", "LiveSets", {StoreKind::memory, StoreKind::redis});
    auto sets = store.kind() == StoreKind::memory
                    ? unwrap(LiveSets::make(store.backend<memory::Store>(), std::move(options)))
                    : unwrap(LiveSets::make(store.backend<redis::Client>(), std::move(options)));
    return {std::move(sets), std::move(store), as_text};
}

py::object sets_upsert(BoundLiveSets& self, const Arguments& arguments) {
    const std::string_view key = to_bytes(arguments[0], "key");
    const std::string_view member = to_bytes(arguments[1], "member");
    const double score = to_score(arguments[2], "score");
    const auto version = to_version(arguments[3], "version");
    const Timeout timeout = to_timeout(arguments[4]);
    return py::cast(unwrap(self.one(
        [&](LiveSets& sets) { return sets.upsert(key, member, score, version, timeout); })));
}

py::object sets_upsert_many(BoundLiveSets& self, const Arguments& arguments) {
    const bool by_columns = arguments.given(2) || arguments.given(3) || arguments.given(4);
    if (by_columns && arguments.given(0)) {
        raise_type("upsert_many takes items, or keys, members and scores, not both");
    }
    Items batch = by_columns || !arguments.given(0)
                      ? columns_to_items(arguments[2], arguments[3], arguments[4], arguments[5])
                      : rows_to_items(arguments[0]);
    const std::size_t size =
        arguments[1] ? to_size(arguments[1], "batch") : LiveSets::kDefaultBatch;
    const OnErrors on_errors = to_on_errors(arguments[6]);
    const Timeout timeout = to_timeout(arguments[7]);
    const auto items = batch.refusals.strip(std::move(batch.items));
    auto results =
        unwrap(self.many([&](LiveSets& sets) { return sets.upsert_many(items, size, timeout); }));
    std::vector<Result<UpsertRow>> rows;
    rows.reserve(results.size());
    for (auto& result : results) {
        rows.push_back(result ? Result{to_row(*result)} : Result<UpsertRow>{result.error()});
    }
    py::dict errors;
    auto gathered = gather(std::move(rows), batch.refusals, errors);
    return finish(std::make_shared<Upserts>(std::move(gathered), std::move(errors)), on_errors);
}

py::object sets_remove(BoundLiveSets& self, const Arguments& arguments) {
    const std::string_view key = to_bytes(arguments[0], "key");
    const std::string_view member = to_bytes(arguments[1], "member");
    const auto version = to_version(arguments[2], "version");
    const Timeout timeout = to_timeout(arguments[3]);
    return py::cast(unwrap(
        self.one([&](LiveSets& sets) { return sets.remove(key, member, version, timeout); })));
}

py::object to_list(const BoundLiveSets& self, const std::vector<ScoredMember>& members) {
    py::list result(members.size());
    for (std::size_t i = 0; i < members.size(); ++i) {
        result[i] = py::make_tuple(self.name(members[i].member), members[i].score);
    }
    return result;
}

py::object sets_top(BoundLiveSets& self, const Arguments& arguments) {
    const std::string_view key = to_bytes(arguments[0], "key");
    const std::int64_t n = to_option(arguments[1], "n");
    const Timeout timeout = to_timeout(arguments[2]);
    return to_list(self,
                   unwrap(self.many([&](LiveSets& sets) { return sets.top(key, n, timeout); })));
}

py::object sets_range(BoundLiveSets& self, const Arguments& arguments) {
    const std::string_view key = to_bytes(arguments[0], "key");
    const std::int64_t start = to_option(arguments[1], "start");
    const std::int64_t stop = to_option(arguments[2], "stop");
    const Timeout timeout = to_timeout(arguments[3]);
    return to_list(
        self,
        unwrap(self.many([&](LiveSets& sets) { return sets.range(key, start, stop, timeout); })));
}

py::object sets_rank(BoundLiveSets& self, const Arguments& arguments) {
    const std::string_view key = to_bytes(arguments[0], "key");
    const std::string_view member = to_bytes(arguments[1], "member");
    const Timeout timeout = to_timeout(arguments[2]);
    const auto rank =
        unwrap(self.many([&](LiveSets& sets) { return sets.rank(key, member, timeout); }));
    return rank ? py::object(py::int_(*rank)) : py::object(py::none());
}

py::object sets_create(BoundLiveSets& self, const Arguments& arguments) {
    const std::string_view key = to_bytes(arguments[0], "key");
    const Duration ttl = to_duration(arguments[1], "ttl");
    const Timeout timeout = to_timeout(arguments[3]);
    const py::object pairs = is_mapping(arguments[2])
                                 ? py::object(arguments[2].attr("items")())
                                 : py::reinterpret_borrow<py::object>(arguments[2]);
    std::vector<ScoredMember> members;
    for (const auto& pair :
         to_elements(pairs, "members", "a mapping or a sequence of (member, score)")) {
        const std::size_t i = members.size();
        if (!py::isinstance<py::tuple>(pair) || py::len(pair) != 2) {
            raise_wrong_type(Where{"members", i}, "(member, score)", pair);
        }
        const auto both = py::reinterpret_borrow<py::tuple>(pair);
        const py::object member = both[0];
        members.push_back({std::string{to_bytes(member, Where{"members", i})},
                           to_score(py::object(both[1]), Where{"score of members", i})});
    }
    unwrap(self.many([&](LiveSets& sets) { return sets.create(key, ttl, members, timeout); }));
    return py::none();
}

py::object sets_sweep(BoundLiveSets& self, const Arguments& arguments) {
    const std::string_view match = to_bytes(arguments[0], "match");
    const bool dry_run = arguments[1] && to_bool(arguments[1], "dry_run");
    const Timeout timeout = to_timeout(arguments[2]);
    const SweepReport report =
        unwrap(self.many([&](LiveSets& sets) { return sets.sweep(match, dry_run, timeout); }));
    py::list keys;
    for (const std::string& key : report.keys) keys.append(self.name(key));
    return py::cast(SweepRow{report.scanned, report.found, report.deleted, Names(keys)});
}

}  // namespace

void bind_live_sets(py::module_& module) {
    bind_upserts(module);

    const LiveSetsOptions defaults;
    const std::string key = "key: str | bytes";
    const std::string member = "member: str | bytes";
    const std::string version = "version: int | None = None";
    const std::string score = "float | int";
    const std::string pairs = "list[tuple[str | bytes, float]]";

    py::class_<BoundLiveSets> cls(
        module, "LiveSets",
        "Sorted sets that are updated only while they live.\n\n"
        "ZADD makes a set that is not there: a late upsert into a cached set that has expired\n"
        "leaves one member, without a TTL, to be taken for the whole. An upsert here answers\n"
        "ABSENT instead. Works on Memory and Redis. Keys and members are str or bytes, 1 to 1,000\n"
        "bytes; scores are floats, infinite ones too but not nan, an int as the nearest. Upserts\n"
        "set a state: after any failure do them again. Safe from many threads and across fork. A\n"
        "set stands in the store under {store prefix}{key}, or {store prefix}{prefix}:{key}, its\n"
        "versions in a hash beside it.");
    define_init<&make_live_sets>(
        cls,
        "(self, store: " + kKeyValueStore + ", *, gate: " + kTime +
            " | None = None, method: typing.Literal['script', 'ttl_gate', 'watch', "
            "'exists_then_add', 'unguarded_pipeline'] = " +
            literal(std::string{to_string(defaults.method)}) +
            ", prefix: str | bytes = " + literal(defaults.prefix) + ", keep: " + kTime + " = " +
            literal(defaults.keep) + ", member_type: type[str] | type[bytes] = str) -> None",
        "store: an object or its URL. gate: seconds; an upsert needs a TTL above it. None: 10 for\n"
        "'ttl_gate', 0 for the others. method: 'script' is right; 'ttl_gate' is wrong where a\n"
        "stall outlives the gate, 'exists_then_add' is racy, 'unguarded_pipeline' always adds:\n"
        "they are here to compare. 'watch' is right too, from Redis 6.2.5 on, and needs no "
        "scripts:\n"
        "two round trips for each element, on at most 8 connections of its own, and again while\n"
        "others change the set. keep: seconds that versions outlive their set, 1 or more.\n"
        "member_type: what members come back as; with str, those that are no UTF-8 come back as\n"
        "bytes. Bad values: ConfigError that names them.");
    define<&sets_upsert>(
        cls, "upsert",
        "(self, " + key + ", " + member + ", score: " + score + ", *, " + version + ", " +
            kTimeout + ") -> hotcount._core.Upsert",
        "Sets the member's score where the set lives. Idempotent.\n\n"
        "version: any int64; applied only where higher than that of the member's last versioned\n"
        "write. Only with 'script', and for keys whose braces make a hash tag or that have none;\n"
        "else ConfigError. ABSENT where the versions that a set had were lost, until create() "
        "makes\n"
        "it anew. WrongTypeError: the key is no sorted set. OutcomeUnknownError: do "
        "it\n"
        "again. timeout in seconds; None: the store's.");
    define<&sets_upsert_many>(
        cls, "upsert_many",
        "(self, items: collections.abc.Iterable[tuple[str | bytes, str | bytes, " + score +
            "] | tuple[str | bytes, str | bytes, " + score + ", int | None]] | None = None, " +
            "batch: int = " + literal(static_cast<std::int64_t>(LiveSets::kDefaultBatch)) +
            ", *, keys: collections.abc.Iterable[str | bytes] | None = None, "
            "members: collections.abc.Iterable[str | bytes] | None = None, "
            "scores: collections.abc.Iterable[" +
            score +
            "] | None = None, versions: collections.abc.Iterable[int | None] | None = None, " +
            kOnErrors + ", " + kTimeout + ") -> hotcount._core.Upserts",
        "Upserts many, in order: rows of (key, member, score[, version]), or columns.\n\n"
        "batch: elements in one round trip, 1 to 300; with 'script' each batch is one step. A\n"
        "failed element, such as a key of another type, does not stop the others. errors='raise':\n"
        "BatchError with .result and .errors once all are settled. A wrong type is a TypeError,\n"
        "and a score that is nan a ConfigError, that names the index, before anything is\n"
        "sent. timeout in seconds, for all of it; None: the store's.");
    define<&sets_remove>(
        cls, "remove",
        "(self, " + key + ", " + member + ", " + version + ", *, " + kTimeout +
            ") -> hotcount._core.Upsert",
        "Removes the member. APPLIED: it was there. ABSENT: no such set or member.\n\n"
        "With a version: APPLIED where the set lives, whether the member was there or not; an\n"
        "upsert with a version that is not higher is STALE from then on. STALE, NO_TTL: left as\n"
        "it is. With 'script' a set that create() made and that loses its last member is empty "
        "and\n"
        "lives on; any other is gone.");
    define<&sets_top>(cls, "top", "(self, " + key + ", n: int, *, " + kTimeout + ") -> " + pairs,
                      "The n highest as (member, score), highest first; fewer where there are\n"
                      "fewer. Equal scores: the member with the greater bytes first.");
    define<&sets_range>(
        cls, "range", "(self, " + key + ", start: int, stop: int, *, " + kTimeout + ") -> " + pairs,
        "Positions start to stop in the order of top, both inclusive as in Redis; negative\n"
        "ones count from the end, so that 0, -1 is all.");
    define<&sets_rank>(
        cls, "rank", "(self, " + key + ", " + member + ", *, " + kTimeout + ") -> int | None",
        "The member's position in the order of top, the highest being 0; None where it is not\n"
        "there.");
    define<&sets_create>(
        cls, "create",
        "(self, " + key + ", ttl: " + kTime + ", members: collections.abc.Mapping[str, " + score +
            "] | collections.abc.Mapping[bytes, " + score +
            "] | collections.abc.Mapping[str | bytes, " + score +
            "] | collections.abc.Iterable[tuple[str | bytes, " + score + "]], *, " + kTimeout +
            ") -> None",
        "Makes the set or replaces it, in one step and with its TTL of `ttl` seconds, and the "
        "hash\n"
        "beside it.\n\n"
        "members: 1 to 10,000; of equal ones the last counts. The simple form: upserts made while\n"
        "the caller gathers the members are lost. WrongTypeError: the key holds another type,\n"
        "which is left alone.");
    define<&sets_sweep>(
        cls, "sweep",
        "(self, match: str | bytes, *, dry_run: bool = False, " + kTimeout +
            ") -> hotcount._core.SweepReport",
        "Deletes sorted sets without a TTL: what unguarded upserts left behind.\n\n"
        "match: a pattern for keys, as callers name them: * ? [a-z] and \\ as in Redis. Only\n"
        "sorted sets; each is looked at again in the step that deletes it. dry_run: only counts.\n"
        "Keys that move while it runs may be counted twice. timeout in seconds for the whole\n"
        "sweep; None: the store's for each page of about 500 keys, and 100 times that for all.\n"
        "What was deleted before it passed stays deleted.");
    define_lifetime(cls, "Ends this object; a store made from a URL for it ends too.");
}

}  // namespace hotcount::python
