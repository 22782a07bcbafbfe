// Triggers of the vote tables on SQLite.
//
// Our connections run no triggers if the database has no others (kVoteTrigger), and count themselves.
// If the application has triggers, which must run, ours count our own writes too: SQLite shows a
// trigger neither the text of its statement nor a variable of its session, and a mark in a table costs
// more than it spares. Then our writers leave out what triggers count (ours()).
//
// The triggers belong to one place, and create_tables() changes them in the transaction that moves the
// counts: reading the mark for each row would cost as much as counting it. A comment in each says which
// event it counts, and where.
#include "votes/tables/outside_triggers.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "dialect.hpp"
#include "sql/dialect.hpp"
#include "sql/table_name.hpp"
#include "votes/tables/count_place.hpp"

namespace hotcount {
namespace {

using sql::kVoteTrigger;
const std::set<std::string> kOfVotes{"inserted", "moved", "updated"};

using Events = std::set<std::string>;

// Of the triggers on the tables that are hotcount's.
struct Found {
    Events of_users{}, anonymous{};
    bool renamed{false};
    bool elsewhere{false};  // One counts in another place.
    std::vector<std::string> names{};
};

CountPlace place_of(const VotesOptions& options) {
    return count_place(options, sql::sqlite_grammar().dialect());
}

std::string table_of(const VotesOptions& options, std::string_view suffix) {
    return sql::TableName::of(options.vote_table).beside(suffix).name;
}

Result<Found> read(sql::Connection& connection, const VotesOptions& options) {
    static const sql::Statement kRead{
        "SELECT tbl_name = ?1 COLLATE NOCASE, tbl_name = ?2 COLLATE NOCASE, name, substr(sql, "
        "instr(sql, ?5) + length(?5)) FROM sqlite_master WHERE type = 'trigger' AND instr(sql, ?5) "
        "> 0 AND (tbl_name COLLATE NOCASE IN (?1, ?2) OR (tbl_name = ?3 COLLATE NOCASE AND name = "
        "?4 COLLATE NOCASE))"};
    Found found;
    const std::string place{to_string(place_of(options))};
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        const std::string_view text = row.text(3);
        const auto comma = std::min(text.find(','), text.size());
        const std::string event{text.substr(0, comma)};
        if (row.integer(0) != 0) {
            found.of_users.insert(event);
        } else if (row.integer(1) != 0) {
            found.anonymous.insert(event);
        } else {
            found.renamed = true;
        }
        found.names.emplace_back(row.text(2));
        found.elsewhere |= !text.substr(comma).starts_with(", in " + place + " ");
        return {};
    };
    const std::string votes = table_of(options, "");
    const std::string anonymous = table_of(options, "_anonymous");
    const std::string items = sql::TableName::of(options.item_table).name;
    const std::string renamed = table_of(options, "_hotcount_renamed");
    HOTCOUNT_TRY(
        connection.query(kRead,
                         {std::string_view{votes}, std::string_view{anonymous},
                          std::string_view{items}, std::string_view{renamed}, kVoteTrigger},
                         see));
    return found;
}

// Beyond 64 bits a sum becomes a REAL.
std::string checked(const std::string& sum) {
    return "CASE WHEN typeof(" + sum + ") = 'integer' THEN " + sum +
           " ELSE abs((-9223372036854775807 - 1)) END";
}

// Statements that change the count of `item` by `difference`, which begins with its sign.
std::string count(const VoteNames& n, CountPlace place, const std::string& item,
                  const std::string& difference) {
    if (place == CountPlace::item) {
        const std::string row = " WHERE " + n.id + " = " + item;
        // OR IGNORE of the statement outside ignores a CHECK of the count as well.
        return "UPDATE " + n.item + " SET " + n.count + " = " +
               checked("COALESCE(" + n.count + ", 0) " + difference) + row +
               "; SELECT RAISE(ABORT, 'a constraint refuses the count') WHERE changes() = 0 AND "
               "EXISTS (SELECT 1 FROM " +
               n.item + row + "); ";
    }
    if (place == CountPlace::cells) {
        // The sum fails if the cells together leave 64 bits.
        return "INSERT INTO " + n.cell + " (item, slot, n, ver) SELECT " + item + ", 0, " +
               checked("0 " + difference) + ", 1 WHERE " + item +
               " IS NOT NULL ON CONFLICT (item, slot) DO UPDATE SET n = " +
               checked(n.cell + ".n " + difference) + ", ver = " + n.cell +
               ".ver + 1; SELECT SUM(n) FROM " + n.cell + " WHERE item = " + item + "; ";
    }
    return "INSERT INTO " + n.recount + " (item, asked) SELECT " + item + ", 1 WHERE " + item +
           " IS NOT NULL ON CONFLICT (item) DO UPDATE SET asked = " + n.recount + ".asked + 1; ";
}

std::string trigger_name(const VotesOptions& options, const std::string& suffix,
                         const std::string& event) {
    return sql::quote_identifier(table_of(options, suffix + "_hotcount_" + event));
}

class Writer {
  public:
    Writer(const VotesOptions& options, CountPlace place) : options_(options), place_(place) {}

