// What a coordinator and an agent say to each other. link.hpp has the frames.
//
//   coordinator                                     agent
//   hello: version, token                ->
//                                        <-         hello: version
//   settings: trial, part of the plan    ->         opens the target, makes a ledger
//                                        <-         ready
//   ping, 16 times: the clocks           <->        pong
//   start: the instant, on its clock     ->         drives its part
//   ping, five times a second            <->        pong: how the load stands
//   stop, if the load is to end early    ->
//                                        <-         result
//   ping, 16 times: the clocks again     <->        pong
//   fetch                                ->
//                                        <-         records, several times
//
// A ping is a sign of life for both sides: who hears nothing for kSilence takes the other for gone.
// Instead of any answer an agent may say `failed`, and ends.
#pragma once

#include <cstdint>
#include <hotcount/build_info.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "link.hpp"
#include "load/ledger.hpp"

namespace hotcount::loadtest {

inline constexpr int kAgentProtocol = 1;
inline constexpr Duration kSilence = std::chrono::seconds{5};
inline constexpr Duration kPingEvery = std::chrono::milliseconds{200};
/// Records in one frame.
inline constexpr std::size_t kMostRecords = kMostFrame / sizeof(LedgerRecord);

/// What must be the same on both sides: the plan and the records have no other form of their own.
inline std::string own_version() {
    return std::string{kVersion} + ", protocol " + std::to_string(kAgentProtocol) + ", ledger " +
           std::to_string(LedgerHeader::kVersion) + " with " +
           std::to_string(sizeof(LedgerRecord)) + " bytes a record";
}

inline std::int64_t steady_now_ns() {
    return std::chrono::nanoseconds{std::chrono::steady_clock::now().time_since_epoch()}.count();
}

}  // namespace hotcount::loadtest
