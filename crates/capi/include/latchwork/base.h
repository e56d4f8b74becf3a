/* What the other headers share: attributes, the calling thread's words, annotations for ThreadSanitizer, names. */
#ifndef LATCHWORK_BASE_H
#define LATCHWORK_BASE_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#if !defined(__linux__) || !defined(__LP64__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "latchwork is for 64-bit Linux, on x86-64 and aarch64"
#endif

#if defined(__cplusplus) ? __cplusplus < 201103L : (!defined(__STDC_VERSION__) || __STDC_VERSION__ < 199901L)
#error "latchwork needs C99, C++11 or a later standard: -std=c99"
#endif
#if !defined(__GLIBC__)
#error "latchwork needs glibc"
#elif !__GLIBC_PREREQ(2, 32)
#error "latchwork needs glibc 2.32, for __libc_single_threaded"
#endif
/* Its variable is not 0 as long as the process has never had a second thread. */
#include <sys/single_threaded.h>

#define LW_VERSION "0.1.0"
#define LW_VERSION_MAJOR 0
#define LW_VERSION_MINOR 1

/* Strict C99 does not have it. */
struct timespec;

/* CLOCK_REALTIME and CLOCK_MONOTONIC, which strict C does not define. A clock is an int. */
#define LW_CLOCK_REALTIME 0
#define LW_CLOCK_MONOTONIC 1

#ifdef __cplusplus
#define LW_BEGIN_C extern "C" {
#define LW_END_C }
#define LW_STATIC_ASSERT(condition, text) static_assert(condition, text)
#define LW_NOEXCEPT noexcept
#define LW_ALIGNOF(type) alignof(type)
#define LW_NULL_ nullptr
#define LW_CAST_(type, value) reinterpret_cast<type>(value)
/* Not static: an inline function of C++ is the same in each translation unit, and so must be what it calls. A module, too, exports
 * no function that calls a static one. Hidden: each shared object has its own copies, as with static functions. */
#define LW_INLINE inline __attribute__((__always_inline__, __visibility__("hidden")))
#else
#define LW_BEGIN_C
#define LW_END_C
/* Extensions of the compiler in C99. */
#define LW_STATIC_ASSERT(condition, text) __extension__ _Static_assert(condition, text)
#define LW_NOEXCEPT
#define LW_ALIGNOF(type) __alignof__(type)
#define LW_NULL_ NULL
#define LW_CAST_(type, value) ((type)(value))
#define LW_INLINE static inline __attribute__((__always_inline__, __unused__))
#endif

#define LW_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define LW_UNLIKELY(condition) __builtin_expect(!!(condition), 0)
/* A slow path: the compiler lays the call out apart, and assumes nothing else. */
#define LW_COLD __attribute__((__cold__))

/* Clang's thread-safety analysis (-Wthread-safety). */
#if defined(__clang__) && !defined(LW_NO_THREAD_SAFETY_ATTRIBUTES)
#define LW_ATTRIBUTE(attribute) __attribute__((attribute))
#else
#define LW_ATTRIBUTE(attribute)
#endif
#define LW_CAPABILITY(name) LW_ATTRIBUTE(capability(name))
#define LW_GUARDED_BY(lock) LW_ATTRIBUTE(guarded_by(lock))
#define LW_PT_GUARDED_BY(lock) LW_ATTRIBUTE(pt_guarded_by(lock))
#define LW_REQUIRES(...) LW_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define LW_REQUIRES_SHARED(...) LW_ATTRIBUTE(requires_shared_capability(__VA_ARGS__))
#define LW_EXCLUDES(...) LW_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define LW_ACQUIRE(...) LW_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define LW_ACQUIRE_SHARED(...) LW_ATTRIBUTE(acquire_shared_capability(__VA_ARGS__))
#define LW_TRY_ACQUIRE(...) LW_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define LW_TRY_ACQUIRE_SHARED(...) LW_ATTRIBUTE(try_acquire_shared_capability(__VA_ARGS__))
#define LW_RELEASE(...) LW_ATTRIBUTE(release_capability(__VA_ARGS__))
#define LW_RELEASE_SHARED(...) LW_ATTRIBUTE(release_shared_capability(__VA_ARGS__))
#define LW_NO_ANALYSIS LW_ATTRIBUTE(no_thread_safety_analysis)

