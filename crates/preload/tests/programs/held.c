/* Notifications by the thread that holds the waiters' mutex: each reaches its waiter, however the mutex is released. */
#include "check.h"
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>

struct place {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int waiting, items, taken;
    volatile int thread; /* the last waiter's */
    pthread_mutex_t *spare; /* in pages of their own */
    pthread_cond_t *spare_cond;
};

static void begin(struct place *p)
{
    memset(p, 0, sizeof *p);
    OK(pthread_mutex_init(&p->mutex, NULL));
    OK(pthread_cond_init(&p->cond, NULL));
}

static void *take(void *argument)
{
    struct place *p = argument;
    OK(pthread_mutex_lock(&p->mutex));
    p->waiting++;
    p->thread = syscall(SYS_gettid);
    while (!p->items)
        OK(pthread_cond_wait(&p->cond, &p->mutex));
    p->items--;
    p->taken++;
    OK(pthread_mutex_unlock(&p->mutex));
    return NULL;
}

/* Returns with the mutex held, when so many threads wait. */
static void lock_when_waiting(struct place *p, int count)
{
    for (;;) {
        OK(pthread_mutex_lock(&p->mutex));
        if (p->waiting == count)
            return;
        OK(pthread_mutex_unlock(&p->mutex));
        sleep_ms(1);
    }
}

static void offer(struct place *p)
{
    p->items++;
    OK(pthread_cond_signal(&p->cond));
}

static void end(struct place *p)
{
    OK(pthread_mutex_destroy(&p->mutex));
    OK(pthread_cond_destroy(&p->cond));
}

/* Whether a thread sleeps on a word in this object. -1: the kernel does not say. */
static int sleeps_in(int thread, const void *object, size_t size)
{
    char path[64], text[200] = "";
    long call = -1;
    unsigned long word = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
    int file = open(path, O_RDONLY);
    if (file < 0)
        return -1;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0)
        return -1;
    return sscanf(text, "%ld %lx", &call, &word) == 2 && call == SYS_futex
        && word - (uintptr_t)object < size;
}

/* Returns when the last waiter sleeps in the condition variable, if the kernel says so. The caller holds the mutex. */
static int sleeping(struct place *p)
{
    int sleeps;
    while (!(sleeps = sleeps_in(p->thread, &p->cond, sizeof p->cond)))
        sleep_ms(1);
    return sleeps;
}

/* With the default mutex, a waiter that the holder notifies sleeps on until the mutex is released, however it was taken. */
static void at_the_unlock(int tries)
{
    const char *lock = getenv("LATCHWORK_MUTEX");
    struct place p;
    begin(&p);
    pthread_t thread = start(take, &p);
    lock_when_waiting(&p, 1);
    int sleeps = sleeping(&p);
    if (tries) {
        OK(pthread_mutex_unlock(&p.mutex));
        while (pthread_mutex_trylock(&p.mutex) != 0)
            sleep_ms(1);
    }
    offer(&p);
    sleep_ms(50); /* otherwise the waiter would be awake by now, or wait for the mutex */
    if (sleeps == 1 && lock && strcmp(lock, "shfl") == 0 && !getenv("LATCHWORK_CHECK"))
        EQ(sleeps_in(p.thread, &p.cond, sizeof p.cond), 1);
    OK(pthread_mutex_unlock(&p.mutex));
    join(thread);
    end(&p);
}

/* The mutex was taken in another way than by pthread_mutex_lock. */
static void however_it_was_taken(void)
{
    for (int way = 0; way < 4; way++) {
        struct place p;
        struct timespec time = in_ms(CLOCK_REALTIME, 100000);
        begin(&p);
        pthread_t thread = start(take, &p);
        lock_when_waiting(&p, 1);
        if (way == 3) {
            time = in_ms(CLOCK_REALTIME, 5); /* this thread's own wait takes the mutex again */
            EQ(pthread_cond_timedwait(&p.cond, &p.mutex, &time), ETIMEDOUT);
        } else {
            OK(pthread_mutex_unlock(&p.mutex));
            if (way == 0) {
                while (pthread_mutex_trylock(&p.mutex) != 0)
                    sleep_ms(1);
            } else if (way == 1) {
                OK(pthread_mutex_timedlock(&p.mutex, &time));
            } else {
                time = in_ms(CLOCK_MONOTONIC, 100000);
                OK(pthread_mutex_clocklock(&p.mutex, CLOCK_MONOTONIC, &time));
            }
        }
        offer(&p);
        OK(pthread_mutex_unlock(&p.mutex));
        join(thread);
        end(&p);
    }
}

