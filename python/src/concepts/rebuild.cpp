// hotcount.Rebuild and hotcount.aio.Rebuild: declared in hotcount/live_sets.py and
// hotcount/aio/live_sets.py.
#include <atomic>
#include <hotcount/detail/base/event.hpp>

#include "live_sets.hpp"
#include "native/native.hpp"
#include "values/convert.hpp"

namespace hotcount::python {

class BoundRebuild final : public Bound<Rebuild> {
  public:
    static constexpr bool kEndsElsewhere = true;

    BoundRebuild(std::shared_ptr<Rebuild> build, std::shared_ptr<Bound<LiveSets>> sets)
        : Bound(std::move(build), sets->store, &kTag<BoundRebuild>), sets_(std::move(sets)) {}

    std::string repr(const std::string& title) const override {
        return "hotcount." + title + "(" + sets_->repr("") + ")";
    }
    void check_open() const { sets_->check_open(); }
    void add_facts(Error& error, Timeout timeout) const { sets_->add_facts(error, timeout); }

  private:
    std::shared_ptr<Bound<LiveSets>> sets_;
};

/// The LiveSets that a build is of.
struct SetsArgument {
    std::shared_ptr<Bound<LiveSets>> sets;
};

/// Members to add to a build, with their scores and, if given, their versions.
struct BuildRows {
    std::vector<std::string> names;  // As many as there are members, which view them.
    std::vector<RebuildMember> members;
};

template <>
struct BoundOf<Rebuild> {
    using type = BoundRebuild;
};

template <>
struct From<SetsArgument> {
    static SetsArgument read(const Argument& argument) {
        auto sets = live_sets_of(argument.value, argument.name);
        sets->check_open();
        return {std::move(sets)};
    }
};

template <>
struct From<BuildRows> {
    static constexpr bool kReleasesGil = true;
    static constexpr const char* kExpected = "(member, score) or (member, score, version)";

    static BuildRows read(const Argument& argument) {
        const py::handle given = argument.value;
        const py::object pairs = is_mapping(given) ? py::object(given.attr("items")())
                                                   : py::reinterpret_borrow<py::object>(given);
        const py::tuple rows =
            to_elements(pairs, argument.name, "a mapping or a sequence of (member, score)");
        BuildRows made;
        made.names.reserve(rows.size());
        made.members.reserve(rows.size());
        for (const auto& each : rows) {
            const std::size_t i = made.members.size();
            if (!py::isinstance<py::tuple>(each) && !py::isinstance<py::list>(each)) {
                raise_wrong_type(Where{argument.name, i}, kExpected, each);
            }
            const py::tuple row = to_elements(each, argument.name, kExpected);
            if (row.size() != 2 && row.size() != 3) {
                raise_type(Where{argument.name, i}.str() + " must be " + kExpected + ", not " +
                           std::to_string(row.size()) + " values");
            }
            const std::string& name = made.names.emplace_back(
                to_bytes(py::object(row[0]), Where{"member of members", i}));
            const double score =
                From<Score>::read(py::object(row[1]), Where{"score of members", i});
            std::optional<std::int64_t> version;
            if (row.size() == 3 && !py::object(row[2]).is_none()) {
                version = to_option(py::object(row[2]), Where{"version of members", i});
            }
            made.members.push_back({name, score, version});
        }
        return made;
    }
    static auto pass(const BuildRows& made) {
        return std::tuple<const std::vector<RebuildMember>&>(made.members);
    }
};

namespace {

std::shared_ptr<BoundBase> make_rebuild(const std::string&, const SetsArgument& argument,
                                        std::string_view key, Duration ttl, Duration lease) {
    auto build = unwrap(argument.sets->core->rebuild(key, ttl, lease));
    return std::make_shared<BoundRebuild>(std::move(build), argument.sets);
}

/// The calls that publish_all() has started. The calls hold it, because they may outlast an interrupted
/// caller.
struct Publications {
    explicit Publications(std::size_t size) : outcomes(size), left(size) {}
    std::vector<Result<void>> outcomes;
    std::atomic<std::size_t> left;
    Event done;
};

// Publishes them all at once, and returns the error of each, or None.
py::object publish_all(py::handle builds) {
    std::vector<std::shared_ptr<BoundRebuild>> held;
    for (const auto& each : to_elements(builds, "builds", "a sequence of Rebuild")) {
        if (!BoundObject::check(each.ptr())) raise_wrong_type("builds", "Rebuild", each);
        const auto& bound = BoundObject::of(each.ptr())->bound;
        if (bound == nullptr || bound->tag() != &kTag<BoundRebuild>) {
            raise_wrong_type("builds", "Rebuild", each);
        }
        held.push_back(std::static_pointer_cast<BoundRebuild>(bound));
        held.back()->check_open();
    }
    const auto all = std::make_shared<Publications>(held.size());
    without_gil([&] {
        for (std::size_t i = 0; i < held.size(); ++i) {
            held[i]->core->publish_async([all, i](Result<void> outcome) {
                all->outcomes[i] = std::move(outcome);
                if (all->left.fetch_sub(1) == 1) all->done.set();
            });
        }
    });
    // Each call ends by its own deadline.
    while (!held.empty() && !all->done.is_set()) {
        without_gil([&] { all->done.wait(Deadline::after(std::chrono::milliseconds{100})); });
    }
    py::list errors;
    for (std::size_t i = 0; i < held.size(); ++i) {
        if (all->outcomes[i].ok()) {
            errors.append(py::none());
            continue;
        }
        Error error = std::move(all->outcomes[i]).error();
        held[i]->add_facts(error, {});
        errors.append(to_exception(error));
    }
    return errors;
}

}  // namespace

void bind_rebuild() {
    using Key = std::string_view;
    using Version = std::optional<std::int64_t>;
    constructor<&make_rebuild, SetsArgument, Key, Duration, Duration>("RebuildBase.__init__",
                                                                      "sets key ttl lease");
    method<&Rebuild::begin, &Rebuild::begin_async, Timeout>("Rebuild._begin", "timeout");
    method<&Rebuild::add, &Rebuild::add_async, Key, Score, Version, Timeout>(
        "Rebuild.add", "member score version timeout");
    method<&Rebuild::add_many, &Rebuild::add_many_async, BuildRows, Timeout>("Rebuild.add_many",
                                                                             "members timeout");
    method<&Rebuild::renew, &Rebuild::renew_async, Timeout>("Rebuild.renew", "timeout");
    method<&Rebuild::publish, &Rebuild::publish_async, Timeout>("Rebuild.publish", "timeout");
    method<&Rebuild::finish, &Rebuild::finish_async, Timeout>("Rebuild._finish", "timeout");
    method<&Rebuild::abandon, &Rebuild::abandon_async, Timeout>("Rebuild.abandon", "timeout");
    function<&publish_all, py::handle>("_publish_all", "builds");
}

}  // namespace hotcount::python
