// SPDX-License-Identifier: MIT OR Apache-2.0
// A plugin of QEMU that counts what semaphores cost, in any kernel, without a change of it: instructions, atomic
// read-modify-writes and other stores to locks and to BRAVO's table, and wakeups, between two calls of personality() (load.c).
//
//	qemu-system-x86_64 -plugin libcount.so,map=FILE ...
//
// The file has a line for each range of code that belongs to the locks' implementation, `code FIRST END`, the range of BRAVO's
// table, `table FIRST END`, the range of the kernel's direct map, where locks are, `data FIRST END`, and the entries of
// the marking system call, `mark ADDRESS`, and of the scheduler's function that wakes a thread for whatever reason, `wake
// ADDRESS`. All numbers are hexadecimal. A lock is what an atomic instruction of that code
// has accessed in the data; its cache line is 64 bytes.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

struct range {
	uint64_t first, end;
};
static struct range code[1024], table, data;
static unsigned int codes;
static uint64_t mark, wake;

static bool on;
static unsigned long marks;
static struct {
	unsigned long lock_atomics, lock_stores, table_atomics, table_stores, instructions, wakeups;
} counts;

// The lines that atomic instructions have accessed, by hash; a line that finds no place is another's.
#define LINES 65536
static uint64_t lines[LINES];

static uint64_t *place(uint64_t address)
{
	uint64_t line = address / 64;

	for (uint64_t i = line * 0x9e3779b97f4a7c15 >> 48;; i++)
		if (lines[i % LINES] == 0 || lines[i % LINES] == line)
			return &lines[i % LINES];
}

static bool within(struct range range, uint64_t address)
{
	return address >= range.first && address < range.end;
}

static void add(unsigned long *count)
{
	__atomic_add_fetch(count, 1, __ATOMIC_RELAXED);
}

static void on_store(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address, void *atomic)
{
	if (!qemu_plugin_mem_is_store(info)) // QEMU 7.2 reports loads as well
		return;
	if (within(table, address)) {
		if (on)
			add(atomic ? &counts.table_atomics : &counts.table_stores);
	} else if (within(data, address)) {
		if (atomic)
			*place(address) = address / 64;
		if (on && *place(address))
			add(atomic ? &counts.lock_atomics : &counts.lock_stores);
	}
}

static void on_instruction(unsigned int cpu, void *count)
{
	if (on)
		add(count);
}

static void on_mark(unsigned int cpu, void *unused)
{
	if (marks++ % 2 == 0) {
		memset(&counts, 0, sizeof(counts));
		on = true;
		return;
	}
	on = false;
	fprintf(stderr, "COUNT|%lu|%lu|%lu|%lu|%lu|%lu\n", counts.lock_atomics, counts.lock_stores, counts.table_atomics,
		counts.table_stores, counts.instructions, counts.wakeups);
}

static bool is_atomic(const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i + 1 < size; i++) {
		if (bytes[i] == 0xf0)
			return true;
		if (bytes[i] == 0x87) // exchange with memory
			return bytes[i + 1] < 0xc0;
		if (bytes[i] != 0x66 && bytes[i] != 0x3e && (bytes[i] & 0xf0) != 0x40)
			return false;
	}
	return false;
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint64_t address = qemu_plugin_insn_vaddr(insn);
		const uint8_t *bytes = qemu_plugin_insn_data(insn);
		bool atomic = is_atomic(bytes, qemu_plugin_insn_size(insn));

		if (address == mark)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_mark, CB_NO_REGS, NULL);
		if (address == wake)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_instruction, CB_NO_REGS, &counts.wakeups);
		for (unsigned int j = 0; j < codes; j++)
			if (within(code[j], address)) {
				qemu_plugin_register_vcpu_insn_exec_cb(insn, on_instruction, CB_NO_REGS, &counts.instructions);
				qemu_plugin_register_vcpu_mem_cb(insn, on_store, CB_NO_REGS, MEM_W, atomic ? &on : NULL);
				break;
			}
	}
}

int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info_t *info, int argc, char **argv)
{
	FILE *file = argc == 1 && !strncmp(argv[0], "map=", 4) ? fopen(argv[0] + 4, "r") : NULL;
	struct range range;
	char line[128];

	if (!file) {
		fputs("count: the argument is map=FILE\n", stderr);
		return 1;
	}
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "code %lx %lx", &range.first, &range.end) == 2 && codes < sizeof(code) / sizeof(*code))
			code[codes++] = range;
		sscanf(line, "table %lx %lx", &table.first, &table.end);
		sscanf(line, "data %lx %lx", &data.first, &data.end);
		sscanf(line, "mark %lx", &mark);
		sscanf(line, "wake %lx", &wake);
	}
	fclose(file);
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	return 0;
}