/* One section has a notification for each of many waiters, and one for another condition variable. */
static struct place many, few;
static void *take_few(void *unused)
{
    OK(pthread_mutex_lock(&many.mutex)); /* the same mutex */
    few.waiting++;
    while (!few.items)
        OK(pthread_cond_wait(&few.cond, &many.mutex));
    few.items--;
    OK(pthread_mutex_unlock(&many.mutex));
    return unused;
}
static void several_in_a_section(void)
{
    pthread_t threads[8], other;
    begin(&many);
    begin(&few);
    for (int i = 0; i < 8; i++)
        threads[i] = start(take, &many);
    other = start(take_few, NULL);
    for (;;) {
        lock_when_waiting(&many, 8);
        if (few.waiting)
            break;
        OK(pthread_mutex_unlock(&many.mutex));
        sleep_ms(1);
    }
    for (int i = 0; i < 8; i++) {
        offer(&many);
        if (i == 4)
            offer(&few);
    }
    OK(pthread_mutex_unlock(&many.mutex));
    for (int i = 0; i < 8; i++)
        join(threads[i]);
    join(other);
    EQ(many.taken, 8);
    end(&many);
    end(&few);
}

/* Two mutexes with waiters are held at once, and released in either order. */
static void nested(int in_order)
{
    struct place outer, inner;
    begin(&outer);
    begin(&inner);
    pthread_t a = start(take, &outer), b = start(take, &inner);
    lock_when_waiting(&outer, 1);
    lock_when_waiting(&inner, 1);
    offer(&inner);
    offer(&outer);
    if (in_order) {
        OK(pthread_mutex_unlock(&outer.mutex));
        OK(pthread_cond_signal(&inner.cond));
        OK(pthread_mutex_unlock(&inner.mutex));
    } else {
        OK(pthread_mutex_unlock(&inner.mutex));
        OK(pthread_cond_signal(&outer.cond));
        OK(pthread_mutex_unlock(&outer.mutex));
    }
    join(a);
    join(b);
    end(&outer);
    end(&inner);
}

/* A thread that holds another mutex than the waiters' notifies them at once. */
static void with_another_mutex_held(void)
{
    struct place p, other;
    begin(&p);
    begin(&other);
    /* Both name their holders. */
    pthread_t a = start(take, &p), b = start(take, &other);
    lock_when_waiting(&p, 1);
    p.items++;
    OK(pthread_mutex_unlock(&p.mutex));
    lock_when_waiting(&other, 1);
    OK(pthread_cond_signal(&p.cond));
    join(a); /* while the other one is held */
    offer(&other);
    OK(pthread_mutex_unlock(&other.mutex));
    join(b);
    end(&p);
    end(&other);
}

/* A thread that holds the mutex of earlier waiters notifies one that waits with another mutex. */
static struct place first, second;
static void *take_second(void *unused)
{
    OK(pthread_mutex_lock(&second.mutex));
    second.waiting++;
    while (!second.items)
        OK(pthread_cond_wait(&first.cond, &second.mutex)); /* the first one's condition variable */
    OK(pthread_mutex_unlock(&second.mutex));
    return unused;
}
static void with_the_mutex_of_earlier_waiters_held(void)
{
    begin(&first);
    begin(&second);
    pthread_t a = start(take, &first);
    lock_when_waiting(&first, 1);
    offer(&first);
    OK(pthread_mutex_unlock(&first.mutex));
    join(a);
    pthread_t b = start(take_second, NULL);
    lock_when_waiting(&second, 1);
    second.items++;
    OK(pthread_mutex_unlock(&second.mutex));
    OK(pthread_mutex_lock(&first.mutex));
    OK(pthread_cond_signal(&first.cond));
    join(b); /* while the first one's mutex is held */
    OK(pthread_mutex_unlock(&first.mutex));
    end(&first);
    end(&second);
}

