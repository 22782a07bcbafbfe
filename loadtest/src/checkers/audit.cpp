#include "audit.hpp"

#include <fmt/core.h>
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace hotcount::loadtest {

namespace {

constexpr std::size_t kRanges = 4096;
constexpr std::size_t kCountsAtOnce = 1000;
// Bounds one part of an audit, not the load: far above what 4 million rows take.
constexpr Duration kAuditTimeout = std::chrono::minutes{10};

bool is_write(const LedgerRecord& record) { return record.kind != OperationKind::read; }

/// True if it is unknown whether the call was sent or applied: its caller died before the answer,
/// or the record belongs to a part that is missing.
bool may_be_sent(Status status) { return status == Status::sent || status == Status::empty; }

struct ItemRange {
    std::int64_t first;
    std::int64_t last;  ///< Included.
    bool holds(std::int64_t item) const { return item >= first && item <= last; }
};

// Cuts the items into ranges of at most `most` attempts; together they cover every int64,
// so that the audit also finds rows of items outside the plan.
std::vector<ItemRange> item_ranges(const Ledger& ledger, std::uint64_t most) {
    std::int64_t least = INT64_MAX;
    std::int64_t largest = INT64_MIN;
    std::uint64_t writes = 0;
    const std::uint64_t planned = ledger.planned();
    for (std::uint64_t index = 0; index < planned; ++index) {
        const LedgerRecord& record = ledger[index];
        if (!is_write(record)) continue;
        ++writes;
        least = std::min(least, record.item);
        largest = std::max(largest, record.item);
    }
    if (writes <= most) return {{INT64_MIN, INT64_MAX}};

    const std::int64_t width = (largest - least) / static_cast<std::int64_t>(kRanges) + 1;
    std::array<std::uint64_t, kRanges> counts{};
    for (std::uint64_t index = 0; index < planned; ++index) {
        const LedgerRecord& record = ledger[index];
        if (is_write(record)) ++counts[static_cast<std::size_t>((record.item - least) / width)];
    }
    std::vector<ItemRange> ranges;
    std::int64_t first = INT64_MIN;
    std::uint64_t held = 0;
    for (std::size_t range = 0; range < kRanges; ++range) {
        if (held > 0 && held + counts[range] > most) {
            const std::int64_t next = least + width * static_cast<std::int64_t>(range);
            ranges.push_back({first, next - 1});
            first = next;
            held = 0;
        }
        held += counts[range];
    }
    ranges.push_back({first, INT64_MAX});
    return ranges;
}

std::vector<Attempt> attempts_in(const Ledger& ledger, const ItemRange& range,
                                 std::uint64_t& unsent) {
    std::vector<Attempt> attempts;
    const std::uint64_t planned = ledger.planned();
    for (std::uint64_t index = 0; index < planned; ++index) {
        const LedgerRecord& record = ledger[index];
        if (!is_write(record) || !range.holds(record.item)) continue;
        const Status status = record.load_status();
        if (status == Status::planned) {
            ++unsent;
            continue;
        }
        attempts.push_back({record.item, record.user, record.value, record.sent_ns, record.done_ns,
                            may_be_sent(status) ? Status::unknown : status});
    }
    return attempts;
}

// The auditor's own statements over the tables of a Votes object.
class VoteReader {
  public:
    explicit VoteReader(const VotesOptions& options)
        : rows_(fmt::format(
              "SELECT {0}, {1}, {3} FROM {2} WHERE {0} BETWEEN ?1 AND ?2 "
              "ORDER BY {0}, {1}",
              sql::quote_identifier(options.vote_item), sql::quote_identifier(options.vote_user),
              quoted_table(options.vote_table), sql::quote_identifier(options.vote_value))),
          counts_(fmt::format("SELECT {0}, {1} FROM {2} WHERE {0} BETWEEN ?1 AND ?2 ORDER BY {0}",
                              sql::quote_identifier(options.item_id),
                              sql::quote_identifier(options.item_count),
                              quoted_table(options.item_table))) {}

    /// Both from one snapshot.
    Result<void> read(sql::Database& database, const ItemRange& range, std::vector<VoteRow>& rows,
                      std::vector<ItemCount>& counts) const {
        const Deadline deadline = Deadline::after(kAuditTimeout);
        HOTCOUNT_TRY_ASSIGN(const sql::Lease connection, database.reader(deadline));
        HOTCOUNT_TRY(connection->begin_read(deadline));
        const sql::RowVisitor add_row = [&](const sql::Row& row) -> Result<void> {
            for (int column = 0; column < 3; ++column) {
                if (!row.is_integer(column)) return not_integer();
            }
            rows.push_back({row.integer(0), row.integer(1), row.integer(2)});
            return {};
        };
        HOTCOUNT_TRY(connection->query(rows_, {range.first, range.last}, add_row));
        const sql::RowVisitor add_count = [&](const sql::Row& row) -> Result<void> {
            if (!row.is_integer(0)) return not_integer();
            std::optional<std::int64_t> stored;
            if (row.is_integer(1)) stored = row.integer(1);
            counts.push_back({row.integer(0), stored, {}});
            return {};
        };
        HOTCOUNT_TRY(connection->query(counts_, {range.first, range.last}, add_count));
        return connection->commit();
    }

  private:
    static Error not_integer() {
        return make_error(ErrorCode::config,
                          "the tables hold ids or values that are not integers: not this run's");
    }
    sql::Statement rows_;
    sql::Statement counts_;
};

Result<void> ask_counts(Votes& votes, std::vector<ItemCount>& counts) {
    for (std::size_t from = 0; from < counts.size(); from += kCountsAtOnce) {
        const std::size_t until = std::min(from + kCountsAtOnce, counts.size());
        std::vector<sql::Id> items;
        for (std::size_t index = from; index < until; ++index) {
            items.emplace_back(counts[index].item);
        }
        HOTCOUNT_TRY_ASSIGN(const std::vector<Count> answers,
                            votes.count_many(items, Consistency::cached, Duration{kAuditTimeout}));
        for (std::size_t index = from; index < until; ++index) {
            counts[index].counted = answers[index - from].value;
        }
    }
    return {};
}

}  // namespace

CallsByItem::CallsByItem(const Ledger& ledger, std::uint64_t items, bool with_reads)
    : first_(items + 1, 0) {
    const std::uint64_t planned = ledger.planned();
    const auto counts = [&](const LedgerRecord& record) {
        return (with_reads || record.kind != OperationKind::read) && record.item >= 1 &&
               static_cast<std::uint64_t>(record.item) <= items &&
               record.load_status() != Status::planned;
    };
    for (std::uint64_t index = 0; index < planned; ++index) {
        const LedgerRecord& record = ledger[index];
        if (counts(record)) ++first_[static_cast<std::size_t>(record.item)];
        if (record.kind == OperationKind::read) continue;
        switch (record.load_status()) {
            case Status::planned:
                ++counts_.unsent;
                break;
            case Status::failed:
                ++counts_.failed;
                break;
            case Status::ok:
                ++counts_.acknowledged;
                break;
            case Status::empty:
            case Status::sent:
            case Status::unknown:
                ++counts_.unknown;
                break;
        }
    }
    for (std::uint64_t item = 1; item <= items; ++item) first_[item] += first_[item - 1];
    indices_.resize(first_[items]);
    std::vector<std::uint64_t> next(first_.begin(), first_.end() - 1);
    for (std::uint64_t index = 0; index < planned; ++index) {
        const LedgerRecord& record = ledger[index];
        if (counts(record)) indices_[next[static_cast<std::size_t>(record.item - 1)]++] = index;
    }
}

void CallsByItem::count_into(AuditResult& result) const { result.add(counts_); }

std::string quoted_table(const std::string& name, const std::string& suffix) {
    std::string text;
    for (std::size_t at = 0;; ++at) {
        // A part in quotation marks stands as in SQL, and no dot within them ends it.
        const bool in_marks = name.compare(at, 1, "\"") == 0;
        const std::size_t begin = at;
        for (bool inside = false; at < name.size() && (inside || name[at] != '.'); ++at) {
            if (in_marks && name[at] == '"') inside = !inside;
        }
        const bool last = at == name.size();
        const std::string part = name.substr(begin, at - begin);
        if (!last) {
            text += (in_marks ? part : sql::quote_identifier(part)) + '.';
        } else if (in_marks) {
            return text + part.substr(0, part.size() - 1) + suffix + '"';
        } else {
            return text + sql::quote_identifier(part + suffix);
        }
    }
}

Result<AuditResult> audit_votes(const Ledger& ledger, sql::Database& database, Votes& votes,
                                std::uint64_t most_attempts, std::span<const std::int64_t> ids) {
    const VoteReader reader(votes.options());
    const auto size = static_cast<std::int64_t>(ids.size());
    const auto id_of = [&](std::int64_t number) {
        return size == 0
                   ? number
                   : ids[static_cast<std::size_t>(std::clamp(number, std::int64_t{1}, size) - 1)];
    };
    // An item that was inserted between the load's items meanwhile has no number.
    const auto has_no_number = [&](auto& row) {
        const auto found = std::lower_bound(ids.begin(), ids.end(), row.item);
        if (found == ids.end() || *found != row.item) return size > 0;
        row.item = found - ids.begin() + 1;
        return false;
    };
    const VoteSource source = [&](std::int64_t first, std::int64_t last, std::vector<VoteRow>& rows,
                                  std::vector<ItemCount>& counts) -> Result<void> {
        HOTCOUNT_TRY(reader.read(database, {id_of(first), id_of(last)}, rows, counts));
        HOTCOUNT_TRY(ask_counts(votes, counts));
        std::erase_if(rows, has_no_number);
        std::erase_if(counts, has_no_number);
        return {};
    };
    return audit_votes(ledger, source, most_attempts);
}

Result<AuditResult> audit_votes(const Ledger& ledger, const VoteSource& source,
                                std::uint64_t most_attempts) {
    AuditResult result;
    for (const ItemRange& range : item_ranges(ledger, most_attempts)) {
        std::vector<VoteRow> rows;
        std::vector<ItemCount> counts;
        HOTCOUNT_TRY(source(range.first, range.last, rows, counts));
        AuditResult part;
        check_votes(attempts_in(ledger, range, part.unsent), rows, counts, part);
        result.add(part);
    }
    return result;
}

AuditResult audit_counters(const Ledger& ledger, std::span<const std::int64_t> values,
                           bool told_values) {
    const CallsByItem writes(ledger, values.size());
    AuditResult result;
    writes.count_into(result);
    std::vector<AddAnswer> answers;
    for (std::uint64_t item = 1; item <= values.size(); ++item) {
        CounterBounds bounds;
        answers.clear();
        bool all_answered = true;
        for (const std::uint64_t index : writes.of(item)) {
            const LedgerRecord& record = ledger[index];
            bounds.attempted = true;
            const Status status = record.load_status();
            if (status == Status::ok) {
                bounds.acknowledged += record.value;
                answers.push_back({record.value, record.returned});
            } else if (status != Status::failed) {
                (record.value > 0 ? bounds.unknown_up : bounds.unknown_down) += record.value;
                all_answered = false;
            }
        }
        const std::int64_t value = values[item - 1];
        const std::uint64_t before = result.lost() + result.doubled();
        check_counter(static_cast<std::int64_t>(item), value, bounds, result);
        // If the value itself is wrong, the answers cannot fit it and say nothing more.
        if (!told_values || !all_answered || answers.empty() ||
            result.lost() + result.doubled() != before) {
            continue;
        }
        const std::uint64_t wrong = wrong_answers(answers, value);
        result.wrong_answers += wrong;
        if (wrong > 0) {
            result.counters_off.push_back({static_cast<std::int64_t>(item), 0, wrong});
            result.example(
                fmt::format("wrong answers: {} adds to item {} were told a value that "
                            "no order of them gives",
                            wrong, item));
        }
    }
    return result;
}

AuditResult audit_mortal_counters(const Ledger& ledger, std::span<const std::int64_t> values) {
    const CallsByItem writes(ledger, values.size());
    AuditResult result;
    writes.count_into(result);
    for (std::uint64_t item = 1; item <= values.size(); ++item) {
        std::vector<std::int64_t> told;
        std::uint64_t unanswered = 0;
        for (const std::uint64_t index : writes.of(item)) {
            const Status status = ledger[index].load_status();
            if (status == Status::ok) told.push_back(ledger[index].returned);
            if (may_be_sent(status) || status == Status::unknown) ++unanswered;
        }
        const std::int64_t value = values[item - 1];
        ++result.items;
        result.sum = capped_sum(result.sum, value);
        const std::uint64_t wrong = answers_without_predecessor(told, value);
        if (wrong <= unanswered) continue;
        result.wrong_answers += wrong - unanswered;
        result.example(
            fmt::format("wrong answers: item {} counts {} or was told values whose "
                        "predecessors nobody was told, {} of them",
                        item, value, wrong - unanswered));
    }
    return result;
}

Result<void> refuse_used_tables(sql::Database& database, const VotesOptions& options) {
    const sql::Statement count_rows(
        fmt::format("SELECT COUNT(*) FROM {}", quoted_table(options.vote_table)));
    const sql::Statement count_items(fmt::format("SELECT COUNT(*) FROM {} WHERE {} <> 0",
                                                 quoted_table(options.item_table),
                                                 sql::quote_identifier(options.item_count)));
    const Deadline deadline = Deadline::after(kAuditTimeout);
    HOTCOUNT_TRY_ASSIGN(const sql::Lease connection, database.reader(deadline));
    std::int64_t found = 0;
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        found = row.integer(0);
        return {};
    };
    HOTCOUNT_TRY(connection->query(count_rows, {}, read));
    if (found != 0) {
        return make_error(ErrorCode::config,
                          fmt::format("table {} of {} holds {} votes already: the audit could not "
                                      "tell them from the run's own; empty the table or name a "
                                      "fresh database or copy",
                                      options.vote_table, database.name(), found));
    }
    HOTCOUNT_TRY(connection->query(count_items, {}, read));
    if (found != 0) {
        return make_error(ErrorCode::config,
                          fmt::format("table {} of {} holds counts already, on {} items; name a "
                                      "fresh database or copy",
                                      options.item_table, database.name(), found));
    }
    return {};
}

