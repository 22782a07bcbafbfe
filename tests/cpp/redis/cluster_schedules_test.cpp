// Random schedules of calls, moved slots, lost connections, stopped nodes and maps of any age, against a
// model of three nodes. What callers are told must agree with the nodes, and each rule that is broken on
// purpose must show.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "multiplexer_fixture.hpp"
#include "redis/cluster_calls.hpp"

namespace hotcount::redis {
namespace {

using namespace std::chrono_literals;

// What a schedule does wrong on purpose.
enum class Wrong : std::uint8_t {
    nothing,
    any_map_counts,  // Also one whose owners have lower epochs.
    what_may_have_run_goes_again,
    slots_are_combined,
    late_answers_count,     // Of a node that was stopped and replaced meanwhile.
    new_calls_do_not_wait,  // For what the former owner of their slot was sent before.
};

const Script& append_script() {
    static const Script kScript{"append", Script::Kind::combinable};
    return kScript;
}

Endpoint endpoint_of(std::size_t node) { return {"n", static_cast<std::uint16_t>(7000 + node)}; }

struct ModelNode {
    std::map<std::string, std::int64_t> sums;
    std::map<std::string, std::vector<int>> lists;
    std::map<std::uint16_t, std::size_t> owners;  // As it knows them.
    bool stopped{false};
};

class ModelCluster {
  public:
    static constexpr std::size_t kNodes = 3;

    explicit ModelCluster(const std::vector<std::string>& keys) {
        for (const std::string& key : keys) {
            const std::uint16_t slot = slot_of(key);
            owner_[slot] = slot % kNodes;
        }
        for (std::size_t i = 0; i < kNodes; ++i) epochs_[i] = i + 1;
        for (ModelNode& node : nodes_) node.owners = owner_;
    }

    ModelNode& node(std::size_t i) { return nodes_[i]; }
    std::size_t owner(std::uint16_t slot) const { return owner_.at(slot); }
    const ModelNode& owner_of(const std::string& key) const {
        return nodes_[owner_.at(slot_of(key))];
    }
    std::uint64_t epoch(std::size_t node) const { return epochs_.at(node); }

    // All at once, as atomic migration and failovers do. A node that is stopped does not hear of it.
    void move(const std::string& key, std::size_t to) {
        const std::uint16_t slot = slot_of(key);
        const std::size_t from = owner_.at(slot);
        if (from == to) return;
        for (const std::string& each : keys_in(slot)) {
            nodes_[to].sums[each] = nodes_[from].sums[each];
            nodes_[to].lists[each] = nodes_[from].lists[each];
        }
        owner_[slot] = to;
        epochs_[to] = ++newest_;
        for (ModelNode& node : nodes_) {
            if (!node.stopped) node.owners = owner_;
        }
    }
    void learn(std::size_t node) { nodes_[node].owners = owner_; }

    void replace(std::size_t node, std::size_t by) {
        for (const auto& [slot, present] : std::map(owner_)) {
            if (present != node) continue;
            for (const std::string& key : keys_in(slot)) move(key, by);
        }
    }

    Topology map() const {
        Topology map;
        map.has_epochs = true;
        map.owner.assign(kSlots, Topology::kNoNode);
        for (std::size_t i = 0; i < kNodes; ++i) {
            map.nodes.push_back({"id" + std::to_string(i), endpoint_of(i), epochs_.at(i)});
        }
        for (const auto& [slot, node] : owner_) map.owner[slot] = static_cast<std::uint16_t>(node);
        return map;
    }

    std::set<std::string> known_keys;

  private:
    std::vector<std::string> keys_in(std::uint16_t slot) const {
        std::vector<std::string> found;
        for (const std::string& key : known_keys) {
            if (slot_of(key) == slot) found.push_back(key);
        }
        return found;
    }

    std::array<ModelNode, kNodes> nodes_;
    std::map<std::uint16_t, std::size_t> owner_;
    std::map<std::size_t, std::uint64_t> epochs_;
    std::uint64_t newest_{kNodes};
};

class Schedule : public Lanes {
  public:
    Schedule(unsigned seed, Wrong wrong) : draw_{seed}, wrong_(wrong), cluster_(kKeys) {
        cluster_.known_keys.insert(kKeys.begin(), kKeys.end());
        options_.silence_limit = 1500ms;
        for (std::size_t i = 0; i < ModelCluster::kNodes; ++i) {
            lanes_.push_back(std::make_unique<Lane>(options_));
        }
        const Topology map = cluster_.map();
        router_.apply(map, endpoint_of(0));
        for (std::size_t i = 0; i < lanes_.size(); ++i) {
            number_[i] = router_.node_at(endpoint_of(i));
        }
    }