/* An unlock of a mutex that no thread holds changes nothing. (Under glibc, the mutex cannot be destroyed after that.) */
static void unlocked_twice(void)
{
    struct place p;
    begin(&p);
    pthread_t a = start(take, &p);
    lock_when_waiting(&p, 1);
    offer(&p);
    OK(pthread_mutex_unlock(&p.mutex));
    join(a);
    OK(pthread_mutex_unlock(&p.mutex));
    OK(pthread_mutex_trylock(&p.mutex));
    EQ(pthread_mutex_trylock(&p.mutex), EBUSY);
    OK(pthread_mutex_unlock(&p.mutex));
    OK(pthread_cond_destroy(&p.cond));
}

/* Another thread releases the mutex: glibc allows that for a normal one. Then the first thread notifies again, while a third
   one holds it. */
static void *unlock_it(void *p)
{
    OK(pthread_mutex_unlock(&((struct place *)p)->mutex));
    return NULL;
}
static volatile int stays, leaves;
static void *hold_it(void *argument)
{
    struct place *p = argument;
    OK(pthread_mutex_lock(&p->mutex));
    p->items++;
    stays = 1;
    while (!leaves)
        sleep_ms(1);
    OK(pthread_mutex_unlock(&p->mutex));
    return NULL;
}
static void released_by_another_thread(void)
{
    struct place p;
    begin(&p);
    pthread_t a = start(take, &p), b = start(take, &p);
    lock_when_waiting(&p, 2);
    offer(&p);
    join(start(unlock_it, &p));
    for (int taken = 0; !taken;) {
        sleep_ms(1);
        taken = __atomic_load_n(&p.taken, __ATOMIC_RELAXED);
    }
    pthread_t holder = start(hold_it, &p);
    while (!stays)
        sleep_ms(1);
    OK(pthread_cond_signal(&p.cond)); /* this thread does not hold the mutex */
    leaves = 1;
    join(holder);
    join(a);
    join(b);
    EQ(p.taken, 2);
    end(&p);
}

/* Another thread has released the mutex, and no thread holds it. The one that has locked it notifies. */
static void released_by_another_thread_and_free(void)
{
    struct place p;
    begin(&p);
    pthread_t a = start(take, &p);
    lock_when_waiting(&p, 1);
    p.items++;
    join(start(unlock_it, &p));
    OK(pthread_cond_signal(&p.cond));
    join(a); /* hangs if the notification waits for an unlock */
    end(&p);
}

/* One waiter is notified, and then all. */
static void one_and_then_all(void)
{
    struct place p;
    pthread_t threads[3];
    begin(&p);
    for (int i = 0; i < 3; i++)
        threads[i] = start(take, &p);
    lock_when_waiting(&p, 3);
    p.items = 3;
    OK(pthread_cond_signal(&p.cond));
    OK(pthread_cond_broadcast(&p.cond));
    OK(pthread_mutex_unlock(&p.mutex));
    for (int i = 0; i < 3; i++)
        join(threads[i]);
    end(&p);
}

/* The condition variable is destroyed, and its memory used again, before the mutex is released. */
static void destroyed_in_the_section(void)
{
    for (int i = 0; i < 20; i++) {
        struct place p;
        begin(&p);
        pthread_t threads[3];
        for (int j = 0; j < 3; j++)
            threads[j] = start(take, &p);
        lock_when_waiting(&p, 3);
        p.items = 3;
        OK(pthread_cond_broadcast(&p.cond));
        OK(pthread_cond_destroy(&p.cond));
        memset(&p.cond, 0x55, sizeof p.cond);
        OK(pthread_mutex_unlock(&p.mutex));
        for (int j = 0; j < 3; j++)
            join(threads[j]);
        OK(pthread_mutex_destroy(&p.mutex));
    }
}

/* A fork in the section. The child has the mutex and no waiters: with ours. glibc's condition variable has the parent's there. */
static void forked_in_the_section(void)
{
    struct place p;
    begin(&p);
    pthread_t thread = start(take, &p);
    lock_when_waiting(&p, 1);
    offer(&p);
    pid_t child = fork();
    if (child == 0) {
        pthread_t own;
        if (!OUR_MUTEX)
            _exit(0);
        OK(pthread_cond_signal(&p.cond));
        p.items = p.waiting = 0;
        OK(pthread_mutex_unlock(&p.mutex));
        own = start(take, &p);
        lock_when_waiting(&p, 1);
        offer(&p);
        OK(pthread_mutex_unlock(&p.mutex));
        join(own);
        _exit(0);
    }
    reap(child);
    OK(pthread_mutex_unlock(&p.mutex));
    join(thread);
    end(&p);
}

