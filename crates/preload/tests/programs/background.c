/* A process that goes into the background and closes its standard error there. Then it says so, and exits when its standard input
   ends. */
#include "check.h"
#include <fcntl.h>

int main(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    char byte;
    OK(pthread_mutex_lock(&mutex));
    OK(pthread_mutex_unlock(&mutex));
    if (fork())
        _exit(0);
    CHECK(setsid() > 0);
    EQ(dup2(open("/dev/null", O_WRONLY), 2), 2);
    OK(pthread_mutex_lock(&mutex));
    OK(pthread_mutex_unlock(&mutex));
    CHECK(write(1, "closed\n", 7) == 7);
    while (read(0, &byte, 1) > 0)
        ;
    return 0;
}
