#include "plain_votes.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace hotcount::loadtest {
namespace {

using redis::Reply;
using redis::ReplyArray;

constexpr Duration kWorkerPause = std::chrono::milliseconds{20};
constexpr Duration kWorkerTimeout = std::chrono::seconds{20};

// An application server's first script: adds to the key if it exists, else answers nil.
constexpr std::string_view kIncrement = R"(
if redis.call("exists", KEYS[1]) == 0 then return nil end
redis.call("set", KEYS[1] .. "_expired", ARGV[2])
return redis.call("incrby", KEYS[1], ARGV[1]))";
// Its second script, after nil: sets the database's count plus the vote, unless the key exists now.
constexpr std::string_view kFill = R"(
redis.call("set", KEYS[1] .. "_expired", ARGV[2])
if redis.call("exists", KEYS[1]) == 1 then return redis.call("incrby", KEYS[1], ARGV[1]) end
redis.call("set", KEYS[1], ARGV[3] + ARGV[1])
return ARGV[3] + ARGV[1])";

// The worker's scripts, as published, with their faults: the names of the flags do not agree.
constexpr std::string_view kList = R"(
local cursor = redis.call("get", "item_synchronization_cursor") or 0
local scanResults = redis.call("scan", cursor, "match", "item_*", "count", 1000)
redis.call("set", "item_synchronization_cursor", scanResults[1])
local keys = scanResults[2]
local result = {}
for i=1,#keys do
    local key = keys[i]
    local id = string.match(key, "item_(%d+)$")
    if id then
        table.insert(result, id)
        table.insert(result, redis.call("get", key))
        table.insert(result, redis.call("get", key .. "saved"))
        table.insert(result, redis.call("get", key .. "expired"))
    end
end
return result)";
constexpr std::string_view kMark = R"(
local id = KEYS[1]
local savedValue = tonumber(KEYS[2])
local key = "item_" .. id
local curValue = tonumber(redis.call("get", key))
if savedValue == curValue then
    redis.call("set", key .. "_saved", 1)
end)";
constexpr std::string_view kDelete = R"(
local id = KEYS[1]
local savedValue = tonumber(KEYS[2])
local key = "item_" .. id
local curValue = tonumber(redis.call("get", key))
if savedValue == curValue then
    redis.call("del", key);
    redis.call("del", key .. ":_expired");
    redis.call("del", key .. ":_saved");
end)";
constexpr std::size_t kListed = 4;  // Id, value and two flags of each key.

Answer answer_from(const Error& error) {
    return {nothing_applied(error.code) ? Outcome::failed : Outcome::unknown, error.code};
}

std::string quoted(const std::string& name) { return sql::quote_identifier(name); }

}  // namespace

PlainVotes::PlainVotes(std::shared_ptr<sql::Database> database, const VotesOptions& options,
                       std::shared_ptr<redis::Client> client, Duration timeout)
    : database_(std::move(database)),
      client_(std::move(client)),
      timeout_(timeout),
      insert_(fmt::format("INSERT INTO {} ({}, {}, val, prev, version) VALUES (?1, ?2, 1, 0, 0)",
                          quoted(options.vote_table), quoted(options.vote_item),
                          quoted(options.vote_user))),
      update_(fmt::format("UPDATE {} SET val = ?3 WHERE {} = ?1 AND {} = ?2 AND val <> ?3",
                          quoted(options.vote_table), quoted(options.vote_item),
                          quoted(options.vote_user))),
      count_rows_(fmt::format("SELECT COUNT(*) FROM {} WHERE {} = ?1 AND val <> 0",
                              quoted(options.vote_table), quoted(options.vote_item))),
      stored_(fmt::format("SELECT {} FROM {} WHERE {} = ?1", quoted(options.item_count),
                          quoted(options.item_table), quoted(options.item_id))),
      save_(fmt::format("UPDATE {} SET {} = ?2 WHERE {} = ?1", quoted(options.item_table),
                        quoted(options.item_count), quoted(options.item_id))) {}

