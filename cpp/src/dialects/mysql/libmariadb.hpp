// libmariadb, loaded when the first mariadb:// or mysql:// URL is opened: the functions and layouts
// of its interface that we use, so that neither building nor installing hotcount needs it.
//
// Calls that may wait come in pairs: ..._start begins one and ..._cont continues it. Both return 0
// when the call is done, else the events for which it waits (kWait...). The layouts and numbers are
// compared with the library's own headers in tests/cpp/dialects/libmariadb_test.cpp.
#pragma once

#include <hotcount/result.hpp>
#include <string>

namespace hotcount::sql::libmariadb {

// Opaque types of the library.
struct Session;   // MYSQL
struct Prepared;  // MYSQL_STMT
struct Rows;      // MYSQL_RES

// The events for which a call waits, one bit each.
inline constexpr int kWaitRead = 1;
inline constexpr int kWaitWrite = 2;
inline constexpr int kWaitException = 4;
inline constexpr int kWaitTimeout = 8;

// Further results of stmt_fetch, besides 0.
inline constexpr int kNoData = 100;
inline constexpr int kTruncated = 101;

enum Option : int {
    kConnectTimeout = 0,
    kCharset = 7,
    kLocalInfile = 8,
    kProtocol = 9,
    kTlsVerify = 21,
    kTlsKey = 25,
    kTlsCert = 26,
    kTlsCa = 27,
    kServerPublicKey = 35,
    kTlsEnforce = 38,
    kNonblocking = 6000,
    kTlsFingerprint = 7006,
    kRestrictedAuth = 7026,
};
inline constexpr unsigned kProtocolTcp = 1;

enum Type : int {
    kDecimal = 0,
    kTiny = 1,
    kShort = 2,
    kLong = 3,
    kNull = 6,
    kLongLong = 8,
    kInt24 = 9,
    kYear = 13,
    kNewDecimal = 246,
    kString = 254,
};
inline constexpr unsigned kUnsigned = 32;  // In Column::flags.

// MYSQL_FIELD: the description of a result column.
struct Column {
    char* name;
    char* original_name;
    char* table;
    char* original_table;
    char* database;
    char* catalog;
    char* default_value;
    unsigned long length;
    unsigned long max_length;
    unsigned name_length;
    unsigned original_name_length;
    unsigned table_length;
    unsigned original_table_length;
    unsigned database_length;
    unsigned catalog_length;
    unsigned default_length;
    unsigned flags;
    unsigned decimals;
    unsigned charset;
    Type type;
    void* extension;
};

// MYSQL_BIND: where a parameter is taken from, or a result column put.
struct Bind {
    unsigned long* length;
    char* is_null;
    void* buffer;
    char* error;
    void* row;
    void (*store)(void*, void*);
    void (*fetch)(void*, void*, unsigned char**);
    void (*skip)(void*, void*, unsigned char**);
    unsigned long buffer_length;
    unsigned long offset;
    unsigned long length_value;
    unsigned flags;
    unsigned pack_length;
    Type buffer_type;
    char error_value;
    char is_unsigned;
    char long_data_used;
    char is_null_value;
    void* extension;
};

// Each as the mysql_... function of its name.
struct Library {
    /// The queue of errors of the OpenSSL that the library uses; null if it uses another library.
    void (*clear_openssl_errors)();
    int (*server_init)(int, char**, char**);
    const char* (*get_client_info)();
    Session* (*init)(Session*);
    int (*options)(Session*, int option, const void* value);
    void (*close)(Session*);
    int (*get_socket)(Session*);
    unsigned (*error_number)(Session*);
    const char* (*error)(Session*);
    const char* (*sqlstate)(Session*);
    unsigned long (*thread_id)(Session*);
    unsigned (*field_count)(Session*);
    const char* (*info)(Session*);
    int (*real_connect_start)(Session** ret, Session*, const char* host, const char* user,
                              const char* password, const char* database, unsigned port,
                              const char* socket, unsigned long flags);
    int (*real_connect_cont)(Session** ret, Session*, int ready);
    int (*real_query_start)(int* ret, Session*, const char* text, unsigned long size);
    int (*real_query_cont)(int* ret, Session*, int ready);
    int (*store_result_start)(Rows** ret, Session*);
    int (*store_result_cont)(Rows** ret, Session*, int ready);
    void (*free_result)(Rows*);
    unsigned (*num_fields)(Rows*);
    Column* (*fetch_fields)(Rows*);

    Prepared* (*stmt_init)(Session*);
    char (*stmt_close)(Prepared*);
    unsigned (*stmt_error_number)(Prepared*);
    const char* (*stmt_error)(Prepared*);
    const char* (*stmt_sqlstate)(Prepared*);
    unsigned long (*stmt_param_count)(Prepared*);
    unsigned (*stmt_field_count)(Prepared*);
    Rows* (*stmt_result_metadata)(Prepared*);
    unsigned long long (*stmt_affected_rows)(Prepared*);
    char (*stmt_bind_param)(Prepared*, Bind*);
    char (*stmt_bind_result)(Prepared*, Bind*);
    int (*stmt_fetch)(Prepared*);
    int (*stmt_fetch_column)(Prepared*, Bind*, unsigned column, unsigned long offset);
    char (*stmt_free_result)(Prepared*);
    int (*stmt_prepare_start)(int* ret, Prepared*, const char* text, unsigned long size);
    int (*stmt_prepare_cont)(int* ret, Prepared*, int ready);
    int (*stmt_execute_start)(int* ret, Prepared*);
    int (*stmt_execute_cont)(int* ret, Prepared*, int ready);
    int (*stmt_store_result_start)(int* ret, Prepared*);
    int (*stmt_store_result_cont)(int* ret, Prepared*, int ready);
    char (*stmt_more_results)(Prepared*);
    int (*stmt_next_result_start)(int* ret, Prepared*);
    int (*stmt_next_result_cont)(int* ret, Prepared*, int ready);
};

/// The library, loaded once per process; if it is missing, a config error that names its package.
Result<const Library*> load();

}  // namespace hotcount::sql::libmariadb
