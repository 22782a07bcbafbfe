#include <algorithm>
#include <array>
#include <chrono>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/interrupt.hpp>
#include <hotcount/redis.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "background_thread.hpp"
#include "commands.hpp"
#include "dedicated_connections.hpp"
#include "loop_connection.hpp"
#include "shared_connection.hpp"
#include "tls.hpp"

namespace hotcount::redis {
namespace {

// Commands of a large call that are sent at a time: between portions single calls pass.
constexpr std::size_t kPortion = 1000;

// What a call's own replies may take: those of a portion, and of a combined script, have to fit.
constexpr std::size_t kFewestReplyBytes = std::size_t{1} << 20;

constexpr Duration kFirstPause = std::chrono::milliseconds{5};
constexpr Duration kLongestPause = std::chrono::milliseconds{100};

// Nothing was applied, and the server will do it soon.
bool passes_soon(const Error& error) {
    static constexpr std::array kSoon{"LOADING", "BUSY", "TRYAGAIN", "MASTERDOWN", "READONLY"};
    return std::find(kSoon.begin(), kSoon.end(), error.server_code) != kSoon.end();
}

// The lane, the thread that looks after it, and who opens connections: a forked child has its own.
struct Shared {
    Shared(const Options& options, const std::shared_ptr<KnownScripts>& scripts)
        : dialer(std::make_shared<Dialer>(options, scripts)),
          lane(std::make_shared<Lane>(options, dialer)),
          housekeeper(lane) {}
    const std::shared_ptr<Dialer> dialer;
    const std::shared_ptr<Lane> lane;  // Also the housekeeper's, and of whoever is in a call.
    Housekeeper housekeeper;
    const std::shared_ptr<LoopLanes> loops{std::make_shared<LoopLanes>()};
};

// None where the request may go over the connection that callers share.
std::optional<Error> not_shared(const Request& request) {
    if (!request.goes_alone()) return {};
    return make_error(ErrorCode::config, "command " + request.name() +
                                             " is not known to answer exactly once: only execute() "
                                             "takes it, over a connection of its own, and not in "
                                             "an event loop without add_reader()");
}

class WaitingChannel final : public Channel {
  public:
    explicit WaitingChannel(ForkLocal<Shared>& shared) : shared_(shared) {}

    void submit(Request request, Deadline deadline, Completion<Reply> done,
                const Cancelled*) override {
        if (const auto refused = not_shared(request)) return done(*refused);
        done(shared_.get().lane->execute(std::move(request), deadline));
    }

  private:
    ForkLocal<Shared>& shared_;
};

class UnwaitedChannel final : public Channel {
  public:
    explicit UnwaitedChannel(ForkLocal<Shared>& shared) : shared_(shared) {}

    void submit(Request request, Deadline deadline, Completion<Reply> done,
                const Cancelled* cancelled) override {
        if (const auto refused = not_shared(request)) return done(*refused);
        Shared& shared = shared_.get();
        auto operation =
            std::make_shared<Operation>(std::move(request), deadline, std::move(done), cancelled);
        // Without it nobody would end the call at its deadline.
        if (auto started = shared.housekeeper.start(); !started) {
            return operation->refuse(make_error(started.error().code,
                                                started.error().message + "; nothing was applied"));
        }
        shared.lane->submit(operation);
        shared.housekeeper.look_after_calls();
    }

  private:
    ForkLocal<Shared>& shared_;
};

class LaneClient final : public Client {
  public:
    explicit LaneClient(Options options)
        : options_(std::move(options)),
          scripts_(std::make_shared<KnownScripts>()),
          shared_([this] { return std::make_unique<Shared>(options_, scripts_); }),
          waiting_(shared_),
          unwaited_(shared_),
          exclusive_(
              [this] { return std::make_unique<Exclusive>(options_, shared_.get().dialer); }) {}

    // Lanes of loops may outlive it, and calls that nobody waits for are told.
    ~LaneClient() override { LaneClient::close(); }

