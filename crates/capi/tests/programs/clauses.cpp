// The testable clauses of C++26's [saferecl], by the numbers that docs/cpp.md lists, as TAP. What must not compile is in
// clauses_reject.cpp.
#include <cassert>
#define LW_SAFERECL_ASSERT(condition) assert(condition)
#define LW_SAFERECL_BATCHES
#include "latchwork/hazard.h"
#include <cstdlib>
// Mistakes, each of which the clauses must find: protection, regions, or waiting that does nothing. The environment says
// which.
#ifdef WITH_MISTAKES
static bool mistake(char number) {
    static const char *chosen = std::getenv("MISTAKE");
    return chosen && *chosen == number;
}
#define lw_hazard_set(hazard, head) (mistake('1') ? (void)0 : lw_hazard_set(hazard, head))
#define lw_rcu_read_lock() (mistake('2') ? (void)0 : lw_rcu_read_lock())
#define lw_rcu_read_unlock() (mistake('2') ? (void)0 : lw_rcu_read_unlock())
#define lw_rcu_is_reading() (mistake('2') ? 1 : lw_rcu_is_reading())
#define lw_rcu_barrier(domain) (mistake('3') ? (void)0 : lw_rcu_barrier(domain))
#define lw_rcu_synchronize() (mistake('4') ? (void)0 : lw_rcu_synchronize())
#endif
#include "latchwork/hazard_pointer"
#include "latchwork/rcu"
#include "latchwork/rcu_ptr.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#undef NDEBUG

static int failures = 0;
static bool clause_holds = true;

#define CHECK(...)                                                                     \
    do {                                                                               \
        if (!(__VA_ARGS__)) {                                                          \
            std::printf("# %s:%d: %s\n", __FILE__, __LINE__, #__VA_ARGS__);            \
            clause_holds = false;                                                      \
        }                                                                              \
    } while (0)

static void clause(int number, const char *text, const std::function<void()> &body) {
    clause_holds = true;
    body();
    std::printf("%sok %d - %s\n", clause_holds ? "" : "not ", number, text);
    std::fflush(stdout);
    failures += !clause_holds;
}
[[maybe_unused]] static void skip(int number, const char *why) { std::printf("ok %d # SKIP %s\n", number, why); }
// What the compiler has decided already.
#define STATIC(number, text, ...)                                                      \
    static_assert(__VA_ARGS__);                                                        \
    clause(number, text, [] {})

// Whether the process of `body` ends by abort.
template <class F> bool aborts(F body) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        const rlimit none{0, 0};
        setrlimit(RLIMIT_CORE, &none);
        std::freopen("/dev/null", "w", stderr);
        alarm(240); // within the watchdog of the test: a machine that stalls takes a minute for this
        body();
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    const bool aborted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
    if (!aborted && status != 0) {
        std::printf("# a child ended with status %d\n", status);
    }
    return aborted;
}

// Counts allocations by operator new.
static std::atomic<long> allocations{0};
static std::atomic<bool> out_of_memory{false};
// Not inlined: the compiler would warn of memory from one function that is freed by another.
__attribute__((noinline)) void *operator new(std::size_t size) {
    allocations++;
    void *memory = out_of_memory ? nullptr : std::malloc(size);
    if (!memory) {
        throw std::bad_alloc();
    }
    return memory;
}
__attribute__((noinline)) void operator delete(void *memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void *memory, std::size_t) noexcept { std::free(memory); }

template <class F> void in_threads(int count, F body) {
    std::vector<std::thread> threads;
    for (int i = 0; i < count; i++) {
        threads.emplace_back(body, i);
    }
    for (auto &thread : threads) {
        thread.join();
    }
}

using region = std::scoped_lock<lw::rcu_domain>;
static lw::rcu_domain &domain = lw::rcu_default_domain();

// ----- Types.

struct node : lw::rcu_obj_base<node> {
    static std::atomic<long> alive;
    long value, written = 0;
    explicit node(long v = 0) : value(v) { alive++; }
    ~node() {
        value = -1;
        alive--;
    }
};
std::atomic<long> node::alive{0};

struct incomplete;
struct names_incomplete {
    lw::rcu_obj_base<incomplete> *rcu;
    lw::hazard_pointer_obj_base<incomplete> *hazard;
};
static_assert(sizeof(lw::rcu_obj_base<incomplete>) > 0 && sizeof(lw::hazard_pointer_obj_base<incomplete>) > 0);

struct other_base {
    virtual ~other_base() = default;
    long filler[3] = {1, 2, 3};
};
struct offset_node : other_base, lw::rcu_obj_base<offset_node, void (*)(offset_node *)> {
    long value = 7;
    void operator&() const = delete;
};

struct move_only {
    std::unique_ptr<int> state;
    int *assigned = nullptr;
    move_only() = default;
    explicit move_only(int *counter) : assigned(counter) {}
    move_only(move_only &&) = default;
    move_only &operator=(move_only &&other) noexcept {
        if (other.assigned) {
            ++*other.assigned;
        }
        assigned = other.assigned;
        return *this;
    }
    template <class P> void operator()(P *pointer) const { delete pointer; }
};
struct move_only_node : lw::rcu_obj_base<move_only_node, move_only> {};
struct move_only_hazard : lw::hazard_pointer_obj_base<move_only_hazard, move_only> {};

// A deleter that keeps the object, to be used and retired again.
struct keeps {
    template <class T> void operator()(T *object) const { object->kept++; }
};
struct kept_node : lw::rcu_obj_base<kept_node, keeps> {
    int kept = 0;
};
struct kept_hazard : lw::hazard_pointer_obj_base<kept_hazard, keeps> {
    int kept = 0;
};

struct trivial_deleter {
    template <class P> void operator()(P *) const {}
};
struct trivial_node : lw::rcu_obj_base<trivial_node, trivial_deleter> {
    int value = 0;
};

