"""gdb: the locks and readers of a program that uses latchwork.h.

gdb loads this file by itself for an installed liblatchwork.so below a directory that gdb trusts; else, or for a program that
is linked with the archive: (gdb) source PREFIX/share/latchwork/latchwork-gdb.py

Printers for lw_mutex_t, lw_rwlock_t, lw_cond_t, lw_sem_t and the classes of latchwork.hpp that have one of these. Commands:

    latchwork waiters LOCK     who waits for a lock, and who holds it; LOCK is an expression or an address
    latchwork readers          threads in sections of RCU and epochs, the oldest first; threads that are online (QSBR)
    latchwork held             what each thread holds, and waits for

Who holds a lock is known in programs that are compiled with -DLW_DEBUG=1, and, of readers that read without
that, from their rows. Nothing here calls functions of the program, so core files work as well.
"""

import gdb

STEP = 1 << 16
NESTING = (1 << 15) - 1
HELD, PARKED, DEMAND = 1, 2, 4
READING = 1
NO_ROW = 1  # the first slot of the row of a thread that has none
KINDS = {0: "mutex", 1: "to read", 2: "to write", 3: "to read", 16: "condition variable", 32: "semaphore"}


def word(address, size=8):
    """The number at an address."""
    return int.from_bytes(gdb.selected_inferior().read_memory(address, size).tobytes(), "little")


def variable(name):
    """The address of a variable of the library; in the selected thread, if it is a thread's."""
    return int(gdb.parse_and_eval("(unsigned long)&" + name))


def names():
    """The names that the program has given, by address."""
    found = {}
    try:
        at = word(variable("lw_names"))
    except gdb.error:
        return found
    while at and word(at):
        text = gdb.selected_inferior().read_memory(at + 8, 40).tobytes()
        found[word(at)] = text.split(b"\0")[0].decode("utf-8", "replace")
        at += 48
    return found


def show(address, known=None):
    """How a lock is written: its name, or its symbol, and its address."""
    name = (names() if known is None else known).get(address)
    if name is None:
        symbol = gdb.execute("info symbol 0x%x" % address, to_string=True)
        name = None if symbol.startswith("No symbol") else symbol.split(" in section")[0].strip()
    return '"%s" (%#x)' % (name, address) if name else "%#x" % address


class Thread:
    """What the library keeps for a thread."""

    def __init__(self, thread):
        self.thread = thread
        debug, own = variable("lw_thread_debug"), variable("lw_thread")
        self.waits_for, self.waits_how = word(debug), word(debug + 8, 4)
        count = min(word(debug + 12, 4), 14)
        self.held = [(word(debug + 16 + 16 * i), word(debug + 24 + 16 * i)) for i in range(count)]
        self.record, self.clocks, row = word(own), word(own + 8), word(own + 16)
        self.rows = [word(row + 8 * i) for i in range(7)]
        if self.rows[0] == NO_ROW:
            self.rows = []

    def __str__(self):
        name = self.thread.name
        return "thread %d (LWP %d%s)" % (self.thread.num, self.thread.ptid[1], ", " + name if name else "")

    def holds(self, lock):
        """How the thread holds the lock, or None."""
        for address, how in self.held:
            if address == lock:
                return "reads" if how & READING else "holds"
        return "reads" if lock in self.rows else None


def threads():
    """All threads, in the order of their numbers."""
    selected = gdb.selected_thread()
    found = []
    try:
        for thread in sorted(gdb.selected_inferior().threads(), key=lambda thread: thread.num):
            thread.switch()
            try:
                found.append(Thread(thread))
            except (gdb.error, gdb.MemoryError):
                pass  # a thread that has not come far enough to have thread-local variables
    finally:
        if selected:
            selected.switch()
    return found


def people(lock):
    """Holders and waiters of a lock."""
    all_threads = threads()
    holders = [(thread, thread.holds(lock)) for thread in all_threads if thread.holds(lock)]
    return holders, [thread for thread in all_threads if thread.waits_for == lock]


def describe(lock, state):
    """One line about a lock."""
    parts = [state]
    known = names().get(lock)
    if known:
        parts.insert(0, '"%s"' % known)
    holders, waiters = people(lock)
    parts += ["%s by %s" % (how == "reads" and "read" or "held", thread) for thread, how in holders]
    if waiters:
        parts.append("%d waiting: %s" % (len(waiters), ", ".join(map(str, waiters))))
    return ", ".join(parts)


def mutex_state(word):
    if word & ~(HELD | PARKED | DEMAND):
        return "not a mutex (word %#x)" % word
    if not word & HELD:
        return "free, and left to the first waiter" if word & DEMAND else "free"
    if word & DEMAND:
        return "locked, and the first waiter's next"
    return "locked, and the first waiter sleeps" if word & PARKED else "locked"


