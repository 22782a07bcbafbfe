// The functions of libpq (PostgreSQL's client library) that hotcount uses, found with dlopen on
// first use: a wheel runs without libpq, and a build needs no headers of it. A test compares these
// declarations with the real header if that is installed.
#pragma once

#include <array>
#include <charconv>
#include <hotcount/detail/sql/value.hpp>
#include <hotcount/result.hpp>

// libpq's own names for its opaque objects.
struct pg_conn;
struct pg_result;
struct pg_cancel;

namespace hotcount::sql {

namespace pq {
using NoticeReceiver = void (*)(void* argument, const pg_result* notice);

// ConnStatusType, PostgresPollingStatusType, ExecStatusType, PGTransactionStatusType, PGVerbosity.
inline constexpr int kConnectionOk = 0;
inline constexpr int kConnectionBad = 1;
inline constexpr int kConnectionAwaitingResponse = 4;
inline constexpr int kConnectionAuthOk = 5;
inline constexpr int kPollingFailed = 0;
inline constexpr int kPollingReading = 1;
inline constexpr int kPollingWriting = 2;
inline constexpr int kPollingOk = 3;
inline constexpr int kCommandOk = 1;
inline constexpr int kTuplesOk = 2;
inline constexpr int kPipelineSync = 10;
inline constexpr int kPipelineAborted = 11;
inline constexpr int kErrorsDefault = 1;
inline constexpr int kErrorsVerbose = 2;
// Fields of an error.
inline constexpr int kSeverity = 'V';  // Not translated.
inline constexpr int kSqlState = 'C';
inline constexpr int kPrimary = 'M';
inline constexpr int kDetail = 'D';
inline constexpr int kSourceFunction = 'R';  // Not translated.
}  // namespace pq

// The function's name in libpq, its result type, its parameters.
#define HOTCOUNT_LIBPQ_FUNCTIONS(F)                                                       \
    F(PQlibVersion, int, ())                                                              \
    F(PQconnectStartParams, pg_conn*, (const char* const*, const char* const*, int))      \
    F(PQconnectPoll, int, (pg_conn*))                                                     \
    F(PQfinish, void, (pg_conn*))                                                         \
    F(PQstatus, int, (const pg_conn*))                                                    \
    F(PQsocket, int, (const pg_conn*))                                                    \
    F(PQbackendPID, int, (const pg_conn*))                                                \
    F(PQparameterStatus, const char*, (const pg_conn*, const char*))                      \
    F(PQpass, char*, (const pg_conn*))                                                    \
    F(PQsslInUse, int, (pg_conn*))                                                        \
    F(PQsslStruct, void*, (pg_conn*, const char*))                                        \
    F(PQgssEncInUse, int, (pg_conn*))                                                     \
    F(PQerrorMessage, char*, (const pg_conn*))                                            \
    F(PQconnectionNeedsPassword, int, (const pg_conn*))                                   \
    F(PQsetErrorVerbosity, int, (pg_conn*, int))                                          \
    F(PQsetNoticeReceiver, pq::NoticeReceiver, (pg_conn*, pq::NoticeReceiver, void*))     \
    F(PQsetnonblocking, int, (pg_conn*, int))                                             \
    F(PQenterPipelineMode, int, (pg_conn*))                                               \
    F(PQexitPipelineMode, int, (pg_conn*))                                                \
    F(PQpipelineSync, int, (pg_conn*))                                                    \
    F(PQsendPrepare, int, (pg_conn*, const char*, const char*, int, const unsigned int*)) \
    F(PQsendQueryPrepared, int,                                                           \
      (pg_conn*, const char*, int, const char* const*, const int*, const int*, int))      \
    F(PQsendQueryParams, int,                                                             \
      (pg_conn*, const char*, int, const unsigned int*, const char* const*, const int*,   \
       const int*, int))                                                                  \
    F(PQsendQuery, int, (pg_conn*, const char*))                                          \
    F(PQflush, int, (pg_conn*))                                                           \
    F(PQconsumeInput, int, (pg_conn*))                                                    \
    F(PQisBusy, int, (pg_conn*))                                                          \
    F(PQgetResult, pg_result*, (pg_conn*))                                                \
    F(PQresultStatus, int, (const pg_result*))                                            \
    F(PQresultErrorField, char*, (const pg_result*, int))                                 \
    F(PQresultErrorMessage, char*, (const pg_result*))                                    \
    F(PQclear, void, (pg_result*))                                                        \
    F(PQntuples, int, (const pg_result*))                                                 \
    F(PQftype, unsigned int, (const pg_result*, int))                                     \
    F(PQgetisnull, int, (const pg_result*, int, int))                                     \
    F(PQgetvalue, char*, (const pg_result*, int, int))                                    \
    F(PQgetlength, int, (const pg_result*, int, int))                                     \
    F(PQcmdStatus, char*, (pg_result*))                                                   \
    F(PQcmdTuples, char*, (pg_result*))                                                   \
    F(PQgetCancel, pg_cancel*, (pg_conn*))                                                \
    F(PQfreeCancel, void, (pg_cancel*))                                                   \
    F(PQcancel, int, (pg_cancel*, char*, int))

struct Libpq {
#define HOTCOUNT_DECLARE(name, returns, takes) returns(*name) takes;
    HOTCOUNT_LIBPQ_FUNCTIONS(HOTCOUNT_DECLARE)
#undef HOTCOUNT_DECLARE
    /// Functions of the OpenSSL that libpq uses; null if it uses none.
    int (*SSL_peek)(void* ssl, void* buffer, int size);
    int (*SSL_get_error)(const void* ssl, int result);
    void (*ERR_clear_error)();
};

/// Loads the library once; it is never unloaded. If it is missing or too old, returns a config
/// error that names its package. Thread-safe.
Result<const Libpq*> load_libpq();

/// The rows of a result, one after another.
class PostgresRow final : public Row {
  public:
    PostgresRow(const Libpq& pq, const pg_result* result) : pq_(pq), result_(result) {}
    int number() const { return number_; }
    void advance() { ++number_; }

    bool is_null(int column) const override {
        return pq_.PQgetisnull(result_, number_, column) != 0;
    }
    bool is_integer(int column) const override {
        // int8, int2, int4, numeric: the OIDs of pg_type, which never change. A SUM of int8 is
        // numeric.
        static constexpr std::array<unsigned int, 4> kTypes{20, 21, 23, 1700};
        const unsigned int type = pq_.PQftype(result_, column);
        const bool number = type == kTypes[0] || type == kTypes[1] || type == kTypes[2];
        std::int64_t value = 0;
        return !is_null(column) && (number || (type == kTypes[3] && read(column, value)));
    }
    std::int64_t integer(int column) const override {
        std::int64_t value = 0;
        read(column, value);
        return value;
    }
    std::string_view text(int column) const override {
        return {pq_.PQgetvalue(result_, number_, column),
                static_cast<std::size_t>(pq_.PQgetlength(result_, number_, column))};
    }

  private:
    /// Whether the whole text is a 64-bit integer.
    bool read(int column, std::int64_t& value) const {
        const std::string_view digits = text(column);
        const auto [end, error] =
            std::from_chars(digits.data(), digits.data() + digits.size(), value);
        return error == std::errc{} && end == digits.data() + digits.size();
    }

    const Libpq& pq_;
    const pg_result* result_;
    int number_{0};
};

}  // namespace hotcount::sql
