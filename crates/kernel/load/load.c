// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs that use the kernel's semaphores and mutexes much, each of which checks what it gets. They follow the papers'
// workloads: will-it-scale's page_fault and mmap, Metis' word count (BRAVO, sections 6.2 and 6.3), FxMark's MWRL, MWRM, MWCM
// and MRDM (ShflLocks, section 6). `fork` and `files` are ours.
//
//	load NAME THREADS ROUNDS    in a directory of a file system
//
// It prints the operations, and exits with 1 after an error. All calls of the measured part lie between two calls of
// personality(), which count.c looks for.

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define PAGES 64
#define FAULT_PAGES 1024
#define FILE_PAGES 32
#define MOST_THREADS 64

static unsigned int threads, rounds;
static unsigned long operations[MOST_THREADS];
static pthread_barrier_t barrier;

static void check(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
		exit(1);
	}
}

static char *map(size_t bytes, int flags, int file)
{
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, file, 0);

	check(memory != MAP_FAILED, "mmap");
	return memory;
}

// Touches new pages. An operation is a page fault.
static void touch_pages(unsigned int me, int flags, int file, int faults)
{
	char *memory = map(FAULT_PAGES * PAGE, flags, file);

	for (int i = 0; i < FAULT_PAGES; i++) {
		check(faults == 1 || memory[i * PAGE] == 0, "a new page is not empty");
		memory[i * PAGE] = me + 1;
	}
	for (int i = 0; i < FAULT_PAGES; i++)
		check(memory[i * PAGE] == (char)(me + 1), "a page has another thread's data");
	munmap(memory, FAULT_PAGES * PAGE);
	operations[me] += faults * FAULT_PAGES;
}

// will-it-scale's page_fault1: a page of its own at once.
static void page_fault1(unsigned int me)
{
	touch_pages(me, MAP_PRIVATE | MAP_ANONYMOUS, -1, 1);
}

// The same, with the page of zeros first. So there are two faults for each page.
static void page_fault(unsigned int me)
{
	touch_pages(me, MAP_PRIVATE | MAP_ANONYMOUS, -1, 2);
}

// page_fault3, and page_fault2 with a private mapping: pages of a file that the thread has made long.
static void fault_file(unsigned int me, int flags)
{
	char name[64];
	int file;

	snprintf(name, sizeof(name), "fault-%u", me);
	file = open(name, O_CREAT | O_RDWR | O_TRUNC, 0600);
	check(file >= 0 && ftruncate(file, FAULT_PAGES * PAGE) == 0, name);
	touch_pages(me, flags, file, 1);
	close(file);
	unlink(name);
}

static void page_fault2(unsigned int me)
{
	fault_file(me, MAP_PRIVATE);
}

static void page_fault3(unsigned int me)
{
	fault_file(me, MAP_SHARED);
}

// Maps and unmaps. An operation is a pair.
static void maps(unsigned int me, int flags, int file)
{
	for (int i = 0; i < PAGES; i++) {
		char *memory = map(PAGES * PAGE, flags, file);

		check(munmap(memory, PAGES * PAGE) == 0, "munmap");
	}
	operations[me] += PAGES;
}

