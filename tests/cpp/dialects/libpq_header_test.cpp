// What the core declares of libpq is what libpq's own header declares. Built where that is installed.
#include "dialects/postgres/libpq.hpp"

#include <gtest/gtest.h>
#include <libpq-fe.h>

#include <type_traits>

namespace hotcount::sql {
namespace {

// libpq's enums are int to us, on both sides of a call.
template <class T>
using Plain =
    std::conditional_t<std::is_enum_v<T>, std::type_identity<int>, std::type_identity<T>>::type;

template <class T>
struct Signature;
template <class R, class... A>
struct Signature<R (*)(A...)> {
    using Type = Plain<R> (*)(Plain<A>...);
};

#define HOTCOUNT_COMPARE(name, returns, takes)                            \
    static_assert(std::is_same_v<Signature<decltype(&::name)>::Type,      \
                                 Signature<decltype(Libpq::name)>::Type>, \
                  #name);
HOTCOUNT_LIBPQ_FUNCTIONS(HOTCOUNT_COMPARE)
#undef HOTCOUNT_COMPARE

static_assert(pq::kConnectionOk == CONNECTION_OK);
static_assert(pq::kConnectionBad == CONNECTION_BAD);
static_assert(pq::kConnectionAwaitingResponse == CONNECTION_AWAITING_RESPONSE);
static_assert(pq::kConnectionAuthOk == CONNECTION_AUTH_OK);
static_assert(pq::kPollingFailed == PGRES_POLLING_FAILED);
static_assert(pq::kPollingReading == PGRES_POLLING_READING);
static_assert(pq::kPollingWriting == PGRES_POLLING_WRITING);
static_assert(pq::kPollingOk == PGRES_POLLING_OK);
static_assert(pq::kCommandOk == PGRES_COMMAND_OK);
static_assert(pq::kTuplesOk == PGRES_TUPLES_OK);
static_assert(pq::kPipelineSync == PGRES_PIPELINE_SYNC);
static_assert(pq::kPipelineAborted == PGRES_PIPELINE_ABORTED);
static_assert(pq::kErrorsDefault == PQERRORS_DEFAULT);
static_assert(pq::kErrorsVerbose == PQERRORS_VERBOSE);
static_assert(pq::kSeverity == PG_DIAG_SEVERITY_NONLOCALIZED);
static_assert(pq::kSqlState == PG_DIAG_SQLSTATE);
static_assert(pq::kPrimary == PG_DIAG_MESSAGE_PRIMARY);
static_assert(pq::kDetail == PG_DIAG_MESSAGE_DETAIL);

TEST(Libpq, EveryFunctionIsInTheLibrary) {
    const auto loaded = load_libpq();
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_GE((*loaded)->PQlibVersion(), 140000);
}

}  // namespace
}  // namespace hotcount::sql
