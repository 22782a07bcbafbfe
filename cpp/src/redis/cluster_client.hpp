// The client of a Redis or Valkey cluster: as that of one server (redis.hpp), with a connection to each
// primary that calls need.
#pragma once

#include <hotcount/redis.hpp>
#include <memory>

namespace hotcount::redis {

/// Client::make() has checked the options.
std::shared_ptr<Client> make_cluster_client(Options options);

}  // namespace hotcount::redis
