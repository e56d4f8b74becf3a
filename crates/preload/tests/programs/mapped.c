/* Private mutexes and rwlocks in memory that a child shares. POSIX leaves this undefined, but programs do it. It works with
   glibc as long as no process waits for the other, and none does here. What one process does with an object must not undo
   what the other process has done. */
#include "check.h"
#include <sys/mman.h>

struct shared {
    pthread_mutex_t mutex, recursive, fresh;
    pthread_rwlock_t rwlock;
    int counter;
};
static struct shared *s;

static void *wait_for_mutex(void *argument)
{
    OK(pthread_mutex_lock(&s->mutex));
    s->counter++;
    OK(pthread_mutex_unlock(&s->mutex));
    return argument;
}

static struct shared *map(void)
{
    struct shared *memory =
        mmap(NULL, sizeof *memory, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

/* One process, then the other. */
static void turn(int pipe_in, int pipe_out)
{
    char byte = 0;
    if (pipe_out >= 0)
        CHECK(write(pipe_out, &byte, 1) == 1);
    if (pipe_in >= 0)
        CHECK(read(pipe_in, &byte, 1) == 1);
}

int main(void)
{
    int there[2], back[2];
    pthread_mutexattr_t recursive;
    s = map();
    OK(pthread_mutex_init(&s->mutex, NULL));
    OK(pthread_mutexattr_init(&recursive));
    OK(pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE));
    OK(pthread_mutex_init(&s->recursive, &recursive));
    OK(pthread_rwlock_init(&s->rwlock, NULL));
    OK(pipe(there));
    OK(pipe(back));

    /* The child looks at what a thread of the parent waits for. */
    OK(pthread_mutex_lock(&s->mutex));
    OK(pthread_mutex_lock(&s->recursive));
    OK(pthread_rwlock_wrlock(&s->rwlock));
    pthread_t waiter = start(wait_for_mutex, NULL);
    sleep_ms(50); /* it sleeps */
    pid_t child = fork();
    if (child == 0) {
        EQ(pthread_mutex_trylock(&s->mutex), EBUSY);
        EQ(pthread_rwlock_tryrdlock(&s->rwlock), EBUSY);
        EQ(pthread_rwlock_trywrlock(&s->rwlock), EBUSY);
        _exit(0);
    }
    reap(child);
    OK(pthread_rwlock_unlock(&s->rwlock));
    OK(pthread_mutex_unlock(&s->recursive));
    OK(pthread_mutex_unlock(&s->mutex));
    join(waiter);
    EQ(s->counter, 1);

    /* Both use them in turn, also one that nobody has used before. */
    child = fork();
    for (int i = 0; i < 100; i++) {
        if (child == 0)
            turn(there[0], -1);
        for (int j = 0; j < 2; j++) {
            OK(pthread_mutex_lock(&s->mutex));
            OK(pthread_mutex_lock(&s->fresh));
            OK(pthread_rwlock_wrlock(&s->rwlock));
            s->counter++;
            EQ(pthread_mutex_trylock(&s->mutex), EBUSY);
            OK(pthread_rwlock_unlock(&s->rwlock));
            OK(pthread_mutex_unlock(&s->fresh));
            OK(pthread_mutex_unlock(&s->mutex));
        }
        if (child == 0)
            turn(-1, back[1]);
        else
            turn(back[0], there[1]);
    }
    if (child == 0)
        _exit(0);
    reap(child);
    EQ(s->counter, 401);

    /* One locks, the other finds it locked. */
    OK(pthread_mutex_lock(&s->mutex));
    child = fork();
    if (child == 0) {
        turn(there[0], -1);
        EQ(pthread_mutex_trylock(&s->mutex), EBUSY);
        turn(there[0], back[1]);
        OK(pthread_mutex_trylock(&s->mutex));
        turn(-1, back[1]);
        _exit(0);
    }
    OK(pthread_mutex_unlock(&s->mutex));
    OK(pthread_mutex_lock(&s->mutex));
    turn(back[0], there[1]);
    OK(pthread_mutex_unlock(&s->mutex));
    turn(back[0], there[1]);
    EQ(pthread_mutex_trylock(&s->mutex), EBUSY); /* the child's */
    reap(child);

    /* The child makes a mutex, and a thread of the child waits for it while the parent looks at it. In the second round the
       memory is newer than the parent's first look at such a mutex. */
    for (int i = 0; i < 2; i++) {
        s = map();
        child = fork();
        if (child == 0) {
            alarm(240);
            OK(pthread_mutex_init(&s->mutex, NULL));
            OK(pthread_mutex_lock(&s->mutex));
            waiter = start(wait_for_mutex, NULL);
            sleep_ms(50); /* it sleeps */
            turn(there[0], back[1]);
            OK(pthread_mutex_unlock(&s->mutex));
            join(waiter);
            _exit(0);
        }
        turn(back[0], -1);
        EQ(pthread_mutex_trylock(&s->mutex), EBUSY);
        turn(-1, there[1]);
        reap(child);
    }
    /* The same in a child and its child. The memory is newer than the first look of the child. */
    child = fork();
    if (child == 0) {
        alarm(240);
        OK(pthread_mutex_lock(&s->mutex)); /* that look */
        OK(pthread_mutex_unlock(&s->mutex));
        s = map();
        OK(pthread_mutex_lock(&s->mutex));
        waiter = start(wait_for_mutex, NULL);
        sleep_ms(50); /* it sleeps */
        pid_t grandchild = fork();
        if (grandchild == 0) {
            EQ(pthread_mutex_trylock(&s->mutex), EBUSY);
            _exit(0);
        }
        reap(grandchild);
        OK(pthread_mutex_unlock(&s->mutex));
        join(waiter);
        _exit(0);
    }
    reap(child);
    puts("ok");
    return 0;
}
