// An event loop's connections to the nodes of a cluster.
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <hotcount/detail/base/fork.hpp>
#include <utility>
#include <vector>

#include "cluster_calls.hpp"
#include "cluster_map.hpp"
#include "socket_loop_connection.hpp"

namespace hotcount::redis {
namespace {

using namespace std::chrono_literals;

// How often calls are looked at that are in no lane.
constexpr Duration kLookEvery = 5ms;

// Says in the loop that there was a try to get a map. Null descriptor: the loop's ticks find out.
class News {
  public:
    News() : ready_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
    ~News() {
        if (ready_ >= 0) close(ready_);
    }
    News(const News&) = delete;
    News& operator=(const News&) = delete;

    int descriptor() const { return ready_; }
    void tell() const {
        const std::uint64_t one = 1;
        (void)!write(ready_, &one, sizeof(one));
    }
    void take() const {
        std::uint64_t count = 0;
        (void)!read(ready_, &count, sizeof(count));
    }

  private:
    const int ready_;
};

class ClusterLoopConnection final : public LoopConnection, public Lanes, public LaneOwner {
  public:
    ClusterLoopConnection(const Options& options, std::shared_ptr<ClusterMap> map, LoopHost& host,
                          std::shared_ptr<LoopConnections> loops)
        : options_(options),
          host_(host),
          loops_(std::move(loops)),
          map_(std::move(map)),
          calls_(map_->router(), *this) {
        map_->listen(news_, [news = std::weak_ptr(news_)] {
            if (const auto told = news.lock()) told->tell();
        });
    }

    bool is_cluster() const override { return true; }

    void submit(Request request, Deadline deadline, Completion<Reply> done,
                const Cancelled* cancelled) override {
        if (!usable()) return done(closed_error());
        if (!news_watched_ && news_->descriptor() >= 0) {
            news_watched_ = true;
            host_.watch(news_->descriptor(), LoopHost::Interest::read);
        }
        calls_.submit(std::move(request), deadline, std::move(done), cancelled);
    }

    // In one pass of the loop the sockets of several nodes may be readable, each with a callback of
    // its own. A busy node gets the calls that all these callbacks submit in one send. A node that
    // has most of the calls has most of them in its own callback.
    void flush() override {
        if (!usable()) return end();
        const std::size_t all = under_way();
        bool later = false;
        for_each_lane([&](LoopLane& lane) {
            if (!lane.wants_flush()) return;
            if (lane.in_flight() == 0 || 2 * lane.under_way() > all) return lane.flush();
            later = true;
        });
        plan();
        if (!later || later_) return;
        later_ = true;
        host_.flush_soon();
    }
    void on_flush() override {
        later_ = false;
        if (!usable()) return end();
        for_each_lane([](LoopLane& lane) {
            if (lane.wants_flush()) lane.flush();
        });
        plan();
    }

    void on_readable(int fd) override {
        if (!usable()) return end();
        if (fd == news_->descriptor()) {
            news_->take();
            return hear_news();
        }
        for_each_lane([&](LoopLane& lane) {
            if (lane.watches(fd)) lane.on_readable(fd);
        });
    }

    void on_writable() override {
        if (!usable()) return end();
        for_each_lane([](LoopLane& lane) { lane.on_writable(); });
    }

    // Only when one node is asked, and with one command.
    int spin(int also) override {
        LoopLane* busy = nullptr;
        for (const auto& lane : lanes_) {
            if (lane == nullptr || lane->in_flight() + lane->queued() == 0) continue;
            if (busy != nullptr) return -1;
            busy = lane.get();
        }
        return busy == nullptr ? -1 : busy->spin(also);
    }

    void on_tick() override {
        if (!usable()) return end();
        for_each_lane([](LoopLane& lane) { lane.on_tick(); });
        calls_.look();
        if (calls_.waiting() > 0) host_.tick_in(kLookEvery);
    }

    void close() override {
        closed_ = true;
        end();
    }

