#include "cluster_client.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <hotcount/detail/base/event.hpp>
#include <hotcount/detail/base/fork.hpp>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cluster_calls.hpp"
#include "cluster_map.hpp"
#include "commands.hpp"
#include "shared_connection.hpp"
#include "socket_loop_connection.hpp"

namespace hotcount::redis {
namespace {

// How long after its deadline a thread waits for the end of a call that a thread of the library drives.
constexpr Duration kEndsWithin = std::chrono::seconds{1};

// The connection to one node that the threads of a process share.
struct ThreadLane {
    ThreadLane(const ClusterMap::Node& node, LaneOf lane)
        : connection(
              std::make_shared<SharedConnection>(node.options, node.dialer, std::move(lane))),
          background(connection, /*alone=*/true) {}
    const std::shared_ptr<SharedConnection> connection;
    BackgroundThread background;
};

// The lanes of the threads of a process. Calls that a thread waits for go from lane to lane with it; the
// others are driven by a thread of the library for each lane.
class ThreadLanes final : public Lanes,
                          public LaneOwner,
                          public std::enable_shared_from_this<ThreadLanes> {
  public:
    ThreadLanes(const Options& options, std::shared_ptr<ClusterMap> map)
        : options_(options), map_(std::move(map)), calls_(map_->router(), *this) {}
    ~ThreadLanes() override {
        for (auto& lane : lanes_) delete lane.load(std::memory_order_acquire);
    }
    ThreadLanes(const ThreadLanes&) = delete;
    ThreadLanes& operator=(const ThreadLanes&) = delete;

    void start() {
        map_->listen(weak_from_this(), [weak = weak_from_this()] {
            if (const auto self = weak.lock()) self->hear_news();
        });
    }

    Result<Reply> execute(Request request, Deadline deadline) {
        HOTCOUNT_TRY_ASSIGN(const std::uint16_t slot, request.slot());
        const auto operation = std::make_shared<Operation>(std::move(request), deadline);
        operation->route.slot = slot;
        operation->route.begun = std::chrono::steady_clock::now();
        while (true) {
            HOTCOUNT_TRY_ASSIGN(const std::uint16_t node, calls_.wait_for_node(*operation));
            auto outcome = lane(node).connection->execute(operation);
            if (!operation->has_left()) return outcome;
            HOTCOUNT_TRY(calls_.follow(*operation, node));
        }
    }

    // It has no slot: no redirection moves it to another node.
    Result<Reply> execute_at(std::uint16_t node, Request request, Deadline deadline) {
        const auto operation = std::make_shared<Operation>(std::move(request), deadline);
        while (true) {
            auto outcome = lane(node).connection->execute(operation);
            if (!operation->has_left()) return outcome;
            HOTCOUNT_TRY(calls_.follow(*operation, node));
        }
    }

    void submit(Request request, Deadline deadline, Completion<Reply> done,
                const Cancelled* cancelled) {
        calls_.submit(
            std::move(request), deadline,
            [self = shared_from_this(), done = std::move(done)](Result<Reply> reply) {
                done(std::move(reply));
                self->ended_.fetch_add(1, std::memory_order_release);
                self->progress_.wake();
            },
            cancelled);
    }

    /// The error of a request that is not sent, because its deadline has passed.
    Error too_late(const Request& request) const {
        return make_error(ErrorCode::deadline,
                          options_.address() + ": the deadline passed before " + request.name() +
                              " was sent; nothing was applied");
    }

    /// Returns when another asynchronous call has ended.
    std::size_t run_once(Deadline deadline) {
        const std::size_t before = ended_.load(std::memory_order_acquire);
        while (true) {
            const std::uint32_t seen = progress_.epoch();
            const std::size_t ended = ended_.load(std::memory_order_acquire) - before;
            if (ended > 0 || deadline.passed()) return ended;
            (void)progress_.wait(seen, deadline);
        }
    }

    void add_to(SharedConnection::Counts& counts) const {
        for (const auto& place : lanes_) {
            if (auto* const lane = place.load(std::memory_order_acquire)) {
                counts.add(lane->connection->counts());
            }
        }
    }

    void close() {
        calls_.close(make_error(ErrorCode::closed, options_.address() + " is closed"));
        for (auto& place : lanes_) {
            if (auto* const lane = place.load(std::memory_order_acquire)) lane->connection->close();
        }
    }

  private:
    ThreadLane* find(std::uint16_t node) const {
        return node < lanes_.size() ? lanes_[node].load(std::memory_order_acquire) : nullptr;
    }
    ThreadLane& lane(std::uint16_t node) {
        if (ThreadLane* const known = find(node)) [[likely]]
            return *known;
        const ClusterMap::Node& made_for = map_->node(node);
        auto made =
            std::make_unique<ThreadLane>(made_for, LaneOf{weak_from_this(), node, made_for.heard});
        ThreadLane* before = nullptr;
        if (lanes_[node].compare_exchange_strong(before, made.get(), std::memory_order_acq_rel)) {
            return *made.release();
        }
        return *before;
    }

    // Lanes release their held answers when another node has confirmed the lane's node.
    void hear_news() {
        for (std::size_t i = 0; i < lanes_.size(); ++i) {
            const auto node = static_cast<std::uint16_t>(i);
            ThreadLane* const known = find(node);
            if (known == nullptr || !known->connection->doubted_since()) continue;
            if (const auto told = map_->confirmation(node)) {
                known->connection->confirm(told->owns, told->asked_at);
            }
            if (known->connection->doubted_since()) map_->doubts(node);
        }
        calls_.look();
    }

    // -- Lanes
    std::optional<Error> push(std::uint16_t node, const OperationPtr& operation) override {
        ThreadLane& to = lane(node);
        if (const auto started = to.background.start(); !started) {
            return make_error(started.error().code,
                              started.error().message + "; nothing was applied");
        }
        auto refused = to.connection->take(operation);
        to.background.look_after_calls();
        return refused;
    }
    void outstanding(std::uint16_t node, SlotSet& slots) override {
        if (ThreadLane* const known = find(node)) known->connection->outstanding(slots);
    }
    void evict(std::uint16_t node) override {
        if (ThreadLane* const known = find(node)) {
            known->connection->evict(
                make_error(ErrorCode::unavailable, options_.address() + ": the slot has moved"));
        }
    }
    void want_map() override { map_->want(); }
    void look_at(SteadyTime time) override {
        map_->run_at(time, [weak = weak_from_this()] {
            if (const auto self = weak.lock()) self->calls_.look();
        });
    }
    std::optional<Error> no_map_since(SteadyTime time) override {
        return map_->failure_since(time);
    }
    Error why_none() override { return map_->why_none(); }

    // -- LaneOwner
    void left(std::uint16_t node, const OperationPtr& operation) override {
        calls_.left(node, operation);
    }
    void answered(std::uint16_t node) override { calls_.answered(node); }
    void doubts(std::uint16_t node) override { map_->doubts(node); }
    void lost(std::uint16_t node) override { map_->lost(node); }

    const Options options_;
    const std::shared_ptr<ClusterMap> map_;
    std::array<std::atomic<ThreadLane*>, Router::kMostNodes> lanes_{};
    ClusterCalls calls_;
    std::atomic<std::size_t> ended_{0};
    Signal progress_;
};

struct ClusterProcess {
    ClusterProcess(const Options& options, const std::shared_ptr<KnownScripts>& scripts)
        : map(std::make_shared<ClusterMap>(options, scripts)),
          lanes(std::make_shared<ThreadLanes>(options, map)) {
        lanes->start();
    }
    const std::shared_ptr<ClusterMap> map;
    const std::shared_ptr<ThreadLanes> lanes;
    const std::shared_ptr<LoopConnections> loops{std::make_shared<LoopConnections>()};
};

class UnwaitedClusterChannel final : public Channel {
  public:
    explicit UnwaitedClusterChannel(ForkLocal<ClusterProcess>& process) : process_(process) {}
    bool is_cluster() const override { return true; }
    void submit(Request request, Deadline deadline, Completion<Reply> done,
                const Cancelled* cancelled) override {
        process_.get().lanes->submit(std::move(request), deadline, std::move(done), cancelled);
    }

