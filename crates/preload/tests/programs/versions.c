/* Binds to the versions that programs linked before glibc 2.34 (and long before) have, and asks the
   dynamic linker for exact versions. Every one must lead into the preloaded library. */
#include "check.h"
#include <dlfcn.h>

#define OLD(name, version) __asm__(".symver old_" #name ", " #name "@" version)

OLD(pthread_mutex_trylock, "GLIBC_2.2.5");
OLD(pthread_rwlock_rdlock, "GLIBC_2.2.5");
OLD(pthread_rwlock_unlock, "GLIBC_2.2.5");
OLD(pthread_spin_lock, "GLIBC_2.2.5");
OLD(pthread_cond_signal, "GLIBC_2.2.5");
OLD(pthread_cond_clockwait, "GLIBC_2.30");
OLD(__pthread_mutex_lock, "GLIBC_2.2.5");
OLD(mtx_lock, "GLIBC_2.28");
OLD(pthread_create, "GLIBC_2.2.5");
OLD(pthread_join, "GLIBC_2.2.5");

extern int old_pthread_mutex_trylock(), old_pthread_rwlock_rdlock(), old_pthread_rwlock_unlock(),
    old_pthread_spin_lock(), old_pthread_cond_signal(), old_pthread_cond_clockwait(),
    old___pthread_mutex_lock(), old_mtx_lock(), old_pthread_create(), old_pthread_join();

static void is_ours(const char *name, void *function)
{
    Dl_info info;
    if (!function || !dladdr(function, &info) || !strstr(info.dli_fname, "liblatchwork_preload.so")) {
        fprintf(stderr, "%s is not ours\n", name);
        _exit(1);
    }
}
#define OURS(name) is_ours(#name, (void *)(name))

static const struct {
    const char *name, *version;
} exact[] = {
    { "pthread_mutex_lock", "GLIBC_2.2.5" },     { "pthread_mutex_trylock", "GLIBC_2.34" },
    { "pthread_mutex_trylock", "GLIBC_2.2.5" },  { "pthread_mutex_clocklock", "GLIBC_2.30" },
    { "pthread_cond_wait", "GLIBC_2.3.2" },      { "pthread_cond_wait", "GLIBC_2.2.5" },
    { "pthread_cond_clockwait", "GLIBC_2.34" },  { "pthread_rwlock_wrlock", "GLIBC_2.34" },
    { "pthread_spin_trylock", "GLIBC_2.34" },    { "cnd_wait", "GLIBC_2.28" },
    { "sem_wait", "GLIBC_2.34" },                { "sem_wait", "GLIBC_2.2.5" },
    { "sem_post", "GLIBC_2.2.5" },               { "sem_clockwait", "GLIBC_2.30" },
    { "__pthread_mutex_unlock", "GLIBC_2.2.5" }, { "__pthread_rwlock_unlock", "GLIBC_2.2.5" },
    { "pthread_create", "GLIBC_2.34" },          { "pthread_join", "GLIBC_2.34" },
    { "pthread_tryjoin_np", "GLIBC_2.3.3" },     { "pthread_timedjoin_np", "GLIBC_2.3.3" },
    { "pthread_clockjoin_np", "GLIBC_2.31" },    { "thrd_create", "GLIBC_2.28" },
    { "thrd_join", "GLIBC_2.28" },               { "pthread_barrier_init", "GLIBC_2.2.5" },
    { "pthread_barrier_wait", "GLIBC_2.2.5" },   { "pthread_barrier_wait", "GLIBC_2.34" },
};

int main(void)
{
    pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
    OURS(old_pthread_mutex_trylock);
    OURS(old_pthread_rwlock_rdlock);
    OURS(old_pthread_rwlock_unlock);
    OURS(old_pthread_spin_lock);
    OURS(old_pthread_cond_signal);
    OURS(old_pthread_cond_clockwait);
    OURS(old___pthread_mutex_lock);
    OURS(old_mtx_lock);
    OURS(old_pthread_create);
    OURS(old_pthread_join);
    OURS(pthread_mutex_trylock); /* and the current ones */
    OURS(pthread_cond_clockwait);
    OURS(pthread_rwlock_rdlock);
    for (unsigned i = 0; i < sizeof exact / sizeof *exact; i++)
        is_ours(exact[i].name, dlvsym(RTLD_DEFAULT, exact[i].name, exact[i].version));
    OK(old___pthread_mutex_lock(&m));
    EQ(old_pthread_mutex_trylock(&m), EBUSY);
    OK(pthread_mutex_unlock(&m));
    printf("ok\n");
    return 0;
}
