// One object for each key while it is in use, such as one store for all callers that open its URL.
#pragma once

#include <hotcount/detail/base/fork.hpp>
#include <hotcount/result.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace hotcount {

/// Thread-safe. Meant for static storage; survives a fork.
template <class Key, class T>
class SharedObjects final : ForkAware {
  public:
    SharedObjects() { start_watching_forks(); }
    ~SharedObjects() { stop_watching_forks(); }

    /// The live object of the key, or a new one from make() -> Result<std::shared_ptr<T>>.
    /// make() runs without the lock, because it may take long. If two threads race, one of the two
    /// objects is dropped unused.
    template <class Make>
    Result<std::shared_ptr<T>> find_or_make(const Key& key, Make&& make) {
        if (auto found = find(key)) return found;
        HOTCOUNT_TRY_ASSIGN(std::shared_ptr<T> made, make());
        std::lock_guard lock(mutex_);
        std::weak_ptr<T>& place = objects_[key];
        if (auto raced = usable(place)) return raced;
        place = made;
        return made;
    }

  private:
    std::shared_ptr<T> find(const Key& key) {
        std::lock_guard lock(mutex_);
        std::erase_if(objects_, [](const auto& item) { return item.second.expired(); });
        const auto found = objects_.find(key);
        return found == objects_.end() ? nullptr : usable(found->second);
    }
    // A closed object is not handed out again, even while it is in use.
    static std::shared_ptr<T> usable(const std::weak_ptr<T>& place) {
        auto object = place.lock();
        if constexpr (requires(const T& held) { held.closed(); }) {
            if (object != nullptr && object->closed()) return nullptr;
        }
        return object;
    }
    void before_fork() override { mutex_.lock(); }
    void after_fork(bool) override { mutex_.unlock(); }

    std::mutex mutex_;
    std::map<Key, std::weak_ptr<T>> objects_;
};

}  // namespace hotcount
