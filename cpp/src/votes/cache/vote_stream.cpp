#include "vote_stream.hpp"

#include <algorithm>
#include <charconv>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>

#include "count_cache.hpp"
#include "hotcount_embedded/votes/lua.hpp"
#include "redis/cluster_client.hpp"
#include "votes/tables/vote_writer.hpp"

namespace hotcount {
namespace {

using redis::Reply;
using redis::ReplyArray;

constexpr std::string_view kGroup = "workers";
constexpr std::int64_t kHalfFull = std::int64_t{1} << 19;
constexpr std::string_view kKeptRefused = "1000";
// A worker that is this idle, and has no votes, is forgotten.
constexpr std::string_view kForgetConsumer = "600000";
// Lifetime in seconds of the keys that a late call must still find before it makes a stream: longer
// than such a call can be on its way.
constexpr std::string_view kKeepClosed = "86400";

std::optional<std::int64_t> number_in(std::string_view text) {
    std::int64_t number = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || stop != text.data() + text.size()) return std::nullopt;
    return number;
}

// The version in an entry's id; 0 if it has none.
std::int64_t version_in(std::string_view id) {
    const auto dash = id.find('-');
    if (dash == std::string_view::npos) return 0;
    const auto milliseconds = number_in(id.substr(0, dash));
    const auto number = number_in(id.substr(dash + 1));
    return milliseconds && number ? version_of(*milliseconds, *number) : 0;
}

std::int64_t number_of(std::int64_t version) {
    return version - version_of(milliseconds_of(version), 0);
}

std::string take_over_ms() {
    return std::to_string(
        std::chrono::duration_cast<std::chrono::milliseconds>(VoteStream::kTakeOver).count());
}

std::string id_of(std::int64_t version) {
    return std::to_string(milliseconds_of(version)) + "-" + std::to_string(number_of(version));
}

std::optional<sql::Id> id_in(const std::string& text, IdType type) {
    if (type != IdType::integer) return sql::Id{text};
    const auto number = number_in(text);
    return number ? std::optional{sql::Id{*number}} : std::nullopt;
}

}  // namespace

std::size_t VoteStream::shard_of(std::string_view space, const sql::Id& item) {
    if (has_one_stream(space)) return 0;
    return stable_hash(to_text(item)) % kShards;
}

std::string VoteStream::key(std::string_view space, std::size_t shard) const {
    return client_->options().prefix + "waiting:{" + std::string{space} + ":" +
           std::to_string(shard) + "}";
}

std::uint32_t VoteStream::term(std::string_view space, std::size_t shard) const {
    return nodes_ == nullptr ? 0 : nodes_->term(redis::slot_of(key(space, shard)));
}

Error VoteStream::strange_reply() const {
    return redis::strange_reply(client_->options().address(), "waiting votes");
}

Result<Reply> VoteStream::run(const redis::Script& script, std::vector<std::string> keys,
                              const std::vector<std::string>& arguments, Deadline deadline) {
    const std::vector<std::string_view> key_views{keys.begin(), keys.end()};
    const std::vector<std::string_view> views{arguments.begin(), arguments.end()};
    auto reply = client_->run(script, key_views, views, deadline.remaining());
    if (reply) return reply;
    return redis::of_key(keys.front(), reply.error());
}

void VoteStream::add(std::string_view space, std::span<const Ballot> ballots,
                     redis::Channel& channel, Deadline deadline,
                     std::function<void(std::size_t, Result<Added>)> settle,
                     std::function<void()> done) {
    static const redis::Script kScript{lua::votes::kStreamAddLua, redis::Script::Kind::combinable,
                                       redis::is_integer};
    redis::ScriptBatch batch{
        kScript, ballots.size(), {}, {std::to_string(options_.max_pending)}, {}};
    batch.keys.reserve(ballots.size());
    batch.arguments.reserve(ballots.size() * 4);
    for (const Ballot& ballot : ballots) {
        batch.keys.push_back(key(space, shard_of(space, ballot.item)));
        batch.arguments.push_back(to_text(ballot.item));
        batch.arguments.emplace_back(ballot.by_op_id ? "o" : "u");
        batch.arguments.push_back(to_text(ballot.user));
        batch.arguments.push_back(std::to_string(ballot.value));
    }
    redis::submit_script_batch(
        channel, client_->options().address(), std::move(batch), deadline,
        [settle = std::move(settle)](std::size_t call, Result<Reply> reply) {
            if (!reply) return settle(call, std::move(reply).error());
            settle(call, static_cast<Added>(std::get<std::int64_t>(reply->value)));
        },
        std::move(done));
}

