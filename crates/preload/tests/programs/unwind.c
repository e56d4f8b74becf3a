/* Single-steps through lock calls and takes a backtrace at each instruction on the page of copied fast paths: it must
   reach main. With an argument: there must be no such page. */
#include "check.h"
#include <execinfo.h>
#include <signal.h>
#include <stdint.h>
#include <ucontext.h>

enum { TRAP_FLAG = 0x100 };

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;
static uintptr_t page;
static volatile sig_atomic_t stepping, on_the_page, cut;
static void *base[64], *trace[64];
static int base_depth;

static void step(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    uintptr_t rip = registers[REG_RIP];
    if (stepping)
        registers[REG_EFL] |= TRAP_FLAG;
    else
        registers[REG_EFL] &= ~TRAP_FLAG;
    if (!page || rip - page >= 4096)
        return;
    on_the_page++;
    /* Nothing on the page pushes anything. */
    void *back = *(void **)registers[REG_RSP];
    int depth = backtrace(trace, 64), at = 0;
    while (at < depth && trace[at] != back)
        at++;
    if (depth - at != base_depth || memcmp(&trace[at + 1], &base[1], (base_depth - 1) * sizeof *base))
        cut++;
}

__attribute__((noinline)) static void work(void)
{
    base_depth = backtrace(base, 64);
    stepping = 1;
    raise(SIGTRAP);
    for (int i = 0; i < 3; i++) {
        pthread_mutex_lock(&m);
        pthread_mutex_unlock(&m);
        pthread_rwlock_rdlock(&l);
        pthread_rwlock_unlock(&l);
    }
    stepping = 0;
    raise(SIGTRAP);
}

static void *nothing(void *argument) { return argument; }

int main(int count, char **arguments)
{
    (void)arguments;
    char line[512];
    unsigned long region = (unsigned long)main & ~0xfffffffffUL, first, last;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    /* The name of the mapping is a newer kernel's: an executable page that is no file's, near the program. */
    while (fgets(line, sizeof line, maps))
        if (strstr(line, "r-xp") && !strchr(line, '/') && sscanf(line, "%lx-%lx", &first, &last) == 2
            && (first & ~0xfffffffffUL) == region)
            page = first;
    fclose(maps);
    CHECK(count > 1 ? !page : page != 0);

    join(start(nothing, NULL)); /* with a second thread the paths are others */
    for (int i = 0; i < 1000; i++) { /* the rwlock gets its bias */
        OK(pthread_rwlock_rdlock(&l));
        OK(pthread_rwlock_unlock(&l));
    }
    struct sigaction action = { .sa_sigaction = step, .sa_flags = SA_SIGINFO };
    OK(sigaction(SIGTRAP, &action, NULL));
    work();
    CHECK(count > 1 ? on_the_page == 0 : on_the_page > 100);
    EQ(cut, 0);
    puts("ok");
    return 0;
}
