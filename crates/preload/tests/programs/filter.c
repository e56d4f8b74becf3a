/* Locks under a filter of system calls that kills the process for membarrier, or refuses the call.
   filter ACTION WHEN: ACTION is kill or refuse, WHEN is before (the program starts) or after. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static void install(unsigned action)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof code / sizeof *code, code };
    OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        puts("no filters");
        exit(0);
    }
}

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static int counter, shared, ready;

static void *work(void *argument)
{
    for (int i = 0; i < 4000; i++) {
        OK(pthread_mutex_lock(&m));
        counter++;
        if (i % 500 == 0)
            sleep_ms(1); /* the others go to sleep */
        OK(pthread_mutex_unlock(&m));
        if (i % 200 == 0) {
            OK(pthread_rwlock_wrlock(&l));
            shared++;
            OK(pthread_rwlock_unlock(&l));
        } else {
            OK(pthread_rwlock_rdlock(&l));
            CHECK(shared >= 0);
            OK(pthread_rwlock_unlock(&l));
        }
    }
    OK(pthread_mutex_lock(&m));
    ready++;
    OK(pthread_cond_signal(&c));
    OK(pthread_mutex_unlock(&m));
    return argument;
}

int main(int count, char **arguments)
{
    unsigned action = SECCOMP_RET_KILL_PROCESS;
    if (count == 3) {
        if (!strcmp(arguments[1], "refuse"))
            action = SECCOMP_RET_ERRNO | EPERM;
        install(action);
        if (!strcmp(arguments[2], "before")) {
            execl("/proc/self/exe", "filter", NULL);
            CHECK(!"reached");
        }
    }
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        threads[i] = start(work, NULL);
    OK(pthread_mutex_lock(&m));
    while (ready < 4)
        OK(pthread_cond_wait(&c, &m));
    OK(pthread_mutex_unlock(&m));
    for (int i = 0; i < 4; i++)
        join(threads[i]);
    EQ(counter, 16000);
    EQ(shared, 80);
    /* What the library did to find out left nothing behind. */
    EQ(waitpid(-1, NULL, WNOHANG | __WALL), -1);
    EQ(errno, ECHILD);
    puts("ok");
    return 0;
}
