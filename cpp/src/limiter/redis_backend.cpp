#include <algorithm>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/op_id.hpp>
#include <variant>

#include "backends.hpp"
#include "hotcount_embedded/limiter/lua.hpp"
#include "limiter/wrapped_backend.hpp"
#include "redis/scripts.hpp"

namespace hotcount {

bool is_outcome(const redis::Reply& reply, std::size_t) {
    const auto* const all = std::get_if<redis::ReplyArray>(&reply.value);
    return all != nullptr && all->size() % 4 == 0 && redis::is_some<redis::is_integer>(reply, 1);
}

namespace {

// The value of a name in frame/names.lua. A name that the file lacks does not compile.
consteval std::string_view named(std::string_view name) {
    std::string_view text = lua::limiter::kNamesLua;
    do {
        text.remove_prefix(text.find("local ") + 6);
    } while (!text.starts_with(name) || text[name.size()] != ' ');
    text.remove_prefix(text.find('=') + 2);
    return text.substr(0, text.find('\n'));
}
consteval std::int64_t number(std::string_view name) {
    std::int64_t value = 0;
    for (const char digit : named(name)) value = 10 * value + (digit - '0');
    return value;
}
static_assert(number("SKEW") == kMostSkew && number("AHEAD") == kMostAhead);

// Without its quotes.
consteval std::string_view code(std::string_view name) { return named(name).substr(1, 1); }
constexpr std::string_view kLook = code("LOOK"), kTake = code("TAKE"),
                           kTakeWhatFits = code("TAKE_WHAT_FITS"), kBlock = code("BLOCK"),
                           kReserve = code("RESERVE"), kCommit = code("COMMIT"),
                           kRefund = code("REFUND"), kChargeDenied = code("CHARGE_DENIED"),
                           kAdmitAhead = code("ADMIT_AHEAD");

}  // namespace

std::string with_names(std::string_view script) {
    return std::string{lua::limiter::kNamesLua} + std::string{script};
}

std::string framed(std::string_view step) {
    return std::string{step} + std::string{lua::limiter::kHitKeysLua};
}

std::string once_only(std::string_view script) {
    // Its KEYS and ARGV are then the function's.
    return "local function hit(KEYS, ARGV)\n" + std::string{script} + "\nend\n" +
           std::string{lua::limiter::kHitOnceLua};
}

Error about_limit(const std::string& key, const Error& error) {
    if (error.code == ErrorCode::wrong_type) return no_limit_state(key);
    return redis::of_key(key, error);
}

namespace {

Error strange_reply(const std::string& server) {
    return redis::strange_reply(server, "a limiter's script");
}

Result<Outcome> to_outcome(const std::string& server, const redis::Reply& reply) {
    const auto* const parts = std::get_if<redis::ReplyArray>(&reply.value);
    if (parts == nullptr || parts->size() % 4 != 0 ||
        parts->size() > 4 * LimiterOptions::kMaxRates) {
        return strange_reply(server);
    }
    std::array<std::int64_t, 4 * LimiterOptions::kMaxRates> numbers{};
    for (std::size_t i = 0; i < parts->size(); ++i) {
        const auto number = redis::to_integer((*parts)[i]);
        if (!number) return strange_reply(server);
        numbers[i] = *number;
    }
    std::array<Outcome, LimiterOptions::kMaxRates> outcomes{};
    const std::size_t rates = parts->size() / 4;
    for (std::size_t i = 0; i < rates; ++i) {
        const std::int64_t* const answer = &numbers[4 * i];
        outcomes[i] = {answer[0] > 0, answer[1], std::nullopt, answer[3]};
        outcomes[i].taken = answer[0];
        if (answer[2] >= 0) outcomes[i].retry_after_us = answer[2];
    }
    Outcome merged = merge(std::span{outcomes}.first(rates));
    merged.blocked = numbers[0] < 0;
    if (merged.blocked) merged.reset_after_us = merged.forget_after_us();
    return merged;
}

Result<Outcome> to_outcome(const std::string& server, const Result<redis::Reply>& reply,
                           const std::string& key) {
    if (!reply) return about_limit(key, reply.error());
    return to_outcome(server, *reply);
}

class ScriptBackend final : public LimiterBackend {
  public:
    ScriptBackend(std::shared_ptr<redis::Client> client, const redis::Script& script,
                  const redis::Script& once, std::int64_t limit, bool charge_denied,
                  std::span<const std::int64_t> numbers, std::string_view step_name)
        : LimiterBackend({client->options().prefix, client->options().address(), KeyRule::any_bytes,
                          step_name.empty() ? nullptr : client.get()}),
          client_(std::move(client)),
          limit_(limit),
          server_(std::make_shared<const std::string>(place().name)),
          script_(script),
          once_(once),
          step_name_(step_name) {
        shared_ = {"", std::string{kTake}, std::string{charge_denied ? kChargeDenied : "0"}};
        for (const std::int64_t number : numbers) shared_.push_back(std::to_string(number));
        using Asked = std::pair<std::string_view, std::string_view>;
        for (const auto& [mode, charge] :  // In the order of Take.
             {Asked{kLook, shared_[2]},
              {kTake, shared_[2]},
              {kTake, shared_[2]},
              {kTakeWhatFits, shared_[2]},
              {kTake, kAdmitAhead}}) {
            std::vector<std::string_view> words(shared_.begin(), shared_.end());
            words[1] = mode;
            words[2] = charge;
            encoded_.emplace_back(words);
        }
        client_->prepare(script_);
    }

