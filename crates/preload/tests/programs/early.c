/* Locks before main, in a shared library's constructor, and after main. Compiled twice: with LIBRARY into a library that
   the program loads at its start. That library may be initialised before ours. */
#include "check.h"

#ifdef LIBRARY

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static int count;

int library_use(void)
{
    OK(pthread_mutex_lock(&mutex));
    count++;
    OK(pthread_mutex_unlock(&mutex));
    OK(pthread_rwlock_rdlock(&rwlock));
    OK(pthread_rwlock_unlock(&rwlock));
    return count;
}

static void *from_thread(void *argument)
{
    library_use();
    return argument;
}

__attribute__((constructor)) static void before(void)
{
    OK(pthread_mutex_lock(&mutex)); /* stays locked over a thread's wait for it */
    pthread_t thread = start(from_thread, NULL);
    sleep_ms(5);
    OK(pthread_mutex_unlock(&mutex));
    join(thread);
}
__attribute__((destructor)) static void after(void) { library_use(); }

#else

int library_use(void);
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void before(void) { OK(pthread_mutex_lock(&held)); }

#ifdef FIRST
/* Before the C library is initialised, and before it knows the environment. */
static void first(void)
{
    static pthread_mutex_t early = PTHREAD_MUTEX_INITIALIZER;
    pthread_key_t key;
    OK(pthread_mutex_lock(&early));
    OK(pthread_mutex_unlock(&early));
    OK(pthread_key_create(&key, NULL));
}
__attribute__((section(".preinit_array"), used)) static void (*const first_of_all)(void) = first;
#endif
static void at_exit(void)
{
    OK(pthread_mutex_lock(&mutex));
    OK(pthread_mutex_unlock(&mutex));
    EQ(library_use(), 3);
}
__attribute__((destructor)) static void after(void)
{
    OK(pthread_mutex_lock(&held));
    OK(pthread_mutex_unlock(&held));
}

static void *leave(void *argument)
{
    exit(0);
    return argument;
}

int main(void)
{
    EQ(library_use(), 2);
    EQ(pthread_mutex_trylock(&held), EBUSY); /* locked in the constructor */
    OK(pthread_mutex_unlock(&held));
    OK(atexit(at_exit));
    printf("ok\n");
    join(start(leave, NULL)); /* exit from a thread */
    return 1;
}

#endif
