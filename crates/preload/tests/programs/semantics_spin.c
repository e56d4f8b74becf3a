/* Spin locks: cases that are compared with glibc. */
#include "cases.h"
#include <sys/mman.h>

struct shared {
    pthread_spinlock_t spin;
    long counter;
};

enum { ROUNDS = 20000 };

static void count(struct shared *s)
{
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 3 || pthread_spin_trylock(&s->spin) != 0)
            OK(pthread_spin_lock(&s->spin));
        s->counter++;
        OK(pthread_spin_unlock(&s->spin));
        if (i % 16 == 0)
            sched_yield();
    }
}

static struct shared *map(int file)
{
    struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(s != MAP_FAILED);
    return s;
}

/* What a process-shared spin lock contains is glibc's affair: another process may be served by glibc alone. */
static void shared_word(void)
{
    pthread_spinlock_t spin;
    SAY(pthread_spin_init(&spin, PTHREAD_PROCESS_SHARED));
    say("unlocked: %d", spin);
    SAY(pthread_spin_lock(&spin));
    say("locked: %d", spin);
    SAY(pthread_spin_trylock(&spin));
    SAY(pthread_spin_unlock(&spin));
    say("unlocked: %d", spin);
    SAY(pthread_spin_trylock(&spin));
    say("locked: %d", spin);
    SAY(pthread_spin_unlock(&spin));
    SAY(pthread_spin_destroy(&spin));
}

static void private_spin(void)
{
    static pthread_spinlock_t spin = -1;
    SAY(pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE));
    SAY(pthread_spin_lock(&spin));
    SAY(pthread_spin_trylock(&spin));
    IN_A_THREAD(SAY(pthread_spin_trylock(&spin)));
    SAY(pthread_spin_unlock(&spin));
    SAY(pthread_spin_trylock(&spin));
    SAY(pthread_spin_unlock(&spin));
    SAY(pthread_spin_init(&spin, PTHREAD_PROCESS_SHARED)); /* the same memory, another kind */
    SAY(pthread_spin_trylock(&spin));
    SAY(pthread_spin_trylock(&spin));
    SAY(pthread_spin_unlock(&spin));
    SAY(pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE));
    SAY(pthread_spin_trylock(&spin));
    SAY(pthread_spin_trylock(&spin));
    SAY(pthread_spin_unlock(&spin));
    SAY(pthread_spin_destroy(&spin));
}

/* With a process that has not preloaded anything, and one that has. */
static void with_a_process(int preloaded)
{
    int file = memfd_create("spin", 0);
    char number[16];
    CHECK(file >= 0 && ftruncate(file, sizeof(struct shared)) == 0);
    struct shared *s = map(file);
    SAY(pthread_spin_init(&s->spin, PTHREAD_PROCESS_SHARED));
    pid_t child = fork();
    if (child == 0) {
        snprintf(number, sizeof number, "%d", file);
        setenv("SPIN_FILE", number, 1);
        if (!preloaded)
            unsetenv("LD_PRELOAD");
        execl("/proc/self/exe", "partner", (char *)NULL);
        _exit(127);
    }
    count(s);
    reap(child);
    say("counted to %ld", s->counter);
}
static void with_another_process(void)
{
    with_a_process(0);
}
static void with_a_process_like_this(void)
{
    with_a_process(1);
}

static const struct test tests[] = {
    { "word of a shared spin lock", shared_word },
    { "private spin lock", private_spin },
    { "shared with a process that is not preloaded", with_another_process },
    { "shared with a process like this", with_a_process_like_this },
};

int main(int arguments, char **argument)
{
    if (getenv("SPIN_FILE")) {
        alarm(WATCHDOG_SECONDS);
        count(map(atoi(getenv("SPIN_FILE"))));
        return 0;
    }
    return RUN_CASES(tests, arguments, argument);
}