    bool usable() const override {
        return !closed_ && !loops_->closed.load(std::memory_order_acquire) &&
               generation_ == fork_generation();
    }

  private:
    Error closed_error() const {
        return make_error(ErrorCode::closed, options_.address() + " is closed");
    }

    // Completions may make more lanes.
    template <class F>
    void for_each_lane(const F& f) {
        for (std::size_t i = 0; i < lanes_.size(); ++i) {
            if (lanes_[i] != nullptr) f(*lanes_[i]);
        }
    }

    std::size_t under_way() {
        std::size_t all = 0;
        for_each_lane([&](const LoopLane& lane) { all += lane.under_way(); });
        return all;
    }
    void plan() {
        const std::size_t all = under_way();
        for_each_lane([&](LoopLane& lane) { lane.plan(all); });
    }

    LoopLane& lane(std::uint16_t node) {
        if (lanes_.size() <= node) lanes_.resize(node + std::size_t{1});
        auto& lane = lanes_[node];
        if (lane == nullptr) {
            const ClusterMap::Node& known = map_->node(node);
            lane = make_loop_lane(known.options, known.dialer, host_, loops_,
                                  {self_, node, known.heard});
        }
        return *lane;
    }
    LoopLane* find(std::uint16_t node) {
        return node < lanes_.size() ? lanes_[node].get() : nullptr;
    }

    // Lanes release their held answers when another node has confirmed the lane's node.
    void hear_news() {
        for (std::size_t i = 0; i < lanes_.size(); ++i) {
            if (lanes_[i] == nullptr || !lanes_[i]->doubted_since()) continue;
            const auto node = static_cast<std::uint16_t>(i);
            if (const auto told = map_->confirmation(node)) {
                lanes_[i]->confirm(told->owns, told->asked_at);
            }
            if (lanes_[i]->doubted_since()) map_->doubts(node);
        }
        calls_.look();
    }

    void end() {
        if (std::exchange(ended_, true)) return;
        closed_ = true;
        calls_.close(closed_error());
        for_each_lane([](LoopLane& lane) { lane.close(); });
        if (news_watched_) host_.watch(news_->descriptor(), LoopHost::Interest::none);
        news_watched_ = false;
    }

    // -- Lanes
    std::optional<Error> push(std::uint16_t node, const OperationPtr& operation) override {
        return lane(node).take(operation);
    }
    void outstanding(std::uint16_t node, SlotSet& slots) override {
        if (const LoopLane* const known = find(node)) known->outstanding(slots);
    }
    void evict(std::uint16_t node) override {
        if (LoopLane* const known = find(node)) {
            known->evict(
                make_error(ErrorCode::unavailable, options_.address() + ": the slot has moved"));
        }
    }
    void want_map() override { map_->want(); }
    void look_at(SteadyTime time) override {
        const Duration delay = time - std::chrono::steady_clock::now();
        host_.tick_in(std::clamp<Duration>(delay, Duration{0}, kLookEvery));
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
    LoopHost& host_;
    const std::shared_ptr<LoopConnections> loops_;
    const std::shared_ptr<ClusterMap> map_;
    const std::shared_ptr<News> news_{std::make_shared<News>()};
    const std::shared_ptr<LaneOwner> self_{static_cast<LaneOwner*>(this), [](LaneOwner*) {}};
    const std::uint64_t generation_{fork_generation()};
    std::vector<std::unique_ptr<LoopLane>> lanes_;  // By the number of the node.
    ClusterCalls calls_;
    bool news_watched_{false};
    bool later_{false};  // on_flush() was asked for.
    bool closed_{false};
    bool ended_{false};
};

}  // namespace

std::unique_ptr<LoopConnection> make_cluster_loop_connection(
    const Options& options, std::shared_ptr<ClusterMap> map, LoopHost& host,
    std::shared_ptr<LoopConnections> loops) {
    return std::make_unique<ClusterLoopConnection>(options, std::move(map), host, std::move(loops));
}

}  // namespace hotcount::redis
