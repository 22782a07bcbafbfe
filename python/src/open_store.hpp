// Opening stores and databases. A null handle stands for what the caller did not say. With the GIL.
#pragma once

#include <string_view>

#include "store.hpp"

namespace hotcount::python {

MemoryHandle open_memory(std::string_view text, py::handle max_keys, py::handle prefix,
                         py::handle when_full);

struct RedisArguments {
    py::handle timeout;
    py::handle prefix;
    py::handle client_name;
    py::handle max_in_flight;
    py::handle spin;
    py::handle silence_limit;
    py::handle max_queue;
    py::handle connect_timeout;
    py::handle protocol;
    py::handle max_reply_bytes;
};
RedisHandle open_redis(std::string_view text, const RedisArguments& given);

struct DatabaseArguments {
    py::handle timeout;
    py::handle max_readers;
    py::handle max_writers;
    py::handle prepare;
    py::handle idle_timeout;
    py::handle tcp_user_timeout;
};
DatabaseHandle open_database(std::string_view text, const DatabaseArguments& given);

}  // namespace hotcount::python
