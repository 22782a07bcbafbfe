// What we say of libmariadb, against its own headers; and that it loads.
#include "dialects/mysql/libmariadb.hpp"

#include <gtest/gtest.h>
#include <mysql.h>

#include <cstddef>
#include <type_traits>

namespace lib = hotcount::sql::libmariadb;

namespace {

#define SAME_PLACE(ours, our_field, theirs, their_field)                       \
    static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field)); \
    static_assert(sizeof(ours::our_field) == sizeof(theirs::their_field))

static_assert(sizeof(lib::Column) == sizeof(MYSQL_FIELD));
SAME_PLACE(lib::Column, name, MYSQL_FIELD, name);
SAME_PLACE(lib::Column, flags, MYSQL_FIELD, flags);
SAME_PLACE(lib::Column, charset, MYSQL_FIELD, charsetnr);
SAME_PLACE(lib::Column, type, MYSQL_FIELD, type);
SAME_PLACE(lib::Column, extension, MYSQL_FIELD, extension);

static_assert(sizeof(lib::Bind) == sizeof(MYSQL_BIND));
static_assert(alignof(lib::Bind) == alignof(MYSQL_BIND));
SAME_PLACE(lib::Bind, length, MYSQL_BIND, length);
SAME_PLACE(lib::Bind, is_null, MYSQL_BIND, is_null);
SAME_PLACE(lib::Bind, buffer, MYSQL_BIND, buffer);
SAME_PLACE(lib::Bind, error, MYSQL_BIND, error);
SAME_PLACE(lib::Bind, row, MYSQL_BIND, u);
SAME_PLACE(lib::Bind, store, MYSQL_BIND, store_param_func);
SAME_PLACE(lib::Bind, buffer_length, MYSQL_BIND, buffer_length);
SAME_PLACE(lib::Bind, length_value, MYSQL_BIND, length_value);
SAME_PLACE(lib::Bind, flags, MYSQL_BIND, flags);
SAME_PLACE(lib::Bind, buffer_type, MYSQL_BIND, buffer_type);
SAME_PLACE(lib::Bind, is_unsigned, MYSQL_BIND, is_unsigned);
SAME_PLACE(lib::Bind, is_null_value, MYSQL_BIND, is_null_value);
SAME_PLACE(lib::Bind, extension, MYSQL_BIND, extension);

static_assert(lib::kWaitRead == MYSQL_WAIT_READ);
static_assert(lib::kWaitWrite == MYSQL_WAIT_WRITE);
static_assert(lib::kWaitException == MYSQL_WAIT_EXCEPT);
static_assert(lib::kWaitTimeout == MYSQL_WAIT_TIMEOUT);
static_assert(lib::kNoData == MYSQL_NO_DATA);
static_assert(lib::kTruncated == MYSQL_DATA_TRUNCATED);
static_assert(lib::kUnsigned == UNSIGNED_FLAG);
static_assert(lib::kProtocolTcp == MYSQL_PROTOCOL_TCP);

template <class Ours, class Theirs>
constexpr bool same(Ours ours, Theirs theirs) {
    return static_cast<int>(ours) == static_cast<int>(theirs);
}
static_assert(same(lib::kConnectTimeout, MYSQL_OPT_CONNECT_TIMEOUT));
static_assert(same(lib::kCharset, MYSQL_SET_CHARSET_NAME));
static_assert(same(lib::kLocalInfile, MYSQL_OPT_LOCAL_INFILE));
static_assert(same(lib::kProtocol, MYSQL_OPT_PROTOCOL));
static_assert(same(lib::kTlsVerify, MYSQL_OPT_SSL_VERIFY_SERVER_CERT));
static_assert(same(lib::kTlsKey, MYSQL_OPT_SSL_KEY));
static_assert(same(lib::kTlsCert, MYSQL_OPT_SSL_CERT));
static_assert(same(lib::kTlsCa, MYSQL_OPT_SSL_CA));
static_assert(same(lib::kTlsEnforce, MYSQL_OPT_SSL_ENFORCE));
static_assert(same(lib::kTlsFingerprint, MARIADB_OPT_TLS_PEER_FP));
static_assert(same(lib::kServerPublicKey, MYSQL_SERVER_PUBLIC_KEY));
static_assert(same(lib::kRestrictedAuth, MARIADB_OPT_RESTRICTED_AUTH));
static_assert(same(lib::kNonblocking, MYSQL_OPT_NONBLOCK));
static_assert(same(lib::kDecimal, MYSQL_TYPE_DECIMAL));
static_assert(same(lib::kTiny, MYSQL_TYPE_TINY));
static_assert(same(lib::kShort, MYSQL_TYPE_SHORT));
static_assert(same(lib::kLong, MYSQL_TYPE_LONG));
static_assert(same(lib::kNull, MYSQL_TYPE_NULL));
static_assert(same(lib::kLongLong, MYSQL_TYPE_LONGLONG));
static_assert(same(lib::kInt24, MYSQL_TYPE_INT24));
static_assert(same(lib::kYear, MYSQL_TYPE_YEAR));
static_assert(same(lib::kNewDecimal, MYSQL_TYPE_NEWDECIMAL));
static_assert(same(lib::kString, MYSQL_TYPE_STRING));