    void of_table(const std::string& suffix, const VoteNames& n, OutsideWrites form) {
        const std::string was = "OLD." + n.vote_item;
        const std::string is = "NEW." + n.vote_item;
        const std::string had = "COALESCE(OLD." + n.value + ", 0)";
        const std::string has = "COALESCE(NEW." + n.value + ", 0)";
        add(suffix, "deleted", "DELETE ON " + n.vote, had + " <> 0",
            count(n, place_, was, "- " + had));
        if (form != OutsideWrites::count) return;
        add(suffix, "inserted", "INSERT ON " + n.vote, has + " <> 0",
            count(n, place_, is, "+ " + has));
        add(suffix, "updated", "UPDATE OF " + n.value + " ON " + n.vote,
            was + " IS " + is + " AND " + had + " <> " + has,
            count(n, place_, is, "+ (" + has + " - " + had + ")"));
        add(suffix, "moved", "UPDATE OF " + n.vote_item + " ON " + n.vote, was + " IS NOT " + is,
            count(n, place_, was, "- " + had) + count(n, place_, is, "+ " + has));
    }
    // An item's count goes with its row, also where a cascade has just moved its votes; so does its
    // opening balance.
    void of_items(const VoteNames& n) {
        std::string text = "UPDATE " + n.cell + " SET item = NEW." + n.id + " WHERE item = OLD." +
                           n.id + " AND slot = " + std::to_string(kOpeningSlot) + "; ";
        if (place_ == CountPlace::item) {
            text += "UPDATE " + n.item + " SET " + n.count + " = NEW." + n.count + " WHERE " +
                    n.id + " = NEW." + n.id + "; ";
        }
        add("", "renamed", "UPDATE OF " + n.id + " ON " + n.item,
            "OLD." + n.id + " IS NOT NEW." + n.id, text);
    }
    const std::string& text() const { return text_; }

  private:
    void add(const std::string& suffix, const std::string& event, const std::string& after,
             const std::string& when, const std::string& body) {
        text_ += "CREATE TRIGGER " + trigger_name(options_, suffix, event) + " AFTER " + after +
                 " WHEN " + when + " BEGIN " + std::string{kVoteTrigger} + event + ", in " +
                 std::string{to_string(place_)} + " */ " + body + "END;\n";
    }
    const VotesOptions& options_;
    const CountPlace place_;
    std::string text_{};
};

class SqliteOutsideTriggers final : public OutsideTriggers {
  public:
    Result<FoundTriggers> find(sql::Connection& connection,
                               const VotesOptions& options) const override {
        FoundTriggers triggers;
        HOTCOUNT_TRY_ASSIGN(Found found, read(connection, options));
        Events all{kOfVotes};
        all.insert("deleted");
        OutsideWrites form = OutsideWrites::none;
        if (!found.names.empty()) {
            Events both{found.of_users};
            both.insert(found.anonymous.begin(), found.anonymous.end());
            form = found.renamed || both != Events{"deleted"} ? OutsideWrites::count
                                                              : OutsideWrites::deletes;
        }
        const Events whole = form == OutsideWrites::count ? all : Events{"deleted"};
        const bool good = form == OutsideWrites::none ||
                          (found.of_users == whole && found.anonymous == whole &&
                           found.renamed == (form == OutsideWrites::count) && !found.elsewhere);
        (good ? triggers.form : triggers.stale) = form;
        triggers.ours = std::move(found.names);
        HOTCOUNT_TRY(find_taken(connection, options, triggers));
        HOTCOUNT_TRY(find_cascades(connection, options, triggers));
        return triggers;
    }

    std::string script(const VotesOptions& options, const VoteNames& n, OutsideWrites form,
                       const FoundTriggers& found) const override {
        // Its own transaction, also within one.
        std::string text = "SAVEPOINT hotcount;\n" + drop(found);
        if (form != OutsideWrites::none) {
            Writer writer{options, place_of(options)};
            writer.of_table("", n, form);
            writer.of_table("_anonymous", n.anonymous(sql::sqlite_grammar()), form);
            if (form == OutsideWrites::count) writer.of_items(n);
            text += writer.text();
        }
        return text + outside_mark(n, sql::sqlite_grammar(), form) + "RELEASE hotcount;\n";
    }
    std::string drop(const FoundTriggers& found) const override {
        std::string text;
        for (const std::string& name : found.ours) {
            text += "DROP TRIGGER IF EXISTS " + sql::quote_identifier(name) + ";\n";
        }
        return text;
    }

