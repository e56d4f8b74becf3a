/* With LIBRARY: a library whose `open`, `mmap` and the like count calls under a lock, as tracers of files and of memory do: under a
   mutex, or with READS or WRITES under a rwlock that they hold for reading or for writing. The first `getauxval` takes the lock,
   too: latchwork's library calls it before it serves any lock. Else a program that counts its own such calls: latchwork's
   library makes none. */
#include "check.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#ifdef LIBRARY
long calls;

#ifdef READS
static pthread_rwlock_t counting = PTHREAD_RWLOCK_INITIALIZER;
#define TAKE pthread_rwlock_rdlock(&counting)
#define GIVE pthread_rwlock_unlock(&counting)
#elif defined WRITES
static pthread_rwlock_t counting = PTHREAD_RWLOCK_INITIALIZER;
#define TAKE pthread_rwlock_wrlock(&counting)
#define GIVE pthread_rwlock_unlock(&counting)
#else
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
#define TAKE pthread_mutex_lock(&counting)
#define GIVE pthread_mutex_unlock(&counting)
#endif

#define COUNTED(call)                                     \
    do {                                                  \
        TAKE;                                             \
        __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);  \
        long result_ = (call);                            \
        GIVE;                                             \
        return result_;                                   \
    } while (0)

#define OPENS(name)                                                  \
    int name(const char *path, int flags, ...)                       \
    {                                                                \
        va_list more;                                                \
        va_start(more, flags);                                       \
        int mode = va_arg(more, int);                                \
        va_end(more);                                                \
        COUNTED(syscall(SYS_openat, AT_FDCWD, path, flags, mode));   \
    }
OPENS(open)
OPENS(open64)

unsigned long getauxval(unsigned long kind)
{
    unsigned long (*next)(unsigned long) = (unsigned long (*)(unsigned long))dlsym(RTLD_NEXT, "getauxval");
    static int called;
    if (!called++) {
        TAKE;
        GIVE;
    }
    return next(kind);
}

int close(int file) { COUNTED(syscall(SYS_close, file)); }
int munmap(void *at, size_t size) { COUNTED(syscall(SYS_munmap, at, size)); }
int madvise(void *at, size_t size, int advice) { COUNTED(syscall(SYS_madvise, at, size, advice)); }

#define MAPS(name)                                                                  \
    void *name(void *at, size_t size, int access, int flags, int file, off_t start) \
    {                                                                               \
        TAKE;                                                                       \
        __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);                            \
        void *result = (void *)syscall(SYS_mmap, at, size, access, flags, file, start); \
        GIVE;                                                                       \
        return result;                                                              \
    }
MAPS(mmap)
MAPS(mmap64)
#else
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;

static void use_all(void)
{
    OK(pthread_mutex_lock(&mutex));
    OK(pthread_mutex_unlock(&mutex));
    OK(pthread_rwlock_rdlock(&rwlock));
    OK(pthread_rwlock_unlock(&rwlock));
    OK(pthread_rwlock_wrlock(&rwlock));
    OK(pthread_rwlock_unlock(&rwlock));
}

static void *wait_for_all(void *argument)
{
    for (int i = 0; i < 10; i++)
        use_all();
    return argument;
}

int main(void)
{
    long *calls = dlsym(RTLD_DEFAULT, "calls");
    pthread_t threads[8];
    use_all();
    OK(pthread_mutex_lock(&mutex));
    for (int i = 0; i < 8; i++)
        threads[i] = start(wait_for_all, NULL);
    sleep_ms(20);
    OK(pthread_mutex_unlock(&mutex));
    for (int i = 0; i < 8; i++)
        join(threads[i]);
    close(open("/dev/null", O_RDONLY));
    void *page = mmap(NULL, 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    OK(munmap(page, 1));
    EQ(calls ? *calls : 4, 4);
    pid_t child = fork();
    if (child == 0) {
        alarm(240);
        use_all();
        EQ(calls ? *calls : 4, 4);
        _exit(0);
    }
    reap(child);
    puts("ok");
    return 0;
}
#endif
