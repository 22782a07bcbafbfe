#include "plain_sets.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <utility>

#include "plain_commands.hpp"

namespace hotcount::loadtest {
namespace {

using redis::Reply;
using Commands = std::vector<std::vector<std::string_view>>;

Result<std::int64_t> number_of(const Result<Reply>& reply) {
    if (!reply) return reply.error();
    if (const auto number = redis::to_integer(*reply)) return *number;
    return make_error(ErrorCode::reply, "a number was expected");
}

}  // namespace

std::optional<PlainWay> plain_way(std::string_view way) {
    if (way == "exists_then_add") return PlainWay::exists_then_add;
    if (way == "unguarded_pipeline") return PlainWay::unguarded_pipeline;
    if (way == "watch") return PlainWay::watch;
    return std::nullopt;
}

Result<Upsert> PlainSetsDriver::upsert(const UpsertItem& item) {
    HOTCOUNT_TRY_ASSIGN(auto upserts, upsert_many({&item, 1}));
    return std::move(upserts.front());
}

Result<PlainSetsDriver::Upserts> PlainSetsDriver::upsert_many(std::span<const UpsertItem> items) {
    const Deadline deadline = client_->deadline(timeout());
    Upserts upserts;
    if (way_ == PlainWay::watch) {
        for (const UpsertItem& item : items) upserts.push_back(watch_and_add(item, deadline));
        return upserts;
    }
    std::vector<std::array<std::string, 2>> held;  // Key and score of each.
    Commands looks;
    Commands adds;
    Commands both;
    for (const UpsertItem& item : items) {
        held.push_back(
            {client_->options().prefix + std::string{item.key}, fmt::format("{}", item.score)});
    }
    for (std::size_t i = 0; i < items.size(); ++i) {
        looks.push_back({"EXISTS", held[i][0]});
        adds.push_back({"ZADD", held[i][0], held[i][1], items[i].member});
        both.insert(both.end(), {looks.back(), adds.back()});
    }
    const bool at_once = way_ == PlainWay::unguarded_pipeline;
    const auto seen = client_->execute_many(at_once ? both : looks, deadline.remaining());
    const std::size_t step = at_once ? 2 : 1;
    Commands passed;
    for (std::size_t i = 0; i < items.size(); ++i) {
        const auto exists = number_of(seen[i * step]);
        if (!exists) {
            upserts.emplace_back(exists.error());
        } else if (at_once && !seen[i * step + 1]) {
            upserts.emplace_back(seen[i * step + 1].error());
        } else {
            upserts.emplace_back(*exists > 0 ? Upsert::applied : Upsert::absent);
            if (*exists > 0) passed.push_back(adds[i]);
        }
    }
    if (at_once || passed.empty()) return upserts;
    const auto added = client_->execute_many(passed, deadline.remaining());
    for (auto next = added.begin(); Result<Upsert> & upsert : upserts) {
        if (!upsert || *upsert != Upsert::applied) continue;
        if (!*next) upsert = next->error();
        ++next;
    }
    return upserts;
}

Result<Upsert> PlainSetsDriver::watch_and_add(const UpsertItem& item, Deadline deadline) {
    HOTCOUNT_TRY_ASSIGN(const auto client, take_client());
    const std::string key = client->options().prefix + std::string{item.key};
    const std::string score = fmt::format("{}", item.score);
    const auto attempt = [&]() -> Result<Upsert> {
        while (true) {
            // A client without a connection makes its first one now.
            const std::uint64_t connects = std::max<std::uint64_t>(client->stats().connects, 1);
            HOTCOUNT_TRY_ASSIGN(
                const auto seen,
                send_plainly(*client, {{"UNWATCH"}, {"WATCH", key}, {"PTTL", key}}, deadline));
            HOTCOUNT_TRY_ASSIGN(const std::int64_t left, number_of(seen[2]));
            if (left < 0) return left == -2 ? Upsert::absent : Upsert::no_ttl;
            if (std::chrono::milliseconds{left} <= gate_) return Upsert::expiring;
            HOTCOUNT_TRY_ASSIGN(
                const auto done,
                send_plainly(*client, {{"MULTI"}, {"ZADD", key, score, item.member}, {"EXEC"}},
                             deadline));
            if (client->stats().connects > connects) {
                return make_error(ErrorCode::outcome_unknown,
                                  "the connection that watched the key was lost before EXEC");
            }
            // Nil: the set has changed. Somebody's transaction made progress, so this ends.
            if (std::holds_alternative<redis::ReplyArray>(done[2].value)) return Upsert::applied;
            if (deadline.passed()) {
                return make_error(ErrorCode::deadline, "the set changed in every attempt");
            }
        }
    };
    auto outcome = attempt();
    const std::lock_guard lock(mutex_);
    idle_.push_back(client);
    return outcome;
}

Result<std::shared_ptr<redis::Client>> PlainSetsDriver::take_client() {
    {
        const std::lock_guard lock(mutex_);
        if (!idle_.empty()) {
            auto client = std::move(idle_.back());
            idle_.pop_back();
            return client;
        }
    }
    return redis::Client::make(client_->options());
}

}  // namespace hotcount::loadtest
