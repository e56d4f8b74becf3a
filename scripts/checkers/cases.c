/* What checkers of locks should report, and what they should not. cases NAME [COUNT] */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER,
                       c = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t r = PTHREAD_RWLOCK_INITIALIZER, s = PTHREAD_RWLOCK_INITIALIZER;

static void in_order(pthread_mutex_t *first, pthread_mutex_t *second)
{
    pthread_mutex_lock(first);
    pthread_mutex_lock(second);
    pthread_mutex_unlock(second);
    pthread_mutex_unlock(first);
}

/* Another thread does it, and ends before the next one begins. */
static void in_thread(void *(*f)(void *))
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, f, NULL))
        exit(1);
    pthread_join(thread, NULL);
}

static void *a_b(void *n) { in_order(&a, &b); return n; }
static void *b_a(void *n) { in_order(&b, &a); return n; }
static void *b_c(void *n) { in_order(&b, &c); return n; }
static void *c_a(void *n) { in_order(&c, &a); return n; }

static void *gated_a_b(void *n)
{
    pthread_mutex_lock(&c);
    in_order(&a, &b);
    pthread_mutex_unlock(&c);
    return n;
}

static void *gated_b_a(void *n)
{
    pthread_mutex_lock(&c);
    in_order(&b, &a);
    pthread_mutex_unlock(&c);
    return n;
}

static void *try_b_a(void *n)
{
    pthread_mutex_lock(&b);
    if (!pthread_mutex_trylock(&a))
        pthread_mutex_unlock(&a);
    pthread_mutex_unlock(&b);
    return n;
}

static void read_both(pthread_rwlock_t *first, pthread_rwlock_t *second)
{
    pthread_rwlock_rdlock(first);
    pthread_rwlock_rdlock(second);
    pthread_rwlock_unlock(second);
    pthread_rwlock_unlock(first);
}

static void *r_s(void *n) { read_both(&r, &s); return n; }
static void *s_r(void *n) { read_both(&s, &r); return n; }

static void *write_r_s(void *n)
{
    pthread_rwlock_wrlock(&r);
    pthread_rwlock_wrlock(&s);
    pthread_rwlock_unlock(&s);
    pthread_rwlock_unlock(&r);
    return n;
}

static void *lock_a(void *n) { pthread_mutex_lock(&a); return n; }
static void *unlock_a(void *n) { pthread_mutex_unlock(&a); return n; }

static struct timespec now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return time;
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "";
    if (!strcmp(name, "inversion")) {
        in_thread(a_b);
        in_thread(b_a);
    } else if (!strcmp(name, "chain")) {
        in_thread(a_b);
        in_thread(b_c);
        in_thread(c_a);
    } else if (!strcmp(name, "rwlocks")) {
        in_thread(write_r_s);
        in_thread(s_r);
    } else if (!strcmp(name, "stranger")) {
        pthread_mutex_lock(&a);
        in_thread(unlock_a);
    } else if (!strcmp(name, "ended")) {
        in_thread(lock_a);
    } else if (!strcmp(name, "wait")) {
        pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
        struct timespec soon = now();
        pthread_cond_timedwait(&cond, &a, &soon);
    } else if (!strcmp(name, "free")) {
        pthread_mutex_unlock(&a);
    } else if (!strcmp(name, "destroyed")) {
        pthread_mutex_lock(&a);
        pthread_mutex_destroy(&a);
    } else if (!strcmp(name, "self")) {
        struct timespec soon = now();
        pthread_mutex_lock(&a);
        pthread_mutex_timedlock(&a, &soon); /* as a lock that would never return */
        pthread_mutex_unlock(&a);
    } else if (!strcmp(name, "gate")) {
        in_thread(gated_a_b);
        in_thread(gated_b_a);
    } else if (!strcmp(name, "attempt")) {
        in_thread(a_b);
        in_thread(try_b_a);
    } else if (!strcmp(name, "readers")) {
        in_thread(r_s);
        in_thread(s_r);
    } else if (!strcmp(name, "reuse")) {
        /* Two locks, one after the other, in the same memory. */
        pthread_mutex_t m;
        for (int i = 0; i < 2; i++) {
            pthread_mutex_init(&m, NULL);
            in_order(i ? &a : &m, i ? &m : &a);
            pthread_mutex_destroy(&m);
        }
    } else if (!strcmp(name, "cost")) {
        long times = count > 2 ? atol(arguments[2]) : 100000;
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (long i = 0; i < times; i++)
            in_order(&a, &b);
        clock_gettime(CLOCK_MONOTONIC, &end);
        double ns = (end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec);
        printf("%.0f\n", ns / (2.0 * times));
    } else {
        return 2;
    }
    return 0;
}
