#include "count_copies.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <hotcount/detail/sql/transaction.hpp>
#include <map>

#include "count_cache.hpp"
#include "hotcount_embedded/votes/lua.hpp"
#include "hotcount_embedded/votes/sql.hpp"
#include "redis/cluster_client.hpp"
#include "redis/scripts.hpp"
#include "votes/tables/count_place.hpp"

namespace hotcount {
namespace {

// How long a reader waits for the cache, and how long the folder does; then a second without it.
constexpr Duration kReadPatience = std::chrono::milliseconds{100};
constexpr Duration kPublishPatience = std::chrono::milliseconds{250};
constexpr Duration kPause = std::chrono::seconds{1};

using memory::Entry;

class MemoryCopyStore final : public CopyStore {
  public:
    explicit MemoryCopyStore(std::shared_ptr<memory::Store> store) : store_(std::move(store)) {}

    Result<std::vector<std::optional<Copy>>> read(std::string_view space,
                                                  std::span<const std::string> items,
                                                  Timeout) override {
        std::vector<std::optional<Copy>> copies;
        copies.reserve(items.size());
        for (const std::string& item : items) {
            copies.push_back(
                store_->read(key_of(space, item), [](const Entry* entry) -> std::optional<Copy> {
                    const auto* const copy = entry != nullptr ? entry->as<Copy>() : nullptr;
                    return copy != nullptr ? std::optional{*copy} : std::nullopt;
                }));
        }
        return copies;
    }

    Result<void> write(std::string_view space, std::span<const Named> copies, Duration life,
                       Timeout) override {
        for (const Named& each : copies) {
            // A store that is full refuses: then there is no copy.
            (void)store_->upsert(key_of(space, each.item),
                                 [&](Entry& entry, bool fresh) -> Result<void> {
                                     auto* const copy = entry.as<Copy>(fresh);
                                     if (copy == nullptr || (!fresh && copy->ver >= each.copy.ver))
                                         return {};
                                     *copy = each.copy;
                                     entry.expires_at = store_->now() + life;
                                     return {};
                                 });
        }
        return {};
    }

  private:
    // A forked child has a copy of all, to which its parent's folds no longer publish.
    std::string key_of(std::string_view space, std::string_view item) const {
        return copy_prefix(store_->options().prefix,
                           std::string{space} + "." + std::to_string(getpid()))
            .append(item);
    }

    const std::shared_ptr<memory::Store> store_;
};

class RedisCopyStore final : public CopyStore {
  public:
    explicit RedisCopyStore(std::shared_ptr<redis::Client> client) : client_(std::move(client)) {}

    Result<std::vector<std::optional<Copy>>> read(std::string_view space,
                                                  std::span<const std::string> items,
                                                  Timeout timeout) override {
        std::vector<std::optional<Copy>> copies;
        copies.reserve(items.size());
        HOTCOUNT_TRY(in_parts(items, timeout, [&](auto part, Deadline deadline) -> Result<void> {
            std::vector<std::string> keys;
            for (const std::string& item : part) keys.push_back(key_of(space, item));
            HOTCOUNT_TRY_ASSIGN(const redis::ReplyArray values, read_keys(keys, deadline));
            if (values.size() != part.size()) {
                return redis::strange_reply(client_->options().address(),
                                            "reading copies of counts");
            }
            for (const redis::Reply& value : values) copies.push_back(to_copy(value));
            return {};
        }));
        return copies;
    }

    Result<void> write(std::string_view space, std::span<const Named> copies, Duration life,
                       Timeout timeout) override {
        static const redis::Script kScript{lua::votes::kCopyLua, redis::Script::Kind::single,
                                           redis::is_one_per_key<redis::is_number>};
        const std::string ends = redis::milliseconds(life);
        return in_parts(copies, timeout, [&](auto part, Deadline deadline) -> Result<void> {
            std::vector<std::string> texts;
            for (const Named& each : part) {
                texts.push_back(key_of(space, each.item));
                texts.push_back(std::to_string(each.copy.ver));
                texts.push_back(std::to_string(each.copy.n));
            }
            // The keys of one script are in one slot.
            std::map<std::uint16_t, Words> parts;
            for (std::size_t i = 0; i < texts.size(); i += 3) {
                auto& [keys, arguments] =
                    parts[client_->options().cluster ? redis::slot_of(texts[i]) : 0];
                if (arguments.empty()) arguments.emplace_back(ends);
                keys.emplace_back(texts[i]);
                arguments.insert(arguments.end(), {texts[i + 1], texts[i + 2]});
            }
            Result<void> written;
            std::vector<redis::Channel::Call> calls;
            calls.reserve(parts.size());
            for (const auto& [slot, words] : parts) {
                calls.push_back({redis::Request::run(kScript, words.keys, {}, words.arguments),
                                 [&written](const Result<redis::Reply>& reply) {
                                     if (!reply) written = reply.error();
                                 }});
            }
            client_->waiting().submit_all(std::move(calls), deadline);
            return written;
        });
    }