struct throws_when_assigned {
    throws_when_assigned() = default;
    throws_when_assigned(throws_when_assigned &&) = default;
    throws_when_assigned &operator=(throws_when_assigned &&) { throw 1; }
    template <class P> void operator()(P *) const {}
};
struct throwing_rcu : lw::rcu_obj_base<throwing_rcu, throws_when_assigned> {};
struct throwing_hazard : lw::hazard_pointer_obj_base<throwing_hazard, throws_when_assigned> {};

template <class B> struct usable : B {
    usable() = default;
};
struct tag {};

struct hazard_node : lw::hazard_pointer_obj_base<hazard_node> {
    static std::atomic<long> alive;
    long value, written = 0;
    explicit hazard_node(long v = 0) : value(v) { alive++; }
    hazard_node(const hazard_node &o) : hazard_pointer_obj_base(o), value(o.value) { alive++; }
    hazard_node &operator=(const hazard_node &) = default;
    ~hazard_node() {
        value = -1;
        alive--;
    }
};
std::atomic<long> hazard_node::alive{0};

struct offset_hazard : other_base, lw::hazard_pointer_obj_base<offset_hazard> {
    static long deleted;
    long value = 7;
    ~offset_hazard() override { deleted++; }
};
long offset_hazard::deleted = 0;
struct hazard_base : lw::hazard_pointer_obj_base<hazard_base> {
    virtual ~hazard_base() = default;
};
struct hazard_derived : hazard_base {};

template <class H> struct is_hazard_regular {
    static constexpr bool value = std::is_nothrow_default_constructible_v<H> && std::is_nothrow_move_constructible_v<H> &&
                                  std::is_nothrow_move_assignable_v<H> && !std::is_copy_constructible_v<H> &&
                                  !std::is_copy_assignable_v<H> && std::is_nothrow_swappable_v<H>;
};

// A thread that stays in a region until it is told to leave.
struct reader {
    std::atomic<bool> inside{false}, leave{false};
    std::thread thread{[this] {
        const region r(domain);
        inside = true;
        while (!leave) {
            std::this_thread::yield();
        }
    }};
    reader() {
        while (!inside) {
            std::this_thread::yield();
        }
    }
    void end() {
        leave = true;
        if (thread.joinable()) {
            thread.join();
        }
    }
    ~reader() { end(); }
};

static void rcu_general() {
    clause(2, "lock and unlock pair like brackets", [] {
        domain.lock();
        domain.lock();
        domain.unlock();
        CHECK(lw_rcu_is_reading());
        domain.unlock();
        CHECK(!lw_rcu_is_reading());
    });
    clause(3, "a region lasts to the matching unlock", [] {
        std::atomic<bool> done{false};
        domain.lock(), domain.lock(), domain.lock();
        domain.unlock(), domain.unlock();
        const uint64_t number = lw_rcu_start_poll();
        std::thread waiter([&] {
            lw::rcu_synchronize();
            done = true;
        });
        for (int i = 0; i < 100; i++) {
            CHECK(!lw_rcu_poll(number) && !done);
        }
        domain.unlock();
        waiter.join();
        CHECK(done);
    });
    clause(4, "a region that was open ends before the deleter runs", [] {
        std::atomic<node *> shared{new node(0)};
        std::atomic<long> sum{0};
        static long deleted_sum;
        deleted_sum = 0;
        in_threads(4, [&](int number) {
            for (int i = 0; i < 1500; i++) {
                if (number == 0) {
                    node *old = shared.exchange(new node(i), std::memory_order_acq_rel);
                    old->retire();
                } else {
                    const region r(domain);
                    const node *now = shared.load(std::memory_order_acquire);
                    CHECK(now->value >= 0);
                    sum += now->value & 1;
                }
            }
        });
        shared.load()->retire();
        lw::rcu_barrier();
        CHECK(node::alive == 0);
        // The deleter sees the plain writes of the region.
        struct written : lw::rcu_obj_base<written, void (*)(written *)> {
            long value = 0;
        };
        auto *object = new written;
        std::atomic<bool> inside{false};
        std::thread writer([&] {
            const region r(domain);
            inside = true;
            object->value = 41;
        });
        while (!inside) {
        }
        object->retire([](written *w) {
            deleted_sum = w->value;
            delete w;
        });
        lw::rcu_barrier();
        CHECK(deleted_sum == 41);
        writer.join();
    });
    clause(5, "a region that began later does not hold an evaluation up for ever", [] {
        auto *object = new node;
        object->retire();
        lw::rcu_synchronize();
        reader later;
        lw_rcu_collect(lw_rcu_ordered_domain());
        lw_rcu_collect(lw_rcu_ordered_domain());
        later.end();
        lw::rcu_barrier();
        CHECK(node::alive == 0);
    });
    clause(6, "evaluations need no mutual exclusion of ours", [] {
        std::atomic<int> deleted{0};
        in_threads(3, [&](int) {
            for (int i = 0; i < 300; i++) {
                lw::rcu_retire(new int(i), [&deleted](int *p) {
                    deleted++;
                    delete p;
                });
            }
            lw::rcu_barrier();
        });
        CHECK(deleted == 900);
    });
    clause(7, "each evaluation runs at most once, and once by a barrier", [] {
        static std::atomic<int> runs[1000];
        in_threads(4, [&](int number) {
            for (int i = number; i < 1000; i += 4) {
                lw::rcu_retire(&runs[i], [](std::atomic<int> *r) { ++*r; });
            }
        });
        for (auto &r : runs) {
            CHECK(r <= 1);
        }
        lw::rcu_barrier();
        for (auto &r : runs) {
            CHECK(r == 1);
        }
    });
}

