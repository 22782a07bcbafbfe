#include <hotcount/base/check.hpp>
#include <hotcount/votes/votes.hpp>

#include "sql_votes.hpp"

namespace hotcount {
namespace {

Result<void> check_options(const VotesOptions& options) {
    const std::pair<const char*, const std::string*> names[] = {
        {"item_table", &options.item_table}, {"item_id", &options.item_id},
        {"item_count", &options.item_count}, {"vote_table", &options.vote_table},
        {"vote_item", &options.vote_item},   {"vote_user", &options.vote_user},
    };
    for (const auto& [option, name] : names) HOTCOUNT_TRY(check_identifier(option, *name));
    if (options.slots < 1 || options.slots > 10'000) {
        return make_error(ErrorCode::config,
                          "slots is " + std::to_string(options.slots) + "; it takes 1 to 10000");
    }
    return sql::check_options(options.commit);
}

}  // namespace

std::string_view to_string(VoteStrategy strategy) {
    switch (strategy) {
        case VoteStrategy::naive:
            return "naive";
        case VoteStrategy::slotted:
            return "slotted";
        case VoteStrategy::batched:
            return "batched";
    }
    return "unknown";
}

Result<std::shared_ptr<Votes>> Votes::make(std::shared_ptr<sql::Database> database,
                                           VotesOptions options) {
    HOTCOUNT_TRY(check_options(options));
    if (options.strategy == VoteStrategy::batched) {
        return make_batched_votes(std::move(database), std::move(options));
    }
    return make_single_votes(std::move(database), std::move(options));
}

}  // namespace hotcount