  private:
    std::string key_of(std::string_view space, std::string_view item) const {
        return copy_prefix(client_->options().prefix, space).append(item);
    }

    // A cluster has them on several nodes.
    Result<redis::ReplyArray> read_keys(const std::vector<std::string>& keys, Deadline deadline) {
        if (!client_->options().cluster) {
            std::vector<std::string_view> command{"MGET"};
            command.insert(command.end(), keys.begin(), keys.end());
            HOTCOUNT_TRY_ASSIGN(redis::Reply reply,
                                client_->execute(command, deadline.remaining()));
            auto* const values = std::get_if<redis::ReplyArray>(&reply.value);
            return values != nullptr ? std::move(*values) : redis::ReplyArray{};
        }
        std::vector<std::vector<std::string_view>> commands;
        commands.reserve(keys.size());
        for (const std::string& key : keys) commands.push_back({"GET", key});
        redis::ReplyArray values;
        for (auto& reply : client_->execute_many(commands, deadline.remaining())) {
            if (!reply) return std::move(reply).error();
            values.push_back(std::move(*reply));
        }
        return values;
    }

    struct Words {
        std::vector<std::string_view> keys;
        std::vector<std::string_view> arguments;
    };

    template <class T, class Each>
    Result<void> in_parts(std::span<const T> all, Timeout timeout, const Each& each) {
        constexpr std::size_t kKeys = 256;  // They take about 0.3 ms of a server's time.
        const Deadline deadline = client_->deadline(timeout);
        for (; !all.empty(); all = all.subspan(std::min(kKeys, all.size()))) {
            HOTCOUNT_TRY(each(all.first(std::min(kKeys, all.size())), deadline));
        }
        return {};
    }

    // nullopt for a value that is not a copy.
    static std::optional<Copy> to_copy(const redis::Reply& reply) {
        const auto* const text = std::get_if<std::string>(&reply.value);
        if (text == nullptr) return std::nullopt;
        const char* const end = text->data() + text->size();
        Copy copy;
        auto read = std::from_chars(text->data(), end, copy.ver);
        if (read.ec != std::errc{} || copy.ver < 0) return std::nullopt;
        if (read.ptr == end || *read.ptr != ' ') return std::nullopt;
        read = std::from_chars(read.ptr + 1, end, copy.n);
        if (read.ec != std::errc{} || read.ptr != end) return std::nullopt;
        return copy;
    }