static void rcu_base() {
    STATIC(8, "defaults of rcu_obj_base", std::is_same_v<lw::rcu_obj_base<node>, lw::rcu_obj_base<node, std::default_delete<node>>> &&
               noexcept(std::declval<node &>().retire()) && noexcept(std::declval<node &>().retire({}, domain)));
    using base = lw::rcu_obj_base<tag>;
    STATIC(9, "special members are protected, and usable in the derived class",
           !std::is_default_constructible_v<base> && !std::is_copy_constructible_v<base> && !std::is_move_assignable_v<base> &&
               !std::is_destructible_v<base> && std::is_default_constructible_v<usable<base>> &&
               std::is_copy_constructible_v<usable<base>> && std::is_move_constructible_v<usable<base>> &&
               std::is_copy_assignable_v<usable<base>> && std::is_move_assignable_v<usable<base>>);
#if defined(__has_cpp_attribute) && __has_cpp_attribute(clang::no_specializations)
    clause(10, "a program's specialisation is rejected: see clauses_reject.cpp", [] {});
#else
    skip(10, "undefined: a program's specialisation, which only clang 20 and later can reject");
#endif
    STATIC(11, "T may be incomplete", sizeof(names_incomplete) == 2 * sizeof(void *));
    clause(12, "function pointers and templates are deleters", [] {
        static int deleted;
        deleted = 0;
        struct by_pointer : lw::rcu_obj_base<by_pointer, void (*)(by_pointer *)> {};
        (new by_pointer)->retire([](by_pointer *p) {
            deleted++;
            delete p;
        });
        (new move_only_node)->retire();
        lw::rcu_barrier();
        CHECK(deleted == 1);
    });
    clause(13, "a deleter that only moves works", [] {
        int assigned = 0;
        (new move_only_node)->retire(move_only(&assigned));
        lw::rcu_barrier();
        CHECK(assigned >= 1);
    });
    STATIC(14, "trivially copyable with a trivially copyable deleter",
           std::is_trivially_copyable_v<lw::rcu_obj_base<tag, trivial_deleter>> && std::is_trivially_copyable_v<trivial_node> &&
               std::is_trivially_copyable_v<lw::rcu_obj_base<tag>>);
    clause(14, "a copy of a retired object can be retired", [] {
        trivial_node first;
        first.retire();
        trivial_node second = first;
        second.retire();
        lw::rcu_barrier();
    });
    clause(16, "retiring twice is asserted, retiring a copy is not; a deleter that throws when it is assigned ends the program", [] {
        CHECK(aborts([] {
            static trivial_node object;
            const region keeps(domain); // or the first one may be over already
            object.retire();
            object.retire();
        }));
        CHECK(!aborts([] {
            static trivial_node object;
            object.retire();
            static trivial_node copy = object;
            copy.retire();
            lw::rcu_barrier();
        }));
        CHECK(aborts([] { (new throwing_rcu)->retire(throws_when_assigned()); }));
    });
    clause(17, "the deleter is assigned by a move", [] {
        int assigned = 0;
        {
            const region keeps(domain);
            (new move_only_node)->retire(move_only(&assigned));
            CHECK(assigned == 1);
        }
        lw::rcu_barrier();
    });
    clause(18, "the deleter gets the T: a base at an offset, a deleted operator&", [] {
        static offset_node *seen;
        auto *object = new offset_node;
        CHECK(static_cast<void *>(static_cast<lw::rcu_obj_base<offset_node, void (*)(offset_node *)> *>(object)) !=
              static_cast<void *>(object));
        object->retire([](offset_node *p) {
            seen = p;
            if (p->value == 7) {
                delete p;
            }
        });
        lw::rcu_barrier();
        CHECK(seen == object);
    });
    clause(19, "a deleter that throws ends the program", [] {
        CHECK(aborts([] {
            lw::rcu_retire(new int(1), [](int *) { throw 1; });
            lw::rcu_barrier();
        }));
    });
    clause(20, "retire may run evaluations in the caller", [] {
        for (int i = 0; i < 5000; i++) {
            (new node)->retire();
        }
        const long left = node::alive;
        lw::rcu_barrier();
        CHECK(left < 5000 && node::alive == 0);
    });
    clause(21, "retire does not call operator new", [] {
        trivial_node objects[3];
        const long before = allocations;
        for (auto &object : objects) {
            object.retire();
        }
        CHECK(allocations == before);
        lw::rcu_barrier();
    });
    clause(22, "retiring with a lock held that a reader wants in its region", [] {
        std::mutex mutex;
        std::atomic<bool> inside{false};
        std::thread other;
        {
            const std::lock_guard held(mutex);
            other = std::thread([&] {
                const region r(domain);
                inside = true;
                const std::lock_guard also(mutex);
            });
            while (!inside) {
                std::this_thread::yield();
            }
            for (int i = 0; i < 150000; i++) { // more than the limit of other domains
                (new node)->retire();
            }
        }
        other.join();
        lw::rcu_barrier();
        CHECK(node::alive == 0);
    });
    clause(23, "retire in a region, one's own and a nested one", [] {
        {
            const region outer(domain);
            const region inner(domain);
            for (int i = 0; i < 2000; i++) {
                (new node)->retire();
            }
            CHECK(node::alive == 2000);
        }
        lw::rcu_barrier();
        CHECK(node::alive == 0);
    });
    clause(24, "retire in a deleter", [] {
        static std::atomic<int> depth;
        depth = 0;
        struct chain : lw::rcu_obj_base<chain> {
            ~chain() {
                if (++depth < 10) {
                    (new chain)->retire();
                }
            }
        };
        (new chain)->retire();
        for (int i = 0; i < 10; i++) {
            lw::rcu_barrier();
        }
        CHECK(depth == 10);
    });
}

static std::atomic<int> late_regions{0};
struct reads_late {
    ~reads_late() {
        const region r(domain);
        late_regions++;
    }
};

