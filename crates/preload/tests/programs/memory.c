/* Uses 300,000 mutexes once each, and prints by how many KiB the process has grown. */
#include "check.h"

enum { MUTEXES = 300000 };

static long resident(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%*s %ld", &pages) == 1);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void use(pthread_mutex_t *m)
{
    OK(pthread_mutex_init(m, NULL));
    OK(pthread_mutex_lock(m));
    OK(pthread_mutex_unlock(m));
}

static void *twice(void *m)
{
    use(m);
    return NULL;
}

int main(void)
{
    pthread_mutex_t first;
    join(start(twice, &first)); /* what is there once, is there */
    use(&first);
    long before = resident();
    pthread_mutex_t **all = malloc(MUTEXES * sizeof *all);
    for (int i = 0; i < MUTEXES; i++)
        use(all[i] = malloc(sizeof **all));
    printf("%ld\n", resident() - before);
    return 0;
}