  private:
    ForkLocal<ClusterProcess>& process_;
};

// The thread of a single call drives it itself. Several calls, and the parts of a batch, are sent
// to all nodes at once, and the thread waits for the last of them.
class WaitingClusterChannel final : public Channel {
  public:
    explicit WaitingClusterChannel(ForkLocal<ClusterProcess>& process) : process_(process) {}
    bool is_cluster() const override { return true; }
    void submit(Request request, Deadline deadline, Completion<Reply> done,
                const Cancelled*) override {
        if (!request.is_batch() && !request.goes_alone()) {
            return done(process_.get().lanes->execute(std::move(request), deadline));
        }
        // The later portions of a large call: each would wait for the threads of the lanes.
        if (deadline.passed()) return done(process_.get().lanes->too_late(request));
        std::vector<Call> calls;
        calls.push_back({std::move(request), std::move(done)});
        submit_all(std::move(calls), deadline, nullptr);
    }
    void submit_all(std::vector<Call> calls, Deadline deadline, const Cancelled*) override {
        if (calls.empty()) return;
        struct Open {
            explicit Open(std::size_t size) : left(size), replies(size) {}
            std::mutex mutex;
            std::size_t left;
            std::vector<std::optional<Result<Reply>>> replies;
            Event ended;
        };
        const auto open = std::make_shared<Open>(calls.size());
        ThreadLanes& lanes = *process_.get().lanes;
        for (std::size_t i = 0; i < calls.size(); ++i) {
            lanes.submit(
                std::move(calls[i].request), deadline,
                [open, i](Result<Reply> reply) {
                    const std::lock_guard lock(open->mutex);
                    open->replies[i].emplace(std::move(reply));
                    if (--open->left == 0) open->ended.set();
                },
                nullptr);
        }
        // Each ends at its deadline, by a thread of the library. Ctrl-C ends the wait before.
        (void)open->ended.wait(Deadline::at(deadline.time() + kEndsWithin));
        std::vector<std::optional<Result<Reply>>> replies(calls.size());
        {
            const std::lock_guard lock(open->mutex);
            for (std::size_t i = 0; i < replies.size(); ++i) replies[i].swap(open->replies[i]);
        }
        for (std::size_t i = 0; i < calls.size(); ++i) {
            if (!replies[i]) {
                replies[i].emplace(make_error(ErrorCode::outcome_unknown,
                                              "the caller was interrupted before the reply of the "
                                              "cluster: the call may or may not be applied"));
            }
            calls[i].done(std::move(*replies[i]));
        }
    }

