#include <unistd.h>

#include <hotcount/base/check.hpp>
#include <hotcount/base/codec.hpp>

#include "count_mirror.hpp"

namespace hotcount {
namespace {

using memory::Entry;
using memory::MirroredCount;

class MemoryMirrorStore final : public MirrorStore {
  public:
    MemoryMirrorStore(std::shared_ptr<memory::Store> store, Duration max_age)
        : store_(std::move(store)), max_age_(max_age) {}

    Result<std::vector<std::optional<Copy>>> read(std::string_view space,
                                                  std::span<const std::string> items,
                                                  Timeout) override {
        std::vector<std::optional<Copy>> copies;
        copies.reserve(items.size());
        for (const std::string& item : items) {
            copies.push_back(
                store_->read(key_of(space, item), [&](const Entry* entry) -> std::optional<Copy> {
                    const auto* const count = find(entry);
                    if (count == nullptr || !count->token.empty()) return std::nullopt;
                    const auto value = checked_add(count->n, count->rest);
                    if (!value) return std::nullopt;
                    return Copy{*value, store_->now() - count->at};
                }));
        }
        return copies;
    }

    Result<std::vector<bool>> begin(std::string_view space, std::span<const std::string> items,
                                    std::string_view token, Timeout) override {
        std::vector<bool> begun;
        begun.reserve(items.size());
        for (const std::string& item : items) {
            // A store that is full refuses: then there is no copy.
            const auto made =
                store_->upsert(key_of(space, item), [&](Entry& entry, bool fresh) -> Result<bool> {
                    auto* const count = entry.as<MirroredCount>(fresh);
                    if (count == nullptr || !fresh) return false;
                    count->token = token;
                    count->at = store_->now();
                    entry.expires_at = store_->now() + kFillLease;
                    return true;
                });
            begun.push_back(made.ok() && *made);
        }
        return begun;
    }

    Result<void> land(std::string_view space, std::span<const Cell> cells, std::string_view token,
                      Timeout) override {
        for (const Cell& cell : cells) {
            modify(space, cell.item, [&](Entry& entry, MirroredCount& count) {
                if (count.token != token) return;
                count.token.clear();
                count.rest = cell.rest;
                raise(count, cell);
                entry.expires_at = store_->now() + max_age_;
            });
        }
        return {};
    }

    Result<void> publish(std::string_view space, std::span<const Cell> cells, Timeout) override {
        for (const Cell& cell : cells) {
            modify(space, cell.item, [&](Entry&, MirroredCount& count) { raise(count, cell); });
        }
        return {};
    }

    Result<void> drop(std::string_view space, std::span<const std::string> items,
                      Timeout) override {
        for (const std::string& item : items) {
            (void)store_->remove(key_of(space, item), [](const Entry* entry) -> Result<void> {
                if (find(entry) != nullptr) return {};
                return make_error(ErrorCode::config, "stays");  // remove() keeps what is refused.
            });
        }
        return {};
    }

  private:
    // A forked child has a copy of all, which its parent's votes no longer move.
    std::string key_of(std::string_view space, std::string_view item) const {
        return mirror_prefix(store_->options().prefix,
                             std::string{space} + "." + std::to_string(getpid()))
            .append(item);
    }

    static const MirroredCount* find(const Entry* entry) {
        return entry != nullptr ? entry->as<MirroredCount>() : nullptr;
    }

    static void raise(MirroredCount& count, const Cell& cell) {
        if (cell.ver <= count.ver) return;
        count.ver = cell.ver;
        count.n = cell.n;
    }

    template <class Change>
    void modify(std::string_view space, const std::string& item, const Change& change) {
        (void)store_->modify(key_of(space, item), [&](Entry* entry) -> Result<void> {
            auto* const count = entry != nullptr ? entry->as<MirroredCount>(false) : nullptr;
            if (count != nullptr) change(*entry, *count);
            return {};
        });
    }

    const std::shared_ptr<memory::Store> store_;
    const Duration max_age_;
};

}  // namespace

std::unique_ptr<MirrorStore> make_memory_mirror_store(std::shared_ptr<memory::Store> store,
                                                      Duration max_age) {
    return std::make_unique<MemoryMirrorStore>(std::move(store), max_age);
}

}  // namespace hotcount