// will-it-scale's mmap1.
static void mmap1(unsigned int me)
{
	maps(me, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

// mmap2: a file of the thread's own. Its first page must be there in the next mapping, too.
static void mmap2(unsigned int me)
{
	char name[64], *memory;
	int file;

	snprintf(name, sizeof(name), "map-%u", me);
	file = open(name, O_CREAT | O_RDWR | O_TRUNC, 0600);
	check(file >= 0 && ftruncate(file, PAGES * PAGE) == 0 && pwrite(file, name, sizeof(name), 0) == sizeof(name), name);
	maps(me, MAP_SHARED, file);
	memory = map(PAGE, MAP_SHARED, file);
	check(!strcmp(memory, name), "a mapping has another file's data");
	munmap(memory, PAGE);
	close(file);
	unlink(name);
}

// Counts the words of a mapped file.
static void words(unsigned int me)
{
	int file = open("words", O_RDWR);
	unsigned long count = 0;
	char *text;

	check(file >= 0, "words");
	text = map(FILE_PAGES * PAGE, MAP_PRIVATE, file);
	for (int i = 1; i < FILE_PAGES * PAGE; i++)
		count += text[i] == ' ' && text[i - 1] != ' ';
	check(count == FILE_PAGES * PAGE / 8, "the number of words");
	munmap(text, FILE_PAGES * PAGE);
	close(file);
	operations[me] += FILE_PAGES;
}

// MWRL: renames a file within a directory of the thread's own.
static void rename_own(unsigned int me)
{
	char from[64], to[64];

	snprintf(from, sizeof(from), "own-%u/a", me);
	snprintf(to, sizeof(to), "own-%u/b", me);
	check(rename(from, to) == 0 && rename(to, from) == 0, "rename");
	operations[me] += 2;
}

// MWRM: renames a file of its own into a shared directory, and back.
static void rename_shared(unsigned int me)
{
	char from[64], to[64];

	snprintf(from, sizeof(from), "own-%u/a", me);
	snprintf(to, sizeof(to), "shared/from-%u", me);
	check(rename(from, to) == 0 && rename(to, from) == 0, "rename");
	operations[me] += 2;
}

// MWCM: creates and removes files in a shared directory.
static void create_shared(unsigned int me)
{
	char name[64];
	int file;

	snprintf(name, sizeof(name), "shared/new-%u", me);
	file = open(name, O_CREAT | O_EXCL | O_WRONLY, 0600);
	check(file >= 0, "create");
	close(file);
	check(unlink(name) == 0, "unlink");
	operations[me] += 2;
}

// MRDM: lists a shared directory that has as many files as threads, and nobody changes.
static void list_shared(unsigned int me)
{
	DIR *directory = opendir("listed");
	unsigned int found = 0;

	check(directory != NULL, "opendir");
	for (struct dirent *entry; (entry = readdir(directory));)
		found += entry->d_name[0] == 'f';
	closedir(directory);
	check(found == threads, "the number of files");
	operations[me]++;
}

// Forks while the other threads map memory and fork. The child sees the parent's pages, and changes only its own.
static void fork_child(unsigned int me)
{
	char *memory = map(PAGES * PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	int status;
	pid_t child;

	for (int i = 0; i < PAGES; i++)
		memory[i * PAGE] = me + i;
	child = fork();
	check(child >= 0, "fork");
	if (child == 0) {
		int same = 1;

		for (int i = 0; i < PAGES; i++)
			same &= memory[i * PAGE] == (char)(me + i);
		memset(memory, 0x55, PAGES * PAGE);
		_exit(same ? 0 : 1);
	}
	for (int i = PAGES / 2; i < PAGES; i++)
		memory[i * PAGE] = me - i;
	check(waitpid(child, &status, 0) == child && status == 0, "a child has other pages than its parent");
	for (int i = 0; i < PAGES; i++)
		check(memory[i * PAGE] == (char)(i < PAGES / 2 ? me + i : me - i), "a page has the child's data");
	munmap(memory, PAGES * PAGE);
	operations[me]++;
}

// Files of a directory that all threads write, read, rename, link, shorten and map. What is expected:
// - a file that appears by a rename is whole: `WHOLE` bytes, all alike
// - a record that is appended is neither lost nor torn (`finish_files`)
// - a number in a shared mapping counts each addition
#define NAMES 8
#define WHOLE 6000
#define RECORD 64

static unsigned int seeds[MOST_THREADS];

static void open_and(const char *name, int flags, void (*use)(int file, unsigned int me), unsigned int me)
{
	int file = open(name, flags, 0600);

	if (file < 0 && errno == ENOENT)
		return; // nobody has made it yet
	check(file >= 0, name);
	use(file, me);
	close(file);
}

static void write_whole(int file, unsigned int me)
{
	char bytes[WHOLE];

	memset(bytes, 'A' + (me + operations[me]) % 26, sizeof(bytes));
	check(write(file, bytes, sizeof(bytes)) == sizeof(bytes), "write");
}

static void read_whole(int file, unsigned int me)
{
	char bytes[WHOLE + 1];

	check(read(file, bytes, sizeof(bytes)) == WHOLE, "a renamed file is not whole");
	for (int i = 1; i < WHOLE; i++)
		check(bytes[i] == bytes[0], "a renamed file has the bytes of two writers");
}

static void append(int file, unsigned int me)
{
	char bytes[RECORD];

	memset(bytes, 'A' + me % 26, sizeof(bytes));
	check(write(file, bytes, sizeof(bytes)) == sizeof(bytes), "append");
}

static void shorten(int file, unsigned int me)
{
	char byte = 1;

	check(ftruncate(file, 0) == 0 && ftruncate(file, 3 * PAGE) == 0, "ftruncate");
	check(pread(file, &byte, 1, 2 * PAGE) == 1 && byte == 0, "a lengthened file is not empty");
	check(pwrite(file, "x", 1, 2 * PAGE) == 1, "pwrite");
}

static void add_in_mapping(int file, unsigned int me)
{
	char *memory = map(NAMES * PAGE, MAP_SHARED, file);

	__atomic_add_fetch((unsigned long *)(memory + rand_r(&seeds[me]) % NAMES * PAGE), 1, __ATOMIC_RELAXED);
	munmap(memory, NAMES * PAGE);
}

static void files(unsigned int me)
{
	char own[64], name[64];

	snprintf(own, sizeof(own), "shared/own-%u", me);
	snprintf(name, sizeof(name), "shared/whole-%u", rand_r(&seeds[me]) % NAMES);
	open_and(own, O_CREAT | O_TRUNC | O_WRONLY, write_whole, me);
	check(rename(own, name) == 0, "rename");
	snprintf(name, sizeof(name), "shared/whole-%u", rand_r(&seeds[me]) % NAMES);
	open_and(name, O_RDONLY, read_whole, me);
	open_and("shared/log", O_WRONLY | O_APPEND, append, me);
	open_and(own, O_CREAT | O_RDWR, shorten, me);
	snprintf(name, sizeof(name), "shared/link-%u", me);
	check(link(own, name) == 0 && unlink(own) == 0 && unlink(name) == 0, "link");
	open_and("shared/counts", O_RDWR, add_in_mapping, me);
	operations[me]++;
}

static void prepare_files(void)
{
	int log = open("shared/log", O_CREAT | O_TRUNC | O_WRONLY, 0600);
	int counts = open("shared/counts", O_CREAT | O_TRUNC | O_WRONLY, 0600);

	check(log >= 0 && counts >= 0 && ftruncate(counts, NAMES * PAGE) == 0, "counts");
	close(log);
	close(counts);
}

static void finish_files(void)
{
	unsigned long additions = 0, records = 0;
	int log = open("shared/log", O_RDONLY), counts = open("shared/counts", O_RDWR);
	char *memory = map(NAMES * PAGE, MAP_SHARED, counts), bytes[RECORD];

	for (int i = 0; i < NAMES; i++)
		additions += *(unsigned long *)(memory + i * PAGE);
	check(additions == (unsigned long)threads * rounds, "an addition in a shared mapping is lost");
	while (read(log, bytes, sizeof(bytes)) == sizeof(bytes)) {
		for (int i = 1; i < RECORD; i++)
			check(bytes[i] == bytes[0], "a record is torn");
		records++;
	}
	check(records == (unsigned long)threads * rounds, "a record is lost");
	close(log);
	close(counts);
}

static const struct {
	const char *name;
	void (*round)(unsigned int me);
	void (*prepare)(void), (*finish)(void);
} loads[] = {
	{ "page_fault", page_fault },
	{ "page_fault1", page_fault1 },
	{ "page_fault2", page_fault2 },
	{ "page_fault3", page_fault3 },
	{ "mmap1", mmap1 },
	{ "mmap2", mmap2 },
	{ "words", words },
	{ "MWRL", rename_own },
	{ "MWRM", rename_shared },
	{ "MWCM", create_shared },
	{ "MRDM", list_shared },
	{ "fork", fork_child },
	{ "files", files, prepare_files, finish_files },
};
static void (*one_round)(unsigned int me);

static void *work(void *number)
{
	unsigned int me = (unsigned int)(size_t)number;

	pthread_barrier_wait(&barrier);
	for (unsigned int i = 0; i < rounds; i++)
		one_round(me);
	pthread_barrier_wait(&barrier);
	return NULL;
}

static void touch(const char *name)
{
	int file = open(name, O_CREAT | O_WRONLY, 0600);

	check(file >= 0, name);
	close(file);
}

static void prepare(void)
{
	static char text[FILE_PAGES * PAGE];
	char name[64];
	int file;

	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = i % 8 == 7 ? ' ' : 'w';
	file = open("words", O_CREAT | O_WRONLY | O_TRUNC, 0600);
	check(file >= 0 && write(file, text, sizeof(text)) == sizeof(text), "words");
	close(file);
	mkdir("shared", 0700);
	mkdir("listed", 0700);
	for (unsigned int i = 0; i < threads; i++) {
		snprintf(name, sizeof(name), "own-%u", i);
		mkdir(name, 0700);
		snprintf(name, sizeof(name), "own-%u/a", i);
		touch(name);
		snprintf(name, sizeof(name), "listed/f%u", i);
		touch(name);
	}
}

int main(int argc, char **argv)
{
	pthread_t handles[MOST_THREADS];
	unsigned long all = 0;
	size_t load = 0;

	threads = argc == 4 ? atoi(argv[2]) : 0;
	rounds = argc == 4 ? atoi(argv[3]) : 0;
	for (size_t i = 0; argc == 4 && i < sizeof(loads) / sizeof(*loads); i++)
		if (!strcmp(argv[1], loads[i].name))
			one_round = loads[load = i].round;
	if (!one_round || !rounds || !threads || threads > MOST_THREADS) {
		fputs("usage: load page_fault[1|2|3]|mmap1|mmap2|words|MWRL|MWRM|MWCM|MRDM|fork|files THREADS ROUNDS\n", stderr);
		return 2;
	}
	prepare();
	if (loads[load].prepare)
		loads[load].prepare();
	pthread_barrier_init(&barrier, NULL, threads + 1);
	for (size_t i = 0; i < threads; i++)
		seeds[i] = i;
	for (size_t i = 0; i < threads; i++)
		check(pthread_create(&handles[i], NULL, work, (void *)i) == 0, "pthread_create");
	personality(0xffffffff); // asks, and changes nothing
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	personality(0xffffffff);
	for (size_t i = 0; i < threads; i++) {
		pthread_join(handles[i], NULL);
		all += operations[i];
	}
	if (loads[load].finish)
		loads[load].finish();
	printf("LOAD|%s|%u|%lu\n", argv[1], threads, all);
	return 0;
}
