#include "view_cells.hpp"

#include <algorithm>
#include <charconv>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/random.hpp>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "hotcount_embedded/views/lua.hpp"
#include "redis/cluster_client.hpp"
#include "redis/server_role.hpp"

namespace hotcount {
namespace {

using redis::of_key;
using redis::Reply;
using redis::ReplyArray;

const redis::Script& publish_script() {
    static const redis::Script kScript{lua::views::kPublishLua, redis::Script::Kind::combinable,
                                       redis::is_integer};
    return kScript;
}
const redis::Script& retire_script() {
    static const redis::Script kScript{lua::views::kRetireLua, redis::Script::Kind::combinable,
                                       redis::is_integer};
    return kScript;
}

// Keys whose cells are asked for in one go.
constexpr std::size_t kKeysPerRead = 500;

std::string text_of(const CellSum& sum) {
    return std::to_string(sum.up) + " " + std::to_string(sum.down);
}

std::optional<std::int64_t> number_of(std::string_view text) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || end != text.data() + text.size() || number < 0) return {};
    return number;
}

std::optional<CellSum> sum_of(std::string_view text) {
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos) return {};
    const auto up = number_of(text.substr(0, space));
    const auto down = number_of(text.substr(space + 1));
    if (!up || !down) return {};
    return CellSum{*up, *down};
}

std::string new_identity() {
    return std::to_string(thread_random().next()) + "." + std::to_string(thread_random().next());
}

// The cells in the HGETALL reply of a key's hash.
Result<std::vector<ViewCell>> cells_of(const std::string& key, const Result<Reply>& reply) {
    if (!reply) return of_key(key, reply.error());
    const Error no_cells =
        of_key(key, make_error(ErrorCode::wrong_type, "it holds something that is no cells"));
    const auto* const pairs = std::get_if<ReplyArray>(&reply->value);
    if (pairs == nullptr || pairs->size() % 2 != 0) return no_cells;
    std::vector<ViewCell> found;
    if (pairs->empty()) found.push_back({key, "", {}});
    for (std::size_t at = 0; at < pairs->size(); at += 2) {
        const auto* const writer = std::get_if<std::string>(&(*pairs)[at].value);
        const auto* const text = std::get_if<std::string>(&(*pairs)[at + 1].value);
        const auto sum = text == nullptr ? std::nullopt : sum_of(*text);
        if (writer == nullptr || writer->empty() || !sum) return no_cells;
        found.push_back({key, *writer, *sum});
    }
    return found;
}

}  // namespace

CellSum larger(const CellSum& a, const CellSum& b) {
    return {std::max(a.up, b.up), std::max(a.down, b.down)};
}

CellSum beyond(const CellSum& a, const CellSum& b) {
    return {std::max(a.up, b.up) - b.up, std::max(a.down, b.down) - b.down};
}

std::int64_t plus_size_of(std::int64_t to, const CellSum& sum) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    return checked_add(checked_add(to, sum.up).value_or(kMost), sum.down).value_or(kMost);
}

ViewCells::ViewCells(std::shared_ptr<redis::Client> client, std::string_view prefix)
    : client_(std::move(client)), prefix_(full_key(client_->options().prefix, prefix, "")) {
    client_->prepare(publish_script());
}

// FNV-1a. It must never change, because other processes find the cells by it.
std::size_t ViewCells::shard_of(std::string_view key) {
    std::uint64_t hash = 14695981039346656037U;
    for (const char byte : key) {
        hash ^= static_cast<unsigned char>(byte);
        hash *= 1099511628211U;
    }
    return static_cast<std::size_t>((hash >> 32U) % kShards);
}

std::string ViewCells::in_shard(std::size_t shard, std::string_view what) const {
    return (prefix_ + "{" + std::to_string(shard) + "}:").append(what);
}
std::string ViewCells::cells_key(std::string_view key) const {
    return in_shard(shard_of(key), "c:").append(key);
}
std::string ViewCells::keys_key(std::string_view key) const {
    return in_shard(shard_of(key), "keys");
}

void ViewCells::publish(const ViewCell& cell, redis::Channel& channel, Deadline deadline,
                        Completion<void> done) const {
    const std::string cells = cells_key(cell.key);
    const std::string all = keys_key(cell.key);
    const std::string up = std::to_string(cell.sum.up);
    const std::string down = std::to_string(cell.sum.down);
    const std::string_view keys[] = {cells, all};
    const std::string_view arguments[] = {cell.key, cell.writer, up, down};
    // Sent twice it does nothing more.
    channel.submit(
        redis::Request::run(publish_script(), keys, {}, arguments, redis::Repeat::counted_once),
        deadline, [key = cell.key, done = std::move(done)](Result<Reply> reply) {
            if (!reply) return done(of_key(key, reply.error()));
            done({});
        });
}

