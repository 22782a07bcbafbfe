// The properties of Votes that the integrations write statements from.
#pragma once

#include "bind.hpp"
#include "votes_face.hpp"

namespace hotcount::python {

inline py::object type_of(IdType type) {
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

template <class Self>
void define_vote_names(py::class_<Self>& cls) {
    const auto property = [&](const char* name, auto read, const char* doc) {
        cls.def_property_readonly(
            name, [read](Self& self) { return read(self.holder().votes().options()); }, doc);
    };
    const auto text = [&](const char* name, std::string VotesOptions::*field, const char* doc) {
        property(
            name, [field](const VotesOptions& options) { return options.*field; }, doc);
    };
    text("item_table", &VotesOptions::item_table, "The items' table.");
    text("item_id", &VotesOptions::item_id, "Its column of ids.");
    text("item_count", &VotesOptions::item_count, "Its column of counts.");
    text("vote_table", &VotesOptions::vote_table, "The votes' table.");
    text("vote_item", &VotesOptions::vote_item, "Its column of items.");
    text("vote_user", &VotesOptions::vote_user, "Its column of users.");
    property(
        "strategy",
        [](const VotesOptions& options) { return std::string{to_string(options.strategy)}; },
        "The strategy's name.");
    property(
        "slots", [](const VotesOptions& options) { return options.slots; },
        "Cells per item of 'slotted'.");
    property(
        "missing_items",
        [](const VotesOptions& options) -> std::string {
            return options.missing_item == MissingItem::create ? "create" : "refuse";
        },
        "'refuse' or 'create'.");
    property(
        "foreign_key", [](const VotesOptions& options) { return options.foreign_key; },
        "Whether the votes' tables reference the items'.");
    property(
        "item_type", [](const VotesOptions& options) { return type_of(options.item_type); },
        "int, str or uuid.UUID.");
    property(
        "user_type", [](const VotesOptions& options) { return type_of(options.user_type); },
        "int, str or uuid.UUID.");
}

}  // namespace hotcount::python
