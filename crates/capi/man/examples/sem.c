#include <latchwork.h>

static lw_sem_t connections = LW_SEM_INIT(2);

int main(void) {
    lw_sem_wait(&connections);
    lw_sem_wait(&connections);
    int none_left = lw_sem_trywait(&connections) == EBUSY;
    lw_sem_post(&connections);
    return none_left ? 0 : 1;
}
