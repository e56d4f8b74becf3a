/* Uses 300,000 mutexes once each, and prints by how many KiB the process has grown. */
#include "check.h"
#include <sys/prctl.h>

enum { MUTEXES = 300000 };

/* KiB in memory. The kernel counts the pages for smaps_rollup. The number in statm is old by up to 32 pages for each
 * processor that the process has run on, which is more than the test allows. */
static long resident(void)
{
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    CHECK(file);
    while (kib < 0 && fgets(line, sizeof line, file))
        sscanf(line, "Rss: %ld", &kib);
    fclose(file);
    CHECK(kib >= 0);
    return kib;
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
    OK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)); /* memory grows by small pages, under every lock */
    join(start(twice, &first)); /* what is there once, is there */
    use(&first);
    long before = resident();
    pthread_mutex_t **all = malloc(MUTEXES * sizeof *all);
    for (int i = 0; i < MUTEXES; i++)
        use(all[i] = malloc(sizeof **all));
    printf("%ld\n", resident() - before);
    return 0;
}
