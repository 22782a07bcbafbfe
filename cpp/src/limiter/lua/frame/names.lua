-- Stands before each script of a limiter. redis_backend.cpp reads the modes here, and checks the
-- numbers against limiter/algorithm.hpp.
-- kMostSkew and kMostAhead, in microseconds
local SKEW = 100000
local AHEAD = 10000
-- The mode of a call of hit_keys.lua or sliding_log.lua
local LOOK = '0'
local TAKE = '1'
local TAKE_WHAT_FITS = '2'
local BLOCK = '3'
local RESERVE = '4'
local COMMIT = '5'
local REFUND = '6'
-- Beside the mode: how a hit is counted
local CHARGE_DENIED = '1'
local ADMIT_AHEAD = '2'
