#include "libmariadb.hpp"

#include <dlfcn.h>

#include <csignal>

namespace hotcount::sql::libmariadb {
namespace {

struct Loaded {
    Library library{};
    std::string error;
};

Loaded load_now() {
    Loaded loaded;
    // Not libmysqlclient: its calls cannot be left at a deadline, and its options have other
    // numbers. libmariadb connects to MySQL's servers as well.
    void* const handle = dlopen("libmariadb.so.3", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        const char* const said = dlerror();
        loaded.error = std::string{"cannot load libmariadb.so.3 ("} +
                       (said != nullptr ? said : "no reason") +
                       "); Debian's package libmariadb3 has it (MariaDB Connector/C elsewhere)";
        return loaded;
    }
    const auto find = [&](const std::string& name, auto& function) {
        void* const symbol = dlsym(handle, ("mysql_" + name).c_str());
        if (symbol == nullptr) loaded.error = "libmariadb.so.3 has no mysql_" + name;
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
    };
    Library& library = loaded.library;
    // ERR_clear_error is OpenSSL's: dlsym also searches the libraries that libmariadb depends on.
    library.clear_openssl_errors =
        reinterpret_cast<decltype(library.clear_openssl_errors)>(dlsym(handle, "ERR_clear_error"));
    find("server_init", library.server_init);
    find("get_client_info", library.get_client_info);
    find("init", library.init);
    find("options", library.options);
    find("close", library.close);
    find("get_socket", library.get_socket);
    find("errno", library.error_number);
    find("error", library.error);
    find("sqlstate", library.sqlstate);
    find("thread_id", library.thread_id);
    find("field_count", library.field_count);
    find("info", library.info);
    find("real_connect_start", library.real_connect_start);
    find("real_connect_cont", library.real_connect_cont);
    find("real_query_start", library.real_query_start);
    find("real_query_cont", library.real_query_cont);
    find("store_result_start", library.store_result_start);
    find("store_result_cont", library.store_result_cont);
    find("free_result", library.free_result);
    find("num_fields", library.num_fields);
    find("fetch_fields", library.fetch_fields);
    find("stmt_init", library.stmt_init);
    find("stmt_close", library.stmt_close);
    find("stmt_errno", library.stmt_error_number);
    find("stmt_error", library.stmt_error);
    find("stmt_sqlstate", library.stmt_sqlstate);
    find("stmt_param_count", library.stmt_param_count);
    find("stmt_field_count", library.stmt_field_count);
    find("stmt_result_metadata", library.stmt_result_metadata);
    find("stmt_affected_rows", library.stmt_affected_rows);
    find("stmt_bind_param", library.stmt_bind_param);
    find("stmt_bind_result", library.stmt_bind_result);
    find("stmt_fetch", library.stmt_fetch);
    find("stmt_fetch_column", library.stmt_fetch_column);
    find("stmt_free_result", library.stmt_free_result);
    find("stmt_prepare_start", library.stmt_prepare_start);
    find("stmt_prepare_cont", library.stmt_prepare_cont);
    find("stmt_execute_start", library.stmt_execute_start);
    find("stmt_execute_cont", library.stmt_execute_cont);
    find("stmt_store_result_start", library.stmt_store_result_start);
    find("stmt_store_result_cont", library.stmt_store_result_cont);
    find("stmt_more_results", library.stmt_more_results);
    find("stmt_next_result_start", library.stmt_next_result_start);
    find("stmt_next_result_cont", library.stmt_next_result_cont);
    if (!loaded.error.empty()) return loaded;
    // server_init ignores SIGPIPE for the whole process, which a library should not decide. Its
    // sockets do not raise the signal.
    struct sigaction before {};
    sigaction(SIGPIPE, nullptr, &before);
    if (library.server_init(0, nullptr, nullptr) != 0) loaded.error = "libmariadb did not start";
    sigaction(SIGPIPE, &before, nullptr);
    return loaded;
}

}  // namespace

Result<const Library*> load() {
    static const Loaded& loaded = *new Loaded{load_now()};
    if (!loaded.error.empty()) return make_error(ErrorCode::config, loaded.error);
    return &loaded.library;
}

}  // namespace hotcount::sql::libmariadb