    AsyncCall waiting(Timeout timeout) const override {
        return redis::waiting_call(*client_, timeout ? timeout : client_->options().timeout);
    }

    void run(const std::string& key, const LimitRequest& request, const AsyncCall& call,
             Completion<Outcome> done) override {
        std::visit([&](const auto& one) { start(key, one, call, std::move(done)); }, request.call);
    }

    void hit_many(std::vector<std::string> keys, std::vector<std::int64_t> costs,
                  const AsyncCall& call, Completion<std::vector<Result<Outcome>>> done) override {
        if (keys.empty()) return done(std::vector<Result<Outcome>>{});
        struct Gathered {
            std::string server;
            std::vector<std::string> keys;
            std::vector<Result<Outcome>> outcomes;
        };
        const auto gathered = std::make_shared<Gathered>(
            Gathered{server(), keys, std::vector<Result<Outcome>>(keys.size(), Outcome{})});
        redis::ScriptBatch batch{script_, keys.size(), std::move(keys), shared_, {}};
        batch.arguments.reserve(costs.size());
        for (const std::int64_t cost : costs) batch.arguments.push_back(to_price(cost));
        redis::submit_script_batch(
            redis::channel_of(*client_, call), server(), std::move(batch),
            client_->deadline(call.timeout),
            [gathered](std::size_t i, const Result<redis::Reply>& reply) {
                const std::string& key = gathered->keys[i];
                gathered->outcomes[i] = reply || !redis::concerns_all_keys(reply.error())
                                            ? to_outcome(gathered->server, reply, key)
                                            : failed_as<Outcome>(reply);
            },
            [gathered, done = std::move(done)] { done(std::move(gathered->outcomes)); },
            call.cancelled);
    }

    void hit_together(std::vector<JointHit> hits, const AsyncCall& call,
                      Completion<std::vector<Outcome>> done) override {
        std::vector<std::string> words{""};
        std::vector<std::string_view> keys;
        std::vector<std::string> names;
        for (const JointHit& hit : hits) {
            names.push_back(hit.key);
            const auto& backend = static_cast<const ScriptBackend&>(hit.backend->innermost());
            keys.push_back(hit.key);
            words.emplace_back(backend.step_name_);
            words.emplace_back(hit.is_shadow ? "1" : "0");
            words.push_back(backend.to_price(hit.cost));
            words.push_back(std::to_string((backend.shared_.size() - kNumbers) / 3));
            words.insert(words.end(), backend.shared_.begin() + kNumbers, backend.shared_.end());
        }
        const std::vector<std::string_view> arguments(words.begin(), words.end());
        submit(redis::Request::run(joint_script(), keys, {}, arguments), call,
               [server = server(), names = std::move(names),
                done = std::move(done)](const Result<redis::Reply>& reply) {
                   if (!reply) {
                       // The server does not say which of several keys it is about.
                       return done(names.size() == 1 ? about_limit(names.front(), reply.error())
                                                     : reply.error());
                   }
                   const auto* const all = std::get_if<redis::ReplyArray>(&reply->value);
                   if (all == nullptr || all->size() != names.size())
                       return done(strange_reply(server));
                   for (std::size_t i = 0; i < names.size(); ++i) {
                       const auto* const error = std::get_if<redis::ReplyError>(&(*all)[i].value);
                       if (error == nullptr) continue;
                       return done(about_limit(names[i], redis::to_error(*error, server)));
                   }
                   std::vector<Outcome> outcomes;
                   for (const redis::Reply& one : *all) {
                       auto outcome = to_outcome(server, one);
                       if (!outcome) return done(std::move(outcome).error());
                       outcomes.push_back(*outcome);
                   }
                   done(std::move(outcomes));
               });
    }

