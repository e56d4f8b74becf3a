/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the locks in Rust call (src/shim.rs), and what the files of the module call of one another. */
#ifndef LATCHWORK_SHIM_H
#define LATCHWORK_SHIM_H

#include <linux/types.h>

/* shim.c */
void lw_k_relax(void);
bool lw_k_may_sleep(void);
void lw_k_yield(void);
void lw_k_doze(u64 nanos);
u64 lw_k_now(void);
u32 lw_k_signals(void);
size_t lw_k_thread(void);
u32 lw_k_cpu(void);
u32 lw_k_cpus(void);
u32 lw_k_node(void);
u32 lw_k_nodes(void);
u32 lw_k_hops(u32 from, u32 to);
u32 lw_k_hints(u32 nanos);
void lw_k_nothing_to_release(void);
u32 lw_k_broken(void);
void lw_k_die(u32 line);
int lw_shim_init(void);
void lw_shim_exit(void);

/* sleep.c */
bool lw_k_wait(const u32 *word, u32 expected, u64 until, u32 signals);
size_t lw_k_wake(const u32 *word, u32 count);
bool lw_k_lose(const u32 *word);

/* nodes.c */
void *lw_k_take_node(void);
void lw_k_return_node(void *node);
int lw_nodes_init(void);
void lw_nodes_exit(void);

/* numbered.c */
void *lw_k_numbered(u32 number);
void *lw_k_take_numbered(u32 *number);
void lw_k_return_numbered(void);

/* semaphore.c */
struct rw_semaphore;
void lw_k_rwsem_init(struct rw_semaphore *sem);
void lw_k_down_read(struct rw_semaphore *sem);
bool lw_k_down_read_trylock(struct rw_semaphore *sem);
bool lw_k_down_read_signals(struct rw_semaphore *sem, u32 signals);
void lw_k_up_read(struct rw_semaphore *sem);
void lw_k_down_write(struct rw_semaphore *sem);
bool lw_k_down_write_trylock(struct rw_semaphore *sem);
bool lw_k_down_write_killable(struct rw_semaphore *sem);
void lw_k_up_write(struct rw_semaphore *sem);
void lw_k_downgrade_write(struct rw_semaphore *sem);
bool lw_k_rwsem_is_locked(struct rw_semaphore *sem);

#endif
