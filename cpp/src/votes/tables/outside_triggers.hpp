// Triggers on the vote tables that count outside writes: those of an ORM, of psql, of a cascade.
//
// Each dialect defines one, in dialects/NAME/outside_triggers.cpp. On servers the body of a trigger
// reads the mark `counted_in`, so it stays right through a change of strategy: it notes the difference
// in the journal (also while the mark is missing: the tables are being adopted), adds it to the item's
// own count, or asks for a recount. The library's own statements count themselves, and the triggers
// tell them apart. On SQLite triggers may count our own writes too (ours()); triggers of another
// place are stale.
//
// Stateless, thread-safe.
#pragma once

#include <atomic>
#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "layout.hpp"

namespace hotcount {

/// The triggers that exist.
struct FoundTriggers {
    OutsideWrites form{OutsideWrites::none};
    /// The form of triggers which count in another place, or of which some are gone: they are to be
    /// created again.
    OutsideWrites stale{OutsideWrites::none};
    /// The names of hotcount's triggers, where script() needs them.
    std::vector<std::string> ours{};
    /// A trigger or function of such a name that is not hotcount's; or empty.
    std::string taken{};
    /// Why this role may not create them, as a sentence without its end; or empty.
    std::string refused{};
    /// Foreign keys by which a change of another table deletes votes: name and rule, as
    /// `vote_user_id_fkey (ON DELETE CASCADE)`; and `moves`: keys by which it moves votes to
    /// other items.
    std::vector<std::string> cascades{};
    std::vector<std::string> moves{};
    bool is_partitioned{false};
    /// This account cannot see the triggers: the other members are from the marks of the tables.
    bool are_hidden{false};
    /// The triggers run with rights of another account, which may have lost them: have_rights().
    bool are_anothers{false};
    /// AFTER UPDATE runs for rows that UPDATE IGNORE leaves as they were.
    bool run_for_ignored{false};

    void make_stale() {
        if (form != OutsideWrites::none) stale = std::exchange(form, OutsideWrites::none);
    }
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
    /// False if the triggers run with the rights of an account that has lost them, so that no vote
    /// can be written. In a transaction that the caller rolls back.
    virtual bool have_rights(sql::Connection& connection, const VotesOptions& options) const {
        (void)connection;
        (void)options;
        return true;
    }
    /// Replaces the triggers by that form (`none`: by none) and writes the mark `outside_writes`.
    virtual std::string script(const VotesOptions& options, const VoteNames& names,
                               OutsideWrites form, const FoundTriggers& found) const = 0;
    /// Drops the triggers. Empty where the triggers ignore our own statements.
    virtual std::string drop(const FoundTriggers& found) const {
        (void)found;
        return {};
    }
    /// Which of our own writes in this transaction, which holds the write lock, the triggers count:
    /// none where they ignore ours. A config error if the triggers are stale. `seen`: the caller's
    /// memory.
    virtual Result<CountedByTriggers> ours(sql::Connection& connection, const VotesOptions& options,
                                           std::atomic<std::int64_t>& seen) const {
        (void)connection;
        (void)options;
        (void)seen;
        return CountedByTriggers{};
    }
    /// SQL that is 0 if the triggers count our votes in that table, else 1. Empty if it is always
    /// 1.
    virtual std::string unless_counted(const VotesOptions& options, bool anonymous) const {
        (void)options;
        (void)anonymous;
        return {};
    }
    /// `statement`, which writes to a vote table in a session of the application's, with what
    /// identifies it as ours to the triggers.
    virtual std::string own_write(const std::string& statement) const { return statement; }
    /// Whether cascades run triggers.
    virtual bool see_cascades() const { return true; }
    /// The writes that the triggers do not see, for the comments of migration(): clauses and
    /// commas.
    virtual std::string_view blind_to(OutsideWrites form) const = 0;
};

/// Foreign keys by which other sessions change counts that no trigger of that form counts.
std::vector<std::string> uncounted_keys(const FoundTriggers& found, const OutsideTriggers& triggers,
                                        OutsideWrites form);
/// The form that tables are to get; `leave` if they have it.
OutsideWrites form_to_install(const FoundTriggers& found, OutsideWrites wish);
/// Adds a foreign key of the vote table if it changes counts, by its rules ON DELETE and ON UPDATE.
/// `has_item`: the item is among its columns.
void note_key(FoundTriggers& found, const std::string& name, std::string_view deleted,
              std::string_view updated, bool has_item);
/// The statement that writes the mark, or deletes it for `none`.
std::string outside_mark(const VoteNames& names, const sql::Grammar& grammar, OutsideWrites form);

/// A config error if triggers of that form cannot be had.
Result<void> check_triggers(const FoundTriggers& found, const OutsideTriggers& triggers,
                            const VotesOptions& options, OutsideWrites form);
/// Comments for migration(): cascades that are not counted, and writes that the form does not see.
std::string outside_comments(const FoundTriggers& found, const OutsideTriggers& triggers,
                             const VotesOptions& options, OutsideWrites form);

}  // namespace hotcount
