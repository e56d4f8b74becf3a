/* With LIBRARY: a library whose `open` counts calls under a mutex, as tracers of input and output do. Else a program whose child
   makes its first lock call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef LIBRARY
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
static long calls;

#define COUNTS(name)                                            \
    int name(const char *path, int flags, ...)                  \
    {                                                           \
        static int (*next)(const char *, int, ...);             \
        va_list more;                                           \
        va_start(more, flags);                                  \
        int mode = va_arg(more, int);                           \
        va_end(more);                                           \
        pthread_mutex_lock(&counting);                          \
        if (!next)                                              \
            next = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name); \
        calls++;                                                \
        pthread_mutex_unlock(&counting);                        \
        return next(path, flags, mode);                         \
    }
COUNTS(open)
COUNTS(open64)
#else
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

int main(void)
{
    close(open("/dev/null", O_RDONLY));
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        pthread_mutex_lock(&mutex);
        pthread_mutex_unlock(&mutex);
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    puts(status == 0 ? "ok" : "the child is stuck");
    return status != 0;
}
#endif