  private:
    using Words = std::vector<std::string>;

    void start(const std::string& key, const HitRequest& hit, const AsyncCall& call,
               Completion<Outcome> done) {
        if (hit.once != nullptr) {
            return run_once(kTake, key, op_key(key, hit.once->op_id), {to_price(hit.cost)},
                            *hit.once, call, std::move(done));
        }
        const std::string price = to_price(hit.cost);
        const std::string_view keys[] = {key};
        const std::string_view arguments[] = {price};
        const bool looks = hit.take == Take::nothing;
        submit(redis::Request::run(script_, keys, encoded_[static_cast<std::size_t>(hit.take)],
                                   arguments, looks ? redis::Repeat::reads : redis::Repeat::never),
               call, [server = server_, key, done = std::move(done)](Result<redis::Reply> reply) {
                   done(to_outcome(*server, reply, key));
               });
    }
    void start(const std::string& key, const RefundRequest& refund, const AsyncCall& call,
               Completion<Outcome> done) {
        // No limit admits more than this, so a larger refund is cut.
        run_mode(kRefund, key, {std::to_string(std::min(refund.n, 2 * limit_))},
                 redis::Repeat::never, call, std::move(done));
    }
    void start(const std::string& key, const BlockRequest& block, const AsyncCall& call,
               Completion<Outcome> done) {
        run_mode(kBlock, key, {std::to_string(block.life.count())}, redis::Repeat::never, call,
                 std::move(done));
    }
    void start(const std::string& key, const ReserveRequest& held, const AsyncCall& call,
               Completion<Outcome> done) {
        run_mode(kReserve, key,
                 {to_price(held.n), std::to_string(held.lease_us), std::string{held.id}},
                 redis::Repeat::counted_once, call, std::move(done));
    }
    // One that takes nothing may be repeated.
    void start(const std::string& key, const CommitRequest& commit, const AsyncCall& call,
               Completion<Outcome> done) {
        const Words arguments{std::to_string(std::min(commit.used, 2 * limit_ + 1)),
                              std::string{commit.id}};
        if (commit.once != nullptr) {
            return run_once(kCommit, key, commit_op_key(key, commit.once->op_id), arguments,
                            *commit.once, call, std::move(done));
        }
        run_mode(kCommit, key, arguments,
                 commit.used == 0 ? redis::Repeat::counted_once : redis::Repeat::never, call,
                 std::move(done));
    }
    void start(const std::string& key, const ResetRequest&, const AsyncCall& call,
               Completion<Outcome> done) {
        const std::string_view command[] = {"DEL", key};
        forget_denials(key);
        submit(redis::Request::command(command), call,
               [key, done = std::move(done)](const Result<redis::Reply>& reply) {
                   forget_denials(key);  // Of hits that were sent before.
                   if (!reply) return done(about_limit(key, reply.error()));
                   done(Outcome{});
               });
    }

    // A call of the script that sets a state; `arguments` are the key's.
    void run_mode(std::string_view mode, const std::string& key, const Words& arguments,
                  redis::Repeat repeat, const AsyncCall& call, Completion<Outcome> done) {
        std::vector<std::string_view> shared(shared_.begin(), shared_.end());
        shared[1] = mode;
        const std::string_view keys[] = {key};
        const std::vector<std::string_view> words(arguments.begin(), arguments.end());
        forget_denials(key);
        submit(redis::Request::run(script_, keys, shared, words, repeat), call,
               [server = server(), key, done = std::move(done)](const Result<redis::Reply>& reply) {
                   forget_denials(key);  // Of hits that were sent before.
                   done(to_outcome(server, reply, key));
               });
    }

