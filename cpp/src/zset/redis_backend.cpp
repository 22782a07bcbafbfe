#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/worker_pool.hpp>

#include "backend.hpp"
#include "hotcount_embedded/zset/lua.hpp"
#include "redis/scripts.hpp"
#include "redis_steps.hpp"

namespace hotcount {
namespace {

using redis::Reply;
using redis::ReplyArray;
using Element = LiveSetsBackend::Element;
using Members = LiveSetsBackend::Members;
using Rank = LiveSetsBackend::Rank;
using Upserts = LiveSetsBackend::Upserts;
using zset::integer;
using zset::Limits;
using zset::Sender;
using zset::Server;
using zset::to_text;
using zset::UpsertLimits;

// -- replies --------------------------------------------------------------------------------------

Result<Members> to_members(const std::string& server, const Result<Reply>& reply,
                           const std::string& key) {
    if (!reply) return redis::of_key(key, reply.error());
    const auto* const items = std::get_if<ReplyArray>(&reply->value);
    if (items == nullptr) return redis::strange_reply(server, "ZREVRANGE");
    Members members;
    // RESP3 answers with pairs, RESP2 with members and scores in turn.
    const bool paired = !items->empty() && std::holds_alternative<ReplyArray>(items->front().value);
    members.reserve(paired ? items->size() : items->size() / 2);
    for (std::size_t i = 0; i < items->size(); i += paired ? 1 : 2) {
        const ReplyArray* pair = paired ? std::get_if<ReplyArray>(&(*items)[i].value) : items;
        const std::size_t at = paired ? 0 : i;
        if (pair == nullptr || pair->size() < at + 2)
            return redis::strange_reply(server, "ZREVRANGE");
        const auto* const member = std::get_if<std::string>(&(*pair)[at].value);
        const auto score = redis::to_double((*pair)[at + 1]);
        if (member == nullptr || !score) return redis::strange_reply(server, "ZREVRANGE");
        members.push_back({*member, *score});
    }
    return members;
}

Result<Rank> to_rank(const std::string& server, const Result<Reply>& reply,
                     const std::string& key) {
    if (reply && std::holds_alternative<std::monostate>(reply->value)) return Rank{};
    HOTCOUNT_TRY_ASSIGN(const std::int64_t place, integer(server, reply, key));
    return Rank{place};
}

// -- the backend ----------------------------------------------------------------------------------

class RedisSets final : public LiveSetsBackend {
  public:
    RedisSets(std::shared_ptr<redis::Client> client, LiveSetsOptions sets_options)
        : LiveSetsBackend(std::move(sets_options), client->options().prefix),
          client_(std::move(client)),
          server_(std::make_shared<const std::string>(client_->options().address())),
          limits_(std::make_shared<const UpsertLimits>(
              UpsertLimits{redis::milliseconds(gate()), redis::milliseconds(kVersionsStay)})),
          steps_(std::make_shared<const zset::RedisSteps>(client_, gate(), server_)),
          elsewhere_([this] {
              const redis::Options& limits = client_->options();
              return std::make_unique<WaitingCalls>(*server_, limits.exclusive_connections,
                                                    limits.max_queue);
          }) {}

    AsyncCall waiting(Timeout timeout) const override {
        return redis::waiting_call(*client_, timeout);
    }

    void upsert(std::vector<Element> elements, std::size_t batch, const AsyncCall& call,
                Completion<Upserts> done) override {
        if (options().method == UpsertMethod::script) {
            return zset::upsert_by_script(sender(call), limits_, std::move(elements), batch,
                                          std::move(done));
        }
        const Deadline deadline = client_->deadline(call.timeout);
        in_steps<Upserts>(call, deadline, std::move(done),
                          [steps = steps_, elements = std::move(elements), batch, deadline,
                           cancelled = call.cancelled] {
                              return Result{steps->upsert(elements, batch, deadline, cancelled)};
                          });
    }

    void upsert_one(Element element, const AsyncCall& call, Completion<Upsert> done) override {
        if (options().method != UpsertMethod::script) {
            std::vector<Element> alone;
            alone.push_back(std::move(element));
            return upsert(std::move(alone), 1, call,
                          [done = std::move(done)](Result<Upserts> states) {
                              if (!states) return done(std::move(states).error());
                              done(std::move(states->front()));
                          });
        }
        zset::upsert_by_script(sender(call), limits_, std::move(element), std::move(done));
    }

