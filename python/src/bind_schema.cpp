#include <hotcount/counter/slotted_counter.hpp>
#include <hotcount/votes/votes.hpp>

#include "bind.hpp"
#include "convert.hpp"
#include "errors.hpp"

namespace hotcount::python {
namespace {

sql::Dialect to_dialect(py::handle value) {
    constexpr sql::Dialect kDialects[]{sql::Dialect::sqlite, sql::Dialect::postgres,
                                       sql::Dialect::mysql};
    return kDialects[to_choice(
        value, "dialect",
        {to_string(kDialects[0]), to_string(kDialects[1]), to_string(kDialects[2])})];
}

}  // namespace

void bind_schema(py::module_& module) {
    module.def(
        "votes_schema",
        [](const py::str& dialect, const std::string& strategy, const py::type& item_type,
           const py::type& user_type) {
            VotesOptions options;
            constexpr VoteStrategy kStrategies[]{VoteStrategy::naive, VoteStrategy::slotted,
                                                 VoteStrategy::batched, VoteStrategy::cached};
            for (const VoteStrategy each : kStrategies) {
                if (to_string(each) == strategy) options.strategy = each;
            }
            options.item_type = to_id_type(item_type, "item_type");
            options.user_type = to_id_type(user_type, "user_type");
            return unwrap(votes_schema(to_dialect(dialect), options));
        },
        py::arg("dialect"), py::arg("strategy"), py::arg("item_type"), py::arg("user_type"),
        "For `hotcount schema`: the SQL that Votes.create_tables() runs in an empty database, and\n"
        "what brings tables of an older release over.");
    module.def(
        "slotted_counter_schema",
        [](const py::str& dialect) { return unwrap(slotted_counter_schema(to_dialect(dialect))); },
        py::arg("dialect"), "The same of SlottedCounter.create_table().");
}

}  // namespace hotcount::python