static void rcu_domains() {
    STATIC(25, "not constructible, copyable or movable",
           !std::is_default_constructible_v<lw::rcu_domain> && !std::is_copy_constructible_v<lw::rcu_domain> &&
               !std::is_move_constructible_v<lw::rcu_domain> && !std::is_copy_assignable_v<lw::rcu_domain>);
    clause(25, "Lockable", [] {
        std::unique_lock unique(domain);
        const std::lock_guard guard(domain);
        std::mutex mutex;
        std::unique_lock deferred(domain, std::defer_lock), other(domain, std::try_to_lock);
        CHECK(other.owns_lock());
        std::lock(deferred, mutex);
        mutex.unlock();
    });
    clause(26, "regions nest, 8192 deep", [] {
        for (int i = 0; i < 8192; i++) {
            domain.lock();
        }
        for (int i = 0; i < 8192; i++) {
            CHECK(lw_rcu_is_reading());
            domain.unlock();
        }
        CHECK(!lw_rcu_is_reading());
    });
    STATIC(27, "lock is noexcept", noexcept(domain.lock()) && noexcept(domain.try_lock()) && noexcept(domain.unlock()));
    clause(28, "any number of threads lock at the same time", [] {
        in_threads(8, [](int) {
            for (int i = 0; i < 500; i++) {
                const region r(domain);
            }
        });
    });
    clause(29, "try_lock opens a region and returns true", [] {
        CHECK(domain.try_lock() && lw_rcu_is_reading());
        domain.unlock();
    });
    clause(30, "an unlock without a region is asserted", [] { CHECK(aborts([] { domain.unlock(); })); });
    clause(31, "unlock closes the innermost region", [] {
        domain.lock();
        {
            const region r(domain);
        }
        CHECK(lw_rcu_is_reading());
        domain.unlock();
    });
    clause(32, "a region that another thread closes is asserted", [] {
        CHECK(aborts([] {
            std::unique_lock mine(domain);
            std::thread([mine = std::move(mine)]() mutable { mine.unlock(); }).join();
        }));
    });
    clause(33, "regions in deleters and in destructors of thread-local objects and keys", [] {
        late_regions = 0;
        lw::rcu_retire(new int(0), [](int *p) {
            const region r(domain);
            late_regions++;
            delete p;
        });
        lw::rcu_barrier();
        static pthread_key_t key;
        pthread_key_create(&key, [](void *round) {
            const region r(domain);
            late_regions++;
            if (reinterpret_cast<long>(round) < 3) {
                pthread_setspecific(key, reinterpret_cast<void *>(reinterpret_cast<long>(round) + 1));
            }
        });
        std::thread([] {
            pthread_setspecific(key, reinterpret_cast<void *>(1L));
            static thread_local reads_late late;
            (void)late;
            const region r(domain);
        }).join();
        CHECK(late_regions == 5);
        lw::rcu_synchronize();
    });
}

