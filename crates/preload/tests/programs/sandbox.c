/* Lock calls while a filter of system calls kills the process.
   sandbox none: for each system call. The thread has made such lock calls before, as deep in its stack.
   sandbox some: for those that a filter of services refuses, as systemd's `@debug` has them. The stack is a coroutine's. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t r = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t s;

static void install(struct sock_filter *code, size_t length)
{
    struct sock_fprog program = { length, code };
    OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        puts("no filters");
        exit(0);
    }
}

#define NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define IF(call, result) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, result)
#define ELSE(result) BPF_STMT(BPF_RET | BPF_K, result)
#define INSTALL(...)                                                                        \
    do {                                                                                    \
        struct sock_filter code[] = { NUMBER, __VA_ARGS__ };                                \
        install(code, sizeof code / sizeof *code);                                          \
    } while (0)

__attribute__((noinline)) static void locks(void)
{
    OK(pthread_mutex_lock(&a));
    OK(pthread_mutex_trylock(&b));
    OK(pthread_rwlock_rdlock(&r));
    OK(pthread_rwlock_unlock(&r));
    OK(pthread_spin_lock(&s));
    OK(pthread_spin_unlock(&s));
    OK(pthread_mutex_unlock(&b));
    OK(pthread_mutex_unlock(&a));
}

/* Frames of some pages together. */
__attribute__((noinline)) static void deep(int depth, int times)
{
    volatile char frame[1024];
    frame[0] = 0;
    if (depth)
        deep(depth - 1, times);
    else
        for (int i = 0; i < times; i++)
            locks();
    frame[1] = 0;
}

static void *none(void *argument)
{
    for (int depth = 16; depth < 24; depth++)
        deep(depth, 10);
    INSTALL(IF(SYS_write, SECCOMP_RET_ALLOW), IF(SYS_exit_group, SECCOMP_RET_ALLOW), ELSE(SECCOMP_RET_KILL_PROCESS));
    for (int depth = 16; depth < 24; depth++)
        deep(depth, 100);
    CHECK(write(1, "ok\n", 3) == 3);
    _exit(0);
    return argument;
}

__attribute__((noinline)) static void a_then_b(int depth)
{
    volatile char frame[4096];
    frame[0] = 0;
    if (depth) {
        a_then_b(depth - 1);
    } else {
        OK(pthread_mutex_lock(&a));
        OK(pthread_mutex_lock(&b));
        OK(pthread_mutex_unlock(&b));
        OK(pthread_mutex_unlock(&a));
    }
    frame[1] = 0;
}

__attribute__((noinline)) static void b_then_a(int depth)
{
    volatile char frame[4096];
    frame[0] = 0;
    if (depth) {
        b_then_a(depth - 1);
    } else {
        OK(pthread_mutex_lock(&b));
        OK(pthread_mutex_lock(&a));
        OK(pthread_mutex_unlock(&a));
        OK(pthread_mutex_unlock(&b));
    }
    frame[1] = 0;
}

static ucontext_t back, coroutine;

static void outermost(void)
{
    a_then_b(4);
    b_then_a(4);
    __asm__ volatile(""); /* not a tail call */
}

static void some(void)
{
    INSTALL(IF(SYS_process_vm_readv, SECCOMP_RET_KILL_PROCESS), IF(SYS_ptrace, SECCOMP_RET_KILL_PROCESS),
            ELSE(SECCOMP_RET_ALLOW));
    size_t size = 256 << 10;
    void *stack = malloc(size);
    OK(getcontext(&coroutine));
    coroutine.uc_stack.ss_sp = stack;
    coroutine.uc_stack.ss_size = size;
    coroutine.uc_link = &back;
    makecontext(&coroutine, outermost, 0);
    OK(swapcontext(&back, &coroutine));
    free(stack);
    puts("ok");
}

int main(int count, char **arguments)
{
    OK(pthread_spin_init(&s, PTHREAD_PROCESS_PRIVATE));
    CHECK(count == 2);
    if (!strcmp(arguments[1], "none"))
        join(start(none, NULL));
    else if (!strcmp(arguments[1], "some"))
        some();
    else
        none(NULL); /* on the thread that the process began with */
    return 0;
}
