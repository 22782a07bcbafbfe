#include <algorithm>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/votes.hpp>

#include "sql/dialect.hpp"
#include "sql_votes.hpp"
#include "votes/cache/sync_table.hpp"
#include "votes/tables/layout.hpp"
#include "votes/tables/replica.hpp"

namespace hotcount {
namespace {

constexpr std::string_view kLongestSuffix = "_anonymous";

Result<void> check_op_id(const std::string& op_id) {
    constexpr std::ptrdiff_t kMost = 255;  // MySQL's VARCHAR(255)
    const auto refuse = [](const std::string& why) { return bad_option("op_id", why); };
    if (op_id.find('\0') != std::string::npos) return refuse("contains a NUL byte");
    if (!is_utf8(op_id)) return refuse("is not valid UTF-8");
    const auto begins_character = [](char c) { return (c & 0xC0) != 0x80; };
    const auto characters = std::count_if(op_id.begin(), op_id.end(), begins_character);
    if (characters < 1 || characters > kMost) {
        return refuse("has " + std::to_string(characters) + " characters; it takes 1 to " +
                      std::to_string(kMost));
    }
    return {};
}

Result<void> check_options(const VotesOptions& options, sql::Dialect dialect) {
    const std::pair<const char*, const std::string*> names[] = {
        {"item_id", &options.item_id},
        {"vote_item", &options.vote_item},
        {"vote_user", &options.vote_user},
        {"vote_value", &options.vote_value},
        {"vote_previous", &options.vote_previous},
        {"vote_version", &options.vote_version},
    };
    for (const auto& [option, name] : names) HOTCOUNT_TRY(check_identifier(option, *name));
    for (std::size_t i = 1; i < std::size(names); ++i) {
        for (std::size_t before = 1; before < i; ++before) {
            if (*names[i].second != *names[before].second) continue;
            return bad_option(names[i].first, std::string{"and "} + names[before].first +
                                                  " are the same column: " + *names[i].second);
        }
    }
    if (!options.item_count.empty()) {
        HOTCOUNT_TRY(check_identifier("item_count", options.item_count));
    } else if (options.strategy == VoteStrategy::naive ||
               options.strategy == VoteStrategy::cached) {
        return bad_option("item_count", "is None, and strategy '" +
                                            std::string{to_string(options.strategy)} +
                                            "' counts in that column; 'batched', 'slotted' and "
                                            "'write_behind' count in cells");
    }
    HOTCOUNT_TRY_ASSIGN(const auto items, sql::TableName::parse("item_table", options.item_table));
    HOTCOUNT_TRY_ASSIGN(const auto votes, sql::TableName::parse("vote_table", options.vote_table));
    const sql::Grammar& grammar = dialect.grammar();
    if (!grammar.has_schemas() && !(items.schema.empty() && votes.schema.empty())) {
        return bad_option(items.schema.empty() ? "vote_table" : "item_table",
                          "names a schema, and " + std::string{grammar.name()} +
                              " has none; a name that has a dot stands in quotation marks");
    }
    // PostgreSQL cuts a longer name off, and the tables beside it would be one.
    constexpr std::size_t kMost = kMaxIdentifierBytes - kLongestSuffix.size();
    if (votes.name.size() > kMost) {
        return bad_option("vote_table", "is " + std::to_string(votes.name.size()) +
                                            " bytes long; it takes 1 to " + std::to_string(kMost) +
                                            ", as it also names " + votes.name +
                                            std::string{kLongestSuffix});
    }
    if (options.slots < 1 || options.slots > 10'000) {
        return bad_value("slots", options.slots, "it takes 1 to 10000");
    }
    if (options.page < 1 || options.page > 100'000) {
        return bad_value("page", options.page, "it takes 1 to 100000");
    }
    if (options.workers < 1 || options.workers > 64) {
        return bad_value("workers", options.workers, "it takes 1 to 64");
    }
    if (options.max_pending < 1 || options.max_pending > 500'000) {
        return bad_value("max_pending", options.max_pending, "it takes 1 to 500000");
    }
    const std::pair<const char*, Duration> times[] = {{"max_age", options.max_age},
                                                      {"retention", options.retention},
                                                      {"interval", options.interval}};
    for (const auto& [option, time] : times) {
        if (time < std::chrono::milliseconds{1}) {
            return bad_option(option, "must be 0.001 seconds or more");
        }
    }
    if (options.fold_interval < std::chrono::milliseconds{10} ||
        options.fold_interval > std::chrono::hours{1}) {
        return bad_option("fold_interval", "must be 0.01 to 3600 seconds");
    }
    if (options.read_max_lag < std::chrono::milliseconds{100} ||
        options.read_max_lag > std::chrono::hours{1}) {
        return bad_option("read_max_lag", "must be 0.1 to 3600 seconds");
    }
    if (!options.read_url.empty() && (options.strategy == VoteStrategy::cached ||
                                      options.strategy == VoteStrategy::write_behind)) {
        return bad_option("read_url", "must be None for strategy '" +
                                          std::string{to_string(options.strategy)} +
                                          "', which has something newer in the cache");
    }
    return sql::check_options(options.commit);
}

}  // namespace

Result<Ballot> Ballot::anonymous(sql::Id item, std::string op_id, std::int64_t value) {
    HOTCOUNT_TRY(check_op_id(op_id));
    if (value == 0) {
        return bad_option("value", "is 0: a vote without a user cannot be retracted");
    }
    // The version that the row then has, which a repeat does not exceed.
    constexpr std::int64_t kFirst = 1;
    return Ballot{std::move(item), sql::Id{std::move(op_id)}, value, kFirst, true};
}

Result<std::string> votes_schema(sql::Dialect dialect, const VotesOptions& options) {
    HOTCOUNT_TRY(check_options(options, dialect));
    const Layout layout{options, dialect};
    std::string text = layout.schema();
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
        case VoteStrategy::write_behind:
            return "write_behind";
    }
    return "unknown";
}

