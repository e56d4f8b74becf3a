/* The bytes of a rwlock in which BRAVO over glibc's lock keeps its own words: glibc's functions leave them alone, with and
   without waiters, in every kind. The program runs without the library. */
#include "check.h"

enum { THREADS = 4, ROUNDS = 3000, WORD = 0x5a5a5a5a };

static pthread_rwlock_t lock;
static long data[2];

/* Where BRAVO's words are: the bias and its memory, the flags, the serial. */
static const int offsets[] = { 16, 20, 36, 52 };
static void mark(void)
{
    for (unsigned i = 0; i < sizeof offsets / sizeof *offsets; i++)
        memcpy((char *)&lock + offsets[i], &(int){ WORD }, sizeof(int));
}
static void expect_marks(void)
{
    for (unsigned i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        int word;
        memcpy(&word, (char *)&lock + offsets[i], sizeof word);
        EQ(word, WORD);
    }
}

static void *use(void *seed)
{
    unsigned r = (unsigned)(long)seed;
    for (int i = 0; i < ROUNDS; i++) {
        r = r * 1103515245 + 12345;
        struct timespec t = in_ms(CLOCK_MONOTONIC, (r >> 24) % 2);
        int error, write = 0;
        switch ((r >> 16) % 8) {
        case 0: error = pthread_rwlock_wrlock(&lock), write = 1; break;
        case 1: error = pthread_rwlock_trywrlock(&lock), write = 1; break;
        case 2: error = pthread_rwlock_clockwrlock(&lock, CLOCK_MONOTONIC, &t), write = 1; break;
        case 3: error = pthread_rwlock_tryrdlock(&lock); break;
        case 4: error = pthread_rwlock_clockrdlock(&lock, CLOCK_MONOTONIC, &t); break;
        default: error = pthread_rwlock_rdlock(&lock); break;
        }
        CHECK(error == 0 || error == EBUSY || error == ETIMEDOUT);
        if (error)
            continue;
        EQ(data[0], data[1]);
        data[0] += write;
        if ((r >> 20) % 8 == 0)
            sched_yield();
        data[1] += write;
        if (i % 256 == 0)
            sleep_ms(1); /* the others sleep behind it */
        OK(pthread_rwlock_unlock(&lock));
    }
    return NULL;
}

int main(void)
{
    static const int kinds[] = { PTHREAD_RWLOCK_PREFER_READER_NP, PTHREAD_RWLOCK_PREFER_WRITER_NP,
                                 PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP };
    for (unsigned kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        pthread_t threads[THREADS];
        pthread_rwlockattr_t attr;
        OK(pthread_rwlockattr_init(&attr));
        OK(pthread_rwlockattr_setkind_np(&attr, kinds[kind]));
        OK(pthread_rwlock_init(&lock, &attr));
        mark();
        for (int i = 0; i < THREADS; i++)
            threads[i] = start(use, (void *)(long)(i + 1));
        for (int i = 0; i < THREADS; i++)
            join(threads[i]);
        expect_marks();
        OK(pthread_rwlock_destroy(&lock));
        expect_marks();
    }
    CHECK(data[0] > 0);
    puts("ok");
    return 0;
}
