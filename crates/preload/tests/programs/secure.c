/* A program that is linked against the library and has raised privileges (set-group-id). The unprivileged caller wrote the
   environment, so the library must ignore it. Prints "insecure" where the file system ignores the bit. */
#include "check.h"
#include <sys/auxv.h>

int main(void)
{
    pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
    OK(pthread_mutex_lock(&m));
    EQ(pthread_mutex_trylock(&m), EBUSY);
    OK(pthread_mutex_unlock(&m));
    puts(getauxval(AT_SECURE) ? "ok" : "insecure");
    return 0;
}
