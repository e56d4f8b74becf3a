/* A signal handler on a stack of its own, of as many bytes as the argument says, is the first to use a named semaphore. */
#include "check.h"
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>

static sem_t *semaphore;

static void post(int signal)
{
    (void)signal;
    OK(sem_post(semaphore));
}

static size_t size;

static void *be_interrupted(void *argument)
{
    size_t page = sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, page + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    OK(mprotect(memory, page, PROT_NONE));
    stack_t stack = { .ss_sp = memory + page, .ss_size = size };
    OK(sigaltstack(&stack, NULL));
    OK(raise(SIGUSR1));
    return argument;
}

int main(int count, char **arguments)
{
    char name[64];
    CHECK(count == 2);
    size = atol(arguments[1]);
    snprintf(name, sizeof name, "/latchwork-alternate-%d", (int)getpid());
    semaphore = sem_open(name, O_CREAT | O_EXCL, 0600, 0);
    CHECK(semaphore != SEM_FAILED);
    OK(sem_unlink(name));
    struct sigaction action = { .sa_handler = post, .sa_flags = SA_ONSTACK };
    OK(sigaction(SIGUSR1, &action, NULL));
    join(start(be_interrupted, NULL));
    int value;
    OK(sem_getvalue(semaphore, &value));
    EQ(value, 1);
    puts("ok");
    return 0;
}