    Result<Reply> execute(std::span<const std::string_view> command, Timeout timeout) override {
        if (command.empty()) return check_command(command).error();
        Request request = Request::command(command);
        if (!request.goes_alone()) return lane().execute(std::move(request), deadline(timeout));
        HOTCOUNT_TRY(check_command(command));
        return execute_alone(command, deadline(timeout));
    }

    Result<std::int64_t> add(std::string_view key, std::int64_t n, Timeout timeout) override {
        HOTCOUNT_TRY_ASSIGN(const Reply reply,
                            lane().execute(Request::add(std::string{key}, n), deadline(timeout)));
        return std::get<std::int64_t>(reply.value);
    }

    std::vector<Result<Reply>> execute_many(std::span<const std::vector<std::string_view>> commands,
                                            Timeout timeout) override {
        for (const auto& command : commands) {
            if (auto checked = check_command(command); !checked) {
                return {commands.size(), checked.error()};
            }
        }
        const Deadline until = deadline(timeout);
        std::vector<Result<Reply>> results;
        results.reserve(commands.size());
        const auto goes_alone = [](const auto& command) {
            return known_command(command).place != Place::shared;
        };
        while (!commands.empty()) {
            const auto most = commands.first(std::min(commands.size(), kPortion));
            const auto shared = static_cast<std::size_t>(
                std::find_if(most.begin(), most.end(), goes_alone) - most.begin());
            if (shared == 0) {  // In its place among the others.
                results.push_back(execute_alone(commands.front(), until));
                commands = commands.subspan(1);
                continue;
            }
            const auto portion = commands.first(shared);
            commands = commands.subspan(shared);
            auto outcome = lane().execute(Request::commands(portion), until);
            if (!outcome) {
                results.insert(results.end(), portion.size(), outcome.error());
                continue;
            }
            auto reply = std::get<ReplyArray>(outcome->value).begin();
            for (const auto& command : portion) {
                if (const auto* error = std::get_if<ReplyError>(&reply->value)) {
                    const std::string name{command.front()};
                    results.emplace_back(to_error(*error, options_.address() + ": " + name));
                } else {
                    results.emplace_back(std::move(*reply));
                }
                ++reply;
            }
        }
        return results;
    }

    Result<Reply> run(const Script& script, std::span<const std::string_view> keys,
                      std::span<const std::string_view> arguments, Timeout timeout) override {
        return lane().execute(Request::run(script, keys, {}, arguments), deadline(timeout));
    }

    Channel& waiting() override { return waiting_; }
    Channel& without_waiting() override { return unwaited_; }

    std::size_t run_once(Timeout timeout) override {
        Shared& shared = shared_.get();
        shared.housekeeper.driven();
        const std::size_t ended = shared.lane->run_once(deadline(timeout));
        shared.housekeeper.driven();
        return ended;
    }

    std::unique_ptr<LoopLane> make_loop_lane(LoopHost& host) override {
        Shared& shared = shared_.get();
        return redis::make_loop_lane(options_, shared.dialer, host, shared.loops);
    }

    void prepare(const Script& script) override { scripts_->add(script); }

    Result<std::optional<ReplyArray>> check_and_set(const CheckAndSet& steps,
                                                    Timeout timeout) override {
        const Deadline until = deadline(timeout);
        return patiently(until, [&]() -> Result<std::optional<ReplyArray>> {
            while (true) {
                HOTCOUNT_TRY_ASSIGN(auto done, exclusive_.get().attempt(steps, until));
                if (!done) return std::optional<ReplyArray>{};
                if (auto* const replies = std::get_if<ReplyArray>(&done->value)) {
                    return std::optional{std::move(*replies)};
                }
                // A nil: a watched key has changed. Somebody else got on, so this ends.
                if (until.passed()) return changed_too_often(steps);
            }
        });
    }

    Result<void> ping(Timeout timeout) override {
        constexpr std::array<std::string_view, 1> kPing{"PING"};
        HOTCOUNT_TRY(execute(kPing, timeout));
        return {};
    }

    void close() override {
        Shared& shared = shared_.get();
        shared.loops->closed.store(true, std::memory_order_release);
        shared.lane->close();
        exclusive_.get().close();
        shared.dialer->close();
    }

