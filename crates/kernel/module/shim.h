/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef LATCHWORK_SHIM_H
#define LATCHWORK_SHIM_H

#include <linux/types.h>

bool lw_k_may_sleep(void);
void lw_k_doze(u64 nanos);
int lw_shim_init(void);
void lw_shim_exit(void);
int lw_nodes_init(void);
void lw_nodes_exit(void);

#endif
