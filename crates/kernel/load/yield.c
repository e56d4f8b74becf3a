// SPDX-License-Identifier: MIT OR Apache-2.0
// A plugin of QEMU: an emulated processor that executes `pause` yields the host's processor to the other emulated ones.
//
//	qemu-system-x86_64 -plugin libyield.so ...
//
// Without it, a processor that spins runs until its time slice on the host ends, and the processor that it waits for may not run
// meanwhile. With hardware virtualization the host takes the processor away in the same way (pause-loop exiting).
//
// The interface is declared here, since Debian has no package with QEMU's header. It is version 1 of QEMU's plugin interface.

#include <sched.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_info_t;
enum { CB_NO_REGS = 0 };

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
					   void (*callback)(qemu_plugin_id_t id, struct qemu_plugin_tb *tb));
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, void (*callback)(unsigned int cpu, void *data),
					    int flags, void *data);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

static void on_pause(unsigned int cpu, void *unused)
{
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

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info_t *info,
							       int argc, char **argv)
{
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	return 0;
}
