/* Looks where its calls go. With -DNEAR they must go to copies of the fast paths near the program, otherwise to the library.
   With -DIBT the copies must begin with the instruction that indirect-branch tracking demands.
   With -DINTERPOSER this is a library that counts the calls of one function and passes them on; with -DPROTECTS too, it
   lets no memory be made read-only again. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef PROTECTS
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int mprotect(void *address, size_t length, int protection)
{
    if (protection == PROT_READ) {
        errno = ENOMEM;
        return -1;
    }
    return syscall(SYS_mprotect, address, length, protection);
}
#elif defined INTERPOSER
int calls;

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static int (*next)(pthread_mutex_t *);
    if (!next)
        next = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    return next(mutex);
}
#else
int main(void);

/* Whether an address is where calls from here are cheap. */
static int near(uintptr_t address)
{
    return (address ^ (uintptr_t)main) >> 36 == 0;
}

static void entry(unsigned char *address, int count[2])
{
    static const unsigned char endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
    int is_near = near((uintptr_t)address);
#ifdef IBT
    int tracked = 1;
#else
    int tracked = 0;
#endif
    if (is_near && !memcmp(address, endbr64, sizeof endbr64) != tracked) {
        fprintf(stderr, "a near entry begins with%s endbr64\n", tracked ? "out" : "");
        exit(1);
    }
    count[is_near ? 0 : 1]++;
}

/* The address in each slot of the program's for this name: how many are near, how many not. */
static void slots(const char *name, int count[2])
{
    struct link_map *map = _r_debug.r_map;
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    const ElfW(Rela) *tables[2] = {NULL, NULL};
    size_t sizes[2] = {0, 0};
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        uintptr_t value = entry->d_un.d_val;
        uintptr_t address = value < map->l_addr ? value + map->l_addr : value;
        switch (entry->d_tag) {
        case DT_SYMTAB: symbols = (const void *)address; break;
        case DT_STRTAB: strings = (const void *)address; break;
        case DT_RELA: tables[0] = (const void *)address; break;
        case DT_RELASZ: sizes[0] = value; break;
        case DT_JMPREL: tables[1] = (const void *)address; break;
        case DT_PLTRELSZ: sizes[1] = value; break;
        }
    }
    for (int table = 0; table < 2; table++)
        for (size_t i = 0; i < sizes[table] / sizeof(ElfW(Rela)); i++) {
            const ElfW(Rela) *rela = &tables[table][i];
            int type = ELF64_R_TYPE(rela->r_info);
            if ((type == R_X86_64_GLOB_DAT || type == R_X86_64_JUMP_SLOT)
                && !strcmp(strings + symbols[ELF64_R_SYM(rela->r_info)].st_name, name))
                entry(*(unsigned char **)(map->l_addr + rela->r_offset), count);
        }
}

static void check(const char *name, int wanted)
{
    int count[2] = {0, 0};
    slots(name, count);
    if (count[!wanted] == 0 || count[wanted] != 0) {
        fprintf(stderr, "%s: %d calls go near, %d far; wanted is %s\n", name, count[0], count[1],
                wanted ? "near" : "far");
        exit(1);
    }
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static long counter, shared;

static void *work(void *unused)
{
    for (int i = 0; i < 20000; i++) {
        pthread_mutex_lock(&mutex);
        counter++;
        pthread_mutex_unlock(&mutex);
        if (i % 1000 == 0) {
            pthread_rwlock_wrlock(&rwlock);
            shared++;
            pthread_rwlock_unlock(&rwlock);
        } else {
            pthread_rwlock_rdlock(&rwlock);
            if (shared < 0)
                abort();
            pthread_rwlock_unlock(&rwlock);
        }
    }
    return unused;
}

int main(void)
{
#ifdef NEAR
    int wanted = 1;
#else
    int wanted = 0;
#endif
    int *calls = dlsym(RTLD_DEFAULT, "calls");
    pthread_t threads[4];
    work(NULL);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    if (counter != 100000 || shared != 100) {
        fprintf(stderr, "%ld and %ld, not 100000 and 100\n", counter, shared);
        return 1;
    }
    if (calls) {
        if (*calls < 100000) {
            fprintf(stderr, "%d calls passed the interposer\n", *calls);
            return 1;
        }
    } else {
        check("pthread_mutex_lock", wanted);
    }
    check("pthread_mutex_unlock", wanted);
    check("pthread_rwlock_rdlock", wanted);
    check("pthread_rwlock_unlock", wanted);
    puts("ok");
    return 0;
}
#endif
