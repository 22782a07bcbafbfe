#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/interrupt.hpp>
#include <hotcount/detail/base/worker_pool.hpp>
#include <hotcount/detail/redis/health.hpp>
#include <hotcount/redis.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cluster_client.hpp"
#include "commands.hpp"
#include "dedicated_connections.hpp"
#include "server_role.hpp"
#include "shared_connection.hpp"
#include "socket_loop_connection.hpp"
#include "tls.hpp"

namespace hotcount::redis {
namespace {

// Commands of a large call that are sent at a time: calls of others pass in between.
constexpr std::size_t kPortion = 1000;

// In seconds: the usual steps from 100 us to 5 s.
constexpr std::array kLatencyBounds{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                    0.05,   0.1,     0.25,   0.5,   1.0,    2.5,   5.0};

// The least max_reply_bytes: the replies of a portion, and of a combined script, must fit.
constexpr std::size_t kFewestReplyBytes = std::size_t{1} << 20;

// State of one process: the shared connection, the background thread that drives it, and the dialer
// that opens connections. A forked child makes them anew.
struct PerProcess {
    PerProcess(const Options& options, const std::shared_ptr<KnownScripts>& scripts)
        : dialer(std::make_shared<Dialer>(options, scripts)),
          connection(std::make_shared<SharedConnection>(options, dialer)),
          background(connection) {}
    const std::shared_ptr<Dialer> dialer;
    const std::shared_ptr<SharedConnection> connection;
    BackgroundThread background;
    const std::shared_ptr<LoopConnections> loops{std::make_shared<LoopConnections>()};
};

// The error of a request that may not use the shared connection; null if it may.
std::optional<Error> not_shared(const Request& request) {
    if (!request.goes_alone()) return {};
    return make_error(ErrorCode::config, "command " + request.name() +
                                             " is not known to answer exactly once: only execute() "
                                             "takes it, over a connection of its own, and not in "
                                             "an event loop without add_reader()");
}

class WaitingChannel final : public Channel {
  public:
    explicit WaitingChannel(ForkLocal<PerProcess>& process) : process_(process) {}

    void submit(Request request, Deadline deadline, Completion<Reply> done,
                const Cancelled*) override {
        if (const auto refused = not_shared(request)) return done(*refused);
        done(process_.get().connection->execute(std::move(request), deadline));
    }

  private:
    ForkLocal<PerProcess>& process_;
};

class UnwaitedChannel final : public Channel {
  public:
    explicit UnwaitedChannel(ForkLocal<PerProcess>& process) : process_(process) {}

    void submit(Request request, Deadline deadline, Completion<Reply> done,
                const Cancelled* cancelled) override {
        if (const auto refused = not_shared(request)) return done(*refused);
        PerProcess& process = process_.get();
        auto operation =
            std::make_shared<Operation>(std::move(request), deadline, std::move(done), cancelled);
        // The background thread ends the call at its deadline.
        if (auto started = process.background.start(); !started) {
            return operation->refuse(make_error(started.error().code,
                                                started.error().message + "; nothing was applied"));
        }
        process.connection->submit(operation);
        process.background.look_after_calls();
    }

  private:
    ForkLocal<PerProcess>& process_;
};

class RespClient final : public CountingClient {
  public:
    explicit RespClient(Options options)
        : options_(std::move(options)),
          scripts_(std::make_shared<KnownScripts>()),
          process_([this] { return std::make_unique<PerProcess>(options_, scripts_); }),
          waiting_(process_),
          unwaited_(process_),
          dedicated_([this] {
              return std::make_unique<DedicatedConnections>(options_, process_.get().dialer);
          }) {}

    // Loop connections may outlive the client, and asynchronous calls must end.
    ~RespClient() override { RespClient::close(); }

    Result<Reply> execute(std::span<const std::string_view> command, Timeout timeout) override {
        if (command.empty()) return check_command(command).error();
        Request request = Request::command(command);
        if (!request.goes_alone()) {
            return connection().execute(std::move(request), deadline(timeout));
        }
        HOTCOUNT_TRY(check_command(command));
        return execute_alone(command, deadline(timeout));
    }

    Result<std::int64_t> add(std::string_view key, std::int64_t n, Timeout timeout) override {
        HOTCOUNT_TRY_ASSIGN(
            const Reply reply,
            connection().execute(Request::add(std::string{key}, n), deadline(timeout)));
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
            if (shared == 0) {  // The first one goes alone, in order with the others.
                results.push_back(execute_alone(commands.front(), until));
                commands = commands.subspan(1);
                continue;
            }
            const auto portion = commands.first(shared);
            commands = commands.subspan(shared);
            auto outcome = connection().execute(Request::commands(portion), until);
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
        return connection().execute(Request::run(script, keys, {}, arguments), deadline(timeout));
    }

    Channel& waiting() override { return waiting_; }
    Channel& without_waiting() override { return unwaited_; }

    std::size_t run_once(Timeout timeout) override {
        PerProcess& process = process_.get();
        process.background.driven();
        const std::size_t ended = process.connection->run_once(deadline(timeout));
        process.background.driven();
        return ended;
    }