Result<void> VoteStream::open(std::string_view space, std::size_t shard, std::int64_t floor,
                              std::int64_t life, Deadline deadline) {
    static const redis::Script kScript{lua::votes::kStreamOpenLua, redis::Script::Kind::single,
                                       redis::is_integer};
    // An empty stream has had no vote, so its last id is 0-0: such a stream is not begun.
    const std::string stream = key(space, shard);
    HOTCOUNT_TRY(
        run(kScript, {stream, stream + ":closed", stream + ":least"},
            {std::string{kGroup}, id_of(std::max<std::int64_t>(floor, 1)), std::to_string(life)},
            deadline));
    return {};
}

Result<bool> VoteStream::close(std::string_view space, std::size_t shard, std::int64_t life,
                               Deadline deadline) {
    static const redis::Script kScript{lua::votes::kStreamCloseLua, redis::Script::Kind::single,
                                       redis::is_integer};
    const std::string stream = key(space, shard);
    HOTCOUNT_TRY_ASSIGN(const Reply reply,
                        run(kScript, {stream, stream + ":closed"},
                            {std::to_string(life), std::string{kKeepClosed}}, deadline));
    return redis::to_integer(reply) == 1;
}

VoteStream::Entry VoteStream::to_entry(const Reply& reply) const {
    Entry entry;
    const auto* const parts = std::get_if<ReplyArray>(&reply.value);
    if (parts == nullptr || parts->empty()) return entry;
    if (const auto* const id = std::get_if<std::string>(&parts->front().value)) entry.id = *id;
    entry.version = version_in(entry.id);
    const auto* const fields =
        parts->size() > 1 ? std::get_if<ReplyArray>(&(*parts)[1].value) : nullptr;
    entry.gone = fields == nullptr;
    if (fields == nullptr || fields->size() != 6) return entry;
    std::array<std::string, 6> words;
    for (std::size_t i = 0; i < words.size(); ++i) {
        const auto* const word = std::get_if<std::string>(&(*fields)[i].value);
        if (word == nullptr) return entry;
        words[i] = *word;
    }
    entry.fields = {words[1], words[2], words[3], words[5]};
    const bool by_op_id = words[2] == "o";
    if (words[0] != "i" || words[4] != "v" || (!by_op_id && words[2] != "u")) return entry;
    const auto item = id_in(words[1], options_.item_type);
    const auto value = number_in(words[5]);
    const auto user = id_in(words[3], by_op_id ? IdType::text : options_.user_type);
    if (!item || !user || !value) return entry;
    auto ballot = by_op_id ? Ballot::anonymous(*item, words[3], *value)
                           : Result<Ballot>{Ballot{*item, *user, *value, entry.version}};
    if (ballot && check_ballot(*ballot, options_)) entry.ballot = *std::move(ballot);
    return entry;
}

Result<VoteStream::Page> VoteStream::take(std::string_view space, std::size_t shard,
                                          const std::string& consumer, const std::string& after,
                                          Deadline deadline) {
    static const redis::Script kScript{lua::votes::kStreamTakeLua, redis::Script::Kind::single,
                                       redis::is_array};
    HOTCOUNT_TRY_ASSIGN(
        const Reply reply,
        run(kScript, {key(space, shard)},
            {std::string{kGroup}, consumer, std::to_string(std::min(options_.page, kMostTaken)),
             take_over_ms(), after, std::string{kForgetConsumer}},
            deadline));
    const auto& parts = std::get<ReplyArray>(reply.value);
    const auto source = parts.size() == 2 ? redis::to_integer(parts[0]) : std::nullopt;
    const auto* const entries =
        parts.size() == 2 ? std::get_if<ReplyArray>(&parts[1].value) : nullptr;
    if (!source || entries == nullptr) return strange_reply();
    Page page{static_cast<Source>(*source)};
    page.entries.reserve(entries->size());
    for (const Reply& each : *entries) {
        page.entries.push_back(to_entry(each));
        if (page.entries.back().version == 0) return strange_reply();
    }
    return page;
}