    // run_mode() once per op_id, which is remembered at `beside`.
    void run_once(std::string_view mode, const std::string& key, const Result<std::string>& beside,
                  const Words& own, const OnceOnly& once, const AsyncCall& call,
                  Completion<Outcome> done) {
        if (!beside) return done(beside.error());
        const std::string_view keys[] = {key, *beside};
        const std::string keep = std::to_string(once.keep.count());
        const auto since_epoch = made_at(once.op_id);
        const std::string made = since_epoch ? std::to_string(since_epoch->count()) : "";
        std::vector<std::string_view> arguments{keep, made};
        arguments.insert(arguments.end(), shared_.begin(), shared_.end());
        arguments[3] = mode;
        arguments.insert(arguments.end(), own.begin(), own.end());
        const bool is_hit = mode == kTake;
        if (!is_hit) forget_denials(key);
        submit(redis::Request::run(once_, keys, {}, arguments, redis::Repeat::counted_once), call,
               [server = server(), key, op_id = std::string{once.op_id}, is_hit,
                done = std::move(done)](const Result<redis::Reply>& reply) {
                   if (!is_hit) forget_denials(key);  // Of hits that were sent before.
                   if (reply) {
                       const auto* const numbers = std::get_if<redis::ReplyArray>(&reply->value);
                       const auto first = numbers == nullptr || numbers->empty()
                                              ? std::nullopt
                                              : redis::to_integer(numbers->front());
                       if (first == kOld) return done(hit_op_id_too_old(op_id));
                       if (first == kAhead) return done(hit_op_id_ahead(op_id));
                   }
                   done(to_outcome(server, reply, key));
               });
    }

    // A completion must not point to this object: a limiter may be destroyed before its calls end.
    const std::string& server() const { return *server_; }
    void submit(redis::Request request, const AsyncCall& call,
                Completion<redis::Reply> done) const {
        redis::submit(*client_, std::move(request), call, std::move(done));
    }
    // A cost above every limit is cut to limit_ + 1, because Lua would round a larger number.
    std::string to_price(std::int64_t cost) const {
        return std::to_string(std::min(cost, limit_ + 1));
    }

    // The index in shared_ of the rates' numbers.
    static constexpr std::ptrdiff_t kNumbers = 3;
    // In the place of an answer of hit_once.lua.
    static constexpr std::int64_t kOld = -2;
    static constexpr std::int64_t kAhead = -3;

    static const redis::Script& joint_script() {
        static const std::string kText = [] {
            std::string text{"local steps = {}\n"};
            std::vector<std::string_view> there;
            for (const LimiterAlgorithm* const one : kLimiterAlgorithms) {
                if (one->step_text == nullptr) continue;
                if (std::ranges::find(there, one->step_name) != there.end()) continue;
                there.push_back(one->step_name);
                text += "do\n" + std::string{one->step_text()} + "\nsteps['" +
                        std::string{one->step_name} + "'] = step\nend\n";
            }
            return with_names(text + std::string{lua::limiter::kHitAllLua});
        }();
        static const redis::Script kScript{kText, redis::Script::Kind::single,
                                           redis::is_one_per_key<redis::is_array>};
        return kScript;
    }

    const std::shared_ptr<redis::Client> client_;
    const std::int64_t limit_;  // The largest of its rates' limits.
    // Its address, for errors of calls that outlive this object.
    const std::shared_ptr<const std::string> server_;
    const redis::Script& script_;
    const redis::Script& once_;
    const std::string_view step_name_;
    std::vector<std::string> shared_;
    // shared_, encoded for each Take.
    std::vector<redis::SharedArguments> encoded_;
};

}  // namespace

std::unique_ptr<LimiterBackend> make_script_backend(std::shared_ptr<redis::Client> client,
                                                    const redis::Script& script,
                                                    const redis::Script& once, std::int64_t limit,
                                                    bool charge_denied,
                                                    std::span<const std::int64_t> numbers,
                                                    std::string_view step_name) {
    return std::make_unique<ScriptBackend>(std::move(client), script, once, limit, charge_denied,
                                           numbers, step_name);
}

}  // namespace hotcount
