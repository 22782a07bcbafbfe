#include <hotcount/base/check.hpp>
#include <hotcount/votes/votes.hpp>

#include "layout.hpp"
#include "sql_votes.hpp"
#include "sync_table.hpp"

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
    if (options.page < 1 || options.page > 100'000) {
        return make_error(ErrorCode::config,
                          "page is " + std::to_string(options.page) + "; it takes 1 to 100000");
    }
    if (options.workers < 1 || options.workers > 64) {
        return make_error(ErrorCode::config,
                          "workers is " + std::to_string(options.workers) + "; it takes 1 to 64");
    }
    const std::pair<const char*, Duration> times[] = {{"max_age", options.max_age},
                                                      {"retention", options.retention},
                                                      {"interval", options.interval}};
    for (const auto& [option, time] : times) {
        if (time < std::chrono::milliseconds{1}) {
            return make_error(ErrorCode::config,
                              std::string{option} + " must be 0.001 seconds or more");
        }
    }
    return sql::check_options(options.commit);
}

}  // namespace

Result<std::string> votes_schema(sql::Dialect dialect, const VotesOptions& options) {
    HOTCOUNT_TRY(check_options(options));
    std::string text = Layout{options, dialect}.schema();
    if (options.strategy == VoteStrategy::cached) text += SyncTable{options, dialect}.schema();
    return text;
}

std::string_view to_string(VoteStrategy strategy) {
    switch (strategy) {
        case VoteStrategy::naive:
            return "naive";
        case VoteStrategy::slotted:
            return "slotted";
        case VoteStrategy::batched:
            return "batched";
        case VoteStrategy::cached:
            return "cached";
    }
    return "unknown";
}

Result<std::shared_ptr<Votes>> Votes::make(std::shared_ptr<sql::Database> database,
                                           VotesOptions options, VoteCache cache) {
    HOTCOUNT_TRY(check_options(options));
    const bool has_cache = !std::holds_alternative<std::monostate>(cache);
    if (options.strategy == VoteStrategy::cached) {
        if (!has_cache) {
            return make_error(ErrorCode::config,
                              "strategy 'cached' needs cache=: a Redis or Memory store, or its "
                              "URL");
        }
        return make_cached_votes(std::move(database), std::move(options), std::move(cache));
    }
    if (has_cache) {
        return make_error(ErrorCode::config, "cache must be None for strategy '" +
                                                 std::string{to_string(options.strategy)} +
                                                 "', which counts in the database; 'cached' "
                                                 "takes one");
    }
    if (options.strategy == VoteStrategy::batched) {
        return make_batched_votes(std::move(database), std::move(options));
    }
    return make_single_votes(std::move(database), std::move(options));
}

}  // namespace hotcount
