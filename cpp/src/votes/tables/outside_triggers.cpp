#include "outside_triggers.hpp"

#include "adoption.hpp"
#include "hotcount_embedded/votes/sql.hpp"

namespace hotcount {

std::string_view to_string(OutsideWrites outside) {
    switch (outside) {
        case OutsideWrites::leave:
            return "leave";
        case OutsideWrites::none:
            return "none";
        case OutsideWrites::deletes:
            return "deletes";
        case OutsideWrites::count:
            break;
    }
    return "count";
}

OutsideWrites form_to_install(const FoundTriggers& found, OutsideWrites wish) {
    const bool stale = found.stale != OutsideWrites::none;
    if (wish == OutsideWrites::leave && stale) return found.stale;
    // If some triggers of a form are gone, `none` drops the remaining ones.
    const bool rest = wish == OutsideWrites::none && !found.ours.empty();
    return wish == found.form && !stale && !rest ? OutsideWrites::leave : wish;
}

// A user that becomes NULL or another one leaves the counts as they are.
void note_key(FoundTriggers& found, const std::string& name, std::string_view deleted,
              std::string_view updated, bool has_item) {
    const auto changes = [](std::string_view rule) {
        return rule == "CASCADE" || rule == "SET NULL" || rule == "SET DEFAULT";
    };
    const auto add = [&](std::vector<std::string>& to, const char* event, std::string_view rule) {
        to.push_back(name + " (ON " + event + " " + std::string{rule} + ")");
    };
    if (deleted == "CASCADE") {
        add(found.cascades, "DELETE", deleted);
    } else if (has_item && changes(deleted)) {
        add(found.moves, "DELETE", deleted);
    }
    if (has_item && changes(updated)) add(found.moves, "UPDATE", updated);
}

std::string outside_mark(const VoteNames& n, const sql::Grammar& g, OutsideWrites form) {
    const auto sql = vote_statements(vote_sql::kMarksSql, n, g,
                                     {{"form", literal(std::string{to_string(form)})}});
    return sql[form == OutsideWrites::none ? "remove_outside" : "write_outside"];
}

namespace {

std::string listed(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
}

}  // namespace

std::vector<std::string> uncounted_keys(const FoundTriggers& found, const OutsideTriggers& triggers,
                                        OutsideWrites form) {
    std::vector<std::string> keys;
    const bool sees = triggers.see_cascades();
    if (!sees || form == OutsideWrites::none) keys = found.cascades;
    if (!sees || form != OutsideWrites::count) {
        keys.insert(keys.end(), found.moves.begin(), found.moves.end());
    }
    return keys;
}

Result<void> check_triggers(const FoundTriggers& found, const OutsideTriggers& triggers,
                            const VotesOptions& options, OutsideWrites form) {
    if (form == OutsideWrites::leave || form == OutsideWrites::none) return {};
    const std::string wish = "outside_writes='" + std::string{to_string(form)} + "': ";
    if (!found.refused.empty()) return refuse_table(wish + found.refused);
    if (!found.taken.empty()) {
        return refuse_table(wish + found.taken +
                            " is not hotcount's, which needs that name: rename it");
    }
    if (found.is_partitioned && form == OutsideWrites::deletes) {
        return refuse_table(wish + "table " + options.vote_table +
                            " is partitioned, and an UPDATE that moves a row to another partition "
                            "deletes it there: outside_writes='count' counts both");
    }
    if (triggers.see_cascades()) return {};
    const std::vector<std::string> keys = uncounted_keys(found, triggers, form);
    if (keys.empty()) return {};
    return refuse_table(wish + "foreign key " + listed(keys) + " changes rows of " +
                        options.vote_table +
                        " without running its triggers: make it RESTRICT, and call erase_user() or "
                        "remove_item() before the row that it refers to is deleted");
}

std::string outside_comments(const FoundTriggers& found, const OutsideTriggers& triggers,
                             const VotesOptions& options, OutsideWrites form) {
    if (form == OutsideWrites::leave) form = found.form;
    std::string text;
    if (const auto keys = uncounted_keys(found, triggers, form); !keys.empty()) {
        text += "-- Warning: foreign key " + listed(keys) + " changes rows of " +
                options.vote_table + ", and\n-- nothing counts that. " +
                (!triggers.see_cascades()
                     ? "Make it RESTRICT, and call erase_user() or remove_item() first.\n"
                     : "outside_writes='" + std::string{found.moves.empty() ? "deletes" : "count"} +
                           "' installs triggers that do.\n");
    }
    if (form != OutsideWrites::none) {
        text += "-- Not counted with outside_writes='" + std::string{to_string(form)} +
                "': " + std::string{triggers.blind_to(form)} + ".\n";
    }
    return text;
}

}  // namespace hotcount