static void rcu_functions() {
    clause(34, "the default domain is always the same", [] {
        lw::rcu_domain *other = nullptr;
        std::thread([&] { other = &lw::rcu_default_domain(); }).join();
        CHECK(other == &domain && noexcept(lw::rcu_default_domain()));
    });
    clause(35, "synchronize waits for regions that are open", [] {
        std::atomic<bool> left{false};
        std::atomic<bool> inside{false};
        std::thread other([&] {
            domain.lock();
            inside = true;
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            left = true;
            domain.unlock();
        });
        while (!inside) {
            std::this_thread::yield();
        }
        lw::rcu_synchronize();
        CHECK(left);
        other.join();
    });
    clause(36, "a stream of overlapping readers does not starve synchronize", [] {
        std::atomic<bool> stop{false};
        std::atomic<int> turn{0};
        std::vector<std::thread> readers;
        for (int i = 0; i < 2; i++) {
            readers.emplace_back([&, i] {
                while (!stop) { // each opens its region before the other closes its own
                    domain.lock();
                    turn = i;
                    while (turn == i && !stop) {
                        std::this_thread::yield();
                    }
                    domain.unlock();
                }
            });
        }
        for (int i = 0; i < 5; i++) {
            lw::rcu_synchronize();
        }
        stop = true;
        for (auto &one : readers) {
            one.join();
        }
    });
    clause(37, "what a region did happens before the return of synchronize", [] {
        for (int i = 0; i < 50; i++) {
            long plain = 0;
            std::atomic<bool> inside{false};
            std::thread other([&] {
                const region r(domain);
                inside.store(true, std::memory_order_relaxed);
                plain = i;
            });
            while (!inside.load(std::memory_order_relaxed)) {
                std::this_thread::yield();
            }
            lw::rcu_synchronize();
            CHECK(plain == i);
            other.join();
        }
    });
    clause(38, "synchronize in one's own region ends the program", [] {
        CHECK(aborts([] {
            const region r(domain);
            lw::rcu_synchronize();
        }));
    });
    clause(39, "synchronize in a deleter returns", [] {
        static bool returned;
        returned = false;
        lw::rcu_retire(new int(0), [](int *p) {
            lw::rcu_synchronize();
            returned = true;
            delete p;
        });
        lw::rcu_barrier();
        CHECK(returned);
    });
    clause(40, "barrier evaluates what was scheduled before", [] {
        for (int i = 0; i < 700; i++) {
            (new node)->retire();
        }
        lw::rcu_barrier();
        CHECK(node::alive == 0);
    });
    clause(41, "also what other threads scheduled, and threads that have exited", [] {
        in_threads(4, [](int) {
            for (int i = 0; i < 100; i++) {
                (new node)->retire();
            }
        });
        lw::rcu_barrier();
        CHECK(node::alive == 0);
    });
    clause(42, "concurrent barriers end, also against a stream of retires", [] {
        in_threads(4, [](int number) {
            for (int i = 0; i < 300; i++) {
                (new node)->retire();
                if (i % 30 == number) {
                    lw::rcu_barrier();
                }
            }
        });
        lw::rcu_barrier();
        CHECK(node::alive == 0);
    });
    clause(43, "evaluations happen before the return of barrier", [] {
        static long plain;
        for (int i = 0; i < 50; i++) {
            std::thread([] { lw::rcu_retire(&plain, [](long *p) { ++*p; }); }).join();
            std::thread collector([] { lw_rcu_collect(lw_rcu_ordered_domain()); });
            lw::rcu_barrier();
            CHECK(plain == i + 1);
            collector.join();
        }
    });
    clause(44, "barrier with nothing scheduled does not wait for readers", [] {
        lw::rcu_barrier();
        reader inside;
        const uint64_t number = lw_rcu_start_poll();
        (void)number;
        std::thread([] {
            const region own(domain);
            lw::rcu_barrier();
        }).join();
        inside.end();
    });
    clause(45, "barrier in a region returns if nothing is scheduled", [] {
        lw::rcu_barrier();
        const region r(domain);
        lw::rcu_barrier();
    });
    clause(45, "barrier in a region returns if everything was scheduled before the region began", [] {
        for (int round = 0; round < 20; round++) {
            // The caller's own objects, and those of a thread that has exited; not older regions, but a younger one.
            (new node)->retire();
            in_threads(2, [](int) {
                (new node)->retire();
                lw::rcu_retire(new int(1));
            });
            const region r(domain);
            reader younger;
            lw::rcu_barrier();
            CHECK(node::alive == 0);
            younger.end();
        }
    });
    clause(45, "nor does it wait for what other interfaces of the library retire", [] {
        lw::rcu_ptr<int> value(1);
        value.store(2);
        CHECK(lw_rcu_retire(nullptr, new int(3), [](void *old) { delete static_cast<int *>(old); }) == 0);
        const region r(domain);
        lw::rcu_barrier();
    });
    clause(45, "so do barriers in several regions, beside a barrier outside that waits for the regions", [] {
        for (int round = 0; round < 20; round++) {
            (new node)->retire();
            reader younger;
            std::atomic<bool> begins{false};
            std::thread outside([&] {
                begins = true;
                lw::rcu_barrier();
            });
            while (!begins) {
                std::this_thread::yield();
            }
            in_threads(3, [](int) {
                const region r(domain);
                lw::rcu_barrier();
                CHECK(node::alive == 0);
            });
            younger.end();
            outside.join();
        }
    });
    clause(45, "barrier in a region keeps what the region may use", [] {
        std::atomic<node *> shared{new node(1)};
        domain.lock();
        node *mine = shared.load(std::memory_order_acquire);
        std::thread([&] { shared.exchange(nullptr)->retire(); }).join();
        std::thread other([] {
            const region r(domain);
            (new node(2))->retire();
            // It cannot return before both regions are closed, and reclaims nothing meanwhile.
            lw_rcu_collect(lw_rcu_ordered_domain());
        });
        other.join();
        std::atomic<bool> returned{false};
        std::thread barrier([&] {
            lw::rcu_barrier();
            returned = true;
        });
        for (int i = 0; i < 20; i++) {
            const region nested(domain);
            lw_rcu_collect(lw_rcu_ordered_domain());
            CHECK(mine->value == 1 && !returned);
            std::this_thread::yield();
        }
        domain.unlock();
        barrier.join();
        CHECK(node::alive == 0);
    });
    clause(46, "barrier in a deleter ends the program", [] {
        CHECK(aborts([] {
            lw::rcu_retire(new int(0), [](int *) { lw::rcu_barrier(); });
            lw::rcu_barrier();
        }));
    });
    STATIC(47, "noexcept as the standard says",
           noexcept(lw::rcu_synchronize()) && noexcept(lw::rcu_barrier()) && !noexcept(lw::rcu_retire(std::declval<int *>())));
    clause(48, "rcu_retire takes any object", [] {
        lw::rcu_retire(new int(1));
        lw::rcu_retire(new std::vector<int>(3));
        lw::rcu_retire(static_cast<int *>(nullptr));
        lw::rcu_barrier();
    });
    clause(49, "a moved copy of the deleter is called, and destroyed after that", [] {
        auto state = std::make_shared<int>(0);
        const std::weak_ptr<int> watch = state;
        {
            const region keeps(domain); // or the object may be reclaimed at once
            lw::rcu_retire(new int(1), [state = std::move(state)](int *p) {
                ++*state;
                delete p;
            });
            CHECK(!watch.expired() && *watch.lock() == 0);
        }
        lw::rcu_barrier();
        CHECK(watch.expired());
    });
    clause(50, "a failure leaves the object to the caller", [] {
        struct throws_when_moved {
            bool armed = true;
            throws_when_moved() = default;
            throws_when_moved(throws_when_moved &&other) : armed(other.armed) {
                if (armed) {
                    throw 7;
                }
            }
            void operator()(int *p) { delete p; }
        };
        auto mine = std::make_unique<int>(5);
        bool failed = false;
        try {
            lw::rcu_retire(mine.get(), throws_when_moved());
        } catch (int) {
            failed = true;
        }
        CHECK(failed);
        failed = false;
        out_of_memory = true;
        try {
            lw::rcu_retire(mine.get());
        } catch (const std::bad_alloc &) {
            failed = true;
        }
        out_of_memory = false;
        lw::rcu_barrier();
        CHECK(failed && *mine == 5);
    });
    clause(51, "rcu_retire may run evaluations, and does not wait", [] {
        static std::atomic<long> left;
        left = 0;
        for (int i = 0; i < 5000; i++) {
            left++;
            lw::rcu_retire(&left, [](std::atomic<long> *l) { --*l; });
        }
        CHECK(left < 5000);
        lw::rcu_barrier();
        CHECK(left == 0);
    });
}

