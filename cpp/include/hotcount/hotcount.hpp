// Everything public.
#pragma once

#include <hotcount/base/clock.hpp>
#include <hotcount/base/error.hpp>
#include <hotcount/base/op_id.hpp>
#include <hotcount/base/result.hpp>
#include <hotcount/build_info.hpp>
#include <hotcount/counter/counter.hpp>
#include <hotcount/counter/period.hpp>
#include <hotcount/counter/period_counter.hpp>
#include <hotcount/counter/slotted_counter.hpp>
#include <hotcount/limiter/limiter.hpp>
#include <hotcount/memory/store.hpp>
#include <hotcount/redis/client.hpp>
#include <hotcount/sql/database.hpp>
#include <hotcount/votes/votes.hpp>
#include <hotcount/zset/live_sets.hpp>
