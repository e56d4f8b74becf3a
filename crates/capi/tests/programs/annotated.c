/* Clang's analysis of locks over the headers' annotations. -DMISTAKE=n has one mistake, which clang must find. */
#include <latchwork.h>

static lw_mutex_t mutex;
static lw_rwlock_t rwlock;
static int counter LW_GUARDED_BY(&mutex);
static int table LW_GUARDED_BY(&rwlock);

int main(void) {
    lw_mutex_lock(&mutex);
    counter++;
    lw_mutex_unlock(&mutex);
    if (lw_mutex_trylock(&mutex) == 0) {
        counter++;
        lw_mutex_unlock(&mutex);
    }
    lw_rwlock_rdlock(&rwlock);
    int seen = table;
    lw_rwlock_rdunlock(&rwlock);
    lw_rwlock_wrlock(&rwlock);
    table = seen + 1;
    lw_rwlock_wrunlock(&rwlock);
#if defined(MISTAKE) && MISTAKE == 1
    counter++;
#elif defined(MISTAKE) && MISTAKE == 2
    lw_mutex_lock(&mutex);
#elif defined(MISTAKE) && MISTAKE == 3
    lw_rwlock_rdlock(&rwlock);
    table++;
    lw_rwlock_rdunlock(&rwlock);
#elif defined(MISTAKE) && MISTAKE == 4
    lw_mutex_unlock(&mutex);
#endif
    return 0;
}
