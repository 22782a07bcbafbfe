// Triggers on the vote tables that count what others write there: an ORM, psql, a cascade.
//
// Each dialect defines one, in dialects/NAME/outside_triggers.cpp. The body of a trigger reads the mark
// `counted_in`, so it stays right through a change of strategy: it notes the difference in the journal
// (also while the mark is missing: the tables are being adopted), adds it to the item's own count, or
// asks for a recount. The library's own statements count themselves, and the triggers tell them apart.
//
// Stateless, thread-safe.
#pragma once

#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <string>
#include <vector>

#include "layout.hpp"

namespace hotcount {

/// What is there already.
struct FoundTriggers {
    OutsideWrites form{OutsideWrites::none};
    /// A trigger or function of such a name that is somebody else's; or empty.
    std::string taken{};
    /// Why this role may not create them, as a sentence without its end; or empty.
    std::string refused{};
    /// Foreign keys by which a change of another table changes votes: name and rule, as
    /// `vote_user_id_fkey (ON DELETE CASCADE)`.
    std::vector<std::string> cascades{};
    bool is_partitioned{false};
};

class OutsideTriggers {
  public:
    virtual ~OutsideTriggers() = default;
    /// The statement is one of the read-only snapshot that adoption reads.
    virtual Result<FoundTriggers> find(sql::Connection& connection,
                                       const VotesOptions& options) const = 0;
    /// Asks for the right to create them, by trying if the catalogue does not tell; nothing stays.
    virtual Result<void> try_rights(sql::Connection& connection,
                                    const VotesOptions& options) const {
        (void)connection;
        (void)options;
        return {};
    }
    /// Replaces what is there by that form (`none`: by nothing) and writes the mark `outside_writes`.
    virtual std::string script(const VotesOptions& options, const VoteNames& names,
                               OutsideWrites form, const FoundTriggers& found) const = 0;
    /// Whether cascades run triggers.
    virtual bool see_cascades() const { return true; }
    /// What they do not see, for the comments of migration(): clauses, separated by commas.
    virtual std::string_view blind_to(OutsideWrites form) const = 0;
};

/// The names of a vote table's triggers: {table}_hotcount_deleted, _inserted, _updated. `suffix`: of
/// the table beside the vote table, as "_anonymous", or "".
std::string trigger_name(const VotesOptions& options, const std::string& suffix,
                         const std::string& event);
/// The statement that writes the mark, or takes it away for `none`.
std::string outside_mark(const VoteNames& names, const sql::Grammar& grammar, OutsideWrites form);

/// A config error if triggers of that form cannot be had.
Result<void> check_triggers(const FoundTriggers& found, const OutsideTriggers& triggers,
                            const VotesOptions& options, OutsideWrites form);
/// Comments for migration(): cascades that nothing counts, and what the form does not see.
std::string outside_comments(const FoundTriggers& found, const OutsideTriggers& triggers,
                             const VotesOptions& options, OutsideWrites form);

}  // namespace hotcount
