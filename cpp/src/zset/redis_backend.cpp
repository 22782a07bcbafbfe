#include <algorithm>
#include <array>
#include <atomic>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/waiting_calls.hpp>

#include "backend.hpp"
#include "hotcount_embedded/zset/lua.hpp"
#include "keys.hpp"
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
using zset::about;
using zset::integer;
using zset::milliseconds;
using zset::Server;
using zset::to_text;
using zset::unexpected;
using zset::unknown;

// -- replies --------------------------------------------------------------------------------------

Result<Members> to_members(const std::string& server, const Result<Reply>& reply,
                           const std::string& key) {
    if (!reply) return about(key, reply.error());
    const auto* const items = std::get_if<ReplyArray>(&reply->value);
    if (items == nullptr) return unexpected(server, "ZREVRANGE");
    Members members;
    // RESP3 answers with pairs, RESP2 with members and scores in turn.
    const bool paired = !items->empty() && std::holds_alternative<ReplyArray>(items->front().value);
    members.reserve(paired ? items->size() : items->size() / 2);
    for (std::size_t i = 0; i < items->size(); i += paired ? 1 : 2) {
        const ReplyArray* pair = paired ? std::get_if<ReplyArray>(&(*items)[i].value) : items;
        const std::size_t at = paired ? 0 : i;
        if (pair == nullptr || pair->size() < at + 2) return unexpected(server, "ZREVRANGE");
        const auto* const member = std::get_if<std::string>(&(*pair)[at].value);
        const auto score = redis::to_double((*pair)[at + 1]);
        if (member == nullptr || !score) return unexpected(server, "ZREVRANGE");
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

// -- one script for a batch -----------------------------------------------------------------------

// How a call reaches the server.
struct Sender {
    redis::Channel& channel;
    Deadline deadline;
    const redis::Cancelled* cancelled;
    Server server;

    void operator()(redis::Request request, Completion<Reply> done) const {
        channel.submit(std::move(request), deadline, std::move(done), cancelled);
    }
};

// What upsert.lua is told of all elements, in ms. Shared as Server is.
struct UpsertLimits {
    std::string gate;
    std::string keep;
};
using Limits = std::shared_ptr<const UpsertLimits>;

// What upsert.lua answers for an element whose set is being built, if the build's keys are not named.
constexpr std::int64_t kIsBeingBuilt = 6;

// Which keys beside the set an upsert names, as each makes the script dearer: none if the user may not
// touch them, else the companion and with a version the marker; while the set is built, all.
enum class Helpers : std::uint8_t { none, companion, companion_build };

// What upsert.lua is told of elements. Its views hold as long as it and the elements do.
class UpsertWords {
  public:
    UpsertWords(std::span<const Element* const> elements, Helpers helpers,
                std::vector<std::string_view>& arguments) {
        texts_.reserve(5 * elements.size());
        keys_.reserve(5 * elements.size());
        arguments.reserve(arguments.size() + 4 * elements.size());
        const Element* before = nullptr;
        for (const Element* const each : elements) {
            const Element& element = *each;
            arguments.push_back(element.member);
            arguments.push_back(texts_.emplace_back(to_text(element.score)));
            const bool same_keys = before != nullptr && before->key == element.key &&
                                   before->version.has_value() == element.version.has_value();
            before = &element;
            const std::size_t others = keys_.size();
            if (!same_keys) {
                keys_.push_back(element.key);
                const bool beside = helpers != Helpers::none && !element.companion.empty();
                if (beside) keys_.push_back(element.companion);
                if (beside && helpers == Helpers::companion_build) {
                    keys_.push_back(texts_.emplace_back(zset::build_key(element.companion)));
                    keys_.push_back(texts_.emplace_back(zset::build_hash_key(element.companion)));
                }
                if (element.version) {
                    keys_.push_back(texts_.emplace_back(zset::marker_key(element.companion)));
                }
            }
            arguments.push_back(kCounts[keys_.size() - others]);
            if (element.version) {
                arguments.push_back(texts_.emplace_back(std::to_string(*element.version)));
            }
        }
    }
    std::span<const std::string_view> keys() const { return keys_; }

  private:
    static constexpr std::array<std::string_view, 6> kCounts{"0", "1", "2", "3", "4", "5"};

    std::vector<std::string> texts_;  // Reserved: its elements stay where they are.
    std::vector<std::string_view> keys_;
};

// Upserts with method script, batch by batch: the next is sent when the one before is answered.
class ScriptedUpserts : public std::enable_shared_from_this<ScriptedUpserts> {
  public:
    ScriptedUpserts(Sender send, std::vector<Element> elements, std::size_t batch, Limits limits,
                    Completion<Upserts> done)
        : send_(std::move(send)),
          elements_(std::move(elements)),
          limits_(std::move(limits)),
          done_(std::move(done)),
          results_(elements_.size(), Upsert::failed) {
        for (std::size_t begin = 0; begin < elements_.size(); begin += batch) {
            ranges_.push_back({begin, std::min(batch, elements_.size() - begin)});
        }
        std::reverse(ranges_.begin(), ranges_.end());
    }

    /// Sends what is to be sent next, and what comes after it while answers come at once.
    void go_on() {
        while (!ranges_.empty()) {
            Range range = std::move(ranges_.back());
            ranges_.pop_back();
            other_side_done_.store(false, std::memory_order_relaxed);
            auto call = request(range);
            send_(std::move(call), [self = shared_from_this(),
                                    range = std::move(range)](const Result<Reply>& reply) {
                self->take_in(range, reply);
                if (self->other_side_done_.exchange(true)) self->go_on();
            });
            // The answer may come before the request is handed in, or in another thread: whichever
            // of the two is last goes on.
            if (!other_side_done_.exchange(true)) return;
        }
        done_(std::move(results_));
    }

  private:
    // The elements of one call: those from `begin`, or, if some come again, those at `picked`.
    struct Range {
        std::size_t begin;
        std::size_t size;
        Helpers helpers{Helpers::companion};
        std::vector<std::size_t> picked{};

        std::size_t at(std::size_t i) const { return picked.empty() ? begin + i : picked[i]; }
    };

    void take_in(const Range& range, const Result<Reply>& reply) {
        const auto settle = [&](const Error& error) {
            for (std::size_t i = 0; i < range.size; ++i) {
                results_[range.at(i)] = about(elements_[range.at(i)].key, error);
            }
        };
        if (!reply) {
            if (!denied_for_a_key(range, reply.error())) settle(reply.error());
            return;
        }
        const auto* const states = std::get_if<ReplyArray>(&reply->value);
        if (states == nullptr || states->size() != range.size) {
            return settle(unknown(*send_.server, "upsert"));
        }
        std::vector<std::size_t> again;
        for (std::size_t i = 0; i < range.size; ++i) {
            const auto state = integer(*send_.server, (*states)[i]);
            const std::size_t at = range.at(i);
            if (state && *state == kIsBeingBuilt) {
                again.push_back(at);
            } else {
                results_[at] = state ? Result{static_cast<Upsert>(*state)}
                                     : Result<Upsert>{about(elements_[at].key, state.error())};
            }
        }
        if (again.empty()) return;
        ranges_.push_back({0, again.size(), Helpers::companion_build, std::move(again)});
    }

    // An ACL that denies one key refuses the whole call, and nothing was run: then each key goes by
    // itself. A user who may not touch companions needs none without a version.
    bool denied_for_a_key(const Range& range, const Error& error) {
        if (range.helpers == Helpers::none || error.code != ErrorCode::permission_denied ||
            !redis::concerns_a_key(error)) {
            return false;
        }
        if (range.size > 1) {
            for (std::size_t i = range.size; i-- > 0;) {
                ranges_.push_back({range.at(i), 1, range.helpers});
            }
            return true;
        }
        const Element& only = elements_[range.at(0)];
        if (only.version || only.companion.empty()) return false;
        ranges_.push_back({range.at(0), 1, Helpers::none});
        return true;
    }

    redis::Request request(const Range& range) const {
        static const redis::Script kScript{lua::zset::kUpsertLua, redis::Script::Kind::single,
                                           redis::is_some<redis::is_integer>};
        std::vector<std::string_view> arguments{limits_->gate, limits_->keep};
        std::vector<const Element*> elements;
        elements.reserve(range.size);
        for (std::size_t i = 0; i < range.size; ++i) elements.push_back(&elements_[range.at(i)]);
        const UpsertWords words{elements, range.helpers, arguments};
        return redis::Request::run(kScript, words.keys(), {}, arguments);
    }

    const Sender send_;
    const std::vector<Element> elements_;
    const Limits limits_;
    const Completion<Upserts> done_;
    Upserts results_;
    std::vector<Range> ranges_;  // Still to be sent, the next one last.
    std::atomic<bool> other_side_done_{false};
};

// -- the backend ----------------------------------------------------------------------------------

class RedisSets final : public LiveSetsBackend {
  public:
    RedisSets(std::shared_ptr<redis::Client> client, LiveSetsOptions sets_options)
        : LiveSetsBackend(std::move(sets_options)),
          client_(std::move(client)),
          server_(std::make_shared<const std::string>(client_->options().address())),
          limits_(std::make_shared<const UpsertLimits>(
              UpsertLimits{milliseconds(gate()), milliseconds(options().keep)})),
          steps_(
              std::make_shared<const zset::RedisSteps>(client_, options().method, gate(), server_)),
          elsewhere_([this] {
              const redis::Options& limits = client_->options();
              return std::make_unique<WaitingCalls>(*server_, limits.exclusive_connections,
                                                    limits.max_queue);
          }) {}

    std::string_view store_prefix() const override { return client_->options().prefix; }

    // A call that waits is the other one over the waiting channel, where it has ended when it
    // returns.

    Upserts upsert(std::vector<Element> elements, std::size_t batch, Timeout timeout) override {
        if (options().method != UpsertMethod::script) {
            return steps_->upsert(elements, batch, client_->deadline(timeout));
        }
        return *wait<Upserts>([&](Completion<Upserts> done) {
            upsert_async(std::move(elements), batch, waiting(timeout), std::move(done));
        });
    }
    void upsert_async(std::vector<Element> elements, std::size_t batch, const AsyncCall& call,
                      Completion<Upserts> done) override {
        if (options().method == UpsertMethod::script) {
            std::make_shared<ScriptedUpserts>(sender(call), std::move(elements), batch, limits_,
                                              std::move(done))
                ->go_on();
            return;
        }
        const Deadline deadline = client_->deadline(call.timeout);
        elsewhere_.get().run<Upserts>(
            deadline, call.cancelled, std::move(done),
            [steps = steps_, elements = std::move(elements), batch, deadline] {
                return Result{steps->upsert(elements, batch, deadline)};
            });
    }

    Result<Upsert> upsert_one(Element element, Timeout timeout) override {
        if (options().method != UpsertMethod::script) {
            std::vector<Element> alone;
            alone.push_back(std::move(element));
            return std::move(upsert(std::move(alone), 1, timeout).front());
        }
        return wait<Upsert>([&](Completion<Upsert> done) {
            upsert_one_async(std::move(element), waiting(timeout), std::move(done));
        });
    }
    void upsert_one_async(Element element, const AsyncCall& call,
                          Completion<Upsert> done) override {
        if (options().method != UpsertMethod::script) {
            std::vector<Element> alone;
            alone.push_back(std::move(element));
            return upsert_async(std::move(alone), 1, call,
                                [done = std::move(done)](Result<Upserts> states) {
                                    if (!states) return done(std::move(states).error());
                                    done(std::move(states->front()));
                                });
        }
        send_one(sender(call), limits_, std::move(element), Helpers::companion, std::move(done));
    }

    Result<Upsert> remove(const Element& which, Timeout timeout) override {
        return wait<Upsert>([&](Completion<Upsert> done) {
            remove_async(which, waiting(timeout), std::move(done));
        });
    }
    void remove_async(const Element& which, const AsyncCall& call,
                      Completion<Upsert> done) override {
        static const redis::Script kScript{lua::zset::kRemoveLua, redis::Script::Kind::single,
                                           redis::is_integer};
        const Sender send = sender(call);
        // The other methods are for servers without scripts, and know of no companion.
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
                 // A user who may not touch companions has none.
                 if (versioned || state.error().code != ErrorCode::permission_denied) {
                     return done(state.error());
                 }
                 remove_alone(send, key, member, done);
             });
    }

    Result<Members> range(const std::string& key, std::int64_t start, std::int64_t stop,
                          Timeout timeout) override {
        return wait<Members>([&](Completion<Members> done) {
            range_async(key, start, stop, waiting(timeout), std::move(done));
        });
    }
    void range_async(const std::string& key, std::int64_t start, std::int64_t stop,
                     const AsyncCall& call, Completion<Members> done) override {
        const std::string first = std::to_string(start);
        const std::string last = std::to_string(stop);
        const std::string_view command[] = {"ZREVRANGE", key, first, last, "WITHSCORES"};
        sender(call)(redis::Request::command(command),
                     [server = server_, key, done = std::move(done)](const Result<Reply>& reply) {
                         done(to_members(*server, reply, key));
                     });
    }

    Result<Rank> rank(const std::string& key, std::string_view member, Timeout timeout) override {
        return wait<Rank>([&](Completion<Rank> done) {
            rank_async(key, member, waiting(timeout), std::move(done));
        });
    }
    void rank_async(const std::string& key, std::string_view member, const AsyncCall& call,
                    Completion<Rank> done) override {
        const std::string_view command[] = {"ZREVRANK", key, member};
        sender(call)(redis::Request::command(command),
                     [server = server_, key, done = std::move(done)](const Result<Reply>& reply) {
                         done(to_rank(*server, reply, key));
                     });
    }

    Result<void> create(const std::string& key, const std::string& companion, Duration ttl,
                        std::span<const ScoredMember> members, Timeout timeout) override {
        return wait<void>([&](Completion<void> done) {
            create_async(key, companion, ttl, members, waiting(timeout), std::move(done));
        });
    }
    void create_async(const std::string& key, const std::string& companion, Duration ttl,
                      std::span<const ScoredMember> members, const AsyncCall& call,
                      Completion<void> done) override {
        static const redis::Script kScript{lua::zset::kCreateLua, redis::Script::Kind::single,
                                           redis::is_integer};
        std::vector<std::string> scores;
        scores.reserve(members.size());
        const std::string ttl_ms = milliseconds(ttl);
        std::vector<std::string_view> arguments{ttl_ms, limits_->keep};
        for (const auto& [member, score] : members) {
            arguments.push_back(scores.emplace_back(to_text(score)));
            arguments.push_back(member);
        }
        std::vector<std::string_view> keys{key};
        if (!companion.empty()) keys.push_back(companion);
        sender(call)(redis::Request::run(kScript, keys, {}, arguments),
                     [key, done = std::move(done)](const Result<Reply>& reply) {
                         done(reply ? Result<void>{} : about(key, reply.error()));
                     });
    }

    std::shared_ptr<Builds> builds() const override {
        return make_redis_builds(client_, options().keep);
    }
    Deadline deadline(Timeout timeout) const override { return client_->deadline(timeout); }
    WaitingCalls* waiting_calls() override { return &elsewhere_.get(); }

    Result<SweepReport> sweep(const std::string& pattern, bool dry_run, Timeout timeout) override {
        return steps_->sweep(pattern, dry_run, timeout);
    }
    void sweep_async(const std::string& pattern, bool dry_run, const AsyncCall& call,
                     Completion<SweepReport> done) override {
        const Deadline deadline = steps_->sweep_deadline(call.timeout);
        elsewhere_.get().run<SweepReport>(
            deadline, call.cancelled, std::move(done),
            [steps = steps_, pattern, dry_run, deadline, timed = call.timeout.has_value()] {
                return steps->sweep(pattern, dry_run,
                                    timed ? Timeout{deadline.remaining()} : Timeout{});
            });
    }

  private:
    template <class T, class Start>
    static Result<T> wait(const Start& start) {
        std::optional<Result<T>> outcome;
        start([&](Result<T> found) { outcome.emplace(std::move(found)); });
        return std::move(*outcome);
    }
    AsyncCall waiting(Timeout timeout) const { return {&client_->waiting(), timeout, nullptr}; }
    Sender sender(const AsyncCall& call) const {
        return {call.channel != nullptr ? *call.channel : client_->without_waiting(),
                client_->deadline(call.timeout), call.cancelled, server_};
    }

    // Travels with other single upserts that wait beside it. A user who may not touch companions
    // needs none without a version.
    static void send_one(const Sender& send, Limits limits, Element element, Helpers helpers,
                         Completion<Upsert> done) {
        static const redis::Script kScript{lua::zset::kUpsertLua, redis::Script::Kind::combinable,
                                           redis::is_integer};
        std::vector<std::string_view> arguments;
        const Element* const alone = &element;
        const UpsertWords words{{&alone, 1}, helpers, arguments};
        const std::string_view shared[] = {limits->gate, limits->keep};
        auto request = redis::Request::run(kScript, words.keys(), shared, arguments);
        send(std::move(request),
             [send, limits = std::move(limits), element = std::move(element), helpers,
              done = std::move(done)](const Result<Reply>& reply) mutable {
                 if (reply) {
                     const auto state = integer(*send.server, *reply);
                     if (state && *state == kIsBeingBuilt) {
                         return send_one(send, std::move(limits), std::move(element),
                                         Helpers::companion_build, std::move(done));
                     }
                     return state ? done(static_cast<Upsert>(*state))
                                  : done(about(element.key, state.error()));
                 }
                 const Error& error = reply.error();
                 if (helpers != Helpers::none && !element.version && !element.companion.empty() &&
                     error.code == ErrorCode::permission_denied && redis::concerns_a_key(error)) {
                     return send_one(send, std::move(limits), std::move(element), Helpers::none,
                                     std::move(done));
                 }
                 done(about(element.key, error));
             });
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
