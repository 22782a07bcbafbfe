// A hash table from keys to entries, with a walk that meets a few of them at a time: what a shard of
// ExpiringMap holds.
//
//   buckets_[hash]  ->  Node { hash, entry, key }  ->  Node       a chain for each bucket
//   entries_        ->  all nodes, in no order: the walk goes through them from the back
//
// A node is one piece of memory and stays where it is until it is erased. The key's bytes follow the
// node, so that a look-up touches its bucket and one node. The caller hashes the keys. Not
// thread-safe: the lock of the shard guards it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <hotcount/detail/base/hash.hpp>
#include <hotcount/detail/memory/value.hpp>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hotcount::memory {

/// A key, possibly in two parts, and the hash of the whole key.
struct HashedKey {
    std::string_view beginning;
    std::string_view rest;
    std::size_t hash;

    std::size_t size() const { return beginning.size() + rest.size(); }
    std::string text() const { return std::string{beginning}.append(rest); }
};

class EntryTable {
  public:
    struct Node {
        Node* next;
        std::size_t hash;
        std::size_t size;   // Of the key.
        std::size_t place;  // In entries_.
        Entry entry{};

        std::string_view key() const { return {reinterpret_cast<const char*>(this + 1), size}; }
        // Keys are short: a call of memcmp costs more than to compare them here.
        static bool same_bytes(const char* bytes, std::string_view text) {
            using Word = std::uint64_t;
            const std::size_t left = text.size();
            if (left < sizeof(Word)) {
                return detail::load_some(bytes, left) == detail::load_some(text.data(), left);
            }
            const auto differ = [&](std::size_t at) {
                return detail::load<Word>(bytes + at) != detail::load<Word>(text.data() + at);
            };
            for (std::size_t at = 0; at + sizeof(Word) < left; at += sizeof(Word)) {
                if (differ(at)) return false;
            }
            return !differ(left - sizeof(Word));
        }
        bool is(const HashedKey& other) const {
            if (hash != other.hash || size != other.size()) return false;
            const char* const text = reinterpret_cast<const char*>(this + 1);
            return same_bytes(text + other.beginning.size(), other.rest) &&
                   same_bytes(text, other.beginning);
        }
    };

    EntryTable() : buckets_(kFewest, nullptr) {}
    ~EntryTable() {
        for (Node* const node : entries_) destroy(node);
    }
    EntryTable(const EntryTable&) = delete;
    EntryTable& operator=(const EntryTable&) = delete;

    std::size_t size() const { return entries_.size(); }
    /// Null when the key is absent.
    Node* find(const HashedKey& key) const {
        Node* node = buckets_.data()[bucket_of(key.hash)];
        while (node != nullptr && !node->is(key)) node = node->next;
        return node;
    }
    /// Of a key that is absent.
    Node* insert(const HashedKey& key) {
        if (entries_.size() == buckets_.size()) grow();
        entries_.reserve(buckets_.size());
        void* const room = ::operator new(sizeof(Node) + key.size());
        Node*& first = buckets_[bucket_of(key.hash)];
        Node* const node = new (room) Node{first, key.hash, key.size(), entries_.size()};
        char* const text = reinterpret_cast<char*>(node + 1);
        std::copy(key.beginning.begin(), key.beginning.end(), text);
        std::copy(key.rest.begin(), key.rest.end(), text + key.beginning.size());
        first = node;
        entries_.push_back(node);
        return node;
    }
    void erase(Node* node) {
        Node** link = &buckets_[bucket_of(node->hash)];
        while (*link != node) link = &(*link)->next;
        *link = node->next;
        // The last entry takes its place. Either the walk has met that entry, or it still will.
        Node* const last = entries_.back();
        last->place = node->place;
        entries_[node->place] = last;
        entries_.pop_back();
        unmet_ = std::min(unmet_, entries_.size());
        destroy(node);
    }
    /// Calls visit(Node&) for all, and erases those for which it is true.
    template <class Visit>
    void visit_all(Visit&& visit) {
        for (std::size_t i = entries_.size(); i > 0; --i) {
            if (visit(*entries_[i - 1])) erase(entries_[i - 1]);
        }
    }

    /// Visits at most `most` entries and erases those for which visit(Entry&) is true. Returns the
    /// number of visits: fewer than `most` at the end of a round. The next call then begins a new
    /// round. An entry that exists during a whole round is visited in it, some entries twice.
    template <class Visit>
    std::size_t walk(std::size_t most, Visit&& visit) {
        if (unmet_ == 0) unmet_ = entries_.size();
        std::size_t met = 0;
        for (; met < most && unmet_ > 0; ++met) {
            Node* const node = entries_[--unmet_];
            if (visit(node->entry)) erase(node);
        }
        return met;
    }
    /// True when the next walk begins a round.
    bool at_start() const { return unmet_ == 0; }

  private:
    static constexpr std::size_t kFewest = 8;  // A power of two, as all numbers of buckets are.

    static void destroy(Node* node) {
        node->~Node();
        ::operator delete(node);
    }
    std::size_t bucket_of(std::size_t hash) const { return hash & (buckets_.size() - 1); }
    void grow() {
        std::vector<Node*> buckets(2 * buckets_.size(), nullptr);
        std::swap(buckets, buckets_);
        for (Node* const node : entries_) {
            Node*& first = buckets_[bucket_of(node->hash)];
            node->next = first;
            first = node;
        }
    }

    std::vector<Node*> buckets_;
    std::vector<Node*> entries_{};
    std::size_t unmet_{0};  // The walk has not visited the entries before this place yet.
};

}  // namespace hotcount::memory
