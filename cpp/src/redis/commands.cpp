#include "commands.hpp"

#include <algorithm>
#include <array>
#include <hotcount/result.hpp>
#include <string>

namespace hotcount::redis {
namespace {

enum Kind : std::uint8_t { kShared, kReads, kRefused };

constexpr Shape kAny = Shape::any;
constexpr Shape kInteger = Shape::integer;
constexpr Shape kTextOrNil = Shape::text_or_nil;
constexpr Shape kArray = Shape::array;

struct Row {
    std::string_view name;
    Kind kind;
    Shape shape{kAny};
};

// The commands of Redis up to 8.4 and Valkey up to 9 that get exactly one reply with any arguments
// and do not change the connection's state, and the refused commands. Any other command goes alone:
// it may end its own connection (CLIENT KILL, ACL SETUSER), may block the server for a time that
// the caller chooses (DEBUG, MIGRATE, CLIENT PAUSE), or belongs to a module.
struct Group {
    Kind kind;
    Shape shape;
    std::string_view names;  // In capitals; NAME|SUBCOMMAND if it has subcommands.
};
constexpr Group kGroups[] = {
    {kReads, kInteger,
     "BITCOUNT BITPOS DBSIZE EXISTS EXPIRETIME GETBIT HEXISTS HLEN HSTRLEN LLEN PEXPIRETIME "
     "PTTL SCARD SINTERCARD SISMEMBER STRLEN TTL XLEN ZCARD ZCOUNT ZINTERCARD ZLEXCOUNT"},
    {kReads, kTextOrNil, "ECHO GET GETRANGE HGET INFO LINDEX PING SUBSTR TYPE ZSCORE"},
    {kReads, kArray,
     "HGETALL HKEYS HMGET HSCAN HVALS KEYS LRANGE MGET ROLE SCAN SDIFF SINTER SMEMBERS "
     "SMISMEMBER SSCAN SUNION TIME XRANGE XREVRANGE ZDIFF ZINTER ZMSCORE ZRANGE ZRANGEBYLEX "
     "ZRANGEBYSCORE ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE ZSCAN ZUNION"},
    {kReads, kAny,
     "BITFIELD_RO GEODIST GEOHASH GEOPOS GEORADIUSBYMEMBER_RO GEORADIUS_RO GEOSEARCH "
     "HEXPIRETIME HPEXPIRETIME HPTTL HRANDFIELD HTTL LCS LPOS OBJECT|ENCODING OBJECT|FREQ "
     "OBJECT|IDLETIME OBJECT|REFCOUNT SORT_RO SRANDMEMBER XINFO|CONSUMERS XINFO|GROUPS "
     "XINFO|STREAM ZRANDMEMBER ZRANK ZREVRANK"},
    {kShared, kInteger,
     "APPEND BITOP DECR DECRBY DEL EXPIRE EXPIREAT GEOADD HDEL HINCRBY HSET HSETNX INCR INCRBY "
     "LASTSAVE LINSERT LPUSH LPUSHX LREM MOVE MSETNX PERSIST PEXPIRE PEXPIREAT PFADD PFCOUNT "
     "PUBLISH RENAMENX RPUSH RPUSHX SADD SDIFFSTORE SETBIT SETNX SETRANGE SINTERSTORE SMOVE "
     "SPUBLISH SREM SUNIONSTORE TOUCH UNLINK XACK XDEL XTRIM ZDIFFSTORE ZINTERSTORE ZREM "
     "ZREMRANGEBYLEX ZREMRANGEBYRANK ZREMRANGEBYSCORE ZUNIONSTORE"},
    {kShared, kTextOrNil, "GETDEL GETEX GETSET HINCRBYFLOAT INCRBYFLOAT PSETEX SET SETEX ZINCRBY"},
    {kShared, kAny,
     "BGREWRITEAOF BGSAVE BITFIELD COMMAND COPY DELEX DELIFEQ DIGEST DUMP EVAL EVALSHA "
     "EVALSHA_RO EVAL_RO FCALL FCALL_RO FLUSHALL FLUSHDB GEORADIUS GEORADIUSBYMEMBER "
     "GEOSEARCHSTORE HEXPIRE HEXPIREAT HGETDEL HGETEX HMSET HPERSIST HPEXPIRE HPEXPIREAT "
     "HSETEX LMOVE LMPOP LOLWUT LPOP LSET LTRIM MSET MSETEX PFMERGE RANDOMKEY RENAME REPLICAOF "
     "RESTORE RPOP RPOPLPUSH SAVE SLAVEOF SORT SPOP SWAPDB XACKDEL XADD XAUTOCLAIM XCLAIM "
     "XDELEX XPENDING XREAD XREADGROUP XSETID ZADD ZMPOP ZPOPMAX ZPOPMIN ZRANGESTORE"},
    {kShared, kAny,
     "ACL|CAT ACL|DRYRUN ACL|GENPASS ACL|GETUSER ACL|HELP ACL|LIST ACL|LOG ACL|SAVE ACL|USERS "
     "ACL|WHOAMI CLIENT|GETNAME CLIENT|GETREDIR CLIENT|HELP CLIENT|ID CLIENT|INFO CLIENT|LIST "
     "CLIENT|TRACKINGINFO CLIENT|UNBLOCK CLIENT|UNPAUSE CLUSTER|ADDSLOTS CLUSTER|ADDSLOTSRANGE "
     "CLUSTER|BUMPEPOCH CLUSTER|COUNT-FAILURE-REPORTS CLUSTER|COUNTKEYSINSLOT CLUSTER|DELSLOTS "
     "CLUSTER|DELSLOTSRANGE CLUSTER|FLUSHSLOTS CLUSTER|FORGET CLUSTER|GETKEYSINSLOT "
     "CLUSTER|HELP CLUSTER|INFO CLUSTER|KEYSLOT CLUSTER|LINKS CLUSTER|MEET CLUSTER|MYID "
     "CLUSTER|MYSHARDID CLUSTER|NODES CLUSTER|REPLICAS CLUSTER|REPLICATE CLUSTER|SAVECONFIG "
     "CLUSTER|SET-CONFIG-EPOCH CLUSTER|SETSLOT CLUSTER|SHARDS CLUSTER|SLAVES "
     "CLUSTER|SLOT-STATS CLUSTER|SLOTS COMMANDLOG|GET COMMANDLOG|HELP COMMANDLOG|LEN "
     "COMMANDLOG|RESET COMMAND|COUNT COMMAND|DOCS COMMAND|GETKEYS COMMAND|GETKEYSANDFLAGS "
     "COMMAND|HELP COMMAND|INFO COMMAND|LIST CONFIG|GET CONFIG|HELP CONFIG|RESETSTAT "
     "CONFIG|REWRITE CONFIG|SET FUNCTION|DELETE FUNCTION|DUMP FUNCTION|FLUSH FUNCTION|HELP "
     "FUNCTION|KILL FUNCTION|LIST FUNCTION|LOAD FUNCTION|RESTORE FUNCTION|STATS LATENCY|DOCTOR "
     "LATENCY|GRAPH LATENCY|HELP LATENCY|HISTOGRAM LATENCY|HISTORY LATENCY|LATEST "
     "LATENCY|RESET MEMORY|DOCTOR MEMORY|HELP MEMORY|MALLOC-STATS MEMORY|PURGE MEMORY|STATS "
     "MEMORY|USAGE MODULE|HELP MODULE|LIST OBJECT|HELP PUBSUB|CHANNELS PUBSUB|HELP "
     "PUBSUB|NUMPAT PUBSUB|NUMSUB PUBSUB|SHARDCHANNELS PUBSUB|SHARDNUMSUB SCRIPT|EXISTS "
     "SCRIPT|FLUSH SCRIPT|HELP SCRIPT|KILL SCRIPT|LOAD SCRIPT|SHOW SLOWLOG|GET SLOWLOG|HELP "
     "SLOWLOG|LEN SLOWLOG|RESET XGROUP|CREATE XGROUP|CREATECONSUMER XGROUP|DELCONSUMER "
     "XGROUP|DESTROY XGROUP|HELP XGROUP|SETID XINFO|HELP"},
    {kRefused, kAny,
     "ASKING AUTH BLMOVE BLMPOP BLPOP BRPOP BRPOPLPUSH BZMPOP BZPOPMAX BZPOPMIN CLIENT|CACHING "
     "CLIENT|CAPA CLIENT|IMPORT-SOURCE CLIENT|NO-EVICT CLIENT|NO-TOUCH CLIENT|REPLY "
     "CLIENT|SETINFO CLIENT|SETNAME CLIENT|TRACKING DISCARD EXEC HELLO MONITOR MULTI "
     "PSUBSCRIBE PSYNC PUNSUBSCRIBE QUIT READONLY READWRITE REPLCONF RESET SCRIPT|DEBUG SELECT "
     "SHUTDOWN SSUBSCRIBE SUBSCRIBE SUNSUBSCRIBE SYNC UNSUBSCRIBE UNWATCH WAIT WAITAOF WATCH"},
};

constexpr std::size_t kCommands = [] {
    std::size_t count = 0;
    for (const Group& group : kGroups) {
        count += 1 + static_cast<std::size_t>(std::ranges::count(group.names, ' '));
    }
    return count;
}();

constexpr bool by_name(const Row& a, const Row& b) { return a.name < b.name; }

constexpr auto kKnown = [] {
    std::array<Row, kCommands> rows{};
    auto row = rows.begin();
    for (const Group& group : kGroups) {
        std::string_view names = group.names;
        while (!names.empty()) {
            const std::size_t size = std::min(names.find(' '), names.size());
            *row++ = {names.substr(0, size), group.kind, group.shape};
            names.remove_prefix(std::min(size + 1, names.size()));
        }
    }
    std::sort(rows.begin(), rows.end(), by_name);
    return rows;
}();

constexpr std::size_t kLongestName = 40;

char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }

bool is(std::string_view word, std::string_view in_capitals) {
    return std::equal(word.begin(), word.end(), in_capitals.begin(), in_capitals.end(),
                      [](char a, char b) { return upper(a) == b; });
}

const Row* find(std::string_view name) {
    const auto* const row =
        std::lower_bound(std::begin(kKnown), std::end(kKnown), Row{name, kShared}, by_name);
    return row != std::end(kKnown) && row->name == name ? row : nullptr;
}

const Row* find(std::span<const std::string_view> words) {
    std::array<char, 2 * kLongestName + 1> name;
    if (words.empty() || words[0].size() > kLongestName) return nullptr;
    char* end = std::transform(words[0].begin(), words[0].end(), name.begin(), upper);
    const auto so_far = [&] {
        return std::string_view{name.data(), static_cast<std::size_t>(end - name.data())};
    };
    if (const Row* const row = find(so_far())) return row;
    if (words.size() < 2 || words[1].size() > kLongestName) return nullptr;
    *end++ = '|';
    end = std::transform(words[1].begin(), words[1].end(), end, upper);
    return find(so_far());
}

bool blocks(const Row& row, std::span<const std::string_view> words) {
    return (row.name == "XREAD" || row.name == "XREADGROUP") &&
           std::any_of(words.begin(), words.end(),
                       [](std::string_view word) { return is(word, "BLOCK"); });
}

}  // namespace

KnownCommand known_command(std::span<const std::string_view> words) {
    const Row* const row = find(words);
    if (row == nullptr) return {Place::alone, kAny, false};
    const bool refused = row->kind == kRefused || blocks(*row, words);
    return {refused ? Place::refused : Place::shared, row->shape, row->kind == kReads};
}

Result<void> check_command(std::span<const std::string_view> command) {
    if (command.empty()) return make_error(ErrorCode::config, "execute needs a command");
    if (known_command(command).place != Place::refused) return {};
    std::string name{command.front()};
    if (command.size() > 1 && find(command.first(1)) == nullptr) {
        name.append(" ").append(command[1]);
    }
    return make_error(ErrorCode::config, "command " + name +
                                             " is refused: it would change or hold a connection "
                                             "that others share");
}

}  // namespace hotcount::redis
