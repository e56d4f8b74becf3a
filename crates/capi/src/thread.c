/* The calling thread's words, and what they and the headers must have in common with Rust. */
#include "latchwork.h"

#include <stdio.h>
#include <stdlib.h>

/* The row of a thread that has none yet, or none any more. Its first slot is full, with what is no lock. So the inline paths take
 * the slow one, and need not ask whether there is a row. */
static const struct lw_row no_row = {.slots = {LW_NO_ROW_}};

__thread struct lw_thread lw_thread __attribute__((tls_model("initial-exec"), visibility("default"))) = {
    .row = (struct lw_row *)&no_row,
};

__attribute__((visibility("hidden"))) const struct lw_row *lw_no_row(void) {
    return &no_row;
}

__thread struct lw_thread_debug lw_thread_debug __attribute__((tls_model("initial-exec"), visibility("default")));

/* For Rust, where stable compilers cannot address the variables. */
__attribute__((visibility("hidden"))) struct lw_thread_debug *lw_thread_debug_address(void) {
    return &lw_thread_debug;
}

/* `lw_thread` of this copy of the library, by a name that no other shared object's stands for. */
extern __thread struct lw_thread lw_own_thread
    __attribute__((alias("lw_thread"), tls_model("initial-exec"), visibility("hidden")));

/* Two shared objects that are linked with the archive use the functions and variables of the first one. With
 * -Bsymbolic-functions, the second one would use its own functions over the variables of the first one: then neither would know of the
 * other's readers, nor of its own. So there this ends the process. */
__attribute__((visibility("hidden"))) struct lw_thread *lw_thread_address(void) {
    if (LW_UNLIKELY(&lw_own_thread != &lw_thread)) {
        fputs("latchwork: the process has two copies of the library, and would use the functions of one over the variables of the other. "
              "Link shared objects with liblatchwork.so, and have a program export the names of its liblatchwork.a\n",
              stderr);
        abort();
    }
    return &lw_thread;
}

/* ThreadSanitizer, if the program has it. */
extern void __tsan_acquire(void *address) __attribute__((weak));
extern void __tsan_release(void *address) __attribute__((weak));
extern void __tsan_ignore_thread_begin(void) __attribute__((weak));
extern void __tsan_ignore_thread_end(void) __attribute__((weak));

/* Helgrind, if its header was there when the library was built. Without valgrind a request is five instructions
 * that do nothing. */
#ifdef __has_include
#if __has_include(<valgrind/helgrind.h>)
#include <valgrind/helgrind.h>
#endif
#endif
#ifndef ANNOTATE_HAPPENS_BEFORE
#define ANNOTATE_HAPPENS_BEFORE(address) ((void)(address))
#define ANNOTATE_HAPPENS_AFTER(address) ((void)(address))
#endif

__attribute__((visibility("hidden"))) void lw_tsan_acquire(void *address) {
    if (__tsan_acquire) {
        __tsan_acquire(address);
    }
    ANNOTATE_HAPPENS_AFTER(address);
}

__attribute__((visibility("hidden"))) void lw_tsan_release(void *address) {
    if (__tsan_release) {
        __tsan_release(address);
    }
    ANNOTATE_HAPPENS_BEFORE(address);
}

__attribute__((visibility("hidden"))) void lw_tsan_ignore(_Bool ignore) {
    if (__tsan_ignore_thread_begin && __tsan_ignore_thread_end) {
        ignore ? __tsan_ignore_thread_begin() : __tsan_ignore_thread_end();
    }
}

/* The preload library, if the program runs under `latchwork profile` or `latchwork check`. */
extern int latchwork_observe_acquire(void *lock, int how, int (*attempt)(void *), int (*block)(void *), void *context)
    __attribute__((weak));
extern int latchwork_observe_release(void *lock, int how, int (*below)(void *), void *context) __attribute__((weak));
extern void latchwork_observe_gone(void *lock) __attribute__((weak));
extern void latchwork_observe_name(void *lock, const char *name) __attribute__((weak));

__attribute__((visibility("hidden"))) int lw_observe_acquire(void *lock, int how, int (*attempt)(void *),
                                                             int (*block)(void *), void *context) {
    return latchwork_observe_acquire ? latchwork_observe_acquire(lock, how, attempt, block, context) : block(context);
}

__attribute__((visibility("hidden"))) int lw_observe_release(void *lock, int how, int (*below)(void *), void *context) {
    return latchwork_observe_release ? latchwork_observe_release(lock, how, below, context) : below(context);
}

__attribute__((visibility("hidden"))) void lw_observe_gone(void *lock) {
    if (latchwork_observe_gone) {
        latchwork_observe_gone(lock);
    }
}

__attribute__((visibility("hidden"))) void lw_observe_name(void *lock, const char *name) {
    if (latchwork_observe_name) {
        latchwork_observe_name(lock, name);
    }
}

__attribute__((visibility("hidden"))) _Bool lw_has_tsan(void) {
    return __tsan_acquire != 0;
}