class Printer:
    """A printer of one line."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        return self.describe(int(self.value.address)) if self.value.address else "a copy, which says nothing"


class MutexPrinter(Printer):
    def describe(self, address):
        return describe(address, mutex_state(int(self.value["word"])))


class RwLockPrinter(Printer):
    def describe(self, address):
        state = "locked" if people(address)[0] or int(self.value["word"]) or int(self.value["readers"]) else "free"
        return describe(address, state + (", biased to readers" if int(self.value["bias"]) else ""))


class CondPrinter(Printer):
    def describe(self, address):
        return describe(address, "condition variable")


class SemPrinter(Printer):
    def describe(self, address):
        return describe(address, "semaphore")


PRINTERS = {"lw_mutex": MutexPrinter, "lw_rwlock": RwLockPrinter, "lw_cond": CondPrinter, "lw_sem": SemPrinter}


def lookup(value):
    """gdb asks this for the printer of each value."""
    kind = value.type.strip_typedefs()
    printer = PRINTERS.get(kind.tag) if kind.code == gdb.TYPE_CODE_STRUCT else None
    return printer(value) if printer else None


class Latchwork(gdb.Command):
    """Locks and readers of latchwork.h. Subcommands: waiters LOCK, readers, held."""

    def __init__(self):
        super().__init__("latchwork", gdb.COMMAND_STATUS, gdb.COMPLETE_NONE, True)


class Waiters(gdb.Command):
    """latchwork waiters LOCK: who waits for a lock, and who holds it.

LOCK is an expression for a lock or a pointer to one, or an address:
    latchwork waiters table_lock
    latchwork waiters 0x4c0100"""

    def __init__(self):
        super().__init__("latchwork waiters", gdb.COMMAND_STATUS, gdb.COMPLETE_EXPRESSION)

    def invoke(self, argument, _from_tty):
        if not argument:
            raise gdb.GdbError("latchwork waiters LOCK: an expression or an address, such as  latchwork waiters table_lock")
        value = gdb.parse_and_eval(argument)
        is_object = value.type.strip_typedefs().code == gdb.TYPE_CODE_STRUCT
        if is_object and not value.address:
            raise gdb.GdbError("%s is a value without an address" % argument)
        lock = int(value.address if is_object else value)
        holders, waiters = people(lock)
        print("lock %s" % show(lock))
        for thread, how in holders:
            print("  %s %s it" % (thread, how))
        if not holders:
            print("  holder: not known (programs with -DLW_DEBUG=1 note it)")
        for thread in waiters:
            print("  %s waits (%s)" % (thread, KINDS.get(thread.waits_how, "how %d" % thread.waits_how)))
        print("  %d waiting" % len(waiters))


class Readers(gdb.Command):
    """latchwork readers: threads in sections of RCU and epochs, the oldest section first; threads online in QSBR."""

    def __init__(self):
        super().__init__("latchwork readers", gdb.COMMAND_STATUS)

    def invoke(self, _argument, _from_tty):
        sections, online = [], []
        for thread in threads():
            if not thread.record:
                continue
            for flavour, offset, clock in (("rcu", 0, 0), ("epoch", 16, 128)):
                stamp = word(thread.record + offset)
                if stamp & NESTING:
                    age = word(thread.clocks + clock) // STEP - stamp // STEP
                    sections.append((-age, thread.thread.num, thread, flavour, stamp & NESTING))
            stamp = word(thread.record + 8)
            if stamp & NESTING:
                online.append((thread, word(thread.clocks) // STEP - stamp // STEP))
        for age, _, thread, flavour, nested in sorted(sections, key=lambda entry: entry[:2]):
            print("%s reads (%s), %d nested, for %d steps of the clock" % (thread, flavour, nested, -age))
        for thread, age in online:
            print("%s is online (qsbr), last quiescent %d steps of the clock ago" % (thread, age))
        print("%d sections, %d online" % (len(sections), len(online)))


class HeldLocks(gdb.Command):
    """latchwork held: what each thread holds, and what it waits for."""

    def __init__(self):
        super().__init__("latchwork held", gdb.COMMAND_STATUS)

    def invoke(self, _argument, _from_tty):
        known = names()
        for thread in threads():
            locks = [("reads" if how & READING else "holds", lock) for lock, how in thread.held]
            locks += [("reads", lock) for lock in thread.rows if lock and lock not in dict(thread.held)]
            if thread.waits_for:
                locks.append(("waits for", thread.waits_for))
            for how, lock in locks:
                print("%s %s %s" % (thread, how, show(lock, known)))


for command in (Latchwork, Waiters, Readers, HeldLocks):
    command()
if lookup not in gdb.pretty_printers:
    gdb.pretty_printers.append(lookup)