/* ThreadSanitizer does not see what the library does, so the inline parts tell it which release happens before which
 * acquisition. LW_TSAN is 1 in a program that is compiled with -fsanitize=thread. */
#if !defined(LW_TSAN)
#if defined(__SANITIZE_THREAD__)
#define LW_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LW_TSAN 1
#endif
#endif
#endif
#if !defined(LW_TSAN)
#define LW_TSAN 0
#endif
/* Defined to 1, LW_VALGRIND tells helgrind the same. Give valgrind --suppressions=PREFIX/share/latchwork/latchwork.supp, too. */
#if !defined(LW_VALGRIND)
#define LW_VALGRIND 0
#endif
#if LW_VALGRIND
#include <valgrind/helgrind.h>
#endif
#if LW_TSAN
LW_BEGIN_C
void __tsan_acquire(void *address);
void __tsan_release(void *address);
LW_END_C
#define LW_TSAN_ACQUIRE(address) __tsan_acquire(LW_CAST_(void *, LW_CAST_(uintptr_t, address)))
#define LW_TSAN_RELEASE(address) __tsan_release(LW_CAST_(void *, LW_CAST_(uintptr_t, address)))
#elif LW_VALGRIND
#define LW_TSAN_ACQUIRE(address) ANNOTATE_HAPPENS_AFTER(address)
#define LW_TSAN_RELEASE(address) ANNOTATE_HAPPENS_BEFORE(address)
#else
#define LW_TSAN_ACQUIRE(address) ((void)(address))
#define LW_TSAN_RELEASE(address) ((void)(address))
#endif

/* gcc and clang load a word that is read atomically into a register before they compare it. On x86-64 the two functions below
 * compare it in memory, which is one instruction less. A sanitizer sees the access only if the compiler makes it. */
#if defined(__SANITIZE_ADDRESS__) || LW_TSAN
#define LW_SANITIZED_ 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(hwaddress_sanitizer) || __has_feature(memory_sanitizer)
#define LW_SANITIZED_ 1
#endif
#endif
#if defined(__x86_64__) && defined(__GCC_ASM_FLAG_OUTPUTS__) && !defined(LW_SANITIZED_)
/* Each load of x86-64 is an acquire load, and a sequentially consistent one if the stores are exchanges. The fence keeps the
 * compiler to the order. */
#define LW_COMPARE_(size, pointer)                                                                                          \
    int equal;                                                                                                              \
    __asm__ volatile("cmp{" size " %2, %1| " pointer " ptr %1, %2}" : "=@cce"(equal) : "m"(*word), "re"(value));           \
    if (order != __ATOMIC_RELAXED) {                                                                                        \
        __atomic_signal_fence(__ATOMIC_SEQ_CST);                                                                            \
    }                                                                                                                       \
    return equal
#else
#define LW_COMPARE_(size, pointer) return __atomic_load_n(word, order) == value
#endif

/* Whether the word has this value: a load with the order `order`. */
LW_INLINE int lw_is_(const uint32_t *word, uint32_t value, int order) { LW_COMPARE_("l", "dword"); }
LW_INLINE int lw_is_long_(const uint64_t *word, uint64_t value, int order) { LW_COMPARE_("q", "qword"); }
LW_INLINE int lw_is_pointer_(void *const *word, void *value, int order) { LW_COMPARE_("q", "qword"); }

LW_BEGIN_C

/* The beginning of a thread's record for reclamation. Its owner alone writes to it. */
struct lw_record {
    uint64_t section; /* RCU: the time stamp of the section, and in the low bits how many are nested */
    uint64_t online;  /* quiescent-state-based RCU */
    uint64_t pinned;  /* epochs */
};

/* The time that sections are stamped with. */
struct lw_clocks {
    uint64_t grace; /* RCU */
    uint64_t apart[15];
    uint64_t epoch; /* epochs */
};

