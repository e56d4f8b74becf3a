/* A program that loads a plugin in several ways, and with -DLIBRARY the plugin. */
#include "check.h"
#include <dlfcn.h>

#ifdef LIBRARY

int work(void);
int work(void)
{
#ifdef LOCKS
    static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
    OK(pthread_mutex_lock(&m));
    OK(pthread_mutex_unlock(&m));
#endif
    return 7;
}

#else

int main(int count, char **arguments)
{
    CHECK(count == 3);
    const char *how = arguments[1], *directory = arguments[2];
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, strcmp(how, "plain") ? "libplugin.so" : "libplain.so");
    for (int i = 0; i < 2; i++) {
        void *handle = NULL;
        if (!strcmp(how, "usual"))
            handle = dlopen(path, RTLD_NOW);
        else if (!strcmp(how, "deep") || !strcmp(how, "plain"))
            handle = dlopen(path, RTLD_NOW | RTLD_DEEPBIND);
        else if (!strcmp(how, "searched")) /* by this program's run path */
            handle = dlopen("libplugin.so", RTLD_NOW | RTLD_DEEPBIND);
        else if (!strcmp(how, "namespace"))
            handle = dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
        if (!handle)
            fprintf(stderr, "%s\n", dlerror());
        CHECK(handle);
        int (*work)(void) = (int (*)(void))dlsym(handle, "work");
        CHECK(work);
        EQ(work(), 7);
    }
    puts("ok");
    return 0;
}

#endif