  private:
    ForkLocal<ClusterProcess>& process_;
};

// -- ping -----------------------------------------------------------------------------------------

constexpr std::string_view kPingKey = "hotcount:ping";

Request ask_for(std::string_view key) {
    const std::string_view command[] = {"EXISTS", key};
    return Request::command(command);
}

// A node that refuses a right answers.
bool is_answer(const Result<Reply>& reply) {
    return reply.ok() || reply.error().code == ErrorCode::permission_denied;
}

// For each primary a key in one of its slots. With a hash tag in the prefix all keys are in one slot.
std::vector<std::string> keys_of_primaries(const Router& router, const std::string& prefix) {
    constexpr int kMostTries = 500'000;
    std::vector<std::uint16_t> nodes = router.primaries();
    std::vector<std::string> keys{prefix + std::string{kPingKey}};
    std::erase(nodes, router.owner(slot_of(keys.front())));
    for (int i = 0; i < kMostTries && !nodes.empty(); ++i) {
        std::string key = prefix + std::string{kPingKey} + ":" + std::to_string(i);
        if (std::erase(nodes, router.owner(slot_of(key))) > 0) keys.push_back(std::move(key));
    }
    return keys;
}

// Ends with the first error, if there is one, when all primaries have answered.
class Pinging {
  public:
    Pinging(std::size_t nodes, Completion<void> done) : left_(nodes), done_(std::move(done)) {}

    void take(const Result<Reply>& reply) {
        {
            const std::lock_guard lock(mutex_);
            if (!is_answer(reply) && outcome_.ok()) outcome_ = reply.error();
            if (--left_ > 0) return;
        }
        done_(outcome_);
    }

  private:
    std::mutex mutex_;
    std::size_t left_;
    Result<void> outcome_;
    Completion<void> done_;
};

class ClusterClient final : public CountingClient, public ClusterNodes {
  public:
    explicit ClusterClient(Options options)
        : options_(std::move(options)),
          scripts_(std::make_shared<KnownScripts>()),
          process_([this] { return std::make_unique<ClusterProcess>(options_, scripts_); }),
          waiting_(process_),
          unwaited_(process_) {}
    ~ClusterClient() override { ClusterClient::close(); }

    Result<Reply> execute(std::span<const std::string_view> command, Timeout timeout) override {
        HOTCOUNT_TRY(check_command(command));
        return call(Request::command(command), timeout);
    }

    Result<std::int64_t> add(std::string_view key, std::int64_t n, Timeout timeout) override {
        HOTCOUNT_TRY_ASSIGN(const Reply reply, call(Request::add(std::string{key}, n), timeout));
        return std::get<std::int64_t>(reply.value);
    }

