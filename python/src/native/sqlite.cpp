// SQLite's functions, as the extension calls them: each goes to the library that the interpreter's
// sqlite3 uses. A second library in the process would break the locks of the first, and a wheel
// cannot know at its build where the first one is.

#include <dlfcn.h>
#include <sqlite3.h>

#include <atomic>
#include <cstdarg>
#include <hotcount/detail/sql/settings.hpp>
#include <string>

#include "native.hpp"
#include "values/gil.hpp"

// Name, result, parameters, arguments. sqlite3_db_config and sqlite3_libversion stand below.
#define HOTCOUNT_SQLITE_FUNCTIONS(F)                                                             \
    F(sqlite3_bind_int64, int, (sqlite3_stmt * a, int b, sqlite3_int64 c), (a, b, c))            \
    F(sqlite3_bind_null, int, (sqlite3_stmt * a, int b), (a, b))                                 \
    F(sqlite3_bind_text, int, (sqlite3_stmt * a, int b, const char* c, int d, void (*e)(void*)), \
      (a, b, c, d, e))                                                                           \
    F(sqlite3_busy_handler, int, (sqlite3 * a, int (*b)(void*, int), void* c), (a, b, c))        \
    F(sqlite3_changes, int, (sqlite3 * a), (a))                                                  \
    F(sqlite3_close, int, (sqlite3 * a), (a))                                                    \
    F(sqlite3_column_bytes, int, (sqlite3_stmt * a, int b), (a, b))                              \
    F(sqlite3_column_int64, sqlite3_int64, (sqlite3_stmt * a, int b), (a, b))                    \
    F(sqlite3_column_text, const unsigned char*, (sqlite3_stmt * a, int b), (a, b))              \
    F(sqlite3_column_type, int, (sqlite3_stmt * a, int b), (a, b))                               \
    F(sqlite3_db_filename, const char*, (sqlite3 * a, const char* b), (a, b))                    \
    F(sqlite3_db_readonly, int, (sqlite3 * a, const char* b), (a, b))                            \
    F(sqlite3_errmsg, const char*, (sqlite3 * a), (a))                                           \
    F(sqlite3_errstr, const char*, (int a), (a))                                                 \
    F(sqlite3_exec, int,                                                                         \
      (sqlite3 * a, const char* b, int (*c)(void*, int, char**, char**), void* d, char** e),     \
      (a, b, c, d, e))                                                                           \
    F(sqlite3_extended_errcode, int, (sqlite3 * a), (a))                                         \
    F(sqlite3_extended_result_codes, int, (sqlite3 * a, int b), (a, b))                          \
    F(sqlite3_file_control, int, (sqlite3 * a, const char* b, int c, void* d), (a, b, c, d))     \
    F(sqlite3_finalize, int, (sqlite3_stmt * a), (a))                                            \
    F(sqlite3_get_autocommit, int, (sqlite3 * a), (a))                                           \
    F(sqlite3_mutex_alloc, sqlite3_mutex*, (int a), (a))                                         \
    F(sqlite3_mutex_enter, void, (sqlite3_mutex * a), (a))                                       \
    F(sqlite3_mutex_leave, void, (sqlite3_mutex * a), (a))                                       \
    F(sqlite3_open_v2, int, (const char* a, sqlite3** b, int c, const char* d), (a, b, c, d))    \
    F(sqlite3_prepare_v3, int,                                                                   \
      (sqlite3 * a, const char* b, int c, unsigned d, sqlite3_stmt** e, const char** f),         \
      (a, b, c, d, e, f))                                                                        \
    F(sqlite3_progress_handler, void, (sqlite3 * a, int b, int (*c)(void*), void* d),            \
      (a, b, c, d))                                                                              \
    F(sqlite3_reset, int, (sqlite3_stmt * a), (a))                                               \
    F(sqlite3_step, int, (sqlite3_stmt * a), (a))                                                \
    F(sqlite3_system_errno, int, (sqlite3 * a), (a))                                             \
    F(sqlite3_txn_state, int, (sqlite3 * a, const char* b), (a, b))

namespace {

struct Functions {
#define HOTCOUNT_DECLARE(name, returns, takes, gives) decltype(&::name) name{nullptr};
    HOTCOUNT_SQLITE_FUNCTIONS(HOTCOUNT_DECLARE)
#undef HOTCOUNT_DECLARE
    decltype(&::sqlite3_db_config) sqlite3_db_config{nullptr};
    decltype(&::sqlite3_libversion) sqlite3_libversion{nullptr};
};

Functions of_python;
std::atomic<bool> is_loaded{false};

}  // namespace

#define HOTCOUNT_FORWARD(name, returns, takes, gives) \
    returns name takes { return of_python.name gives; }
