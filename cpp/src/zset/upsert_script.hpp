// Upserts by upsert.lua: one, which travels with others that wait beside it, or a list of them, batch
// by batch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend.hpp"
#include "redis_steps.hpp"

namespace hotcount::zset {

/// How a call reaches the server.
struct Sender {
    redis::Channel& channel;
    Deadline deadline;
    const redis::Cancelled* cancelled;
    Server server;

    void operator()(redis::Request request, Completion<redis::Reply> done) const {
        channel.submit(std::move(request), deadline, std::move(done), cancelled);
    }
};

/// What upsert.lua is told of all elements, in ms. Shared as Server is.
struct UpsertLimits {
    std::string gate;
    std::string keep;
};
using Limits = std::shared_ptr<const UpsertLimits>;

void upsert_by_script(const Sender& send, Limits limits, LiveSetsBackend::Element element,
                      Completion<Upsert> done);

/// What goes again is done before the next batch is sent: the last upsert of a member stands.
void upsert_by_script(const Sender& send, Limits limits,
                      std::vector<LiveSetsBackend::Element> elements, std::size_t batch,
                      Completion<LiveSetsBackend::Upserts> done);

}  // namespace hotcount::zset