    void run() {
        for (int step = 0; step < 300; ++step) {
            now_ += 1ms;
            one_step();
        }
        while (open_ > 0 && ++tries_ < 10'000) {
            now_ += 1ms;
            for (std::size_t i = 0; i < lanes_.size(); ++i) {
                if (cluster_.node(i).stopped) resume(i);
                send(i, /*all=*/true);
                serve(i);
                receive(i, 1000);
            }
            new_map(cluster_.map());
            calls_.look();
        }
        if (open_ > 0) wrong_answers.emplace_back("calls that never end");
        audit();
    }

    std::vector<std::string> wrong_answers;

  private:
    static inline const std::vector<std::string> kKeys{"a", "b", "c", "{a}d", "e", "f"};

    struct Lane {
        explicit Lane(const Options& options) : multiplexer(options, &heard) {
            heard.hear(std::chrono::steady_clock::now(), Duration::max());
        }
        NodeHeard heard;
        Multiplexer multiplexer;
        std::string wire;
        std::size_t sent{0};
        std::deque<Reply> replies;
    };
    struct Sum {
        std::int64_t acknowledged{0};
        std::int64_t unknown{0};
    };

    std::size_t below(std::size_t n) { return static_cast<std::size_t>(draw_() % n); }

    void one_step() {
        const std::size_t i = below(lanes_.size());
        switch (below(12)) {
            case 0:
            case 1:
                return add();
            case 2:
            case 3:
                return append();
            case 4:
            case 5:
                return send(i, false);
            case 6:
            case 7:
                serve(i);
                return receive(i, below(4));
            case 8:
                if (below(3) == 0) move(kKeys[below(kKeys.size())], i);
                return;
            case 9:
                if (below(8) == 0) lose(i);
                return;
            case 10:
                if (below(3) == 0) maps_.push_back(cluster_.map());
                if (!maps_.empty() && below(2) == 0) new_map(maps_[below(maps_.size())]);
                return;
            default:
                if (below(12) > 0) return;
                if (cluster_.node(i).stopped) return resume(i);
                stop(i, (i + 1) % lanes_.size());
        }
    }

    void move(const std::string& key, std::size_t to) {
        const std::size_t from = cluster_.owner(slot_of(key));
        if (!cluster_.node(from).stopped && !cluster_.node(to).stopped && !returns(from, to)) {
            cluster_.move(key, to);
        }
    }

    // Whether slots of a node would go back to one that has not answered what it got of them before. Then
    // it answers some calls that came later than those that it has redirected.
    bool returns(std::size_t from, std::size_t to) const {
        SlotSet open;
        lanes_[to]->multiplexer.outstanding(open);
        return std::ranges::any_of(kKeys, [&](const std::string& key) {
            return cluster_.owner(slot_of(key)) == from && open.test(slot_of(key));
        });
    }

    void stop(std::size_t i, std::size_t successor) {
        if (cluster_.node(successor).stopped || returns(i, successor)) return;
        cluster_.node(i).stopped = true;
        now_ += 4s;
        cluster_.replace(i, successor);
    }

    void add() {
        const std::string key = kKeys[below(kKeys.size())];
        const std::int64_t n = 1 + static_cast<std::int64_t>(below(5));
        ++open_;
        calls_.submit(
            Request::add(key, n), Deadline::after(1h),
            [this, key, n, ended = std::make_shared<bool>(false)](Result<Reply> reply) {
                if (std::exchange(*ended, true)) wrong_answers.emplace_back("ended twice");
                --open_;
                if (reply) {
                    sums_[key].acknowledged += n;
                } else if (reply.error().code == ErrorCode::outcome_unknown) {
                    sums_[key].unknown += n;
                }
            },
            nullptr);
    }

    void append() {
        const std::string key = kKeys[below(kKeys.size())];
        const std::string number = std::to_string(++appended_);
        const std::string_view keys[] = {key};
        const std::string_view arguments[] = {number};
        ++open_;
        calls_.submit(
            Request::run(append_script(), keys, {}, arguments), Deadline::after(1h),
            [this](const Result<Reply>&) { --open_; }, nullptr);
    }

    void send(std::size_t i, bool all) {
        Lane& lane = *lanes_[i];
        std::string bytes = lane.multiplexer.take();
        const std::size_t taken = all || bytes.empty() ? bytes.size() : below(bytes.size() + 1);
        lane.wire += bytes.substr(0, taken);
        lane.sent += taken;
        lane.multiplexer.put_back_unsent(bytes.substr(taken));
    }

    // Runs what has arrived as a whole.
    void serve(std::size_t i) {
        Lane& lane = *lanes_[i];
        if (cluster_.node(i).stopped) return;
        while (true) {
            const std::size_t size = first_whole(lane.wire);
            if (size == 0) return;
            lane.replies.push_back(run_command(i, decode(lane.wire.substr(0, size))[0]));
            lane.wire.erase(0, size);
        }
    }