/* A thread's row of slots: which reader-writer locks it reads. */
struct lw_row {
    uint64_t slots[8];
    uint64_t reserved;
    uint64_t unbiased; /* the lock that the thread last found without bias to readers */
};

/* The first slot of a row that stands for none. The row is never written. */
#define LW_NO_ROW_ 1

/* What the inline parts use of the calling thread. The library sets the pointers when the thread needs them first; when the
 * thread exits, they are again what they were. */
struct lw_thread {
    struct lw_record *record;       /* null at first */
    const struct lw_clocks *clocks; /* null at first */
    struct lw_row *row;             /* at first one that stands for none */
    void *own[5]; /* the library's */
};

LW_STATIC_ASSERT(offsetof(struct lw_clocks, epoch) == 128, "the clocks have another layout");
LW_STATIC_ASSERT(offsetof(struct lw_row, unbiased) == 72, "the row has another layout");
LW_STATIC_ASSERT(sizeof(struct lw_thread) == 64, "the thread's words have another layout");

/* For debuggers: what the calling thread waits for, and, in programs that are compiled with LW_DEBUG, what it holds. */
struct lw_thread_debug {
    const void *waits_for; /* null, or the lock, condition variable or semaphore */
    uint32_t waits_how;    /* as `how` below */
    uint32_t holds;        /* how many entries of `held` are in use; more locks are not noted */
    struct {
        const void *lock;
        uint64_t how; /* 1: for reading */
    } held[14];
};
LW_STATIC_ASSERT(sizeof(struct lw_thread_debug) == 240, "the words for debuggers have another layout");
extern __thread struct lw_thread_debug lw_thread_debug __attribute__((__tls_model__("initial-exec")));

/* In liblatchwork.so this is one variable for all shared objects of the process. */
extern __thread struct lw_thread lw_thread __attribute__((__tls_model__("initial-exec")));

/* Prepares the asymmetric fences of the process (membarrier). A lock does that by itself at its first contention; while
 * the process has one thread it is free, and may take milliseconds later. So a program may call this early in main. */
void lw_init(void) LW_NOEXCEPT;

/* The version of the library: "0.1.0". */
const char *lw_version(void) LW_NOEXCEPT;

/* Gives a lock, or any other object of this library or of pthread, a name. `latchwork check` and `latchwork profile` show it
 * for every lock that they see, and gdb's commands show it. The name is copied; a name longer than 39 bytes is cut. Null takes
 * the name away, which is needed before another lock comes to the same address. The locks pay nothing for it. */
void lw_name(const void *object, const char *name) LW_NOEXCEPT;

#if !defined(LW_DEBUG)
#define LW_DEBUG 0
#endif
/* The three functions below stand in place of the inline paths of lw_mutex_t and lw_rwlock_t if LW_DEBUG is defined to 1, in
 * the whole program. They note who holds which lock, for gdb's commands, and tell `latchwork check` and `latchwork profile`,
 * which do not see these locks otherwise. Not noted: upgradable reads, and the locks of locks.h. An upgradable read that
 * becomes a write or a plain read is noted from then on.
 *
 * `how`: 0 mutex, 1 reading, 2 writing, 3 recursive reading; plus 4: an attempt; plus 64: the thread has the lock already. `time`
 * may be null. */
int lw_debug_acquire(void *lock, int how, int clock, const struct timespec *time) LW_NOEXCEPT;
/* The release. `how`: as above; plus 8: fair; plus 64: the thread keeps the lock, in a way that is not noted. */
void lw_debug_release(void *lock, int how) LW_NOEXCEPT;
/* The lock is destroyed. */
void lw_debug_gone(void *lock) LW_NOEXCEPT;
/* Ends the process with a message: this function was called in a thread that is in no section. */
void lw_debug_no_section(const char *function) LW_NOEXCEPT LW_COLD;
/* Ends the process with a message: this condition of lw_rcu_dereference_protected does not hold. */
void lw_debug_unprotected(const char *condition) LW_NOEXCEPT LW_COLD;

LW_END_C

#endif
