// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
// An object for each structure of the kernel whose size is of interest: nm -S reads it (scripts/kernel-patched.sh --checks sizes).

#include <linux/blk_types.h>
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/mm_types.h>
#include <linux/mutex.h>
#include <linux/pipe_fs_i.h>
#include <linux/rmap.h>
#include <linux/rwsem.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/shmem_fs.h>
#include <linux/tty.h>

#define SIZE(name) char size_of_##name[sizeof(struct name)]
SIZE(rw_semaphore);
SIZE(mutex);
SIZE(inode);
SIZE(shmem_inode_info);
SIZE(address_space);
SIZE(anon_vma);
SIZE(mm_struct);
SIZE(super_block);
SIZE(block_device);
SIZE(signal_struct);
SIZE(task_struct);
SIZE(file);
SIZE(pipe_inode_info);
SIZE(seq_file);
SIZE(tty_struct);
SIZE(device);