    Result<CountedByTriggers> ours(sql::Connection& connection, const VotesOptions& options,
                                   std::atomic<std::int64_t>& seen) const override {
        static const sql::Statement kVersion{"PRAGMA schema_version"};
        std::int64_t version = 0;
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            version = row.integer(0);
            return {};
        };
        HOTCOUNT_TRY(connection.query(kVersion, {}, see));
        // With the version the bits that were true of it: 0 is no version of a schema with votes.
        std::int64_t known = seen.load(std::memory_order_relaxed);
        if (known >> 4 != version) {
            HOTCOUNT_TRY_ASSIGN(const Found found, read_running(connection, options));
            known = version << 4;
            int bit = 0;
            for (const Events* events : {&found.of_users, &found.anonymous}) {
                Events of_votes{*events};
                const bool deletes = of_votes.erase("deleted") > 0;
                if (found.elsewhere || (!of_votes.empty() && of_votes != kOfVotes)) {
                    return stale(options);
                }
                known |= (of_votes.empty() ? 0 : 1 << bit) | (deletes ? 2 << bit : 0);
                bit += 2;
            }
            seen.store(known, std::memory_order_relaxed);
        }
        return CountedByTriggers{(known & 1) != 0, (known & 2) != 0, (known & 4) != 0,
                                 (known & 8) != 0};
    }
    std::string unless_counted(const VotesOptions& options, bool anonymous) const override {
        const std::string suffix = anonymous ? "_anonymous" : "";
        return "(SELECT COUNT(*) = 0 FROM sqlite_master WHERE type = 'trigger' AND instr(sql, '" +
               std::string{kVoteTrigger} +
               "inserted') > 0 AND tbl_name = " + literal(table_of(options, suffix)) +
               " COLLATE NOCASE)";
    }

    std::string_view blind_to(OutsideWrites form) const override {
        static constexpr std::string_view kAlways =
            "rows that REPLACE, INSERT OR REPLACE or UPDATE OR REPLACE deletes in a session "
            "without "
            "recursive_triggers, and writes of a session that has disabled triggers";
        static const std::string kOfDeletes = "inserted and updated rows, " + std::string{kAlways};
        return form == OutsideWrites::deletes ? std::string_view{kOfDeletes} : kAlways;
    }

  private:
    // Those that run for our own statements.
    static Result<Found> read_running(sql::Connection& connection, const VotesOptions& options) {
        bool any = false;
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            any = row.integer(0) != 0;
            return {};
        };
        HOTCOUNT_TRY(connection.query(sql::other_triggers(), {kVoteTrigger}, see));
        if (!any) return Found{};
        return read(connection, options);
    }

    static Error stale(const VotesOptions& options) {
        return make_error(ErrorCode::config,
                          "the triggers of table " + options.vote_table +
                              " that count what others write are incomplete, or are those of "
                              "another "
                              "strategy; create_tables() makes them anew; nothing was applied");
    }

    static Result<void> find_taken(sql::Connection& connection, const VotesOptions& options,
                                   FoundTriggers& triggers) {
        static const sql::Statement kTaken{
            "SELECT name FROM sqlite_master WHERE type = 'trigger' AND instr(sql, ?3) = 0 AND "
            "(substr(name, 1, length(?1)) = ?1 COLLATE NOCASE OR substr(name, 1, length(?2)) = ?2 "
            "COLLATE NOCASE)"};
        const std::string votes = table_of(options, "_hotcount_");
        const std::string anonymous = table_of(options, "_anonymous_hotcount_");
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            triggers.taken = "trigger " + std::string{row.text(0)};
            return {};
        };
        HOTCOUNT_TRY(connection.query(
            kTaken, {std::string_view{votes}, std::string_view{anonymous}, kVoteTrigger}, see));
        return {};
    }

    // SQLite's keys have no names.
    static Result<void> find_cascades(sql::Connection& connection, const VotesOptions& options,
                                      FoundTriggers& triggers) {
        static const sql::Statement kCascades{
            "SELECT \"from\", \"table\", on_delete, on_update, \"from\" = ?2 COLLATE NOCASE FROM "
            "pragma_foreign_key_list(?1) ORDER BY id, seq"};
        const std::string votes = table_of(options, "");
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            note_key(triggers, "of " + std::string{row.text(0)} + " to " + std::string{row.text(1)},
                     row.text(2), row.text(3), row.integer(4) != 0);
            return {};
        };
        HOTCOUNT_TRY(connection.query(
            kCascades, {std::string_view{votes}, std::string_view{options.vote_item}}, see));
        return {};
    }
};

}  // namespace

const OutsideTriggers& sqlite_outside_triggers() {
    static const SqliteOutsideTriggers kTriggers;
    return kTriggers;
}

}  // namespace hotcount
