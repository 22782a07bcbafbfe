// The part of SharedConnection for lanes; a lane is the connection to one node of a cluster. It
// hands calls that leave the lane back to the lane's owner, and answers the owner's queries.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "shared_connection.hpp"

namespace hotcount::redis {

// Reads each caller's signal and place before it unlocks: a call that has left may enter another
// lane as soon as its caller wakes or the lane's owner has the call.
void SharedConnection::tell_finished_in_lane(Lock& lock,
                                             const std::vector<OperationPtr>& finished) {
    std::vector<OperationPtr> left;
    std::vector<OperationPtr> ended;
    std::vector<std::pair<std::shared_ptr<Signal>, std::uint32_t>> waves;
    for (const OperationPtr& operation : finished) {
        if (operation->waited_for()) {
            const auto wave = operation->shared_wave();
            const auto same =
                std::ranges::find_if(waves, [&](const auto& known) { return known.first == wave; });
            if (same != waves.end()) {
                same->second |= operation->place();
            } else {
                waves.emplace_back(wave, operation->place());
            }
        } else {
            (operation->has_left() ? left : ended).push_back(operation);
        }
    }
    const bool is_lost = connection_ == nullptr;
    lock.unlock();
    const auto owner = lane_.owner.lock();
    if (is_lost && owner) owner->lost(lane_.node);
    // Done before the completions, because the calls that these submit must not overtake the calls
    // that left.
    for (const OperationPtr& operation : left) {
        if (owner) {
            owner->left(lane_.node, operation);
        } else {
            operation->complete();
        }
    }
    lock.lock();
    multiplexer_.handed_back(left);
    lock.unlock();
    for (const auto& [wave, places] : waves) wave->wake(places);
    for (const OperationPtr& operation : ended) operation->complete();
    if (owner) owner->answered(lane_.node);
    lock.lock();
    completed_ += ended.size() + left.size();
}

void SharedConnection::evict(const Error& why) {
    Lock lock(mutex_);
    if (connection_ != nullptr) return;  // They are sent, and the node redirects them in order.
    multiplexer_.evict(why);
    tell_finished(lock);
}

void SharedConnection::confirm(bool owns, SteadyTime asked_at) {
    Lock lock(mutex_);
    const auto delivered = multiplexer_.confirm(owns, asked_at);
    if (!delivered) return;
    if (!*delivered) {
        break_connection(
            make_error(ErrorCode::unavailable, options_.address() + ": this node was replaced"));
    }
    leave(lock);
}

std::optional<SteadyTime> SharedConnection::doubted_since() {
    const std::lock_guard lock(mutex_);
    return multiplexer_.doubted_since();
}

void SharedConnection::outstanding(SlotSet& slots) {
    const std::lock_guard lock(mutex_);
    multiplexer_.outstanding(slots);
}

bool SharedConnection::is_connected() {
    const std::lock_guard lock(mutex_);
    return connection_ != nullptr;
}

}  // namespace hotcount::redis
