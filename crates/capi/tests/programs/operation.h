/* For programs whose instructions are counted, in C and C++. */
#ifndef OPERATION_H
#define OPERATION_H

/* A function that executes something so many times. Nothing is moved from one time to the next. */
#define OPERATION(name, ...)                                       \
    static __attribute__((noinline)) void name(long rounds) {      \
        for (long i = 0; i < rounds; i++) {                        \
            __VA_ARGS__;                                           \
            __asm__ volatile("" ::: "memory");                     \
        }                                                          \
    }

#endif
