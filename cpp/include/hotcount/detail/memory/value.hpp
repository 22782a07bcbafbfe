// The value under a key of an in-process store: one object of any type, with a time to live.
//
// The store does not know the types. Each concept stores a type of its own (a counter an integer,
// gcra its state) and asks for that type. If the key holds another one, the result is nullptr,
// where a server answers WRONGTYPE. Objects of up to 24 bytes are in the entry, larger ones on the
// heap. Not thread-safe: the store's lock guards it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <hotcount/clock.hpp>
#include <new>
#include <optional>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace hotcount::memory {

class Value {
  public:
    /// The integer 0.
    Value() noexcept { emplace<std::int64_t>(); }
    Value(Value&& other) noexcept : type_(other.type_) { take(other); }
    Value& operator=(Value&& other) noexcept {
        if (this == &other) return *this;
        destroy();
        type_ = other.type_;
        take(other);
        return *this;
    }
    Value(const Value&) = delete;
    Value& operator=(const Value&) = delete;
    ~Value() { destroy(); }

    /// Replaces the object by a T{}.
    template <class T>
    T& emplace() {
        if constexpr (kFits<T>) {
            destroy();
            type_ = &kType<T>;
            return *new (room_.data()) T{};
        } else {
            T* const made = new T{};
            void* const box = made;
            destroy();
            type_ = &kType<T>;
            std::memcpy(room_.data(), &box, sizeof(box));
            return *made;
        }
    }
    /// Null when another type is held.
    template <class T>
    T* get_if() {
        if (type_ != &kType<T>) return nullptr;
        if constexpr (kFits<T>) {
            return std::launder(reinterpret_cast<T*>(room_.data()));
        } else {
            return static_cast<T*>(boxed(room_.data()));
        }
    }
    template <class T>
    const T* get_if() const {
        return const_cast<Value*>(this)->get_if<T>();
    }

  private:
    // The functions that destroy an object and move it into other room. Without `destroy` there is
    // nothing to do; without `move` the bytes are copied. The name keeps a linker from merging the
    // Type objects of two types.
    struct Type {
        const std::type_info* name;
        void (*destroy)(std::byte* room);
        void (*move)(std::byte* from, std::byte* to);
    };
    static constexpr std::size_t kRoom = 24;

    template <class T>
    static constexpr bool kFits =
        sizeof(T) <= kRoom &&
        alignof(T) <= alignof(std::int64_t) && std::is_nothrow_move_constructible_v<T>;

    static void* boxed(const std::byte* room) {
        void* box = nullptr;
        std::memcpy(&box, room, sizeof(box));
        return box;
    }
    template <class T>
    static void destroy_as(std::byte* room) {
        if constexpr (kFits<T>) {
            std::launder(reinterpret_cast<T*>(room))->~T();
        } else {
            delete static_cast<T*>(boxed(room));
        }
    }
    template <class T>
    static void move_as(std::byte* from, std::byte* to) {
        T* const source = std::launder(reinterpret_cast<T*>(from));
        new (to) T(std::move(*source));
        source->~T();
    }
    template <class T>
    static constexpr Type make_type() {
        Type type{&typeid(T), nullptr, nullptr};
        if constexpr (!kFits<T> || !std::is_trivially_destructible_v<T>)
            type.destroy = destroy_as<T>;
        if constexpr (kFits<T> && !std::is_trivially_copyable_v<T>) type.move = move_as<T>;
        return type;
    }
    template <class T>
    static constexpr Type kType = make_type<T>();

    void destroy() {
        if (type_ != nullptr && type_->destroy != nullptr) type_->destroy(room_.data());
    }
    // Takes the object of `other`, whose type the caller has copied. `other` has no object then.
    void take(Value& other) noexcept {
        if (type_ != nullptr && type_->move != nullptr) {
            type_->move(other.room_.data(), room_.data());
        } else {
            room_ = other.room_;
        }
        other.type_ = nullptr;
    }

    const Type* type_{nullptr};
    alignas(std::int64_t) std::array<std::byte, kRoom> room_{};
};

/// A value and its expiry.
struct Entry {
    Value value{};
    std::optional<SteadyTime> expires_at{};

    bool expired(SteadyTime now) const { return expires_at && *expires_at <= now; }
    /// As a new Entry{}.
    void renew() {
        value.emplace<std::int64_t>();
        expires_at.reset();
    }

    /// The value as a T: a new T{} when the entry is fresh, null when it holds another type.
    template <class T>
    T* as(bool fresh) {
        if (fresh) return &value.emplace<T>();
        return value.get_if<T>();
    }
    template <class T>
    const T* as() const {
        return value.get_if<T>();
    }
};

}  // namespace hotcount::memory
