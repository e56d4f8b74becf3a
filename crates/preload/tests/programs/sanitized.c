/* A program without a data race, for sanitizers. With an argument it writes to memory that it has freed. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static pthread_spinlock_t spin;
static sem_t s;
static long counter, shared, spun, given, done;

static void *work(void *argument)
{
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&m);
        counter++;
        pthread_mutex_unlock(&m);
        if (i % 50 == 0) {
            pthread_rwlock_wrlock(&l);
            shared++;
            pthread_rwlock_unlock(&l);
        } else {
            pthread_rwlock_rdlock(&l);
            if (shared < 0)
                abort();
            pthread_rwlock_unlock(&l);
        }
        pthread_spin_lock(&spin);
        spun++;
        pthread_spin_unlock(&spin);
        while (sem_wait(&s) != 0)
            ;
        given++;
        sem_post(&s);
    }
    pthread_mutex_lock(&m);
    done++;
    pthread_cond_signal(&c);
    pthread_mutex_unlock(&m);
    return argument;
}

int main(int count, char **arguments)
{
    (void)arguments;
    pthread_t threads[4];
    pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
    sem_init(&s, 0, 1);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    pthread_mutex_lock(&m);
    while (done < 4)
        pthread_cond_wait(&c, &m);
    pthread_mutex_unlock(&m);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    if (count > 1) {
        volatile char *memory = malloc(8);
        free((void *)memory);
        memory[0] = 1;
    }
    puts(counter == 4000 && shared == 80 && spun == 4000 && given == 4000 ? "ok" : "wrong");
    return 0;
}
