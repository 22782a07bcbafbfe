#include <algorithm>
#include <hotcount/detail/base/interrupt.hpp>
#include <hotcount/detail/sql/transaction.hpp>
#include <hotcount/detail/votes/integrations.hpp>
#include <optional>

#include "hotcount_embedded/votes/sql.hpp"
#include "journal.hpp"
#include "votes/tables/count_place.hpp"
#include "votes/tables/layout.hpp"
#include "votes/tables/vote_dialect.hpp"

namespace hotcount {
namespace {

using Outcome = FoldTrial::Outcome;

// Between two attempts while another session folds.
constexpr Duration kTrialPause = std::chrono::milliseconds{20};

// A lasting refusal by the database is the result of the trial. Other errors go to the caller.
Result<FoldTrial> refused(Outcome outcome, Error error) {
    if (sql::is_transient(error)) return error;
    switch (error.code) {
        case ErrorCode::database:
        case ErrorCode::permission_denied:
        case ErrorCode::integrity:
        case ErrorCode::overflow:
            return FoldTrial{outcome, std::move(error.message)};
        default:
            return error;
    }
}

class Trial {
  public:
    Trial(const Layout& layout, const VotesOptions& options, Journal& journal)
        : layout_(layout), journal_(journal), first_item_(first_item_text(layout, options)) {}

    Result<FoldTrial> run(sql::Connection& connection) {
        auto mark = read_mark(connection, layout_.read_place);
        if (!mark) {
            if (mark.error().condition == SqlCondition::undefined_table) return FoldTrial{};
            return refused(Outcome::untried, std::move(mark).error());
        }
        if (*mark != to_string(CountPlace::journal)) return FoldTrial{};
        std::optional<sql::Id> item;
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            item = row.id(0);
            return {};
        };
        auto found = connection.query(first_item_, {}, see);
        if (!found) return refused(Outcome::untried, std::move(found).error());
        if (item) {
            auto appended =
                connection.execute(layout_.append, {sql::to_value(*item), std::int64_t{0}});
            if (!appended) return refused(Outcome::untried, std::move(appended).error());
        }
        auto folded = journal_.fold_in(connection, FoldRequest{});
        if (!folded) return refused(Outcome::fails, std::move(folded).error());
        if (folded->outcome == FoldedPage::Outcome::elsewhere) return FoldTrial{};
        if (folded->outcome == FoldedPage::Outcome::taken) {
            return FoldTrial{Outcome::waits,
                             "another fold, or another session, has the lock of folds"};
        }
        return FoldTrial{Outcome::works};
    }

  private:
    static std::string first_item_text(const Layout& layout, const VotesOptions& options) {
        const VoteNames n{options, layout.vote_dialect().grammar()};
        return vote_statements(vote_sql::kCountsSql, n,
                               layout.vote_dialect().grammar())["first_item"];
    }

    const Layout& layout_;
    Journal& journal_;
    const sql::Statement first_item_;
};

}  // namespace

std::string_view to_string(Outcome outcome) {
    switch (outcome) {
        case Outcome::works:
            return "works";
        case Outcome::fails:
            return "fails";
        case Outcome::waits:
            return "waits";
        case Outcome::untried:
            return "untried";
        case Outcome::absent:
            break;
    }
    return "absent";
}

Result<FoldTrial> try_fold(const std::shared_ptr<sql::Database>& database,
                           const VotesOptions& options, Deadline deadline) {
    const Layout layout{options, database->dialect()};
    const std::shared_ptr<Journal> journal = layout.vote_dialect().journal(database, options);
    if (journal == nullptr || layout.place() != CountPlace::journal) return FoldTrial{};
    Trial trial{layout, options, *journal};
    FoldTrial last{Outcome::waits};
    while (true) {
        const auto attempt = [&](sql::Connection& connection) -> Result<FoldTrial> {
            HOTCOUNT_TRY(connection.begin(deadline));
            return trial.run(connection);  // The lease ends without a commit: rolled back.
        };
        auto tried = sql::transact_alone(*database, deadline, attempt);
        if (!tried && tried.error().code == ErrorCode::deadline) {
            if (last.why.empty()) last.why = std::move(tried).error().message;
            return last;
        }
        if (!tried || tried->outcome != Outcome::waits || deadline.passed()) return tried;
        last = *std::move(tried);
        sleep_or_interrupt(std::min<Duration>(kTrialPause, deadline.remaining()));
    }
}

}  // namespace hotcount