Result<void> VoteStream::give_back(std::string_view space, std::size_t shard,
                                   const std::string& consumer, Deadline deadline) {
    static const redis::Script kScript{lua::votes::kStreamGiveBackLua, redis::Script::Kind::single,
                                       redis::is_integer};
    HOTCOUNT_TRY(run(kScript, {key(space, shard)}, {std::string{kGroup}, consumer, take_over_ms()},
                     deadline));
    return {};
}

Result<void> VoteStream::settle(std::string_view space, std::size_t shard,
                                std::span<const std::string> ids, std::span<const Refused> refused,
                                Deadline deadline) {
    static const redis::Script kScript{lua::votes::kStreamSettleLua, redis::Script::Kind::single,
                                       redis::is_integer};
    if (ids.empty()) return {};
    std::vector<std::string> arguments{
        std::string{kGroup}, std::string{kKeptRefused},
        std::to_string(std::chrono::duration_cast<std::chrono::seconds>(kKeepRefused).count()),
        std::to_string(ids.size())};
    arguments.insert(arguments.end(), ids.begin(), ids.end());
    for (const auto& [entry, why] : refused) {
        arguments.push_back(entry->id);
        arguments.insert(arguments.end(), entry->fields.begin(), entry->fields.end());
        arguments.push_back(why);
    }
    const std::string stream = key(space, shard);
    HOTCOUNT_TRY(run(kScript, {stream, stream + ":refused"}, arguments, deadline));
    return {};
}

Result<void> VoteStream::move_on(std::string_view space, std::size_t shard, std::int64_t newest,
                                 Deadline deadline) {
    if (number_of(newest) < kHalfFull) return {};
    return raise(space, shard, version_of(milliseconds_of(newest) + 1, 0), deadline);
}

Result<void> VoteStream::raise(std::string_view space, std::size_t shard, std::int64_t version,
                               Deadline deadline) {
    std::array<std::int64_t, kShards> beyond{};
    beyond[shard] = version;
    auto raised = advance(space, {&shard, 1}, beyond, deadline);
    return raised ? Result<void>{} : std::move(raised).error();
}

Result<void> VoteStream::ask(redis::ScriptBatch batch, Deadline deadline,
                             const std::function<bool(std::size_t, const Reply&)>& see) {
    if (batch.calls == 0) return {};
    batch.repeat = redis::Repeat::reads;
    std::optional<Error> failed;
    redis::submit_script_batch(
        client_->waiting(), client_->options().address(), std::move(batch), deadline,
        [&](std::size_t call, Result<Reply> reply) {
            if (!reply) {
                failed = std::move(reply).error();
                return;
            }
            if (!see(call, *reply)) failed = strange_reply();
        },
        [] {});
    if (failed) return *std::move(failed);
    return {};
}

Result<std::vector<VoteStream::State>> VoteStream::states(std::string_view space,
                                                          std::span<const std::size_t> shards,
                                                          Deadline deadline) {
    static const redis::Script kScript{lua::votes::kStreamStateLua, redis::Script::Kind::combinable,
                                       redis::is_tuple<3, redis::is_number>};
    std::vector<State> states(shards.size());
    redis::ScriptBatch batch{kScript, shards.size(), {}, {}, {}};
    for (const std::size_t shard : shards) batch.keys.push_back(key(space, shard));
    HOTCOUNT_TRY(ask(std::move(batch), deadline, [&](std::size_t call, const Reply& reply) {
        const auto& parts = std::get<ReplyArray>(reply.value);
        const auto votes = redis::to_integer(parts[0]);
        const auto* const first = std::get_if<std::string>(&parts[1].value);
        const auto* const last = std::get_if<std::string>(&parts[2].value);
        if (!votes || first == nullptr || last == nullptr) return false;
        states[call] = {*votes, version_in(*first), version_in(*last)};
        return true;
    }));
    return states;
}

Result<std::vector<VoteStream::Advanced>> VoteStream::advance(
    std::string_view space, std::span<const std::size_t> shards,
    const std::array<std::int64_t, kShards>& beyond, Deadline deadline) {
    static const redis::Script kScript{lua::votes::kStreamAdvanceLua,
                                       redis::Script::Kind::combinable,
                                       redis::is_tuple<2, redis::is_number>};
    std::vector<Advanced> advanced(shards.size());
    redis::ScriptBatch batch{kScript, shards.size(), {}, {std::string{kKeepClosed}}, {}};
    for (const std::size_t shard : shards) {
        batch.keys.push_back(key(space, shard));
        batch.keys.push_back(batch.keys.back() + ":least");
        batch.arguments.push_back(id_of(beyond[shard]));
    }
    HOTCOUNT_TRY(ask(std::move(batch), deadline, [&](std::size_t call, const Reply& reply) {
        const auto& parts = std::get<ReplyArray>(reply.value);
        const auto* const last = std::get_if<std::string>(&parts[0].value);
        const auto there = redis::to_integer(parts[1]);
        if (last == nullptr || !there) return false;
        advanced[call] = {version_in(*last), *there == 1};
        return advanced[call].last != 0;
    }));
    return advanced;
}

