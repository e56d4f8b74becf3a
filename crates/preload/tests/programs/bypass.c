/* glibc's own functions on objects that this library serves. A library that was loaded with RTLD_DEEPBIND calls them. They
   must not get a mutex that is held, disturb the threads that wait for it, or take units of a semaphore. */
#include "check.h"
#include <dlfcn.h>
#include <semaphore.h>

static int (*glibc_lock)(pthread_mutex_t *), (*glibc_trylock)(pthread_mutex_t *),
    (*glibc_unlock)(pthread_mutex_t *);

static pthread_mutex_t contended = PTHREAD_MUTEX_INITIALIZER;
static int counter;

static void *work(void *through_glibc)
{
    for (int i = 0; i < 20000; i++)
        if (through_glibc) {
            int error = glibc_lock(&contended);
            CHECK(error == 0 || error == EINVAL);
            if (error == 0) {
                counter++;
                OK(glibc_unlock(&contended));
            }
        } else {
            OK(pthread_mutex_lock(&contended));
            counter++;
            OK(pthread_mutex_unlock(&contended));
        }
    return NULL;
}

static void not_taken(pthread_mutex_t *m)
{
    OK(pthread_mutex_lock(m));
    int error = glibc_trylock(m);
    CHECK(error == EBUSY || error == EINVAL);
    OK(pthread_mutex_unlock(m));
    OK(pthread_mutex_trylock(m));
    OK(pthread_mutex_unlock(m));
}

static void semaphore(void *libc)
{
    int (*trywait)(sem_t *) = (int (*)(sem_t *))dlsym(libc, "sem_trywait");
    int (*post)(sem_t *) = (int (*)(sem_t *))dlsym(libc, "sem_post");
    sem_t s;
    int value;
    OK(sem_init(&s, 0, 1));
    OK(sem_getvalue(&s, &value));
    EQ(value, 1);
    EQ(trywait(&s), OUR_MUTEX ? -1 : 0);
    OK(post(&s));
    OK(sem_getvalue(&s, &value));
    EQ(value, 1);
    OK(sem_trywait(&s));
    EQ(sem_trywait(&s), -1);
    OK(sem_destroy(&s));
}

int main(void)
{
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    pthread_mutex_t made, fixed = PTHREAD_MUTEX_INITIALIZER;
    CHECK(libc);
    glibc_lock = (int (*)(pthread_mutex_t *))dlsym(libc, "pthread_mutex_lock");
    glibc_trylock = (int (*)(pthread_mutex_t *))dlsym(libc, "pthread_mutex_trylock");
    glibc_unlock = (int (*)(pthread_mutex_t *))dlsym(libc, "pthread_mutex_unlock");
    CHECK(glibc_lock && glibc_trylock && glibc_unlock);
    CHECK(!OUR_MUTEX || glibc_lock != pthread_mutex_lock);

    semaphore(libc);
    not_taken(&fixed);
    OK(pthread_mutex_init(&made, NULL));
    not_taken(&made);
    OK(pthread_mutex_destroy(&made));

    OK(pthread_mutex_lock(&contended)); /* used here first: from then on it is this library's */
    OK(pthread_mutex_unlock(&contended));
    pthread_t threads[4];
    for (long i = 0; i < 4; i++)
        threads[i] = start(work, (void *)(i % 2));
    for (int i = 0; i < 4; i++)
        join(threads[i]);
    CHECK(counter == (OUR_MUTEX ? 40000 : 80000));
    puts("ok");
    return 0;
}
