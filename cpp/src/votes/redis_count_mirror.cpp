#include <algorithm>
#include <hotcount/base/check.hpp>

#include "../redis/script_fits.hpp"
#include "count_mirror.hpp"
#include "hotcount_embedded/redis/scripts.hpp"
#include "reply_number.hpp"

namespace hotcount {
namespace {

using redis::Reply;
using redis::ReplyArray;

// Keys of one call: what a server does for them takes about a millisecond.
constexpr std::size_t kMaxScriptKeys = 256;

std::string milliseconds(Duration duration) {
    return std::to_string(std::chrono::ceil<std::chrono::milliseconds>(duration).count());
}

class RedisMirrorStore final : public MirrorStore {
  public:
    RedisMirrorStore(std::shared_ptr<redis::Client> client, Duration max_age)
        : client_(std::move(client)), max_age_(milliseconds(max_age)) {}

    Result<std::vector<std::optional<Copy>>> read(std::string_view space,
                                                  std::span<const std::string> items,
                                                  Timeout timeout) override {
        static const redis::Script kScript{
            redis::scripts::kVotesMirrorReadLua, redis::Script::Kind::single,
            redis::is_one_per_key<redis::is_nil_or<redis::is_array>>};
        std::vector<std::optional<Copy>> copies;
        copies.reserve(items.size());
        HOTCOUNT_TRY(in_parts(items, timeout, [&](auto part, Deadline deadline) -> Result<void> {
            HOTCOUNT_TRY_ASSIGN(const ReplyArray replies, run(kScript, space, part, {}, deadline));
            for (const Reply& reply : replies) copies.push_back(to_copy(reply));
            return {};
        }));
        return copies;
    }

    Result<std::vector<bool>> begin(std::string_view space, std::span<const std::string> items,
                                    std::string_view token, Timeout timeout) override {
        static const redis::Script kScript{redis::scripts::kVotesMirrorBeginLua,
                                           redis::Script::Kind::single,
                                           redis::is_one_per_key<redis::is_number>};
        std::vector<bool> begun;
        begun.reserve(items.size());
        HOTCOUNT_TRY(in_parts(items, timeout, [&](auto part, Deadline deadline) -> Result<void> {
            HOTCOUNT_TRY_ASSIGN(const ReplyArray replies,
                                run(kScript, space, part,
                                    {std::string{token}, milliseconds(kFillLease)}, deadline));
            for (const Reply& reply : replies) begun.push_back(to_number(reply) == 1);
            return {};
        }));
        return begun;
    }

    Result<void> land(std::string_view space, std::span<const Cell> cells, std::string_view token,
                      Timeout timeout) override {
        static const redis::Script kScript{redis::scripts::kVotesMirrorLandLua,
                                           redis::Script::Kind::single,
                                           redis::is_one_per_key<redis::is_number>};
        return in_parts(cells, timeout, [&](auto part, Deadline deadline) -> Result<void> {
            std::vector<std::string> arguments{std::string{token}, max_age_};
            for (const Cell& cell : part) {
                arguments.push_back(std::to_string(cell.n));
                arguments.push_back(std::to_string(cell.ver));
                arguments.push_back(std::to_string(cell.rest));
            }
            HOTCOUNT_TRY(run(kScript, space, part, std::move(arguments), deadline));
            return {};
        });
    }

    Result<void> publish(std::string_view space, std::span<const Cell> cells,
                         Timeout timeout) override {
        static const redis::Script kScript{redis::scripts::kVotesMirrorPublishLua,
                                           redis::Script::Kind::single,
                                           redis::is_one_per_key<redis::is_number>};
        return in_parts(cells, timeout, [&](auto part, Deadline deadline) -> Result<void> {
            std::vector<std::string> arguments;
            for (const Cell& cell : part) {
                arguments.push_back(std::to_string(cell.n));
                arguments.push_back(std::to_string(cell.ver));
            }
            HOTCOUNT_TRY(run(kScript, space, part, std::move(arguments), deadline));
            return {};
        });
    }

    Result<void> drop(std::string_view space, std::span<const std::string> items,
                      Timeout timeout) override {
        return in_parts(items, timeout, [&](auto part, Deadline deadline) -> Result<void> {
            std::vector<std::string> keys;
            for (const std::string& item : part) keys.push_back(key_of(space, item));
            std::vector<std::string_view> command{"UNLINK"};
            command.insert(command.end(), keys.begin(), keys.end());
            HOTCOUNT_TRY(client_->execute(command, deadline.remaining()));
            return {};
        });
    }

  private:
    static const std::string& item_of(const std::string& item) { return item; }
    static const std::string& item_of(const Cell& cell) { return cell.item; }

    std::string key_of(std::string_view space, std::string_view item) const {
        return mirror_prefix(client_->options().prefix, space).append(item);
    }

    template <class T, class Each>
    Result<void> in_parts(std::span<const T> all, Timeout timeout, const Each& each) {
        const Deadline deadline = client_->deadline(timeout);
        for (std::size_t first = 0; first < all.size(); first += kMaxScriptKeys) {
            HOTCOUNT_TRY(
                each(all.subspan(first, std::min(kMaxScriptKeys, all.size() - first)), deadline));
        }
        return {};
    }

    // One reply per key.
    template <class T>
    Result<ReplyArray> run(const redis::Script& script, std::string_view space,
                           std::span<const T> part, std::vector<std::string> texts,
                           Deadline deadline) {
        std::vector<std::string> names;
        names.reserve(part.size());
        for (const T& each : part) names.push_back(key_of(space, item_of(each)));
        const std::vector<std::string_view> keys(names.begin(), names.end());
        const std::vector<std::string_view> arguments(texts.begin(), texts.end());
        HOTCOUNT_TRY_ASSIGN(Reply reply,
                            client_->run(script, keys, arguments, deadline.remaining()));
        auto* const replies = std::get_if<ReplyArray>(&reply.value);
        if (replies == nullptr || replies->size() != part.size()) {
            return make_error(ErrorCode::reply, client_->options().address() +
                                                    ": mirrored counts got a reply of another "
                                                    "shape");
        }
        return std::move(*replies);
    }

    // None for what is not one of ours.
    static std::optional<Copy> to_copy(const Reply& reply) {
        const auto* const fields = std::get_if<ReplyArray>(&reply.value);
        if (fields == nullptr || fields->size() != 3) return std::nullopt;
        const auto n = to_number((*fields)[0]);
        const auto rest = to_number((*fields)[1]);
        const auto age = to_number((*fields)[2]);
        const auto value = n && rest ? checked_add(*n, *rest) : std::nullopt;
        if (!value || !age) return std::nullopt;
        return Copy{*value, std::chrono::milliseconds{*age}};
    }

    const std::shared_ptr<redis::Client> client_;
    const std::string max_age_;
};

}  // namespace

std::unique_ptr<MirrorStore> make_redis_mirror_store(std::shared_ptr<redis::Client> client,
                                                     Duration max_age) {
    return std::make_unique<RedisMirrorStore>(std::move(client), max_age);
}

}  // namespace hotcount
