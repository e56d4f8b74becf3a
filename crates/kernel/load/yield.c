// SPDX-License-Identifier: MIT OR Apache-2.0
// A plugin of QEMU: an emulated processor that executes `pause` yields the host's processor to the other emulated ones, at every 32nd
// time. (A lock that backs off pauses hundreds of times before it looks again.)
//
//	qemu-system-x86_64 -plugin libyield.so ...
//
// Without it, a processor that spins runs until its time slice on the host ends, and the processor that it waits for may not run
// meanwhile. With hardware virtualization the host takes the processor away in the same way (pause-loop exiting).

#include <sched.h>

#include "plugin.h"

#define PAUSES 32

static void on_pause(unsigned int cpu, void *unused)
{
	static _Thread_local unsigned int pauses; // a thread of the host for each processor

	if (++pauses % PAUSES == 0)
		sched_yield();
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		const uint8_t *bytes = qemu_plugin_insn_data(insn);

		if (qemu_plugin_insn_size(insn) == 2 && bytes[0] == 0xf3 && bytes[1] == 0x90)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_pause, CB_NO_REGS, NULL);
	}
}

int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info_t *info, int argc, char **argv)
{
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	return 0;
}
