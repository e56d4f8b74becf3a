// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs that use the kernel's semaphores and mutexes much, each of which checks what it gets. They follow the papers'
// workloads: will-it-scale's page_fault and mmap, Metis' word count (BRAVO, sections 6.2 and 6.3), FxMark's MWRL, MWRM, MWCM
// and MRDM (ShflLocks, section 6).
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
#include <unistd.h>

#define PAGE 4096
#define PAGES 64
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
static void page_fault(unsigned int me)
{
	char *memory = map(PAGES * PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	for (int i = 0; i < PAGES; i++) {
		check(memory[i * PAGE] == 0, "a new page is not empty");
		memory[i * PAGE] = me + 1;
	}
	for (int i = 0; i < PAGES; i++)
		check(memory[i * PAGE] == (char)(me + 1), "a page has another thread's data");
	munmap(memory, PAGES * PAGE);
	operations[me] += 2 * PAGES; // the zero page first, and then the page's own
}

// Maps and unmaps. An operation is a pair.
static void maps(unsigned int me)
{
	for (int i = 0; i < PAGES; i++) {
		char *memory = map(PAGES * PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);

		check(munmap(memory, PAGES * PAGE) == 0, "munmap");
	}
	operations[me] += PAGES;
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

static const struct {
	const char *name;
	void (*round)(unsigned int me);
} loads[] = {
	{ "page_fault", page_fault }, { "mmap", maps },	      { "words", words },     { "MWRL", rename_own },
	{ "MWRM", rename_shared },    { "MWCM", create_shared }, { "MRDM", list_shared },
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

	threads = argc == 4 ? atoi(argv[2]) : 0;
	rounds = argc == 4 ? atoi(argv[3]) : 0;
	for (size_t i = 0; argc == 4 && i < sizeof(loads) / sizeof(*loads); i++)
		if (!strcmp(argv[1], loads[i].name))
			one_round = loads[i].round;
	if (!one_round || !rounds || !threads || threads > MOST_THREADS) {
		fputs("usage: load page_fault|mmap|words|MWRL|MWRM|MWCM|MRDM THREADS ROUNDS\n", stderr);
		return 2;
	}
	prepare();
	pthread_barrier_init(&barrier, NULL, threads + 1);
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
	printf("LOAD|%s|%u|%lu\n", argv[1], threads, all);
	return 0;
}