    static std::size_t first_whole(const std::string& wire) {
        std::size_t line = wire.find("\r\n");
        if (line == std::string::npos) return 0;
        const int words = std::stoi(wire.substr(1, line - 1));
        std::size_t end = line + 2;
        for (int word = 0; word < words; ++word) {
            line = wire.find("\r\n", end);
            if (line == std::string::npos) return 0;
            end = line + 2 + std::stoul(wire.substr(end + 1, line - end - 1)) + 2;
            if (end > wire.size()) return 0;
        }
        return end;
    }

    Reply run_command(std::size_t i, const Words& words) {
        ModelNode& node = cluster_.node(i);
        std::vector<std::string> keys{words[1]};
        std::size_t count = 1;
        if (words[0] == "EVALSHA") {
            count = std::stoul(words[2]);
            keys.assign(words.begin() + 3, words.begin() + 3 + static_cast<std::ptrdiff_t>(count));
        }
        const std::uint16_t slot = slot_of(keys[0]);
        for (const std::string& key : keys) {
            if (slot_of(key) != slot) return Reply{ReplyError{"CROSSSLOT several"}};
        }
        const std::size_t owner = node.owners.at(slot);
        if (owner != i) {
            return Reply{
                ReplyError{"MOVED " + std::to_string(slot) + " " + endpoint_of(owner).str()}};
        }
        if (words[0] != "EVALSHA") {
            return Reply{node.sums[keys[0]] += words.size() > 2 ? std::stoll(words[2]) : 1};
        }
        ReplyArray answers;
        for (std::size_t k = 0; k < count; ++k) {
            node.lists[keys[k]].push_back(std::stoi(words[3 + count + k]));
            answers.push_back(Reply{std::int64_t{1}});
        }
        return Reply{std::move(answers)};
    }

    void receive(std::size_t i, std::size_t most) {
        Lane& lane = *lanes_[i];
        if (most > 0 && !lane.replies.empty() && wrong_ != Wrong::late_answers_count) {
            lane.multiplexer.heard(now_);
        }
        for (; most > 0 && !lane.replies.empty(); --most) {
            const Reply reply = std::move(lane.replies.front());
            lane.replies.pop_front();
            if (const auto* const error = std::get_if<ReplyError>(&reply.value);
                error != nullptr && error->message.starts_with("CROSSSLOT")) {
                wrong_answers.emplace_back("keys of two slots in one command");
            }
            if (!lane.multiplexer.settle(reply, now_)) {
                wrong_answers.push_back(lane.multiplexer.misfit().message);
                return;
            }
        }
        hand_back(i);
    }

    void lose(std::size_t i) {
        Lane& lane = *lanes_[i];
        serve(i);
        if (wrong_ == Wrong::what_may_have_run_goes_again) {
            lane.multiplexer.put_back_unsent(std::string(lane.sent, ' '));
        }
        lane.wire.clear();
        lane.sent = 0;
        lane.replies.clear();
        lane.multiplexer.lost(make_error(ErrorCode::unavailable, "lost"), true);
        lane.multiplexer.connected();
        hand_back(i);
    }

    // It runs what lay in its sockets before it hears that it was replaced.
    void resume(std::size_t i) {
        cluster_.node(i).stopped = false;
        now_ += 1s;
        serve(i);
        cluster_.learn(i);
    }

    void hand_back(std::size_t i) {
        Lane& lane = *lanes_[i];
        std::vector<OperationPtr> left;
        for (const OperationPtr& operation : lane.multiplexer.take_finished()) {
            if (operation->has_left()) {
                left.push_back(operation);
                calls_.left(number_.at(i), operation);
            } else {
                operation->complete();
            }
        }
        lane.multiplexer.handed_back(left);
        calls_.answered(number_.at(i));
    }

    void new_map(Topology map) {
        std::vector<std::uint64_t> epochs;
        for (const NodeInfo& node : map.nodes) epochs.push_back(node.epoch);
        if (wrong_ == Wrong::any_map_counts) {
            ++applied_;
            for (NodeInfo& node : map.nodes) node.epoch += 1000 * applied_;
        }
        for (const std::string& key : kKeys) {
            const std::uint16_t slot = slot_of(key);
            before_[slot].first = router_.owner(slot);
        }
        router_.apply(map, endpoint_of(0));
        for (auto& [slot, known] : before_) {
            auto& [owner, floor] = known;
            if (router_.owner(slot) != owner && epochs[map.owner[slot]] < floor) {
                wrong_answers.emplace_back("a map won that is outdated");
            }
            if (router_.owner(slot) == number_[map.owner[slot]]) {
                floor = std::max(floor, epochs[map.owner[slot]]);
            }
        }
        // It was asked now, and of a node that is not stopped.
        if (epochs == epochs_now()) confirm();
        calls_.look();
    }

