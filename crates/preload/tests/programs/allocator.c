/* An allocator with two mutexes, which it takes in both orders. The thread that makes the mistake holds one when `check` reports it,
   and the report must not allocate here.
   With -DLIBRARY: the allocator, which is preloaded after the library. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifdef LIBRARY
static pthread_mutex_t arena = PTHREAD_MUTEX_INITIALIZER, sizes = PTHREAD_MUTEX_INITIALIZER;
static _Alignas(16) char memory[64 << 20];
static size_t used;

void *memalign(size_t alignment, size_t size)
{
    char *block = NULL;
    pthread_mutex_lock(&arena);
    pthread_mutex_lock(&sizes);
    used = (used + sizeof size + alignment + 15) & -(alignment > 16 ? alignment : 16);
    if (used + size <= sizeof memory) {
        block = memory + used;
        memcpy(block - sizeof size, &size, sizeof size);
        used += size;
    }
    pthread_mutex_unlock(&sizes);
    pthread_mutex_unlock(&arena);
    return block;
}
void *malloc(size_t size) { return memalign(16, size); }
void *calloc(size_t count, size_t size) { return memalign(16, count * size); } /* never used before: zero */
void free(void *block) { (void)block; }
void *realloc(void *block, size_t size)
{
    void *other = memalign(16, size);
    size_t before = 0;
    if (block != NULL && other != NULL) {
        memcpy(&before, (char *)block - sizeof before, sizeof before);
        memcpy(other, block, before < size ? before : size);
    }
    return other;
}

void trim(void)
{
    pthread_mutex_lock(&sizes);
    pthread_mutex_lock(&arena); /* the other order */
    pthread_mutex_unlock(&arena);
    pthread_mutex_unlock(&sizes);
}
#else
void *volatile block;
void trim(void) __attribute__((weak));
void *malloc(size_t);

int main(void)
{
    alarm(240);
    block = malloc(100);
    trim();
    puts("ok");
    return 0;
}
#endif
