// SPDX-License-Identifier: MIT OR Apache-2.0
// The rows of all locks, and the module's beginning and end.

#include <linux/module.h>
#include <linux/string.h>

#include "latchwork.h"
#include "shim.h"

#define MOST_ROWS 64

static struct lw_row rows[MOST_ROWS];
static unsigned int count;

// In the Rust library: calls `each` with every row.
void lw_rows(void (*each)(const struct lw_row *row, void *context), void *context);

static void keep(const struct lw_row *row, void *unused)
{
	if (!WARN_ON(count == MOST_ROWS))
		rows[count++] = *row;
}

const struct lw_row *lw_row_at(unsigned int index)
{
	return index < count ? &rows[index] : NULL;
}
EXPORT_SYMBOL_GPL(lw_row_at);

const struct lw_row *lw_find(const char *name)
{
	unsigned int i;

	for (i = 0; i < count; i++)
		if (strlen(name) == rows[i].name_bytes && !memcmp(name, rows[i].name, rows[i].name_bytes))
			return &rows[i];
	return NULL;
}
EXPORT_SYMBOL_GPL(lw_find);

static int __init latchwork_init(void)
{
	int error = lw_shim_init();
	unsigned int i;

	if (error)
		return error;
	lw_rows(keep, NULL);
	for (i = 0; i < count; i++)
		pr_info("latchwork: lock %.*s bytes %u%s%s%s\n", rows[i].name_bytes, rows[i].name, rows[i].bytes,
			rows[i].flags & LW_SHARED ? " shared" : "", rows[i].flags & LW_SLEEPS ? " sleeps" : "",
			rows[i].flags & LW_BROKEN ? " broken" : "");
	return 0;
}

static void __exit latchwork_exit(void)
{
	lw_shim_exit();
}

module_init(latchwork_init);
module_exit(latchwork_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("latchwork's locks");
