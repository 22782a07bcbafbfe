// The lanes of a RetryEngine: they choose the server of an add and move adds whose slot has moved.
#include <algorithm>
#include <utility>

#include "redis/cluster_client.hpp"
#include "retry_flight.hpp"

namespace hotcount {

std::size_t RetryEngine::waiting_count() const {
    std::size_t count = 0;
    for (const auto& [node, lane] : lanes_) count += waiting_count(lane);
    return count;
}

std::size_t RetryEngine::waiting_count(const Lane& lane) {
    std::size_t count = lane.waiting.size() + lane.held.size();
    for (const auto& flight : lane.flights) {
        count += static_cast<std::size_t>(
            std::ranges::count_if(flight->adds, [](const UnsettledAdd& add) { return add.waits; }));
    }
    return count;
}

bool RetryEngine::is_away() const {
    return std::ranges::any_of(lanes_, [](const auto& each) { return each.second.away; });
}

void RetryEngine::note_silent(const Lane& lane) {
    const std::lock_guard lock(mutex_);
    silent_.insert(lane.node);
}

std::vector<std::string> RetryEngine::take_silent() {
    std::set<std::uint16_t> nodes;
    {
        const std::lock_guard lock(mutex_);
        nodes.swap(silent_);
    }
    std::vector<std::string> names;
    names.reserve(nodes.size());
    for (const std::uint16_t node : nodes) {
        names.push_back(nodes_ == nullptr ? settings_->client->options().address()
                                          : nodes_->address(node));
    }
    return names;
}

void RetryEngine::release_held(Lane& lane) {
    if (lane.held.empty()) return;
    lane.waiting.insert(lane.waiting.begin(), std::make_move_iterator(lane.held.begin()),
                        std::make_move_iterator(lane.held.end()));
    lane.held.clear();
    lane.held_keys.clear();
}

std::uint16_t RetryEngine::node_of(const std::string& key) const {
    return nodes_ == nullptr ? 0 : nodes_->owner(redis::slot_of(key));
}

RetryEngine::Lane& RetryEngine::lane_of(const std::string& key) {
    std::uint16_t node = 0;
    if (nodes_ != nullptr) {
        const auto staying = staying_.find(key);
        node = staying != staying_.end() ? staying->second
               : owners_.empty()         ? redis::ClusterNodes::kNobody
                                         : owners_[redis::slot_of(key)];
    }
    return lanes_.try_emplace(node, Lane{.node = node}).first->second;
}

// Moves adds to the lanes of their slots' owners. If a call with a key is under way, all adds of
// the key stay in its lane, so that none overtakes the call.
void RetryEngine::follow_slots() {
    if (nodes_ == nullptr) return;
    const std::uint64_t version = nodes_->version();
    if (version == seen_ && !follow_again_) return;
    if (version != seen_ || owners_.empty()) {
        owners_.resize(redis::kSlots);
        for (std::size_t slot = 0; slot < redis::kSlots; ++slot) {
            owners_[slot] = nodes_->owner(static_cast<std::uint16_t>(slot));
        }
        seen_ = version;
    }
    follow_again_ = false;
    staying_.clear();
    for (const auto& [node, lane] : lanes_) {
        for (const auto& flight : lane.flights) {
            for (const UnsettledAdd& add : flight->adds) {
                if (owners_[redis::slot_of(add.key)] != node) staying_.emplace(add.key, node);
            }
        }
    }
    for (auto& each : lanes_) {
        Lane& lane = each.second;
        // A key's held adds come before its waiting ones.
        for (Adds Lane::*const queue : {&Lane::held, &Lane::waiting, &Lane::direct}) {
            Adds all;
            all.swap(lane.*queue);
            for (UnsettledAdd& add : all) {
                Lane& to = lane_of(add.key);
                const bool released = queue == &Lane::held && &to != &lane;
                (released ? to.waiting : to.*queue).push_back(std::move(add));
            }
        }
    }
    const auto is_empty = [](const Lane& lane) {
        return lane.flights.empty() && lane.held.empty() && lane.waiting.empty() &&
               lane.direct.empty();
    };
    const std::set<std::uint16_t> owners(owners_.begin(), owners_.end());
    std::erase_if(lanes_, [&](const auto& each) {
        return is_empty(each.second) && !owners.contains(each.first);
    });
    for (auto& each : lanes_) {
        // The lane has no adds, so the next add tests the server.
        if (is_empty(each.second)) each.second.away = false;
    }
}

const RetryEngine::ServerClock& RetryEngine::clock_of(std::uint16_t node) const {
    static const ServerClock kUnknown{};
    const auto found = clocks_.find(node);
    return found == clocks_.end() ? kUnknown : found->second;
}

}  // namespace hotcount