Contract PlainVotes::contract() const {
    if (!client_) {
        return {"insert_only",
                "the vote's row is committed; nothing is counted, a count reads the rows",
                "nothing", true, true};
    }
    return {
        "redis/seed_cached",
        "the vote's row is committed and its count in Redis incremented (RACY, to compare with)",
        "votes of the counts, when fills and saves meet; counts drift until somebody counts the "
        "rows",
        true, false};
}

Answer PlainVotes::apply(const Operation& operation) {
    const Deadline deadline = Deadline::after(timeout_);
    Answer answer;
    if (operation.kind == OperationKind::read) {
        const auto number = read(operation, deadline);
        if (!number) return answer_from(number.error());
        answer.tell(*number);
        return answer;
    }
    const auto changed = write_row(operation, deadline);
    if (!changed) return answer_from(changed.error());
    const std::int64_t value = operation.kind == OperationKind::vote ? 1 : 0;
    answer.tell_cast(*changed ? 1 - value : value, value, *changed, value != 0);
    if (!client_ || !*changed) return answer;
    const std::int64_t change = operation.kind == OperationKind::vote ? 1 : -1;
    if (count(operation, change, deadline)) return answer;
    // The row is committed, its count may not be, and nothing records the difference.
    return {Outcome::unknown, ErrorCode::outcome_unknown};
}

/// Returns true if a row was changed. A vote whose row exists updates its value.
Result<bool> PlainVotes::write_row(const Operation& operation, Deadline deadline) {
    HOTCOUNT_TRY_ASSIGN(const sql::Lease writer, database_->writer(deadline));
    const sql::Alone how{.deadline = deadline};
    const std::int64_t value = operation.kind == OperationKind::vote ? 1 : 0;
    if (value == 1) {
        const sql::Value row[] = {operation.item, operation.user};
        const auto inserted = writer->run_alone(insert_, row, nullptr, how);
        if (inserted) return true;
        if (inserted.error().code != ErrorCode::integrity) return inserted.error();
    }
    const sql::Value row[] = {operation.item, operation.user, value};
    HOTCOUNT_TRY_ASSIGN(const std::int64_t changed, writer->run_alone(update_, row, nullptr, how));
    return changed > 0;
}

Result<void> PlainVotes::count(const Operation& operation, std::int64_t change, Deadline deadline) {
    const std::string key = fmt::format("item_{}", operation.item);
    const std::string by = std::to_string(change);
    // 10 minutes, as in the published description.
    const auto expires = std::chrono::system_clock::now() + std::chrono::minutes{10};
    const std::string expired = std::to_string(std::chrono::system_clock::to_time_t(expires));
    const std::string_view increment[] = {"EVAL", kIncrement, "1", key, by, expired};
    HOTCOUNT_TRY_ASSIGN(const Reply counted, client_->execute(increment, deadline.remaining()));
    if (!std::holds_alternative<std::monostate>(counted.value)) return {};
    HOTCOUNT_TRY_ASSIGN(const std::int64_t stored,
                        read_database(stored_, operation.item, deadline));
    const std::string found = std::to_string(stored);
    const std::string_view fill[] = {"EVAL", kFill, "1", key, by, expired, found};
    HOTCOUNT_TRY(client_->execute(fill, deadline.remaining()));
    return {};
}

Result<std::int64_t> PlainVotes::read(const Operation& operation, Deadline deadline) {
    if (client_) {
        const std::string key = fmt::format("item_{}", operation.item);
        const std::string_view get[] = {"GET", key};
        HOTCOUNT_TRY_ASSIGN(const Reply found, client_->execute(get, deadline.remaining()));
        if (const auto number = redis::to_integer(found)) return *number;
    }
    return read_database(client_ ? stored_ : count_rows_, operation.item, deadline);
}