    void remove(const Element& which, const AsyncCall& call, Completion<Upsert> done) override {
        static const redis::Script kScript{lua::zset::kRemoveLua, redis::Script::Kind::single,
                                           redis::is_integer};
        const Sender send = sender(call);
        // ttl_gate needs no scripts, and knows of no companion.
        if (which.companion.empty() || options().method != UpsertMethod::script) {
            return remove_alone(send, which.key, which.member, std::move(done));
        }
        const std::string marker = zset::marker_key(which.companion);
        const std::string build = zset::build_key(which.companion);
        const std::string hash = zset::build_hash_key(which.companion);
        const std::string_view keys[] = {which.key, which.companion, marker, build, hash};
        const std::string number = which.version ? std::to_string(*which.version) : "";
        const std::string_view arguments[] = {which.member, number, limits_->keep};
        send(redis::Request::run(kScript, keys, {}, arguments),
             [send, key = which.key, member = which.member, versioned = which.version.has_value(),
              done = std::move(done)](const Result<Reply>& reply) {
                 const auto state = integer(*send.server, reply, key);
                 if (state) return done(static_cast<Upsert>(*state));
                 // Without a version the companion is optional, so a denied one is left out.
                 if (versioned || state.error().code != ErrorCode::permission_denied) {
                     return done(state.error());
                 }
                 remove_alone(send, key, member, done);
             });
    }

    void range(const std::string& key, std::int64_t start, std::int64_t stop, const AsyncCall& call,
               Completion<Members> done) override {
        const std::string first = std::to_string(start);
        const std::string last = std::to_string(stop);
        const std::string_view command[] = {"ZREVRANGE", key, first, last, "WITHSCORES"};
        sender(call)(redis::Request::command(command),
                     [server = server_, key, done = std::move(done)](const Result<Reply>& reply) {
                         done(to_members(*server, reply, key));
                     });
    }

    void rank(const std::string& key, std::string_view member, const AsyncCall& call,
              Completion<Rank> done) override {
        const std::string_view command[] = {"ZREVRANK", key, member};
        sender(call)(redis::Request::command(command),
                     [server = server_, key, done = std::move(done)](const Result<Reply>& reply) {
                         done(to_rank(*server, reply, key));
                     });
    }

    void create(const std::string& key, const std::string& companion, Duration ttl,
                std::span<const ScoredMember> members, const AsyncCall& call,
                Completion<void> done) override {
        static const redis::Script kScript{lua::zset::kCreateLua, redis::Script::Kind::single,
                                           redis::is_integer};
        std::vector<std::string> scores;
        scores.reserve(members.size());
        const std::string ttl_ms = redis::milliseconds(ttl);
        std::vector<std::string_view> arguments{ttl_ms, limits_->keep};
        for (const auto& [member, score] : members) {
            arguments.push_back(scores.emplace_back(to_text(score)));
            arguments.push_back(member);
        }
        std::vector<std::string_view> keys{key};
        if (!companion.empty()) keys.push_back(companion);
        sender(call)(redis::Request::run(kScript, keys, {}, arguments),
                     [key, done = std::move(done)](const Result<Reply>& reply) {
                         done(reply ? Result<void>{} : redis::of_key(key, reply.error()));
                     });
    }

    std::shared_ptr<Builds> builds() const override { return make_redis_builds(client_); }
    Deadline deadline(Timeout timeout) const override { return client_->deadline(timeout); }
    WaitingCalls* waiting_calls() override { return &elsewhere_.get(); }

    void sweep(const std::string& pattern, bool dry_run, const AsyncCall& call,
               Completion<SweepReport> done) override {
        const Deadline deadline = steps_->sweep_deadline(call.timeout);
        in_steps<SweepReport>(call, deadline, std::move(done),
                              [steps = steps_, pattern, dry_run, deadline,
                               timed = call.timeout.has_value(), cancelled = call.cancelled] {
                                  return steps->sweep(
                                      pattern, dry_run,
                                      timed ? Timeout{deadline.remaining()} : Timeout{}, cancelled);
                              });
    }

  private:
    // Several round trips that wait: in the caller's thread if it waits, else in one of the
    // library.
    template <class T, class Work>
    void in_steps(const AsyncCall& call, Deadline deadline, Completion<T> done, Work work) {
        if (call.waits) return done(work());
        elsewhere_.get().run<T>(deadline, call.cancelled, std::move(done), std::move(work));
    }
    Sender sender(const AsyncCall& call) const {
        return {redis::channel_of(*client_, call), client_->deadline(call.timeout), call.cancelled,
                server_};
    }

    static void remove_alone(const Sender& send, const std::string& key, const std::string& member,
                             Completion<Upsert> done) {
        const std::string_view command[] = {"ZREM", key, member};
        send(redis::Request::command(command),
             [server = send.server, key, done = std::move(done)](const Result<Reply>& reply) {
                 const auto removed = integer(*server, reply, key);
                 if (!removed) return done(removed.error());
                 done(*removed > 0 ? Upsert::applied : Upsert::absent);
             });
    }

    const std::shared_ptr<redis::Client> client_;
    const Server server_;
    const Limits limits_;
    const std::shared_ptr<const zset::RedisSteps> steps_;  // Calls under way hold it.
    ForkLocal<WaitingCalls> elsewhere_;
};

}  // namespace

std::unique_ptr<LiveSetsBackend> make_redis_sets(std::shared_ptr<redis::Client> client,
                                                 LiveSetsOptions options) {
    return std::make_unique<RedisSets>(std::move(client), std::move(options));
}

}  // namespace hotcount
