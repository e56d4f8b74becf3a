/* Two shared libraries of one process, -DREADER and -DUPDATER, and the program that is linked with both, -DMAIN. With -DPLUGIN, the
 * program is itself the reader, and opens the updater: a file that the environment names. */
#include <latchwork.h>

void begin_to_read(void);
void end_reading(void);
void retire_one(int *reclaimed);
int is_a_grace_period_over(void);
void wait_for_reclamation(void);

#ifdef READER
void begin_to_read(void) { lw_rcu_read_lock(); }
void end_reading(void) { lw_rcu_read_unlock(); }
#endif

#ifdef UPDATER
static uint64_t number;
static void reclaim(void *object) { *(int *)object = 1; }
void retire_one(int *reclaimed) {
    if (lw_rcu_retire(NULL, reclaimed, reclaim) != 0) {
        __builtin_trap();
    }
    number = lw_rcu_start_poll();
}
int is_a_grace_period_over(void) { return lw_rcu_poll(number); }
void wait_for_reclamation(void) { lw_rcu_barrier(NULL); }
#endif

#ifdef PLUGIN
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
static void *of_plugin(const char *name) {
    static void *plugin;
    if (!plugin) {
        plugin = dlopen(getenv("PLUGIN"), RTLD_NOW);
    }
    void *found = plugin ? dlsym(plugin, name) : NULL;
    if (!found) {
        puts(dlerror());
        exit(1);
    }
    return found;
}
void retire_one(int *reclaimed) { ((void (*)(int *))of_plugin("retire_one"))(reclaimed); }
int is_a_grace_period_over(void) { return ((int (*)(void))of_plugin("is_a_grace_period_over"))(); }
void wait_for_reclamation(void) { ((void (*)(void))of_plugin("wait_for_reclamation"))(); }
#endif

#ifdef MAIN
#include <stdio.h>
int main(void) {
    int reclaimed = 0;
    begin_to_read();
    retire_one(&reclaimed);
    for (int i = 0; i < 1000; i++) {
        if (is_a_grace_period_over()) {
            puts("the updater does not see the reader");
            return 1;
        }
    }
    end_reading();
    wait_for_reclamation();
    if (!reclaimed) {
        puts("nothing was reclaimed");
        return 1;
    }
    return 0;
}
#endif