    std::vector<Result<Reply>> execute_many(std::span<const std::vector<std::string_view>> commands,
                                            Timeout timeout) override {
        std::vector<Result<Reply>> results(commands.size(), Reply{});
        if (commands.empty()) return results;
        for (const auto& command : commands) {
            if (auto checked = check_command(command); !checked) {
                return {commands.size(), checked.error()};
            }
        }
        std::vector<Channel::Call> calls;
        for (std::size_t i = 0; i < commands.size(); ++i) {
            calls.push_back({Request::command(commands[i]), [&results, i](Result<Reply> reply) {
                                 results[i] = std::move(reply);
                             }});
        }
        waiting_.submit_all(std::move(calls), deadline(timeout), nullptr);
        return results;
    }

    Result<Reply> run(const Script& script, std::span<const std::string_view> keys,
                      std::span<const std::string_view> arguments, Timeout timeout) override {
        return call(Request::run(script, keys, {}, arguments), timeout);
    }

    Channel& waiting() override { return waiting_; }
    Channel& without_waiting() override { return unwaited_; }

    std::size_t run_once(Timeout timeout) override {
        return process_.get().lanes->run_once(deadline(timeout));
    }

    std::unique_ptr<LoopConnection> make_loop_connection(LoopHost& host) override {
        ClusterProcess& process = process_.get();
        return make_cluster_loop_connection(options_, process.map, host, process.loops);
    }

    void prepare(const Script& script) override { scripts_->add(script); }

    // Each primary of the map answers, over the channel, so that a loop's ping ends in its loop. The first
    // call waits for a map.
    void ping_async(Completion<void> done, const AsyncCall& call) override {
        Channel& channel = call.channel != nullptr ? *call.channel : unwaited_;
        const Deadline until = deadline(call.timeout);
        channel.submit(
            ask_for(options_.prefix + std::string{kPingKey}), until,
            [map = process_.get().map, prefix = options_.prefix, &channel, until,
             cancelled = call.cancelled, done = std::move(done)](const Result<Reply>& first) {
                if (!is_answer(first)) return done(first.error());
                auto keys = keys_of_primaries(map->router(), prefix);
                const auto pinging = std::make_shared<Pinging>(keys.size(), done);
                std::vector<Channel::Call> calls;
                calls.reserve(keys.size());
                for (const std::string& key : keys) {
                    calls.push_back({ask_for(key), [pinging](const Result<Reply>& reply) {
                                         pinging->take(reply);
                                     }});
                }
                channel.submit_all(std::move(calls), until, cancelled);
            },
            call.cancelled);
    }

    void close() override {
        ClusterProcess& process = process_.get();
        process.loops->closed.store(true, std::memory_order_release);
        process.map->close();
        process.lanes->close();
    }

    SharedConnection::Counts counts() const override {
        ClusterProcess& process = process_.get();
        SharedConnection::Counts counts;
        process.lanes->add_to(counts);
        process.loops->add_to(counts);
        return counts;
    }
    const Options& options() const override { return options_; }

    // -- ClusterNodes
    std::uint16_t owner(std::uint16_t slot) const override {
        return process_.get().map->router().owner(slot);
    }
    std::uint32_t term(std::uint16_t slot) const override {
        return process_.get().map->router().term(slot);
    }
    std::uint64_t version() const override { return process_.get().map->router().version(); }
    std::string address(std::uint16_t node) const override {
        const auto known = process_.get().map->router().node(node);
        return known ? "redis " + known->endpoint.str() : options_.address();
    }
    Result<std::vector<std::uint16_t>> primaries(Timeout timeout) override {
        const Router& router = process_.get().map->router();
        // Any call waits for a map.
        if (!router.has_map()) {
            const auto first = call(ask_for(options_.prefix + std::string{kPingKey}), timeout);
            if (!is_answer(first)) return first.error();
        }
        return router.primaries();
    }
    Result<Reply> execute_at(std::uint16_t node, std::span<const std::string_view> command,
                             Timeout timeout) override {
        HOTCOUNT_TRY(check_command(command));
        return process_.get().lanes->execute_at(node, Request::command(command), deadline(timeout));
    }

  private:
    Result<Reply> call(Request request, Timeout timeout) {
        std::optional<Result<Reply>> outcome;
        waiting_.submit(
            std::move(request), deadline(timeout),
            [&](Result<Reply> reply) { outcome.emplace(std::move(reply)); }, nullptr);
        return std::move(*outcome);
    }

    const Options options_;
    const std::shared_ptr<KnownScripts> scripts_;
    mutable ForkLocal<ClusterProcess> process_;
    WaitingClusterChannel waiting_;
    UnwaitedClusterChannel unwaited_;
};

}  // namespace

std::shared_ptr<Client> make_cluster_client(Options options) {
    return std::make_shared<ClusterClient>(std::move(options));
}

ClusterNodes* nodes_of(Client& client) { return dynamic_cast<ClusterNodes*>(&client); }

}  // namespace hotcount::redis
