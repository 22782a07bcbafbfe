// Everything public.
#pragma once

#include <hotcount/build_info.hpp>
#include <hotcount/clock.hpp>
#include <hotcount/concurrency_limit.hpp>
#include <hotcount/counter.hpp>
#include <hotcount/error.hpp>
#include <hotcount/limiter.hpp>
#include <hotcount/live_sets.hpp>
#include <hotcount/memory.hpp>
#include <hotcount/op_id.hpp>
#include <hotcount/period_counter.hpp>
#include <hotcount/redis.hpp>
#include <hotcount/result.hpp>
#include <hotcount/retry_queue.hpp>
#include <hotcount/slotted_counter.hpp>
#include <hotcount/sql.hpp>
#include <hotcount/url.hpp>
#include <hotcount/votes.hpp>
#include <hotcount/write_behind_counter.hpp>
