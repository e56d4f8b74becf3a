// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
// An object for each structure of the kernel whose size is of interest: nm -S reads it (scripts/kernel-patched.sh --sizes).

#include <linux/fs.h>
#include <linux/mm_types.h>
#include <linux/mutex.h>
#include <linux/rmap.h>
#include <linux/rwsem.h>
#include <linux/sched/signal.h>

#define SIZE(name) char size_of_##name[sizeof(struct name)]
SIZE(rw_semaphore);
SIZE(mutex);
SIZE(inode);
SIZE(mm_struct);
SIZE(super_block);
SIZE(anon_vma);
SIZE(address_space);
SIZE(signal_struct);
SIZE(file);