void ViewCells::publish_all(std::span<const ViewCell> cells, redis::Channel& channel,
                            Deadline deadline,
                            std::function<void(std::size_t, Result<void>)> settle,
                            std::function<void()> done) const {
    if (cells.empty()) return done();
    std::vector<std::string> names;
    names.reserve(cells.size());
    redis::ScriptBatch batch{.script = publish_script(),
                             .calls = cells.size(),
                             .keys = {},
                             .shared = {},
                             .arguments = {},
                             .repeat = redis::Repeat::counted_once};
    for (const ViewCell& each : cells) {
        batch.keys.push_back(cells_key(each.key));
        batch.keys.push_back(keys_key(each.key));
        for (const std::string& word :
             {each.key, each.writer, std::to_string(each.sum.up), std::to_string(each.sum.down)}) {
            batch.arguments.push_back(word);
        }
        names.push_back(each.key);
    }
    redis::submit_script_batch(
        channel, client_->options().address(), std::move(batch), deadline,
        [names = std::move(names), settle = std::move(settle)](std::size_t i, Result<Reply> reply) {
            settle(i, reply ? Result<void>{}
                            : Result<void>{redis::of_element(names[i], reply.error())});
        },
        std::move(done));
}

Result<std::int64_t> ViewCells::retire(std::span<const ViewCell> cells, Deadline deadline) const {
    if (cells.empty()) return 0;
    redis::ScriptBatch batch{.script = retire_script(),
                             .calls = cells.size(),
                             .keys = {},
                             .shared = {},
                             .arguments = {},
                             .repeat = redis::Repeat::counted_once};
    for (const ViewCell& each : cells) {
        batch.keys.push_back(cells_key(each.key));
        batch.keys.push_back(keys_key(each.key));
        batch.arguments.push_back(each.key);
        batch.arguments.push_back(each.writer);
        batch.arguments.push_back(each.writer.empty() ? "" : text_of(each.sum));
    }
    std::int64_t retired = 0;
    std::optional<Error> failed;
    redis::submit_script_batch(
        client_->waiting(), client_->options().address(), std::move(batch), deadline,
        [&](std::size_t i, Result<Reply> reply) {
            if (!reply) {
                failed = of_key(cells[i].key, reply.error());
            } else if (const auto number = redis::to_integer(*reply)) {
                retired += *number;
            }
        },
        [] {});
    if (failed) return std::move(*failed);
    return retired;
}

Result<std::vector<ViewCell>> ViewCells::read(std::span<const std::string> keys, Deadline deadline,
                                              std::optional<Error>* bad) const {
    std::vector<ViewCell> found;
    for (std::size_t first = 0; first < keys.size(); first += kKeysPerRead) {
        const auto part = keys.subspan(first, std::min(kKeysPerRead, keys.size() - first));
        std::vector<std::string> names;
        names.reserve(part.size());
        for (const std::string& key : part) names.push_back(cells_key(key));
        std::vector<std::vector<std::string_view>> commands;
        commands.reserve(names.size());
        for (const std::string& name : names) commands.push_back({"HGETALL", name});
        const auto replies = client_->execute_many(commands, deadline.remaining());
        for (std::size_t i = 0; i < part.size(); ++i) {
            auto cells = cells_of(part[i], replies[i]);
            if (cells) {
                std::move(cells->begin(), cells->end(), std::back_inserter(found));
            } else if (bad != nullptr && cells.error().code == ErrorCode::wrong_type) {
                *bad = cells.error();
            } else {
                return std::move(cells).error();
            }
        }
    }
    return found;
}

Result<redis::ScanPage> ViewCells::scan(std::size_t shard, const std::string& cursor,
                                        std::size_t size, Deadline deadline) const {
    const std::string key = in_shard(shard, "keys");
    const std::string count = std::to_string(size);
    const std::string_view command[] = {"SSCAN", key, cursor, "COUNT", count};
    HOTCOUNT_TRY_ASSIGN(Reply reply, client_->execute(command, deadline.remaining()));
    return redis::to_page(client_->options().address(), std::move(reply));
}

Result<std::vector<std::string>> ViewCells::identities(std::span<const std::size_t> shards,
                                                       Deadline deadline) const {
    std::vector<std::string> keys;
    keys.reserve(shards.size());
    for (const std::size_t shard : shards) keys.push_back(in_shard(shard, "id"));
    const std::string fresh = new_identity();
    std::vector<std::vector<std::string_view>> commands;
    for (const std::string& key : keys) {
        // Of processes that find no name, the first one's SET stands.
        commands.push_back({"SET", key, fresh, "NX"});
        commands.push_back({"GET", key});
    }
    const auto replies = client_->execute_many(commands, deadline.remaining());
    std::vector<std::string> names;
    for (std::size_t i = 0; i < replies.size(); ++i) {
        if (!replies[i]) return of_key(keys[i / 2], replies[i].error());
        if (i % 2 == 0) continue;
        const auto* const name = std::get_if<std::string>(&replies[i]->value);
        if (name == nullptr)
            return redis::strange_reply(client_->options().address(), "a call on cells");
        names.push_back(*name);
    }
    return names;
}

std::uint64_t ViewCells::changes_of_server() const {
    const redis::ClusterNodes* const nodes = redis::nodes_of(*client_);
    return client_->stats().reconnects + (nodes == nullptr ? 0 : nodes->version());
}

Result<void> ViewCells::check_eviction(Deadline deadline) const {
    const std::string policy = redis::eviction_policy(*client_, deadline.remaining());
    if (!policy.starts_with("allkeys")) return {};
    return make_error(ErrorCode::config,
                      client_->options().address() + " has maxmemory-policy " + policy +
                          ": it would evict adds that are not in SQL yet; a WriteBehindCounter "
                          "needs noeviction or a volatile policy");
}

}  // namespace hotcount
