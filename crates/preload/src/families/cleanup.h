/* Cleanup handlers that run when the thread is cancelled, and also when a signal handler leaves their frame by longjmp.

   glibc's own waits have handlers of this kind. Those of pthread_cleanup_push run only for a cancellation: a jump would leave
   a waiter of a condition variable counted, and its mutex free. The handler runs above the frame that pushed it, whichever two
   instructions of that frame the signal has come between. */
#ifndef CLEANUP_H
#define CLEANUP_H

#include <pthread.h>

/* glibc exports these for programs that were compiled before 2003; its header has only the structure. */
void _pthread_cleanup_push(struct _pthread_cleanup_buffer *, void (*)(void *), void *);
void _pthread_cleanup_pop(struct _pthread_cleanup_buffer *, int execute);

#endif
