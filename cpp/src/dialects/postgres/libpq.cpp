#include "libpq.hpp"

#include <dlfcn.h>

#include <mutex>
#include <string>

namespace hotcount::sql {
namespace {

constexpr const char* kName = "libpq.so.5";

Result<const Libpq*> load() {
    // RTLD_LOCAL: psycopg's wheels bring a libpq of their own, and the two must not share symbols.
    void* library = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        return make_error(ErrorCode::config,
                          "postgresql needs libpq, which is not installed (Debian: apt install "
                          "libpq5): " +
                              std::string{dlerror()});
    }
    static Libpq functions;
    const char* missing = nullptr;
#define HOTCOUNT_FIND(name, returns, takes)                                             \
    functions.name = reinterpret_cast<decltype(functions.name)>(dlsym(library, #name)); \
    if (functions.name == nullptr) missing = #name;
    HOTCOUNT_LIBPQ_FUNCTIONS(HOTCOUNT_FIND)
#undef HOTCOUNT_FIND
    // dlsym also searches the libraries that libpq depends on, so these are of the OpenSSL that it
    // uses.
    functions.SSL_peek = reinterpret_cast<decltype(functions.SSL_peek)>(dlsym(library, "SSL_peek"));
    functions.SSL_get_error =
        reinterpret_cast<decltype(functions.SSL_get_error)>(dlsym(library, "SSL_get_error"));
    functions.ERR_clear_error =
        reinterpret_cast<decltype(functions.ERR_clear_error)>(dlsym(library, "ERR_clear_error"));
    if (missing != nullptr) {
        return make_error(ErrorCode::config,
                          "postgresql needs libpq 14 or newer (Debian: libpq5): " +
                              std::string{kName} + " lacks " + missing);
    }
    return &functions;
}

}  // namespace

Result<const Libpq*> load_libpq() {
    // A failure is not remembered: the package may come while the process runs.
    static const Libpq* loaded = nullptr;
    static std::mutex mutex;
    std::lock_guard lock(mutex);
    if (loaded != nullptr) return loaded;
    HOTCOUNT_TRY_ASSIGN(loaded, load());
    return loaded;
}

}  // namespace hotcount::sql
