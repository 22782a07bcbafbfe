#include <array>

#include "backend.hpp"
#include "hotcount_embedded/zset/lua.hpp"
#include "redis/scripts.hpp"
#include "redis/server_role.hpp"
#include "redis_steps.hpp"

namespace hotcount {
namespace {

using redis::Repeat;
using redis::Reply;
using redis::Script;

bool is_text(const Reply& reply, std::size_t) {
    return std::holds_alternative<std::string>(reply.value);
}

class RedisBuilds final : public Builds {
  public:
    explicit RedisBuilds(std::shared_ptr<redis::Client> client) : client_(std::move(client)) {}

    Result<void> begin(const Build& build, Timeout timeout) override {
        static const Script kScript{lua::zset::kBeginBuildLua, Script::Kind::single,
                                    redis::is_integer};
        const Names names{build};
        const std::string_view keys[] = {build.key, build.companion, names.build, names.hash};
        const std::string lease = redis::milliseconds(build.lease);
        const std::string_view arguments[] = {build.token, lease, keep_};
        // A repeat finds its own token in the lease: a build begins once.
        HOTCOUNT_TRY_ASSIGN(const std::int64_t begun,
                            run(build, kScript, keys, arguments, Repeat::counted_once, timeout));
        if (begun == 1) return {};
        return lease_lost(build, "was not begun: another builder has the lease");
    }

    Result<void> add(const Build& build, std::uint64_t chunk, std::span<const BuildMember> members,
                     Timeout timeout) override {
        static const Script kScript{lua::zset::kAddToBuildLua, Script::Kind::single,
                                    redis::is_integer};
        const Names names{build};
        const std::string_view keys[] = {build.key, build.companion, names.build, names.hash};
        const std::string number = std::to_string(members.empty() ? 0 : chunk);
        const std::string lease = redis::milliseconds(build.lease);
        std::vector<std::string> texts;
        texts.reserve(2 * members.size());
        std::vector<std::string_view> arguments{build.token, number, lease, keep_};
        for (const BuildMember& each : members) {
            arguments.push_back(each.member);
            arguments.push_back(texts.emplace_back(zset::to_text(each.score)));
            arguments.push_back(each.version ? texts.emplace_back(std::to_string(*each.version))
                                             : std::string_view{});
        }
        HOTCOUNT_TRY_ASSIGN(const std::int64_t added,
                            run(build, kScript, keys, arguments, Repeat::counted_once, timeout));
        return to_outcome(build, added, timeout);
    }

    Result<std::string> carry(const Build& build, const std::string& cursor,
                              Timeout timeout) override {
        static const Script kScript{lua::zset::kCarryVersionsLua, Script::Kind::single, is_text};
        const Names names{build};
        const std::string_view keys[] = {build.companion, names.build, names.hash};
        const std::string lease = redis::milliseconds(build.lease);
        const std::string_view arguments[] = {build.token, lease, cursor};
        const auto reply = send(kScript, keys, arguments, Repeat::counted_once, timeout);
        if (!reply) return redis::of_key(build.key, reply.error());
        const auto* const next = std::get_if<std::string>(&reply->value);
        if (next == nullptr) return redis::strange_reply(server(), "carry_versions");
        if (next->empty()) return to_outcome(build, 0, timeout).error();
        if (*next == "lost") return to_outcome(build, 2, timeout).error();
        return *next;
    }

    Result<void> publish(const Build& build, std::uint64_t chunks, Timeout timeout) override {
        static const Script kScript{lua::zset::kPublishBuildLua, Script::Kind::single,
                                    redis::is_integer};
        const Names names{build};
        const std::string marker = zset::marker_key(build.companion);
        const std::string_view keys[] = {build.key, build.companion, marker, names.build,
                                         names.hash};
        const std::string number = std::to_string(chunks);
        const std::string ttl = redis::milliseconds(build.ttl);
        const std::string_view arguments[] = {build.token, number, ttl, keep_};
        HOTCOUNT_TRY_ASSIGN(const std::int64_t published,
                            run(build, kScript, keys, arguments, Repeat::never, timeout));
        return to_outcome(build, published, timeout);
    }

    Result<void> abandon(const Build& build, Timeout timeout) override {
        static const Script kScript{lua::zset::kAbandonBuildLua, Script::Kind::single,
                                    redis::is_integer};
        const Names names{build};
        const std::string_view keys[] = {names.build, names.hash};
        const std::string_view arguments[] = {build.token};
        HOTCOUNT_TRY(run(build, kScript, keys, arguments, Repeat::counted_once, timeout));
        return {};
    }

  private:
    struct Names {
        explicit Names(const Build& all)
            : build(zset::build_key(all.companion)), hash(zset::build_hash_key(all.companion)) {}
        const std::string build;
        const std::string hash;
    };

    Result<void> to_outcome(const Build& build, std::int64_t code, Timeout timeout) const {
        if (code == 1) return {};
        std::string why = code == 2
                              ? "is lost: a key of it was deleted, evicted or has expired"
                              : "has lost its lease: it has passed, was deleted or evicted, or "
                                "another builder has it";
        const std::string policy = redis::eviction_policy(*client_, timeout);
        if (!policy.empty() && policy != "noeviction") {
            why += " (" + server() + " evicts keys when its memory is full: maxmemory-policy is " +
                   policy + ")";
        }
        return lease_lost(build, why);
    }
    Result<Reply> send(const Script& script, std::span<const std::string_view> keys,
                       std::span<const std::string_view> arguments, Repeat repeat,
                       Timeout timeout) const {
        return wait_for<Reply>([&](Completion<Reply> done) {
            redis::submit(*client_, redis::Request::run(script, keys, {}, arguments, repeat),
                          redis::waiting_call(*client_, timeout), std::move(done));
        });
    }
    Result<std::int64_t> run(const Build& build, const Script& script,
                             std::span<const std::string_view> keys,
                             std::span<const std::string_view> arguments, Repeat repeat,
                             Timeout timeout) const {
        return zset::integer(server(), send(script, keys, arguments, repeat, timeout), build.key);
    }
    std::string server() const { return client_->options().address(); }

    const std::shared_ptr<redis::Client> client_;
    const std::string keep_ = redis::milliseconds(kVersionsStay);
};

}  // namespace

std::shared_ptr<Builds> make_redis_builds(std::shared_ptr<redis::Client> client) {
    return std::make_shared<RedisBuilds>(std::move(client));
}

}  // namespace hotcount