HOTCOUNT_SQLITE_FUNCTIONS(HOTCOUNT_FORWARD)
#undef HOTCOUNT_FORWARD

// The settings that the core makes take an int and a place for the setting before.
int sqlite3_db_config(sqlite3* connection, int setting, ...) {
    va_list list;
    va_start(list, setting);
    const int value = va_arg(list, int);
    int* const before = va_arg(list, int*);
    va_end(list);
    return of_python.sqlite3_db_config(connection, setting, value, before);
}

// The core asks where this text is, also before a library has been loaded.
const char* sqlite3_libversion() {
    return is_loaded.load(std::memory_order_acquire) ? of_python.sqlite3_libversion() : "none";
}

namespace hotcount::python {
namespace {

Error cannot(const std::string& why) {
    return make_error(ErrorCode::config,
                      "sqlite needs the SQLite library of this Python's sqlite3, " + why);
}

// A function of `_sqlite3`, which shows the object that its code is in. Null: an exception is set.
const void* a_function_of_sqlite3() {
    const auto module = py::reinterpret_steal<py::object>(PyImport_ImportModule("_sqlite3"));
    if (!module) return nullptr;
    const auto type =
        py::reinterpret_steal<py::object>(PyObject_GetAttrString(module.ptr(), "Connection"));
    if (!type) return nullptr;
    const auto method =
        py::reinterpret_steal<py::object>(PyObject_GetAttrString(type.ptr(), "cursor"));
    if (!method) return nullptr;
    if (!PyObject_TypeCheck(method.ptr(), &PyMethodDescr_Type)) {
        PyErr_SetString(PyExc_ImportError, "_sqlite3.Connection is not written in C");
        return nullptr;
    }
    const auto* const descriptor = reinterpret_cast<PyMethodDescrObject*>(method.ptr());
    return reinterpret_cast<const void*>(descriptor->d_method->ml_meth);
}

// In the object itself, then in the libraries that it was linked with.
Result<void> find_functions(void* library, const std::string& file) {
    Functions found;
    const char* missing = nullptr;
    const auto find = [&](auto& function, const char* name) {
        function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
        if (function == nullptr) missing = name;
    };
#define HOTCOUNT_FIND(name, returns, takes, gives) find(found.name, #name);
    HOTCOUNT_SQLITE_FUNCTIONS(HOTCOUNT_FIND)
#undef HOTCOUNT_FIND
    find(found.sqlite3_db_config, "sqlite3_db_config");
    find(found.sqlite3_libversion, "sqlite3_libversion");
    decltype(&::sqlite3_libversion_number) version = nullptr;
    find(version, "sqlite3_libversion_number");
    if (found.sqlite3_libversion == nullptr) {
        return cannot("but that is built into " + file +
                      ", which hides it from other code; use a Python whose sqlite3 is linked with "
                      "libsqlite3, as the packages of Linux distributions have it");
    }
    // RETURNING came with 3.35, and not with a function.
    if (missing != nullptr || version() < 3'035'000) {
        return cannot("in version 3.35 or newer; " + file + " has " + found.sqlite3_libversion() +
                      (missing == nullptr ? "" : std::string{", which lacks "} + missing));
    }
    // The library stays open: the functions are called until the process ends.
    of_python = found;
    is_loaded.store(true, std::memory_order_release);
    return {};
}

Result<void> find_functions_beside(const void* address) {
    Dl_info object{};
    if (dladdr(address, &object) == 0) return cannot("whose code is in no file");
    const std::string file = object.dli_fname;
    void* library = dlopen(object.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    // The program itself has no name that dlopen() knows.
    if (library == nullptr) library = dlopen(nullptr, RTLD_LAZY);
    if (library == nullptr) return cannot("and " + file + " cannot be opened");
    return find_functions(library, file);
}

// Threads that come at once find the same functions.
Result<void> load() {
    if (is_loaded.load(std::memory_order_acquire)) return {};
    const WithGil gil;
    if (!gil) return cannot("and this Python is shutting down");
    if (is_loaded.load(std::memory_order_acquire)) return {};
    const void* const address = a_function_of_sqlite3();
    if (address == nullptr) {
        const py::error_already_set error;
        return cannot("and this Python has none: " + std::string{error.what()});
    }
    return find_functions_beside(address);
}

}  // namespace

void use_sqlite_of_python() { sql::set_sqlite_loader(&load); }

// For hotcount-load of a wheel, a program without an interpreter that has an SQLite inside
// (loadtest/src/cli/starter.c).
extern "C" PYBIND11_EXPORT bool hotcount_use_sqlite_of_program() {
    return find_functions(dlopen(nullptr, RTLD_LAZY), "this program").ok();
}

}  // namespace hotcount::python