// The library's types by our names of them; numbers and other pointers as they are.
template <class T>
struct Ours {
    using type = T;
};
template <>
struct Ours<MYSQL*> {
    using type = lib::Session*;
};
template <>
struct Ours<MYSQL**> {
    using type = lib::Session**;
};
template <>
struct Ours<MYSQL_STMT*> {
    using type = lib::Prepared*;
};
template <>
struct Ours<MYSQL_RES*> {
    using type = lib::Rows*;
};
template <>
struct Ours<MYSQL_RES**> {
    using type = lib::Rows**;
};
template <>
struct Ours<MYSQL_BIND*> {
    using type = lib::Bind*;
};
template <>
struct Ours<MYSQL_FIELD*> {
    using type = lib::Column*;
};
template <>
struct Ours<enum mysql_option> {
    using type = int;
};
template <class Result, class... Arguments>
struct Ours<Result (*)(Arguments...)> {
    using type = typename Ours<Result>::type (*)(typename Ours<Arguments>::type...);
};

#define SAME_SIGNATURE(ours, theirs) \
    static_assert(std::is_same_v<decltype(lib::Library::ours), Ours<decltype(&(theirs))>::type>)
SAME_SIGNATURE(server_init, mysql_server_init);
SAME_SIGNATURE(get_client_info, mysql_get_client_info);
SAME_SIGNATURE(init, mysql_init);
SAME_SIGNATURE(options, mysql_options);
SAME_SIGNATURE(close, mysql_close);
SAME_SIGNATURE(get_socket, mysql_get_socket);
SAME_SIGNATURE(error_number, mysql_errno);
SAME_SIGNATURE(error, mysql_error);
SAME_SIGNATURE(sqlstate, mysql_sqlstate);
SAME_SIGNATURE(thread_id, mysql_thread_id);
SAME_SIGNATURE(field_count, mysql_field_count);
SAME_SIGNATURE(info, mysql_info);
SAME_SIGNATURE(real_connect_start, mysql_real_connect_start);
SAME_SIGNATURE(real_connect_cont, mysql_real_connect_cont);
SAME_SIGNATURE(real_query_start, mysql_real_query_start);
SAME_SIGNATURE(real_query_cont, mysql_real_query_cont);
SAME_SIGNATURE(store_result_start, mysql_store_result_start);
SAME_SIGNATURE(store_result_cont, mysql_store_result_cont);
SAME_SIGNATURE(free_result, mysql_free_result);
SAME_SIGNATURE(num_fields, mysql_num_fields);
SAME_SIGNATURE(fetch_fields, mysql_fetch_fields);
SAME_SIGNATURE(stmt_init, mysql_stmt_init);
SAME_SIGNATURE(stmt_close, mysql_stmt_close);
SAME_SIGNATURE(stmt_error_number, mysql_stmt_errno);
SAME_SIGNATURE(stmt_error, mysql_stmt_error);
SAME_SIGNATURE(stmt_sqlstate, mysql_stmt_sqlstate);
SAME_SIGNATURE(stmt_param_count, mysql_stmt_param_count);
SAME_SIGNATURE(stmt_result_metadata, mysql_stmt_result_metadata);
SAME_SIGNATURE(stmt_affected_rows, mysql_stmt_affected_rows);
SAME_SIGNATURE(stmt_bind_param, mysql_stmt_bind_param);
SAME_SIGNATURE(stmt_bind_result, mysql_stmt_bind_result);
SAME_SIGNATURE(stmt_fetch, mysql_stmt_fetch);
SAME_SIGNATURE(stmt_fetch_column, mysql_stmt_fetch_column);
SAME_SIGNATURE(stmt_free_result, mysql_stmt_free_result);
SAME_SIGNATURE(stmt_prepare_start, mysql_stmt_prepare_start);
SAME_SIGNATURE(stmt_prepare_cont, mysql_stmt_prepare_cont);
SAME_SIGNATURE(stmt_execute_start, mysql_stmt_execute_start);
SAME_SIGNATURE(stmt_execute_cont, mysql_stmt_execute_cont);
SAME_SIGNATURE(stmt_store_result_start, mysql_stmt_store_result_start);
SAME_SIGNATURE(stmt_store_result_cont, mysql_stmt_store_result_cont);

TEST(LibMariaDb, LoadsAndIsTheOneOfTheHeaders) {
    const auto library = lib::load();
    ASSERT_TRUE(library.ok()) << library.error().message;
    EXPECT_STREQ((*library)->get_client_info(), MARIADB_PACKAGE_VERSION);
}

}  // namespace
