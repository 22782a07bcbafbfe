#include <hiredis/hiredis.h>
#include <sqlite3.h>

#include <hotcount/build_info.hpp>

#ifndef HOTCOUNT_BUILD_TYPE
#define HOTCOUNT_BUILD_TYPE "unknown"
#endif

namespace hotcount {

std::map<std::string, std::string> build_info() {
    return {
        {"version", kVersion},
        {"compiler", __VERSION__},
        {"build_type", HOTCOUNT_BUILD_TYPE},
        {"hiredis", std::to_string(HIREDIS_MAJOR) + "." + std::to_string(HIREDIS_MINOR) + "." +
                        std::to_string(HIREDIS_PATCH)},
#ifdef HOTCOUNT_HIREDIS_TLS
        {"tls", "yes"},
#else
        {"tls", "no"},
#endif
        {"sqlite", sqlite3_libversion()},
    };
}

}  // namespace hotcount