    // A node that was replaced and has slots again has a higher epoch.
    void confirm() {
        const std::vector<std::uint64_t> epochs = epochs_now();
        for (std::size_t i = 0; i < lanes_.size(); ++i) {
            bool owns = false;
            for (const std::string& key : kKeys) owns = owns || cluster_.owner(slot_of(key)) == i;
            owns = owns && epochs[i] == confirmed_[i];
            if (lanes_[i]->multiplexer.confirm(owns, now_) == false) lose(i);
            hand_back(i);
        }
        confirmed_ = epochs;
    }
    std::vector<std::uint64_t> epochs_now() const {
        std::vector<std::uint64_t> epochs;
        for (std::size_t i = 0; i < ModelCluster::kNodes; ++i) epochs.push_back(cluster_.epoch(i));
        return epochs;
    }

    std::optional<Error> push(std::uint16_t node, const OperationPtr& operation) override {
        Multiplexer& to = lanes_[lane_of(node)]->multiplexer;
        if (wrong_ == Wrong::slots_are_combined) operation->route.slot = Operation::Route::kNone;
        to.push(operation);
        to.count_unwaited();
        return {};
    }
    void outstanding(std::uint16_t node, SlotSet& slots) override {
        if (wrong_ == Wrong::new_calls_do_not_wait) return;
        lanes_[lane_of(node)]->multiplexer.outstanding(slots);
    }
    void evict(std::uint16_t) override {}  // All lanes have their connections.
    void want_map() override {}
    void look_at(SteadyTime) override {}
    std::optional<Error> no_map_since(SteadyTime) override { return {}; }
    Error why_none() override { return make_error(ErrorCode::unavailable, "no map"); }

    std::size_t lane_of(std::uint16_t node) const {
        for (const auto& [i, number] : number_) {
            if (number == node) return i;
        }
        return 0;
    }

    void audit() {
        for (const std::string& key : kKeys) {
            const ModelNode& owner = cluster_.owner_of(key);
            const auto stored = owner.sums.contains(key) ? owner.sums.at(key) : 0;
            const Sum& sum = sums_[key];
            if (stored < sum.acknowledged) wrong_answers.push_back(key + ": acknowledged and lost");
            if (stored > sum.acknowledged + sum.unknown) {
                wrong_answers.push_back(key + ": added more than once");
            }
            if (!owner.lists.contains(key)) continue;
            const std::vector<int>& list = owner.lists.at(key);
            const std::set<int> once(list.begin(), list.end());
            if (once.size() != list.size()) wrong_answers.push_back(key + ": appended twice");
            if (!std::ranges::is_sorted(list)) wrong_answers.push_back(key + ": out of order");
        }
    }

    std::mt19937 draw_;
    const Wrong wrong_;
    ModelCluster cluster_;
    Options options_;
    Router router_;
    std::vector<std::unique_ptr<Lane>> lanes_;
    std::map<std::size_t, std::uint16_t> number_;
    ClusterCalls calls_{router_, *this};
    std::vector<Topology> maps_;
    std::map<std::uint16_t, std::pair<std::uint16_t, std::uint64_t>> before_;  // Owner, its epoch.
    std::vector<std::uint64_t> confirmed_{epochs_now()};
    std::map<std::string, Sum> sums_;
    SteadyTime now_{std::chrono::steady_clock::now()};
    std::size_t open_{0};
    int appended_{0};
    int tries_{0};
    std::uint64_t applied_{0};  // Maps, with any_map_counts.
};

TEST(ClusterSchedules, EveryCallerIsToldWhatTheNodesDid) {
    for (unsigned seed = 0; seed < 500 && !::testing::Test::HasFailure(); ++seed) {
        Schedule schedule{seed, Wrong::nothing};
        schedule.run();
        EXPECT_TRUE(schedule.wrong_answers.empty())
            << "seed " << seed << ": " << schedule.wrong_answers.front();
    }
}

class WrongVariant : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongVariant, Shows) {
    for (unsigned seed = 0; seed < 500; ++seed) {
        Schedule schedule{seed, GetParam()};
        schedule.run();
        if (!schedule.wrong_answers.empty()) return;
    }
    FAIL() << "no schedule shows it";
}

INSTANTIATE_TEST_SUITE_P(ClusterSchedules, WrongVariant,
                         ::testing::Values(Wrong::any_map_counts,
                                           Wrong::what_may_have_run_goes_again,
                                           Wrong::slots_are_combined, Wrong::late_answers_count,
                                           Wrong::new_calls_do_not_wait));

}  // namespace
}  // namespace hotcount::redis
