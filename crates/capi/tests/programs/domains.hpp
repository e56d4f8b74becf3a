// Domains of a C++ program's own, for RCU and for hazard pointers. For types.cpp.
#pragma once
#include "check.h"
#include "latchwork/hazard_pointer"
#include "latchwork/rcu"

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace domains {

static_assert(!std::is_copy_constructible_v<lw::rcu_owned_domain> && !std::is_move_constructible_v<lw::rcu_owned_domain>);
static_assert(!std::is_copy_constructible_v<lw::hazard_pointer_domain>);
static_assert(std::is_convertible_v<lw::rcu_owned_domain &, lw::rcu_domain &>);

static std::atomic<int> gone{0};

struct counts {
    ~counts() { gone++; }
};
struct by_rcu : counts, lw::rcu_obj_base<by_rcu> {};
struct by_hazard : counts, lw::hazard_pointer_obj_base<by_hazard> {};
template <class T> struct deletes {
    int *calls = nullptr;
    void operator()(T *object) const {
        (*calls)++;
        delete object;
    }
};
struct told : lw::hazard_pointer_obj_base<told, deletes<told>> {};

// Whether the process of `body` ends by abort, or by std::terminate.
template <class F> bool aborts(F body) {
    const pid_t child = fork();
    if (child == 0) {
        const rlimit none{0, 0};
        setrlimit(RLIMIT_CORE, &none);
        close(2); // the message
        body();
        _exit(0);
    }
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

inline void rcu() {
    gone = 0;
    {
        lw::rcu_owned_domain domain;
        CHECK(&domain.get() != &lw::rcu_default_domain());
        {
            const std::scoped_lock region(domain);
            (new by_rcu)->retire({}, domain);
            lw::rcu_retire(new counts, std::default_delete<counts>(), domain);
            domain.collect();
            CHECK(gone == 0 && domain.garbage().objects == 2);
        }
        lw::rcu_barrier(domain);
        CHECK(gone == 2 && domain.garbage().objects == 0 && domain.try_lock());
        domain.unlock();
        (new by_rcu)->retire(std::default_delete<by_rcu>(), domain);
    }
    CHECK(gone == 3); // the destructor has waited
    // In a region of its own, the destructor would wait for itself.
    CHECK(aborts([] {
        auto *domain = new lw::rcu_owned_domain;
        domain->lock();
        (new by_rcu)->retire({}, *domain);
        delete domain;
    }));
    {
        const std::scoped_lock region(lw::rcu_default_domain());
        const lw::rcu_owned_domain unused;
    }
}

inline void hazards() {
    gone = 0;
    {
        auto own = std::make_unique<lw::hazard_pointer_domain>();
        lw::hazard_pointer_domain &domain = *own, other;
        lw::hazard_pointer pointer = lw::make_hazard_pointer();
        std::atomic<by_hazard *> shared{new by_hazard};
        by_hazard *const kept = pointer.protect(shared);
        shared = nullptr;
        domain.retire(kept); // a hazard pointer protects objects of any domain
        domain.retire(new by_hazard, std::default_delete<by_hazard>());
        lw::hazard_pointer second = lw::make_hazard_pointer();
        auto *const elsewhere = new by_hazard;
        second.reset_protection(elsewhere); // else its domain may reclaim it at once
        other.retire(elsewhere);
        second.reset_protection();
        domain.collect();
        CHECK(gone == 1 && domain.garbage().objects == 1 && other.garbage().objects == 1);
        // A domain with an object that is protected cannot end.
        CHECK(aborts([&] { own.reset(); }));
        pointer.reset_protection();
        domain.collect();
        CHECK(gone == 2 && domain.garbage().objects == 0 && other.native_handle() != domain.native_handle());
        std::thread threads[4];
        for (auto &thread : threads) {
            thread = std::thread([&] {
                for (int i = 0; i < 300; i++) {
                    domain.retire(new by_hazard);
                }
            });
        }
        for (auto &thread : threads) {
            thread.join();
        }
    }
    CHECK(gone == 3 + 4 * 300); // the destructors have reclaimed the rest
    int calls = 0;
    {
        lw::hazard_pointer_domain domain;
        domain.retire(new told, deletes<told>{&calls});
    }
    CHECK(calls == 1);
}

inline void all() {
    rcu();
    hazards();
}

} // namespace domains