Result<std::int64_t> PlainVotes::read_database(const sql::Statement& statement, std::int64_t item,
                                               Deadline deadline) {
    HOTCOUNT_TRY_ASSIGN(const sql::Lease reader, database_->reader(deadline));
    std::int64_t found = 0;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        found = row.integer(0);
        return {};
    };
    const sql::Value parameters[] = {item};
    HOTCOUNT_TRY(reader->read_alone(statement, parameters, &see, deadline));
    return found;
}

Result<void> PlainVotes::clean_up() {
    if (!client_) return {};
    worker_ = {};
    constexpr std::string_view kFlush[] = {"FLUSHALL"};
    HOTCOUNT_TRY(client_->execute(kFlush, kWorkerTimeout));
    return {};
}

Result<void> PlainVotes::begin() {
    HOTCOUNT_TRY(clean_up());
    if (!client_) return {};
    worker_ = std::jthread([this](const std::stop_token& ended) {
        std::mutex mutex;
        std::condition_variable_any wake;
        std::unique_lock lock(mutex);
        while (!ended.stop_requested()) {
            (void)pass(true);  // The next pass saves the keys that this one could not.
            wake.wait_for(lock, ended, kWorkerPause, [] { return false; });
        }
    });
    return {};
}

/// Saves and marks a page of keys. With `deletes` also deletes them: the scripts read the expiry
/// under another name than the one it is written to, so it delays no deletion. True: the last page.
Result<bool> PlainVotes::pass(bool deletes) {
    const std::string_view list[] = {"EVAL", kList, "0"};
    HOTCOUNT_TRY_ASSIGN(const Reply listed, client_->execute(list, kWorkerTimeout));
    const auto* const fields = std::get_if<ReplyArray>(&listed.value);
    const auto text = [&](std::size_t at) {
        return std::get_if<std::string>(&(*fields)[at].value);
    };
    for (std::size_t at = 0; fields != nullptr && at + kListed <= fields->size(); at += kListed) {
        const std::string* const id = text(at);
        const std::string* const value = text(at + 1);
        if (id == nullptr || value == nullptr) continue;
        const auto item = redis::to_integer((*fields)[at]);
        const auto votes = redis::to_integer((*fields)[at + 1]);
        if (!item || !votes) continue;
        {
            const Deadline deadline = Deadline::after(kWorkerTimeout);
            HOTCOUNT_TRY_ASSIGN(const sql::Lease writer, database_->writer(deadline));
            const sql::Value row[] = {*item, *votes};
            HOTCOUNT_TRY(writer->run_alone(save_, row, nullptr, {.deadline = deadline}));
        }
        const std::string_view mark[] = {"EVAL", kMark, "2", *id, *value};
        HOTCOUNT_TRY(client_->execute(mark, kWorkerTimeout));
        const std::string_view remove[] = {"EVAL", kDelete, "2", *id, *value};
        if (deletes) HOTCOUNT_TRY(client_->execute(remove, kWorkerTimeout));
    }
    constexpr std::string_view kCursor[] = {"GET", "item_synchronization_cursor"};
    HOTCOUNT_TRY_ASSIGN(const Reply cursor, client_->execute(kCursor, kWorkerTimeout));
    const auto* const at = std::get_if<std::string>(&cursor.value);
    return at == nullptr || *at == "0";
}

Result<void> PlainVotes::settle() {
    if (!client_) return {};
    worker_ = {};
    // First the rest of the scan that the worker was in, then a full scan.
    for (int rounds = 0; rounds < 2;) {
        HOTCOUNT_TRY_ASSIGN(const bool last, pass(false));
        if (last) ++rounds;
    }
    return {};
}

void PlainVotes::excuse(AuditResult& result) const {
    if (client_) {
        result.drift = result.stored_low + result.stored_high;
        result.allowed_breaches += result.drift;
    } else {
        std::erase_if(result.examples,
                      [](const std::string& each) { return each.starts_with("count: "); });
    }
    result.forget_counts();
}

}  // namespace hotcount::loadtest