static void hazard_general() {
    clause(53, "a hazard pointer moves between threads, and outlives its thread", [] {
        std::atomic<hazard_node *> shared{new hazard_node(3)};
        lw::hazard_pointer mine;
        std::thread([&] {
            lw::hazard_pointer made = lw::make_hazard_pointer();
            made.protect(shared);
            mine = std::move(made);
        }).join();
        hazard_node *node = shared.exchange(nullptr);
        node->retire();
        lw_hazard_collect();
        CHECK(node->value == 3 && hazard_node::alive == 1);
        std::thread([moved = std::move(mine)]() mutable { moved.reset_protection(); }).join();
        lw_hazard_collect();
        CHECK(hazard_node::alive == 0);
    });
    clause(54, "each association begins a new epoch", [] {
        hazard_node *one = new hazard_node, *two = new hazard_node;
        lw::hazard_pointer hp = lw::make_hazard_pointer();
        hp.reset_protection(one);
        hp.reset_protection(two);
        one->retire();
        lw_hazard_collect();
        CHECK(hazard_node::alive == 1);
        hp.reset_protection(two);
        two->retire();
        lw_hazard_collect();
        CHECK(hazard_node::alive == 1);
        hp.reset_protection();
        lw_hazard_collect();
        CHECK(hazard_node::alive == 0);
    });
    clause(55, "retiring twice is asserted", [] {
        CHECK(aborts([] {
            static hazard_node object;
            lw::hazard_pointer hp = lw::make_hazard_pointer();
            hp.reset_protection(&object);
            object.retire();
            object.retire();
        }));
    });
    clause(56, "a deleter that throws ends the program", [] {
        CHECK(aborts([] {
            struct thrower : lw::hazard_pointer_obj_base<thrower, void (*)(thrower *)> {};
            (new thrower)->retire([](thrower *) { throw 1; });
            lw_hazard_collect();
        }));
    });
    clause(57, "what is protected before its retirement stays", [] {
        std::atomic<hazard_node *> shared{new hazard_node(0)};
        in_threads(4, [&](int number) {
            lw::hazard_pointer hp = lw::make_hazard_pointer();
            for (int i = 0; i < 3000; i++) {
                if (number == 0) {
                    shared.exchange(new hazard_node(i), std::memory_order_acq_rel)->retire();
                } else {
                    const hazard_node *now = hp.protect(shared);
                    CHECK(now->value >= 0);
                }
            }
        });
        shared.load()->retire();
        lw_hazard_collect();
        CHECK(hazard_node::alive == 0);
    });
    clause(58, "try_protect against a scan: two objects that change places", [] {
        hazard_node *initial = new hazard_node(1);
        std::atomic<hazard_node *> shared{initial};
        in_threads(3, [&](int number) {
            lw::hazard_pointer hp = lw::make_hazard_pointer();
            for (int i = 0; i < 3000; i++) {
                if (number == 0) {
                    shared.exchange(new hazard_node(1), std::memory_order_acq_rel)->retire();
                    if (i % 16 == 0) {
                        lw_hazard_collect();
                    }
                } else {
                    hazard_node *now = shared.load(std::memory_order_relaxed);
                    if (hp.try_protect(now, shared)) {
                        CHECK(now->value == 1);
                    }
                }
            }
        });
        shared.load()->retire();
        lw_hazard_collect();
        CHECK(hazard_node::alive == 0);
    });
    clause(59, "the end of an epoch happens before the reclamation", [] {
        static long seen;
        struct written : lw::hazard_pointer_obj_base<written, void (*)(written *)> {
            long value = 0;
        };
        for (int i = 1; i < 30; i++) {
            auto *object = new written;
            std::atomic<written *> shared{object};
            std::atomic<bool> protects{false};
            std::thread other([&] {
                lw::hazard_pointer hp = lw::make_hazard_pointer();
                written *mine = hp.protect(shared);
                protects.store(true, std::memory_order_relaxed);
                mine->value = i;
            });
            while (!protects.load(std::memory_order_relaxed)) {
                std::this_thread::yield();
            }
            seen = 0;
            object->retire([](written *w) { // may be called at once
                seen = w->value;
                delete w;
            });
            while (seen == 0) {
                lw_hazard_collect();
            }
            CHECK(seen == i);
            other.join();
        }
    });
    clause(60, "an epoch that began after the retirement protects nothing", [] {
        static hazard_node object;
        struct late : lw::hazard_pointer_obj_base<late, void (*)(late *)> {};
        static int deleted;
        deleted = 0;
        static late static_object;
        lw::hazard_pointer hp = lw::make_hazard_pointer();
        static_object.retire([](late *) { deleted++; });
        lw_hazard_collect();
        hp.reset_protection(&static_object);
        CHECK(deleted == 1);
        (void)object;
    });
    clause(61, "the number of retired objects is bounded", [] {
        long most = 0;
        const long before = hazard_node::alive;
        for (int i = 0; i < 100000; i++) {
            (new hazard_node)->retire();
            most = std::max(most, hazard_node::alive - before);
        }
        std::printf("# at most %ld objects\n", most);
        CHECK(most <= 2000);
        lw_hazard_collect();
        CHECK(hazard_node::alive == before);
    });
}

