/* lw::seqlock<T>. */
#ifndef LATCHWORK_SEQLOCK_HPP
#define LATCHWORK_SEQLOCK_HPP

#include "seqlock.h"

#include <cstring>
#include <type_traits>

namespace lw {

/* A few words that readers copy without a lock. T is trivially copyable. */
template <class T> class seqlock {
    static_assert(std::is_trivially_copyable_v<T>, "readers copy the bytes of T");
    static constexpr size_t words = (sizeof(T) + 7) / 8;

  public:
    /* A static object is made at compile time if its value is (with gcc 9, clang 9 or later). */
    constexpr seqlock() noexcept : seqlock(T()) {}
    constexpr explicit seqlock(const T &value) noexcept : words_(image_of(value)) {}
    seqlock(const seqlock &) = delete;
    seqlock &operator=(const seqlock &) = delete;

    /* A copy, of one moment. */
    T load() const noexcept {
        uint64_t copy[words];
        lw_seqlock_read(&raw_, copy, words_.all, words);
        return from(copy);
    }
    /* A copy unless a writer stores meanwhile: whether there is one. It never waits. */
    bool try_load(T &value) const noexcept {
        uint64_t copy[words];
        if (lw_seqlock_try_read(&raw_, copy, words_.all, words) != 0) {
            return false;
        }
        std::memcpy(static_cast<void *>(&value), copy, sizeof(T));
        return true;
    }
    void store(const T &value) noexcept {
        update([&value](T &now) { now = value; });
    }
    /* Calls `change` with a reference to a copy, and stores that. If `change` throws, nothing has changed. */
    template <class F> void update(F change) LW_NO_ANALYSIS {
        struct Writing {
            lw_seqlock_t &lock;
            explicit Writing(lw_seqlock_t &l) noexcept LW_NO_ANALYSIS : lock(l) { lw_seqlock_write_lock(&lock); }
            ~Writing() LW_NO_ANALYSIS { lw_seqlock_write_unlock(&lock); }
        } writing(raw_);
        uint64_t copy[words] = {};
        for (size_t i = 0; i < words; i++) {
            copy[i] = __atomic_load_n(&words_.all[i], __ATOMIC_RELAXED);
        }
        T value = from(copy);
        change(value);
        std::memcpy(copy, &value, sizeof(T));
        lw_seqlock_store(&raw_, words_.all, copy, words);
    }

  private:
    static T from(const uint64_t *copy) noexcept {
        alignas(T) unsigned char place[sizeof(T)];
        std::memcpy(place, copy, sizeof(T));
        return *static_cast<T *>(static_cast<void *>(place));
    }

    /* A compiler can lay out a T, but not its bytes as words if some are padding. Other code uses the words alone. */
    union image {
        uint64_t all[words];
        T initial;
        constexpr explicit image(const T &value) noexcept : initial(value) {}
        constexpr image() noexcept : all{} {}
    };

    static image copied(const T &value) noexcept {
        image copy;
        std::memcpy(copy.all, &value, sizeof(T));
        return copy;
    }
    static constexpr image image_of(const T &value) noexcept {
#if defined(__clang__) ? __clang_major__ >= 9 : __GNUC__ >= 9
        if (__builtin_is_constant_evaluated()) {
            return image(value);
        }
#endif
        return copied(value);
    }

    mutable lw_seqlock_t raw_ = LW_SEQLOCK_INIT;
    image words_;
};

} // namespace lw

#endif