Result<std::int64_t> VoteStream::refused(std::string_view space, Deadline deadline) {
    std::vector<std::string> keys;
    for (std::size_t shard = 0; shard < kShards; ++shard) {
        keys.push_back(key(space, shard) + ":refused");
    }
    std::vector<std::vector<std::string_view>> commands;
    commands.reserve(keys.size());
    for (const std::string& each : keys) commands.push_back({"XLEN", each});
    std::int64_t votes = 0;
    for (const auto& reply : client_->execute_many(commands, deadline.remaining())) {
        if (!reply) return reply.error();
        votes += redis::to_integer(*reply).value_or(0);
    }
    return votes;
}

Result<void> VoteStream::forget_refused(std::string_view space, const sql::Id& user,
                                        Deadline deadline) {
    for (std::size_t shard = 0; shard < kShards; ++shard) {
        const std::string stream = key(space, shard) + ":refused";
        if (has_one_stream(space)) {
            const std::string_view remove_all[] = {"DEL", stream};
            HOTCOUNT_TRY(client_->execute(remove_all, deadline.remaining()));
            return {};
        }
        const std::string_view range[] = {"XRANGE", stream, "-", "+"};
        HOTCOUNT_TRY_ASSIGN(const Reply reply, client_->execute(range, deadline.remaining()));
        const auto* const entries = std::get_if<ReplyArray>(&reply.value);
        if (entries == nullptr) return strange_reply();
        for (const Reply& each : *entries) {
            const auto& parts = std::get<ReplyArray>(each.value);
            const auto* const fields = std::get_if<ReplyArray>(&parts.at(1).value);
            if (fields == nullptr || fields->size() < 4) continue;
            const auto* const kind = std::get_if<std::string>(&(*fields)[2].value);
            const auto* const who = std::get_if<std::string>(&(*fields)[3].value);
            if (kind == nullptr || who == nullptr || *kind != "u" || *who != to_text(user))
                continue;
            const std::string_view remove[] = {"XDEL", stream,
                                               std::get<std::string>(parts[0].value)};
            HOTCOUNT_TRY(client_->execute(remove, deadline.remaining()));
        }
    }
    return {};
}

Result<void> VoteStream::drop(std::string_view space, Deadline deadline) {
    std::vector<std::string> keys;
    for (std::size_t shard = 0; shard < kShards; ++shard) {
        keys.push_back(key(space, shard));
        keys.push_back(keys.back() + ":refused");
    }
    std::vector<std::vector<std::string_view>> commands;
    commands.reserve(keys.size());
    for (const std::string& each : keys) commands.push_back({"DEL", each});
    for (const auto& reply : client_->execute_many(commands, deadline.remaining())) {
        if (!reply) return reply.error();
    }
    return {};
}

Result<void> VoteStream::drop_refused(std::string_view space,
                                      const std::array<std::int64_t, kShards>& until,
                                      Deadline deadline) {
    static const redis::Script kScript{lua::votes::kStreamTrimRefusedLua,
                                       redis::Script::Kind::combinable, redis::is_integer};
    redis::ScriptBatch batch{kScript, 0, {}, {}, {}};
    for (std::size_t shard = 0; shard < kShards; ++shard) {
        if (until[shard] == 0) continue;
        ++batch.calls;
        batch.keys.push_back(key(space, shard) + ":refused");
        batch.arguments.push_back(id_of(until[shard]));
    }
    bool removed_format = false;
    HOTCOUNT_TRY(ask(std::move(batch), deadline, [&](std::size_t, const Reply& reply) {
        removed_format = removed_format || redis::to_integer(reply) < 0;
        return true;
    }));
    if (!removed_format) return {};
    return make_error(ErrorCode::config,
                      "votes that were refused are in a removed format, without "
                      "ids, in keys like " +
                          key(space, 0) + ":refused; " + std::string{kLastReader} +
                          ". None was deleted");
}

}  // namespace hotcount