    const std::shared_ptr<redis::Client> client_;
};

std::vector<std::string> to_texts(std::span<const sql::Id> items) {
    std::vector<std::string> texts;
    texts.reserve(items.size());
    for (const sql::Id& item : items) texts.push_back(to_text(item));
    return texts;
}

}  // namespace

std::unique_ptr<CopyStore> make_memory_copy_store(std::shared_ptr<memory::Store> store) {
    return std::make_unique<MemoryCopyStore>(std::move(store));
}

std::unique_ptr<CopyStore> make_redis_copy_store(std::shared_ptr<redis::Client> client) {
    return std::make_unique<RedisCopyStore>(std::move(client));
}

CountCopies::CountCopies(std::shared_ptr<sql::Database> database, const VotesOptions& options,
                         std::unique_ptr<CopyStore> store)
    : CountCopies(database, options, std::move(store),
                  VoteNames{options, database->dialect().grammar()}) {}

CountCopies::CountCopies(std::shared_ptr<sql::Database> database, const VotesOptions& options,
                         std::unique_ptr<CopyStore> store, const VoteNames& n)
    : database_(std::move(database)),
      options_(options),
      layout_(options_, database_->dialect()),
      store_(std::move(store)),
      read_space_(vote_statements(vote_sql::kMarksSql, n,
                                  database_->dialect().grammar())["read_copies_id"]),
      write_space_(vote_statements(vote_sql::kMarksSql, n,
                                   database_->dialect().grammar())["write_copies_id"]),
      read_cells_(options_, layout_.vote_dialect(),
                  vote_statements(vote_sql::kCountsSql, n, database_->dialect().grammar()),
                  "folded_count"),
      known_([] { return std::make_unique<Known>(); }) {}

// -- publication of folded counts ---------------------------------------------------------------

void CountCopies::publish(std::span<const FoldedCount> counts) {
    const SteadyTime committed = options_.clock->steady_now();
    if (counts.empty() || cache_is_away()) return;
    const auto name = space(database_->deadline({}), true);
    if (!name || name->empty()) return;
    std::vector<CopyStore::Named> copies;
    copies.reserve(counts.size());
    for (const FoldedCount& each : counts) {
        copies.push_back({to_text(each.item), {.n = each.n, .ver = each.ver}});
    }
    write(*name, copies, committed, kPublishPatience);
}

void CountCopies::write(std::string_view space, std::span<const CopyStore::Named> copies,
                        SteadyTime read_at, Duration patience) {
    // A late copy is as old as the counts that were read.
    const Duration life = options_.max_age - (options_.clock->steady_now() - read_at);
    if (copies.empty() || life <= Duration{0}) return;
    note_cache(store_->write(space, copies, life, patience).ok());
}

bool CountCopies::cache_is_away() {
    Known& known = known_.get();
    const std::lock_guard lock(known.mutex);
    return options_.clock->steady_now() < known.cache_away_until;
}

void CountCopies::note_cache(bool answered) {
    if (answered) return;
    Known& known = known_.get();
    const std::lock_guard lock(known.mutex);
    known.cache_away_until = options_.clock->steady_now() + kPause;
}

// -- the tables' name ---------------------------------------------------------------------------

// Empty if the tables have no name yet. Read again after max_age: new tables have another name.
Result<std::string> CountCopies::find_space(Deadline deadline, bool folds) {
    Known& known = known_.get();
    {
        const std::lock_guard lock(known.mutex);
        if (options_.clock->steady_now() < known.space_until) return known.space;
    }
    const auto read = [&](sql::Connection& connection) {
        return read_mark(connection, read_space_);
    };
    // A process that folds has a write session; a read session would be one more connection.
    auto found = folds ? sql::transact(*database_, deadline, read)
                       : sql::read_snapshot(*database_, deadline, read);
    if (!found) return explain_missing_table(std::move(found).error());
    if (!found->empty()) {
        const std::lock_guard lock(known.mutex);
        known.space = *found;
        known.space_until = options_.clock->steady_now() + options_.max_age;
    }
    return found;
}

Result<std::string> CountCopies::space(Deadline deadline, bool folds) {
    auto there = find_space(deadline, folds);
    if (!there || !there->empty()) return there;
    const std::string drawn = random_name().substr(0, 16);
    HOTCOUNT_TRY(sql::transact(*database_, deadline, [&](sql::Connection& connection) {
        return connection.execute(write_space_, {std::string_view{drawn}});
    }));
    return find_space(deadline, folds);
}

// -- answers to readers -------------------------------------------------------------------------

Count CountCopies::to_count(const CopyStore::Copy& copy, std::string_view source) const {
    const WallTime now = options_.clock->wall_now();
    // A fold's number is its time in microseconds; 0 is an item that no fold has counted.
    const WallTime folded{
        std::chrono::duration_cast<WallTime::duration>(std::chrono::microseconds{copy.ver})};
    return {copy.n, false, copy.ver > 0 ? std::min(folded, now) : now, std::string{source}, 0};
}

Result<std::vector<Count>> CountCopies::counts(std::span<const sql::Id> items, Deadline deadline) {
    // A batch crosses the link in parts, each of which may take as long as a single read.
    const auto patience = [&] {
        constexpr std::size_t kTogether = 2'000;
        const auto parts = static_cast<Duration::rep>(1 + items.size() / kTogether);
        return std::min(Duration{deadline.remaining()}, kReadPatience * parts);
    };
    const std::vector<std::string> texts = to_texts(items);
    std::vector<std::optional<CopyStore::Copy>> copies(items.size());
    // A database that may not be written to has no name for its tables, and no copies then.
    const auto name = cache_is_away() ? Result<std::string>{std::string{}} : space(deadline, false);
    if (!name.ok() && name.error().code != ErrorCode::permission_denied) return name.error();
    const bool named = name.ok() && !name->empty();
    if (named) {
        auto found = store_->read(*name, texts, patience());
        note_cache(found.ok());
        if (found) copies = std::move(*found);
    }
    std::vector<Count> result;
    result.reserve(items.size());
    for (const auto& copy : copies) {
        result.push_back(to_count(copy.value_or(CopyStore::Copy{}), "cache"));
    }
    if (std::all_of(copies.begin(), copies.end(), [](const auto& copy) { return !!copy; })) {
        return result;
    }

    const SteadyTime began = options_.clock->steady_now();
    std::vector<CopyStore::Named> missing;
    std::vector<sql::Id> asked;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (copies[i]) continue;
        asked.push_back(items[i]);
        places.push_back(i);
    }
    const auto read = [&](sql::Connection& connection) -> Result<void> {
        missing.clear();
        HOTCOUNT_TRY(check_place(connection, layout_, options_));
        const auto see = [&](std::size_t index, const sql::Row& row) -> Result<void> {
            if (!row.is_integer(1)) return count_overflow(asked[index]);
            const CopyStore::Copy copy{.n = row.integer(1), .ver = row.integer(2)};
            result[places[index]] = to_count(copy, "sql");
            missing.push_back({texts[places[index]], copy});
            return {};
        };
        return read_cells_.run(connection, asked, see);
    };
    HOTCOUNT_TRY(sql::read_snapshot(*database_, deadline, read));
    if (named && !cache_is_away()) write(*name, missing, began, patience());
    return result;
}

}  // namespace hotcount
