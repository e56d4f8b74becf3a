#include <latchwork.h>
#include <pthread.h>

static lw_mutex_t lock;
static lw_cond_t changed;
static int ready;

static void *announce(void *unused) {
    lw_mutex_lock(&lock);
    ready = 1;
    lw_cond_signal(&changed);
    lw_mutex_unlock(&lock);
    return unused;
}

int main(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, announce, NULL) != 0) {
        return 1;
    }
    lw_mutex_lock(&lock);
    while (!ready) {
        lw_cond_wait(&changed, &lock);
    }
    lw_mutex_unlock(&lock);
    return pthread_join(thread, NULL);
}