/* A waiter is cancelled between the notification and the unlock: another one gets the notification. */
static void unlock(void *m) { pthread_mutex_unlock(m); }
static void *take_or_die(void *argument)
{
    struct place *p = argument;
    OK(pthread_mutex_lock(&p->mutex));
    pthread_cleanup_push(unlock, &p->mutex);
    p->waiting++;
    while (!p->items)
        OK(pthread_cond_wait(&p->cond, &p->mutex));
    p->items--;
    p->taken++;
    pthread_cleanup_pop(1);
    return NULL;
}
static void cancelled_in_the_section(void)
{
    for (int i = 0; i < 50; i++) {
        struct place p;
        begin(&p);
        pthread_t a = start(take_or_die, &p), b = start(take_or_die, &p);
        lock_when_waiting(&p, 2);
        offer(&p);
        OK(pthread_cancel(i % 2 ? a : b));
        if (i % 4 < 2)
            sched_yield();
        OK(pthread_mutex_unlock(&p.mutex));
        join(i % 2 ? a : b);
        OK(pthread_mutex_lock(&p.mutex));
        int taken = p.taken;
        OK(pthread_mutex_unlock(&p.mutex));
        if (taken)
            OK(pthread_cancel(i % 2 ? b : a));
        join(i % 2 ? b : a); /* hangs if the notification died with the first */
        EQ(p.taken, 1);
        end(&p);
    }
}

/* A waiter that is notified is bound to the condition variable no longer, so others may wait with another mutex. Their notifications do not
   end at the first waiter, which sleeps until its mutex is released. */
struct other {
    struct place *place;
    pthread_mutex_t mutex;
    int waiting, go;
};
static void *wait_with_another_mutex(void *argument)
{
    struct other *o = argument;
    OK(pthread_mutex_lock(&o->mutex));
    o->waiting = 1;
    while (!o->go)
        OK(pthread_cond_wait(&o->place->cond, &o->mutex));
    OK(pthread_mutex_unlock(&o->mutex));
    return NULL;
}
static void one_mutex_after_the_other(int held)
{
    struct place p;
    struct other o = { &p, PTHREAD_MUTEX_INITIALIZER, 0, 0 };
    begin(&p);
    pthread_t first = start(take, &p);
    lock_when_waiting(&p, 1);
    sleeping(&p);
    offer(&p);
    pthread_t second = start(wait_with_another_mutex, &o);
    OK(pthread_mutex_lock(&o.mutex));
    while (!o.waiting) {
        OK(pthread_mutex_unlock(&o.mutex));
        sleep_ms(1);
        OK(pthread_mutex_lock(&o.mutex));
    }
    o.go = 1;
    if (held)
        OK(pthread_cond_signal(&p.cond));
    OK(pthread_mutex_unlock(&o.mutex));
    if (!held)
        OK(pthread_cond_signal(&p.cond));
    join(second); /* the first waiter's mutex is still held */
    OK(pthread_mutex_unlock(&p.mutex));
    join(first);
    OK(pthread_mutex_destroy(&o.mutex));
    end(&p);
}

/* Threads that are notified before their deadline are not told that it has passed, though the mutex is released after that. */
static struct timespec deadline;
static void *take_in_time(void *argument)
{
    struct place *p = argument;
    int error = 0;
    OK(pthread_mutex_lock(&p->mutex));
    p->waiting++;
    while (!p->items && error == 0)
        error = pthread_cond_timedwait(&p->cond, &p->mutex, &deadline);
    p->taken += error == 0;
    OK(pthread_mutex_unlock(&p->mutex));
    return NULL;
}
static void notified_before_the_deadline(int count)
{
    pthread_t threads[600];
    pthread_attr_t small;
    OK(pthread_attr_init(&small));
    OK(pthread_attr_setstacksize(&small, 1 << 16));
    for (long ms = 5, late = 1; late; ms *= 4) {
        struct place p;
        begin(&p);
        deadline = in_ms(CLOCK_REALTIME, ms);
        for (int i = 0; i < count; i++)
            OK(pthread_create(&threads[i], &small, take_in_time, &p));
        lock_when_waiting(&p, count);
        p.items = 1;
        OK(pthread_cond_broadcast(&p.cond));
        late = has_passed(CLOCK_REALTIME, deadline);
        while (!has_passed(CLOCK_REALTIME, deadline))
            sleep_ms(1);
        sleep_ms(2); /* so that their sleeps end */
        OK(pthread_mutex_unlock(&p.mutex));
        for (int i = 0; i < count; i++)
            join(threads[i]);
        if (!late)
            EQ(p.taken, count);
        end(&p);
    }
    OK(pthread_attr_destroy(&small));
}