static void hazard_base_clauses() {
    clause(62, "deleters: function pointers, and ones that only move", [] {
        int assigned = 0;
        auto *object = new move_only_hazard;
        lw::hazard_pointer hp = lw::make_hazard_pointer();
        hp.reset_protection(object); // else retire may reclaim it at once
        object->retire(move_only(&assigned));
        CHECK(assigned == 1);
        hp.reset_protection();
        lw_hazard_collect();
    });
    clause(63, "protecting with a program's specialisation is rejected: see clauses_reject.cpp", [] {});
    STATIC(64, "T may be incomplete", sizeof(lw::hazard_pointer_obj_base<incomplete>) > 0);
    using base = lw::hazard_pointer_obj_base<tag>;
    STATIC(65, "special members are protected, and usable in the derived class",
           !std::is_default_constructible_v<base> && !std::is_copy_constructible_v<base> && !std::is_destructible_v<base> &&
               std::is_default_constructible_v<usable<base>> && std::is_copy_constructible_v<usable<base>> &&
               std::is_move_assignable_v<usable<base>>);
    clause(65, "a copy of a retired object is new", [] {
        auto *one = new hazard_node(1);
        lw::hazard_pointer hp = lw::make_hazard_pointer();
        hp.reset_protection(one);
        one->retire();
        auto *two = new hazard_node(*one), *three = new hazard_node;
        *three = *one;
        two->retire();
        three->retire();
        lw_hazard_collect();
        CHECK(hazard_node::alive == 2); // `one`, and that of clause 60
        *one = hazard_node(2);
        hp.reset_protection();
        lw_hazard_collect();
        CHECK(hazard_node::alive == 1);
    });
    clause(66, "retire through the base of a base", [] {
        auto *object = new hazard_derived;
        object->retire();
        lw_hazard_collect();
    });
    clause(67, "retiring twice is asserted; a deleter that throws when it is assigned ends the program", [] {
        CHECK(aborts([] {
            static hazard_node object;
            lw::hazard_pointer keeps = lw::make_hazard_pointer(); // or the first one may be over already
            keeps.reset_protection(&object);
            object.retire();
            object.retire();
        }));
        CHECK(aborts([] { (new throwing_hazard)->retire(throws_when_assigned()); }));
        kept_hazard kept;
        kept_node kept_by_rcu;
        for (int i = 1; i <= 3; i++) { // what a deleter has kept is not retired any more
            kept.retire();
            kept_by_rcu.retire();
            lw_hazard_collect();
            lw::rcu_barrier();
            CHECK(kept.kept == i && kept_by_rcu.kept == i);
        }
    });
    clause(68, "retire reclaims others, in the caller", [] {
        const long before = hazard_node::alive;
        for (int i = 0; i < 20000; i++) {
            (new hazard_node)->retire();
        }
        CHECK(hazard_node::alive - before < 20000);
        lw_hazard_collect();
    });
    clause(69, "retire does not call operator new", [] {
        static hazard_node *objects[10];
        for (auto &object : objects) {
            object = new hazard_node;
        }
        const long before = allocations;
        for (auto *object : objects) {
            object->retire();
        }
        CHECK(allocations == before && noexcept(objects[0]->retire()));
        lw_hazard_collect();
    });
    clause(70, "a base at an offset", [] {
        std::atomic<offset_hazard *> shared{new offset_hazard};
        lw::hazard_pointer hp = lw::make_hazard_pointer();
        offset_hazard *object = hp.protect(shared);
        CHECK(static_cast<void *>(static_cast<lw::hazard_pointer_obj_base<offset_hazard> *>(object)) != static_cast<void *>(object));
        shared = nullptr;
        object->retire();
        lw_hazard_collect();
        CHECK(offset_hazard::deleted == 0 && object->value == 7);
        hp.reset_protection();
        lw_hazard_collect();
        CHECK(offset_hazard::deleted == 1);
    });
    clause(71, "retire, make and protect in a deleter", [] {
        static int depth;
        depth = 0;
        struct nested : lw::hazard_pointer_obj_base<nested> {
            ~nested() {
                if (++depth < 1000) {
                    std::atomic<nested *> next{new nested};
                    lw::hazard_pointer hp = lw::make_hazard_pointer();
                    hp.protect(next)->retire();
                }
            }
        };
        (new nested)->retire();
        for (int i = 0; i < 1000 && depth < 1000; i++) {
            lw_hazard_collect();
        }
        CHECK(depth == 1000);
    });
    clause(72, "destructors of thread-local objects and keys", [] {
        struct late {
            ~late() {
                lw::hazard_pointer hp = lw::make_hazard_pointer();
                std::atomic<hazard_node *> shared{new hazard_node};
                hp.protect(shared)->retire();
            }
        };
        const long before = hazard_node::alive;
        static pthread_key_t key;
        pthread_key_create(&key, [](void *round) {
            const late now;
            if (reinterpret_cast<long>(round) < 3) {
                pthread_setspecific(key, reinterpret_cast<void *>(reinterpret_cast<long>(round) + 1));
            }
        });
        std::thread([] {
            pthread_setspecific(key, reinterpret_cast<void *>(1L));
            static thread_local late local;
            (void)local;
        }).join();
        lw_hazard_collect();
        CHECK(hazard_node::alive == before);
    });
    clause(73, "objects of automatic storage, with a deleter that does nothing", [] {
        struct automatic : lw::hazard_pointer_obj_base<automatic, trivial_deleter> {} object;
        object.retire();
        lw_hazard_collect();
        lw_garbage garbage;
        lw_hazard_garbage(&garbage);
        CHECK(garbage.objects == 0);
    });
}

