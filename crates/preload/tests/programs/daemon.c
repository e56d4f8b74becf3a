/* A process that closes its streams, as daemons do. Its argument, a file of its own, gets number 2. */
#include "check.h"
#include <fcntl.h>

int main(int count, char **arguments)
{
    static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
    CHECK(count == 2);
    for (int i = 0; i < 3; i++)
        close(i);
    EQ(open("/dev/null", O_RDONLY), 0);
    EQ(open("/dev/null", O_WRONLY), 1);
    EQ(open(arguments[1], O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
    EQ(write(2, "data\n", 5), 5);
    for (int i = 0; i < 2; i++) {
        /* the second time in the other order */
        OK(pthread_mutex_lock(i ? &b : &a));
        OK(pthread_mutex_lock(i ? &a : &b));
        OK(pthread_mutex_unlock(&a));
        OK(pthread_mutex_unlock(&b));
    }
    return 0;
}
