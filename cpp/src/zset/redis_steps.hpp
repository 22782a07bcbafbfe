// The calls of RedisSets that take several round trips and wait for each: upserts with the methods
// that are no script, and sweep().
#pragma once

#include <memory>
#include <span>
#include <string>

#include "backend.hpp"
#include "redis_replies.hpp"

namespace hotcount::zset {

class RedisSteps {
  public:
    using Element = LiveSetsBackend::Element;
    using Upserts = LiveSetsBackend::Upserts;

    RedisSteps(std::shared_ptr<redis::Client> client, UpsertMethod method, Duration gate,
               Server server)
        : client_(std::move(client)), method_(method), gate_(gate), server_(std::move(server)) {}

    Upserts upsert(std::span<const Element> elements, std::size_t batch, Deadline deadline) const;
    Result<SweepReport> sweep(const std::string& pattern, bool dry_run, Timeout timeout) const;
    /// By when a sweep ends that is given no timeout, too.
    Deadline sweep_deadline(Timeout timeout) const;

  private:
    using Commands = std::vector<std::vector<std::string_view>>;

    Upserts upsert(std::span<const Element> elements, Deadline deadline) const;
    Upserts by_watch(std::span<const Element> elements, Deadline deadline) const;
    Result<Upsert> watch_and_add(const Element& element, Timeout timeout) const;
    Upserts look_then_add(std::span<const Element> elements, Deadline deadline) const;
    Upserts look_and_add(std::span<const Element> elements, Deadline deadline) const;
    std::vector<Result<redis::Reply>> add(std::span<const Element> elements, Commands looks,
                                          Timeout timeout) const;
    Result<Upsert> state_of(const redis::Reply& type, const redis::Reply& pttl) const;
    Upsert state_of(std::int64_t pttl) const;
    Result<std::vector<std::string_view>> without_ttl(const redis::ReplyArray& page,
                                                      Timeout timeout) const;

    const std::shared_ptr<redis::Client> client_;
    const UpsertMethod method_;
    const Duration gate_;
    const Server server_;
};

}  // namespace hotcount::zset