    std::unique_ptr<LoopConnection> make_loop_connection(LoopHost& host) override {
        PerProcess& process = process_.get();
        return redis::make_loop_connection(options_, process.dialer, host, process.loops);
    }

    void prepare(const Script& script) override { scripts_->add(script); }

    void ping_async(Completion<void> done, const AsyncCall& call) override {
        look_at_server(options_, process_.get().dialer,
                       call.channel != nullptr ? *call.channel : unwaited_, deadline(call.timeout),
                       std::move(done), call.cancelled);
    }

    void close() override {
        PerProcess& process = process_.get();
        process.loops->closed.store(true, std::memory_order_release);
        process.connection->close();
        dedicated_.get().close();
        process.dialer->close();
    }

    SharedConnection::Counts counts() const override {
        PerProcess& process = process_.get();
        SharedConnection::Counts counts = process.connection->counts();
        process.loops->add_to(counts);
        counts.connects += dedicated_.get().connects();
        return counts;
    }
    const Options& options() const override { return options_; }

  private:
    SharedConnection& connection() { return *process_.get().connection; }

    // Again on a dedicated connection, after a pause, while the server will soon serve it.
    Result<Reply> execute_alone(std::span<const std::string_view> command, Deadline until) {
        Duration pause = next_pause({});
        bool resent = false;
        while (true) {
            auto done = dedicated_.get().execute(command, until);
            if (done.ok()) return done;
            const Error& error = done.error();
            if (is_transient_refusal(error.server_code) && until.remaining() > pause) {
                sleep_or_interrupt(pause);
                pause = next_pause(pause);
                continue;
            }
            // As on the shared connection: a call that never left goes once more, over a new one.
            if (error.code != ErrorCode::unavailable || !error.server_code.empty() || resent) {
                return done;
            }
            resent = true;
        }
    }

    const Options options_;
    const std::shared_ptr<KnownScripts> scripts_;
    mutable ForkLocal<PerProcess> process_;
    WaitingChannel waiting_;
    UnwaitedChannel unwaited_;
    mutable ForkLocal<DedicatedConnections> dedicated_;
};

}  // namespace

Client::Stats CountingClient::stats() const {
    const SharedConnection::Counts all = counts();
    return Stats{.commands = all.commands,
                 .combined = all.combined,
                 .sends = all.sends,
                 .bytes_sent = all.bytes_sent,
                 .bytes_received = all.bytes_received,
                 .connects = all.connects,
                 .reconnects = all.reconnects,
                 .latency_us_p50 = all.latency.percentile_us(50),
                 .latency_us_p99 = all.latency.percentile_us(99),
                 .latency_us_max = all.latency.max_us()};
}

Result<void> CountingClient::ping(Timeout timeout) {
    Result<void> outcome;
    // The channel waits: `done` is called before it returns.
    ping_async([&](Result<void> told) { outcome = std::move(told); }, {&waiting(), timeout});
    return outcome;
}

Latency latency_of(const Client& client) {
    const auto* const own = dynamic_cast<const CountingClient*>(&client);
    if (own == nullptr) return {};
    const SharedConnection::Counts counts = own->counts();
    Latency all{{}, counts.latency.sum_s(), counts.latency.total()};
    for (const double bound : kLatencyBounds) {
        const std::chrono::duration<double> seconds{bound};
        all.buckets.emplace_back(
            bound, counts.latency.at_most(std::chrono::duration_cast<Duration>(seconds)));
    }
    return all;
}

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
    if (options.credentials && !(options.user.empty() && options.password.empty())) {
        return bad_option("credentials",
                          "takes the place of a user and password in the URL: leave "
                          "those out");
    }
    if (options.cluster && opens_hash_tag(options.prefix)) {
        return bad_option("prefix",
                          "has a brace and no whole hash tag, which would spread the keys of "
                          "one object over slots: write {app}:, or leave the brace out");
    }
    if (options.service.empty() && options.sentinel_credentials != Login{}) {
        return bad_option("sentinel_credentials", "is for redis+sentinel:// URLs");
    }
    if (options.service.empty() && !options.sentinel_tls) {
        return bad_option("sentinel_tls", "is for redis+sentinel:// URLs");
    }
    // Loaded here too, so that a bad file fails when the client is made.
    HOTCOUNT_TRY(make_tls_context(options));
    if (!options.cluster && !options.address_map.empty()) {
        return bad_option("address_map", "is for redis+cluster:// URLs");
    }
    for (const auto& [announced, reached] : options.address_map) {
        for (const std::string& address : {announced, reached}) {
            const std::size_t colon = address.rfind(':');
            std::uint16_t port = 0;
            const bool names_host = colon != std::string::npos && colon > 0;
            const char* const end = address.data() + address.size();
            if (names_host && std::from_chars(address.data() + colon + 1, end, port).ptr == end &&
                port > 0) {
                continue;
            }
            return bad_option("address_map", "has '" + address + "', which is no 'host:port'");
        }
    }
    if (options.cluster) return make_cluster_client(std::move(options));
    return std::shared_ptr<Client>{std::make_shared<RespClient>(std::move(options))};
}

}  // namespace hotcount::redis
