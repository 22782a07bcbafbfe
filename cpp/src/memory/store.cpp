#include <bit>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/shared_objects.hpp>
#include <hotcount/memory.hpp>

namespace hotcount::memory {

std::string_view to_string(WhenFull when_full) {
    return when_full == WhenFull::admit ? "admit" : "refuse";
}

Result<WhenFull> parse_when_full(std::string_view name) {
    for (const WhenFull known : {WhenFull::admit, WhenFull::refuse}) {
        if (name == to_string(known)) return known;
    }
    return bad_option("when_full", "is '" + printable(name) + "'; it takes 'admit', 'refuse'",
                      printable(name));
}

Result<std::shared_ptr<Store>> Store::make(StoreOptions options) {
    if (options.max_keys == 0) return bad_value("max_keys", 0, "at least 1");
    if (options.shards == 0 || options.shards > 65536) {
        return bad_value("shards", options.shards, "it takes 1 to 65536");
    }
    options.shards = std::bit_ceil(options.shards);
    return std::make_shared<Store>(std::move(options));
}

Store::Store(StoreOptions options)
    : ExpiringMap(options.max_keys, options.shards, options.clock),
      options_(std::move(options)),
      epoch_(options_.clock->wall_now().time_since_epoch() -
             options_.clock->steady_now().time_since_epoch()) {}

Store::Stats Store::stats() const {
    return Stats{size(), options_.max_keys, swept(), refused(),
                 untracked_.load(std::memory_order_relaxed)};
}

bool Store::admits_untracked(const Error& error) {
    if (error.code != ErrorCode::capacity || options_.when_full != WhenFull::admit) return false;
    uncount_refusal();
    untracked_.fetch_add(1, std::memory_order_relaxed);
    return true;
}

Result<std::shared_ptr<Store>> named_store(std::string_view name, StoreOptions options) {
    // Never destroyed: a static would end before objects that still unregister at exit.
    static auto* const stores = new SharedObjects<std::string, Store>;
    return stores->find_or_make(std::string{name}, [&] { return Store::make(std::move(options)); });
}

}  // namespace hotcount::memory
