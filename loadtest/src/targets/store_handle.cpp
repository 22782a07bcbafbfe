#include "store_handle.hpp"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <chrono>
#include <hotcount/detail/zset/sorted_set.hpp>
#include <optional>
#include <set>

namespace hotcount::loadtest {
namespace {

using redis::Reply;
using redis::ReplyArray;
using std::chrono::nanoseconds;

// Bounds one command of an audit, not the load.
constexpr Duration kTimeout = std::chrono::minutes{2};
constexpr std::size_t kKeysAtOnce = 1000;

std::int64_t wall_ns() {
    return std::chrono::duration_cast<nanoseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

Error strange(std::string_view command) {
    return make_error(ErrorCode::reply,
                      fmt::format("{} got a reply of another shape than expected", command));
}

const std::string* text_of(const Reply& reply) { return std::get_if<std::string>(&reply.value); }

bool is_cluster(std::string_view url) {
    return url.substr(0, url.find("://")).ends_with("+cluster");
}

/// The URL of one node of the cluster `url`: of the node at `address`; if empty, of the first.
std::string node_url(std::string_view url, std::string_view address) {
    const std::size_t plus = url.find("+cluster");
    const std::string_view rest = url.substr(url.find("://") + 3);
    const std::string_view authority = rest.substr(0, rest.find_first_of("/?"));
    const std::size_t at = authority.rfind('@');
    const std::size_t hosts = at == std::string_view::npos ? 0 : at + 1;
    const std::size_t query = rest.find('?');
    if (address.empty()) address = authority.substr(hosts, authority.find(',', hosts) - hosts);
    return fmt::format("{}://{}{}{}", url.substr(0, plus), authority.substr(0, hosts), address,
                       query == std::string_view::npos ? "" : rest.substr(query));
}

Result<std::shared_ptr<redis::Client>> make_client(const std::string& url) {
    HOTCOUNT_TRY_ASSIGN(redis::Options options, redis::parse_options(url));
    return redis::Client::make(std::move(options));
}

/// The value of "name:" in what INFO answers.
std::string info_field(const std::string& info, std::string_view name) {
    const std::string start = fmt::format("\n{}:", name);
    const std::size_t at = info.find(start);
    if (at == std::string::npos) return {};
    const std::size_t from = at + start.size();
    return info.substr(from, info.find_first_of("\r\n", from) - from);
}

}  // namespace

std::int64_t steady_ns() {
    return std::chrono::duration_cast<nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

Result<StoreHandle> StoreHandle::open(const TrialSettings& settings, StrategyStore store) {
    StoreHandle handle;
    if (store == StrategyStore::memory) {
        memory::StoreOptions options;
        // Room for every item, and for the keys of twelve seconds if a limiter makes one for each,
        // whatever the store's default bound.
        options.max_keys += 12 * static_cast<std::size_t>(settings.traffic.items);
        HOTCOUNT_TRY_ASSIGN(handle.memory_,
                            memory::named_store(settings.key_prefix, std::move(options)));
        handle.place_ = "this process's memory";
        return handle;
    }
    HOTCOUNT_TRY_ASSIGN(redis::Options options, redis::parse_options(settings.redis_url));
    handle.prefix_ = settings.key_prefix;
    options.prefix = settings.key_prefix;
    options.timeout = settings.timeout;
    const std::string address = options.address();
    HOTCOUNT_TRY_ASSIGN(handle.redis_, redis::Client::make(std::move(options)));
    handle.url_ = settings.redis_url;
    handle.node_ = handle.redis_;
    if (is_cluster(handle.url_)) {
        HOTCOUNT_TRY_ASSIGN(handle.node_, make_client(node_url(handle.url_, {})));
    }
    HOTCOUNT_TRY_ASSIGN(const Reply reply, handle.command({"INFO", "server"}));
    const std::string* const info = text_of(reply);
    if (info == nullptr) return strange("INFO");
    const std::string valkey = info_field(*info, "valkey_version");
    handle.place_ = fmt::format(
        "{} at {}{}",
        valkey.empty() ? "Redis " + info_field(*info, "redis_version") : "Valkey " + valkey,
        settings.managed_redis && !names_a_group(settings.redis_url) ? "a unix socket" : address,
        settings.managed_redis
            ? fmt::format(", started for this run, {}",
                          settings.kills_redis() ? "appendfsync always" : "without persistence")
            : "");
    return handle;
}

Result<Reply> StoreHandle::command(std::initializer_list<std::string_view> words) const {
    return node_->execute(std::span{words.begin(), words.size()}, Duration{kTimeout});
}

Result<std::vector<std::shared_ptr<redis::Client>>> StoreHandle::primaries() const {
    if (node_ == redis_) return std::vector{redis_};
    HOTCOUNT_TRY_ASSIGN(const Reply reply, command({"CLUSTER", "SLOTS"}));
    const auto* const ranges = std::get_if<ReplyArray>(&reply.value);
    if (ranges == nullptr) return strange("CLUSTER SLOTS");
    std::set<std::string> addresses;
    for (const Reply& range : *ranges) {
        const auto* const parts = std::get_if<ReplyArray>(&range.value);
        const auto* const first =
            parts && parts->size() > 2 ? std::get_if<ReplyArray>(&(*parts)[2].value) : nullptr;
        const auto port =
            first && first->size() > 1 ? redis::to_integer((*first)[1]) : std::nullopt;
        if (!port || text_of(first->front()) == nullptr) return strange("CLUSTER SLOTS");
        addresses.insert(fmt::format("{}:{}", *text_of(first->front()), *port));
    }
    std::vector<std::shared_ptr<redis::Client>> clients;
    for (const std::string& address : addresses) {
        HOTCOUNT_TRY_ASSIGN(auto client, make_client(node_url(url_, address)));
        clients.push_back(std::move(client));
    }
    return clients;
}

std::uint64_t StoreHandle::commands() const {
    if (!redis_) return 0;
    const auto reply = command({"INFO", "stats"});
    const std::string* const info = reply ? text_of(*reply) : nullptr;
    if (info == nullptr) return 0;
    const std::string number = info_field(*info, "total_commands_processed");
    std::uint64_t commands = 0;
    std::from_chars(number.data(), number.data() + number.size(), commands);
    return commands;
}

Result<StoreHandle::Offset> StoreHandle::clock_offset() const {
    if (!redis_) return Offset{wall_ns() - steady_ns(), 0};
    const std::int64_t before = steady_ns();
    HOTCOUNT_TRY_ASSIGN(const Reply reply, command({"TIME"}));
    const std::int64_t after = steady_ns();
    const auto* const parts = std::get_if<ReplyArray>(&reply.value);
    if (parts == nullptr || parts->size() != 2) return strange("TIME");
    const auto seconds = redis::to_integer((*parts)[0]);
    const auto microseconds = redis::to_integer((*parts)[1]);
    if (!seconds || !microseconds) return strange("TIME");
    const std::int64_t server_ns = *seconds * 1'000'000'000 + *microseconds * 1000;
    const std::int64_t half = (after - before) / 2;
    return Offset{server_ns - before - half, half + 1000};
}

Result<std::vector<std::int64_t>> StoreHandle::integers(std::span<const std::string> keys) const {
    std::vector<std::int64_t> values;
    values.reserve(keys.size());
    if (memory_) {
        for (const std::string& key : keys) {
            const auto value = memory_->read(key, [](const memory::Entry* entry) {
                const auto* const number = entry ? entry->as<std::int64_t>() : nullptr;
                return number == nullptr ? std::int64_t{0} : *number;
            });
            values.push_back(value);
        }
        return values;
    }
    for (std::size_t from = 0; from < keys.size(); from += kKeysAtOnce) {
        const auto page = keys.subspan(from, std::min(kKeysAtOnce, keys.size() - from));
        std::vector<std::string> full;
        full.reserve(page.size());
        for (const std::string& key : page) full.push_back(prefix_ + key);
        // Not MGET: in a cluster the keys are on several nodes.
        std::vector<std::vector<std::string_view>> commands;
        commands.reserve(full.size());
        for (const std::string& key : full) commands.push_back({"GET", key});
        for (const auto& one : redis_->execute_many(commands, Duration{kTimeout})) {
            HOTCOUNT_TRY(one);
            const bool absent = std::holds_alternative<std::monostate>(one->value);
            const auto number = absent ? std::optional<std::int64_t>{0} : redis::to_integer(*one);
            if (!number) return strange("GET");
            values.push_back(*number);
        }
    }
    return values;
}

template <class Visit>
Result<void> StoreHandle::scan(const Visit& visit) const {
    // The prefix is this program's own and holds nothing that MATCH would read as a pattern.
    return scan(prefix_ + "*", visit);
}

template <class Visit>
Result<void> StoreHandle::scan(const std::string& pattern, const Visit& visit) const {
    HOTCOUNT_TRY_ASSIGN(const auto servers, primaries());
    for (const auto& server : servers) HOTCOUNT_TRY(scan_one(*server, pattern, visit));
    return {};
}

template <class Visit>
Result<void> StoreHandle::scan_one(redis::Client& server, const std::string& pattern,
                                   const Visit& visit) {
    std::string cursor = "0";
    do {
        const std::string_view words[] = {"SCAN", cursor, "MATCH", pattern, "COUNT", "1000"};
        HOTCOUNT_TRY_ASSIGN(const Reply reply, server.execute(words, Duration{kTimeout}));
        const auto* const parts = std::get_if<ReplyArray>(&reply.value);
        if (parts == nullptr || parts->size() != 2) return strange("SCAN");
        const std::string* const next = text_of((*parts)[0]);
        const auto* const page = std::get_if<ReplyArray>(&(*parts)[1].value);
        if (next == nullptr || page == nullptr) return strange("SCAN");
        std::vector<std::string> keys;
        for (const Reply& key : *page) {
            if (text_of(key) == nullptr) return strange("SCAN");
            keys.push_back(*text_of(key));
        }
        cursor = *next;
        if (!keys.empty()) HOTCOUNT_TRY(visit(keys));
    } while (cursor != "0");
    return {};
}

Result<std::uint64_t> StoreHandle::keys_without_ttl(std::string& example) const {
    std::uint64_t found = 0;
    const auto note = [&](std::string_view key) {
        if (found++ == 0) example = key.substr(prefix_.size());
    };
    if (memory_) {
        memory_->erase_if([&](std::string_view key, const memory::Entry& entry) {
            if (!entry.expires_at) note(key);
            return false;  // Only looks.
        });
        return found;
    }
    const auto look = [&](const std::vector<std::string>& keys) -> Result<void> {
        std::vector<std::vector<std::string_view>> commands;
        commands.reserve(keys.size());
        for (const std::string& key : keys) commands.push_back({"PTTL", key});
        const auto lives = redis_->execute_many(commands, Duration{kTimeout});
        for (std::size_t i = 0; i < keys.size(); ++i) {
            HOTCOUNT_TRY(lives[i]);
            if (redis::to_integer(*lives[i]) == -1) note(keys[i]);
        }
        return {};
    };
    HOTCOUNT_TRY(scan(look));
    return found;
}

Result<std::optional<StoreHandle::SetState>> StoreHandle::set_at(const std::string& key) const {
    using Found = std::optional<SetState>;
    if (memory_) {
        return memory_->read(key, [](const memory::Entry* entry) -> Result<Found> {
            const auto* const set = entry ? entry->as<SortedSet>() : nullptr;
            if (set == nullptr) return Found{};
            SetState state{entry->expires_at.has_value(), {}};
            if (!set->empty()) {
                for (const auto& [member, score] : set->highest(0, set->size() - 1)) {
                    state.members.push_back({std::string{member}, score});
                }
            }
            return Found{std::move(state)};
        });
    }
    const std::string full = prefix_ + key;
    const std::vector<std::vector<std::string_view>> commands = {
        {"PTTL", full}, {"ZRANGE", full, "0", "-1", "WITHSCORES"}};
    const auto replies = redis_->execute_many(commands, Duration{kTimeout});
    for (const auto& reply : replies) HOTCOUNT_TRY(reply);
    const auto life = redis::to_integer(*replies[0]);
    const auto* const items = std::get_if<ReplyArray>(&replies[1]->value);
    if (!life || items == nullptr) return strange("ZRANGE");
    if (*life == -2 || items->empty()) return Found{};
    SetState state{*life != -1, {}};
    // RESP3 answers with pairs, RESP2 with members and scores in turn.
    const bool paired = std::holds_alternative<ReplyArray>(items->front().value);
    for (std::size_t i = 0; i < items->size(); i += paired ? 1 : 2) {
        const ReplyArray* const pair = paired ? std::get_if<ReplyArray>(&(*items)[i].value) : items;
        const std::size_t at = paired ? 0 : i;
        if (pair == nullptr || pair->size() < at + 2) return strange("ZRANGE");
        const std::string* const member = text_of((*pair)[at]);
        const auto score = redis::to_double((*pair)[at + 1]);
        if (member == nullptr || !score) return strange("ZRANGE");
        state.members.push_back({*member, *score});
    }
    return Found{std::move(state)};
}

Result<void> StoreHandle::remove_keys() const {
    if (!redis_) return {};
    const auto remove = [&](const std::vector<std::string>& keys) -> Result<void> {
        std::vector<std::vector<std::string_view>> commands;
        commands.reserve(keys.size());
        for (const std::string& key : keys) commands.push_back({"UNLINK", key});
        for (const auto& removed : redis_->execute_many(commands, Duration{kTimeout})) {
            HOTCOUNT_TRY(removed);
        }
        return {};
    };
    HOTCOUNT_TRY(scan(remove));
    // Keys beside another key in its slot: {KEY}:retry.XXXX and others.
    return scan("{" + prefix_ + "*", remove);
}

}  // namespace hotcount::loadtest