Result<std::shared_ptr<Votes>> Votes::make(std::shared_ptr<sql::Database> database,
                                           VotesOptions options, VoteCache cache) {
    HOTCOUNT_TRY(check_options(options, database->dialect()));
    std::shared_ptr<Replica> replica;
    if (!options.read_url.empty()) {
        HOTCOUNT_TRY_ASSIGN(replica, Replica::make(database, options));
    }
    const bool has_cache = !std::holds_alternative<std::monostate>(cache);
    if (options.strategy == VoteStrategy::cached) {
        if (!has_cache) {
            return make_error(ErrorCode::config,
                              "strategy 'cached' needs cache=: a Redis or Memory store, or its "
                              "URL");
        }
        return make_cached_votes(std::move(database), std::move(options), std::move(cache));
    }
    if (options.strategy == VoteStrategy::write_behind) {
        auto* const redis = std::get_if<std::shared_ptr<redis::Client>>(&cache);
        if (redis == nullptr) {
            return make_error(ErrorCode::config,
                              "strategy 'write_behind' needs cache=: a Redis store, or its URL" +
                                  std::string{has_cache ? "; votes that waited in a Memory store "
                                                          "would end with the process"
                                                        : ""});
        }
        return make_write_behind_votes(std::move(database), std::move(options), std::move(*redis));
    }
    if (options.strategy == VoteStrategy::batched) {
        return make_batched_votes(std::move(database), std::move(options), std::move(cache),
                                  std::move(replica));
    }
    if (has_cache) {
        return bad_option("cache", "must be None for strategy '" +
                                       std::string{to_string(options.strategy)} +
                                       "', which counts in the database; 'batched', "
                                       "'cached' and 'write_behind' take one");
    }
    return make_single_votes(std::move(database), std::move(options), std::move(replica));
}

}  // namespace hotcount
