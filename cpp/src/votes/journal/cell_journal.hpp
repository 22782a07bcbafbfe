// The journal of strategy slotted, whose voters change cells and append no rows. Before a fold of
// all items it appends (item, 0) for each item that this process has voted for since the last one,
// so that the fold updates item.vote_count. If the process ends before, the next vote for the item
// does it, or flush(), which compares all items with their cells.
#pragma once

#include <hotcount/detail/base/fork.hpp>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "journal.hpp"

namespace hotcount {

/// Thread-safe. A forked child begins without noted items.
class CellJournal final : public Journal {
  public:
    explicit CellJournal(std::unique_ptr<Journal> journal) : journal_(std::move(journal)) {}

    /// Notes that a vote has changed a cell of the item; false if that was noted. Never waits for
    /// the database.
    bool note(const sql::Id& item) {
        Noted& noted = noted_.get();
        const std::lock_guard lock(noted.mutex);
        return noted.items.insert(item).second;
    }

    Result<FoldedPage> fold(const FoldRequest& request, Deadline deadline) override {
        if (request.only.empty()) HOTCOUNT_TRY(ask_for_noted(deadline));
        return journal_->fold(request, deadline);
    }

    bool may_starve() const override { return journal_->may_starve(); }
    Result<FoldedPage> fold_in(sql::Connection& connection, const FoldRequest& request) override {
        return journal_->fold_in(connection, request);
    }
    Result<void> ask(std::span<const sql::Id> items, Deadline deadline) override {
        return journal_->ask(items, deadline);
    }
    Result<std::vector<sql::Id>> items(Deadline deadline) override {
        return journal_->items(deadline);
    }
    Result<JournalBacklog> backlog(Deadline deadline) override {
        return journal_->backlog(deadline);
    }
    Result<JournalLook> look(Deadline deadline) override { return journal_->look(deadline); }
    Result<void> tidy(Deadline deadline) override { return journal_->tidy(deadline); }

  private:
    struct Noted {
        std::timed_mutex asking{};  // Held while rows are appended: a fold then finds them.
        std::mutex mutex{};
        std::set<sql::Id> items{};
    };

    Result<void> ask_for_noted(Deadline deadline) {
        Noted& noted = noted_.get();
        const std::unique_lock asking(noted.asking, deadline.time());
        if (!asking) return {};
        std::set<sql::Id> items;
        {
            const std::lock_guard lock(noted.mutex);
            items.swap(noted.items);
        }
        if (items.empty()) return {};
        auto asked = journal_->ask(std::vector<sql::Id>(items.begin(), items.end()), deadline);
        if (asked) return asked;
        const std::lock_guard lock(noted.mutex);
        noted.items.merge(items);
        return asked;
    }

    const std::unique_ptr<Journal> journal_;
    ForkLocal<Noted> noted_{[] { return std::make_unique<Noted>(); }};
};

}  // namespace hotcount
