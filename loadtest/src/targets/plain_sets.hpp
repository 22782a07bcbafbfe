// Upserts into sorted sets by plain commands: ways of the seeds that the library does not have.
//
//   exists_then_add     EXISTS, then ZADD                       RACY: a set that expires in between
//   unguarded_pipeline  EXISTS and ZADD in one pipeline         WRONG: it adds in any case
//   watch               WATCH, PTTL, then MULTI, ZADD, EXEC     again while the set changes
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "load/driver.hpp"

namespace hotcount::loadtest {

enum class PlainWay : std::uint8_t { exists_then_add, unguarded_pipeline, watch };
/// None: the library has this way of a sorted set.
std::optional<PlainWay> plain_way(std::string_view way);

class PlainSetsDriver final : public SetsDriver {
  public:
    /// `sets` reads and removes. `gate`: for watch.
    PlainSetsDriver(std::shared_ptr<redis::Client> client, std::shared_ptr<LiveSets> sets,
                    PlainWay way, Duration gate, Timeout timeout)
        : SetsDriver(std::move(sets), timeout),
          client_(std::move(client)),
          way_(way),
          gate_(gate) {}

  private:
    using Upserts = std::vector<Result<Upsert>>;

    Result<Upsert> upsert(const UpsertItem& item) override;
    Result<Upserts> upsert_many(std::span<const UpsertItem> items) override;
    Result<Upsert> watch_and_add(const UpsertItem& item, Deadline deadline);
    Result<std::shared_ptr<redis::Client>> take_client();

    const std::shared_ptr<redis::Client> client_;
    const PlainWay way_;
    const Duration gate_;
    std::mutex mutex_{};
    std::vector<std::shared_ptr<redis::Client>> idle_{};  // WATCH is a state of a connection.
};

}  // namespace hotcount::loadtest