    Stats stats() const override {
        Shared& shared = shared_.get();
        Lane::Counts counts = shared.lane->counts();
        shared.loops->add_to(counts);
        return Stats{.commands = counts.commands,
                     .combined = counts.combined,
                     .sends = counts.sends,
                     .bytes_sent = counts.bytes_sent,
                     .bytes_received = counts.bytes_received,
                     .connects = counts.connects + exclusive_.get().connects(),
                     .reconnects = counts.reconnects,
                     .latency_us_p50 = counts.latency.percentile_us(50),
                     .latency_us_p99 = counts.latency.percentile_us(99),
                     .latency_us_max = counts.latency.max_us()};
    }
    const Options& options() const override { return options_; }

  private:
    Lane& lane() { return *shared_.get().lane; }

    Result<Reply> execute_alone(std::span<const std::string_view> command, Deadline until) {
        return patiently(until, [&] { return exclusive_.get().execute(command, until); });
    }

    // Attempts on a connection of one's own: again, after a pause, where the server will serve soon.
    template <class Attempt>
    std::invoke_result_t<Attempt> patiently(Deadline until, const Attempt& attempt) {
        Duration pause = kFirstPause;
        bool resent = false;
        while (true) {
            auto done = attempt();
            if (done.ok()) return done;
            const Error& error = done.error();
            if (passes_soon(error) && until.remaining() > pause) {
                sleep_or_interrupt(pause);
                pause = std::min(2 * pause, kLongestPause);
                continue;
            }
            // As on the shared connection: what never left goes once more, over a new one.
            if (error.code != ErrorCode::unavailable || !error.server_code.empty() || resent) {
                return done;
            }
            resent = true;
        }
    }

    Error changed_too_often(const CheckAndSet& steps) const {
        const std::string_view key = steps.keys.empty() ? "" : steps.keys.front();
        return make_error(ErrorCode::deadline, options_.address() + ": the key " + printable(key) +
                                                   " changed in every attempt until the deadline "
                                                   "passed; nothing was applied");
    }

    const Options options_;
    const std::shared_ptr<KnownScripts> scripts_;
    mutable ForkLocal<Shared> shared_;
    WaitingChannel waiting_;
    UnwaitedChannel unwaited_;
    mutable ForkLocal<Exclusive> exclusive_;
};

}  // namespace

Result<std::shared_ptr<Client>> Client::make(Options options) {
    if (options.timeout <= Duration{0}) {
        return bad_option("timeout", "must be more than 0 seconds");
    }
    if (options.silence_limit < Duration{0}) {
        return bad_option("silence_limit", "is negative; 0 seconds or more");
    }
    if (options.connect_timeout <= Duration{0}) {
        return bad_option("connect_timeout", "must be more than 0 seconds");
    }
    if (options.protocol != 2 && options.protocol != 3) {
        return bad_option("protocol", "must be 2 or 3, not " + std::to_string(options.protocol));
    }
    if (options.max_queue == 0) return bad_value("max_queue", 0, "at least 1");
    if (options.max_in_flight == 0) {
        return bad_value("max_in_flight", 0, "at least 1");
    }
    if (options.max_reply_bytes < kFewestReplyBytes) {
        return bad_value("max_reply_bytes", options.max_reply_bytes,
                         "at least " + std::to_string(kFewestReplyBytes));
    }
    if (options.spin < Duration{0}) {
        return bad_option("spin", "is negative; 0 seconds or more");
    }
    if (options.client_name.find_first_of(" \r\n") != std::string::npos) {
        return bad_option("client_name", "takes no spaces and no line ends");
    }
    if (options.exclusive_connections == 0) {
        return bad_value("exclusive_connections", 0, "at least 1");
    }
    // Loaded once here too, so that a file that is none fails where it is named.
    HOTCOUNT_TRY(make_tls_context(options));
    return std::shared_ptr<Client>{std::make_shared<LaneClient>(std::move(options))};
}

}  // namespace hotcount::redis