static void hazard_pointers() {
    STATIC(74, "properties of hazard_pointer",
           is_hazard_regular<lw::hazard_pointer>::value && !noexcept(lw::make_hazard_pointer()) &&
               noexcept(std::declval<lw::hazard_pointer &>().empty()));
    clause(75, "a default one is empty", [] { CHECK(lw::hazard_pointer().empty() && !lw::make_hazard_pointer().empty()); });
    auto protects = [](lw::hazard_pointer &hp, hazard_node *&object) {
        object = new hazard_node(1);
        hp.reset_protection(object);
        object->retire();
        lw_hazard_collect();
        return object->value == 1;
    };
    static const long base = hazard_node::alive;
    auto still = [] {
        lw_hazard_collect();
        return hazard_node::alive > base;
    };
    clause(76, "a move takes over what is owned, and the epoch goes on", [&] {
        hazard_node *object;
        lw::hazard_pointer one = lw::make_hazard_pointer();
        CHECK(protects(one, object));
        lw::hazard_pointer two = std::move(one);
        CHECK(one.empty() && !two.empty() && still());
    });
    clause(77, "the destructor ends the epoch", [&] { CHECK(!still()); });
    clause(78, "move assignment", [&] {
        hazard_node *object;
        lw::hazard_pointer one = lw::make_hazard_pointer(), two = lw::make_hazard_pointer(), empty;
        CHECK(protects(one, object));
        auto &self = one;
        one = std::move(self);
        CHECK(!one.empty() && still());
        CHECK(&(two = std::move(one)) == &two && one.empty() && still());
        two = lw::make_hazard_pointer();
        CHECK(!two.empty() && !still());
        two = std::move(empty);
        CHECK(two.empty());
    });
    clause(79, "empty", [] {
        lw::hazard_pointer hp;
        CHECK(hp.empty());
        hp = lw::make_hazard_pointer();
        CHECK(!hp.empty());
    });
    clause(80, "protect: null is a value like any", [&] {
        std::atomic<hazard_node *> none{nullptr};
        hazard_node *object;
        lw::hazard_pointer hp = lw::make_hazard_pointer();
        CHECK(protects(hp, object));
        CHECK(hp.protect(none) == nullptr && !still() && !hp.empty());
    });
    clause(81, "an empty hazard pointer is asserted", [] {
        CHECK(aborts([] {
            std::atomic<hazard_node *> none{nullptr};
            lw::hazard_pointer().protect(none);
        }));
    });
    clause(82, "try_protect", [&] {
        hazard_node one(1), two(2);
        std::atomic<hazard_node *> src{&one};
        lw::hazard_pointer hp = lw::make_hazard_pointer();
        hazard_node *pointer = &one;
        CHECK(hp.try_protect(pointer, src) && pointer == &one);
        src = &two;
        CHECK(!hp.try_protect(pointer, src) && pointer == &two);
        CHECK(hp.try_protect(pointer, src));
        pointer = nullptr;
        CHECK(!hp.try_protect(pointer, src) && pointer == &two);
        src = nullptr;
        CHECK(!hp.try_protect(pointer, src) && pointer == nullptr);
        CHECK(hp.try_protect(pointer, src));
        // After a failure it is unassociated.
        auto *object = new hazard_node;
        hazard_node *stale = object;
        CHECK(!hp.try_protect(stale, src));
        object->retire();
        lw_hazard_collect();
        CHECK(hazard_node::alive == base + 2);
    });
    clause(83, "reset_protection with a pointer", [&] {
        hazard_node *object;
        lw::hazard_pointer hp = lw::make_hazard_pointer();
        CHECK(protects(hp, object));
        hp.reset_protection(static_cast<hazard_node *>(nullptr));
        CHECK(!still());
    });
    clause(84, "reset_protection without one keeps the hazard pointer", [&] {
        hazard_node *object;
        lw::hazard_pointer hp = lw::make_hazard_pointer();
        CHECK(protects(hp, object));
        hp.reset_protection(nullptr);
        CHECK(!still() && !hp.empty());
        hp.reset_protection();
    });
    clause(85, "swap", [&] {
        hazard_node *object;
        lw::hazard_pointer one = lw::make_hazard_pointer(), two;
        CHECK(protects(one, object));
        one.swap(two);
        CHECK(one.empty() && !two.empty() && still());
        two.swap(two);
        CHECK(still());
        one.swap(two);
        CHECK(two.empty() && still());
        one = lw::hazard_pointer();
        CHECK(!still());
    });
    clause(86, "make_hazard_pointer returns one that protects nothing", [] { CHECK(!lw::make_hazard_pointer().empty()); });
    clause(87, "swap is found by its arguments", [] {
        lw::hazard_pointer one = lw::make_hazard_pointer(), two;
        swap(one, two);
        CHECK(one.empty() && !two.empty() && noexcept(swap(one, two)));
        std::swap(one, two);
        CHECK(!one.empty());
    });
    clause(88, "10,000 at once", [] {
        std::vector<lw::hazard_pointer> many;
        std::vector<hazard_node *> nodes;
        for (int i = 0; i < 10000; i++) {
            many.push_back(lw::make_hazard_pointer());
            nodes.push_back(new hazard_node(i));
            many.back().reset_protection(nodes.back());
        }
        for (auto *node : nodes) {
            node->retire();
        }
        lw_hazard_collect();
        CHECK(hazard_node::alive == base + 10000);
        many.resize(5000);
        lw_hazard_collect();
        CHECK(hazard_node::alive == base + 5000 && nodes[4999]->value == 4999);
        many.clear();
        lw_hazard_collect();
        CHECK(hazard_node::alive == base);
    });
    clause(89, "a batch is made: empty elements become owning, the others stay", [&] {
        std::vector<lw::hazard_pointer> batch(5);
        hazard_node *object;
        batch[2] = lw::make_hazard_pointer();
        CHECK(protects(batch[2], object));
        lw::make_hazard_pointer_batch(batch);
        for (const auto &one : batch) {
            CHECK(!one.empty());
        }
        CHECK(still());
        clause_holds = clause_holds && hazard_node::alive == base + 1;
    });
    clause(90, "a batch is cleared", [&] {
        std::vector<lw::hazard_pointer> batch(3);
        lw::make_hazard_pointer_batch(batch);
        lw::clear_hazard_pointer_batch(batch);
        for (const auto &one : batch) {
            CHECK(one.empty());
        }
        CHECK(!still() && noexcept(lw::clear_hazard_pointer_batch(batch)));
    });
}

// 33 and 72: after main.
struct after_main {
    ~after_main() {
        const region r(domain);
        lw::hazard_pointer hp = lw::make_hazard_pointer();
        (new hazard_node)->retire();
        (new node)->retire();
    }
} static last;

int main() {
#ifdef WITH_MISTAKES
    alarm(100); // a mistake may also make a clause wait for ever
#endif
    rcu_general();
    rcu_base();
    rcu_domains();
    rcu_functions();
    hazard_general();
    hazard_base_clauses();
    hazard_pointers();
    std::printf("# %d clauses fail\n", failures);
    return failures != 0;
}