/* The waiter destroys the mutex as soon as it has it, and its memory goes; that of the condition variable went in the section. */
static void *take_and_destroy(void *argument)
{
    struct place *p = argument;
    pthread_mutex_t *m = p->spare;
    OK(pthread_mutex_lock(m));
    p->waiting = 1;
    while (!p->items)
        OK(pthread_cond_wait(p->spare_cond, m));
    OK(pthread_mutex_unlock(m));
    OK(pthread_mutex_destroy(m));
    OK(munmap(m, 4096));
    return NULL;
}
static void *page(void)
{
    void *bytes = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(bytes != MAP_FAILED);
    return bytes;
}
static void unmapped(void)
{
    for (int i = 0; i < 40; i++) {
        struct place p = { .spare = page(), .spare_cond = page() };
        OK(pthread_mutex_init(p.spare, NULL));
        OK(pthread_cond_init(p.spare_cond, NULL));
        pthread_t thread = start(take_and_destroy, &p);
        OK(pthread_mutex_lock(p.spare));
        while (!p.waiting) {
            OK(pthread_mutex_unlock(p.spare));
            sched_yield();
            OK(pthread_mutex_lock(p.spare));
        }
        p.items = 1;
        OK(pthread_cond_signal(p.spare_cond));
        OK(pthread_cond_destroy(p.spare_cond));
        OK(munmap(p.spare_cond, 4096));
        OK(pthread_mutex_unlock(p.spare));
        join(thread);
    }
}

/* A child makes a mutex anew that it holds, as a recursive one. Its notifications leave the depth alone. */
static void made_anew_in_a_child(void)
{
    struct place p;
    begin(&p);
    pthread_t thread = start(take, &p);
    lock_when_waiting(&p, 1);
    pid_t child = fork();
    if (child == 0) {
        pthread_mutexattr_t recursive;
        OK(pthread_mutexattr_init(&recursive));
        OK(pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE));
        OK(pthread_mutex_init(&p.mutex, &recursive));
        OK(pthread_cond_init(&p.cond, NULL));
        p.waiting = 0;
        pthread_t own = start(take, &p);
        lock_when_waiting(&p, 1);
        OK(pthread_mutex_lock(&p.mutex));
        offer(&p);
        OK(pthread_mutex_unlock(&p.mutex));
        EQ(pthread_mutex_destroy(&p.mutex), EBUSY);
        OK(pthread_mutex_unlock(&p.mutex));
        join(own);
        end(&p);
        _exit(0);
    }
    reap(child);
    offer(&p);
    OK(pthread_mutex_unlock(&p.mutex));
    join(thread);
    end(&p);
}

/* The holder ends; another thread releases the mutex. */
static void *offer_and_end(void *argument)
{
    lock_when_waiting(argument, 1);
    offer(argument);
    return NULL;
}
static void the_holder_ends(void)
{
    struct place p;
    begin(&p);
    pthread_t thread = start(take, &p);
    join(start(offer_and_end, &p));
    OK(pthread_mutex_unlock(&p.mutex));
    join(thread);
    end(&p);
}

int main(void)
{
    const char *lock = getenv("LATCHWORK_MUTEX");
    at_the_unlock(0);
    at_the_unlock(1);
    however_it_was_taken();
    several_in_a_section();
    nested(0);
    nested(1);
    with_another_mutex_held();
    with_the_mutex_of_earlier_waiters_held();
    unlocked_twice();
    one_and_then_all();
    destroyed_in_the_section();
    unmapped();
    forked_in_the_section();
    made_anew_in_a_child();
    cancelled_in_the_section();
    one_mutex_after_the_other(0);
    one_mutex_after_the_other(1);
    notified_before_the_deadline(2);
    if (!lock || strcmp(lock, "shfl") == 0)
        notified_before_the_deadline(600);
    /* From here on notifications may wake at once. */
    the_holder_ends();
    released_by_another_thread();
    released_by_another_thread_and_free();
    puts("ok");
    return 0;
}