bool nothing_was_sent(const Ledger& ledger) {
    const std::uint64_t planned = ledger.planned();
    for (std::uint64_t index = 0; index < planned; ++index) {
        if (is_write(ledger[index]) && ledger[index].load_status() != Status::planned) return false;
    }
    return true;
}

namespace {

/// From the kind of the operation, so that a damaged ledger has no wild ones.
std::int64_t value_of(const LedgerRecord& record, bool adds) {
    if (record.kind == OperationKind::vote) return 1;
    return adds ? -1 : 0;
}

/// One item's calls, as the checkers take them.
struct ItemCalls {
    std::vector<Attempt> writes{};
    std::vector<CastCall> casts{};
    std::vector<Read> reads{};
    bool told{false};  ///< Of one of the casts.

    void clear() {
        writes.clear();
        casts.clear();
        reads.clear();
        told = false;
    }

    void take(const LedgerRecord& record, bool adds) {
        const Status status = record.load_status();
        if (record.kind == OperationKind::read) {
            if (status != Status::ok || (record.said & said::kNumber) == 0) return;
            reads.push_back({record.returned, record.sent_ns, record.done_ns,
                             (record.said & said::kExact) != 0});
            return;
        }
        if (status == Status::failed) return;
        // Died before it knew, or had no answer: applied at any time since, or never.
        const bool answered = status == Status::ok;
        writes.push_back({record.item, record.user, value_of(record, adds), record.sent_ns,
                          answered ? record.done_ns : INT64_MAX / 4,
                          answered ? Status::ok : Status::unknown});
        if (adds) return;
        const bool was_told = answered && (record.said & said::kCast) != 0;
        casts.push_back({writes.back(), was_told, (record.said & said::kChanged) != 0,
                         (record.said & said::kCounted) != 0, record.returned, record.now});
        told = told || was_told;
    }
};

void check_casts_of_item(std::vector<CastCall>& casts, const AnswerRules& rules,
                         AuditResult& result) {
    std::sort(casts.begin(), casts.end(),
              [](const CastCall& a, const CastCall& b) { return a.attempt.user < b.attempt.user; });
    for (std::span<CastCall> rest = casts; !rest.empty();) {
        std::size_t size = 1;
        while (size < rest.size() && rest[size].attempt.user == rest[0].attempt.user) ++size;
        check_casts(rest.first(size), rules, result);
        rest = rest.subspan(size);
    }
}

}  // namespace

void audit_answers(const Ledger& ledger, const AnswerRules& rules, AuditResult& result) {
    const CallsByItem calls(ledger, rules.items, true);
    ItemCalls item_calls;
    for (std::uint64_t item = 1; item <= rules.items; ++item) {
        item_calls.clear();
        for (const std::uint64_t index : calls.of(item)) {
            item_calls.take(ledger[index], rules.adds);
        }
        if (!item_calls.reads.empty()) {
            check_reads(static_cast<std::int64_t>(item), item_calls.writes, item_calls.reads, rules,
                        result);
        }
        if (item_calls.told) check_casts_of_item(item_calls.casts, rules, result);
    }
}

}  // namespace hotcount::loadtest
