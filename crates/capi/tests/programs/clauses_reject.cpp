// What must not compile, by clause: -DREJECT=n is one case, and -DREJECT=0 compiles. The comment after the case's number is
// what the compiler must say. Only compilers with the attribute [[clang::no_specializations]] refuse those that name it.
#include "latchwork/hazard_pointer"
#include "latchwork/rcu"

#ifndef REJECT
#define REJECT 0
#endif

#if REJECT == 102 // clause 1: not a rcu-protectable type
struct t : private lw::rcu_obj_base<t> {
    void f() { retire(); }
};
#elif REJECT == 103 // clause 1: not a rcu-protectable type
struct t : virtual lw::rcu_obj_base<t> {};
void f(t &x) { x.retire(); }
#elif REJECT == 104 // clause 1: not a rcu-protectable type
struct u;
struct t : lw::rcu_obj_base<t>, lw::rcu_obj_base<u> {};
void f(t &x) { static_cast<lw::rcu_obj_base<t> &>(x).retire(); }
#elif REJECT == 105 // clause 1: not a rcu-protectable type
struct t : protected lw::rcu_obj_base<t> {
    void f() { retire(); }
};
#elif REJECT == 106 // clause 15: not a rcu-protectable type
struct nothing {};
struct t : lw::rcu_obj_base<nothing> {};
void f(t &x) { x.retire(); }
#elif REJECT == 1001 /* no_specializations */ // clause 10: does not specialise it
struct t;
template <> class lw::rcu_obj_base<t> {};
#elif REJECT == 6301 // clause 63: head_
struct t;
template <> class lw::hazard_pointer_obj_base<t> {};
struct t : lw::hazard_pointer_obj_base<t> {};
lw::hazard_pointer hp;
void f(t *p) { hp.reset_protection(p); }
#elif REJECT == 6302 /* no_specializations */ // clause 63: does not specialise it
struct t;
template <> class lw::hazard_pointer_obj_base<t> {};
#elif REJECT == 1201 // clause 12: error
struct t : lw::rcu_obj_base<t, int> {};
void f(t &x) { x.retire(); }
#elif REJECT == 1301 // clause 13: error
struct d {
    explicit d(int);
    void operator()(void *) const;
};
struct t : lw::rcu_obj_base<t, d> {};
void f(t &x) { x.retire(d(1)); }
#elif REJECT == 2501 // clause 25: deleted
lw::rcu_domain copy(lw::rcu_default_domain());
#elif REJECT == 4801 // clause 48: D cannot be moved
struct fixed {
    fixed() = default;
    fixed(fixed &&) = delete;
    void operator()(int *) const {}
};
void f(int *p) { lw::rcu_retire<int, fixed>(p); }
#elif REJECT == 4802 // clause 48: d(p) is not well-formed
struct d {};
void f(int *p) { lw::rcu_retire(p, d()); }
#elif REJECT == 5201 // clause 52: not a hazard-protectable type
struct t : lw::hazard_pointer_obj_base<t> {};
lw::hazard_pointer hp;
std::atomic<const t *> src;
void f() { hp.protect(src); }
#elif REJECT == 5202 // clause 52: not a hazard-protectable type
struct a : lw::hazard_pointer_obj_base<a> {};
struct b : a {};
lw::hazard_pointer hp;
void f(b *p) { hp.reset_protection(p); }
#elif REJECT == 5203 // clause 52: not a hazard-protectable type
struct t : virtual lw::hazard_pointer_obj_base<t> {};
lw::hazard_pointer hp;
void f(t *p) { hp.reset_protection(p); }
#elif REJECT == 6201 // clause 62: error
struct t : lw::hazard_pointer_obj_base<t, int> {};
void f(t &x) { x.retire(); }
#elif REJECT == 6601 // clause 66: not a hazard-protectable type
struct u {};
struct t : lw::hazard_pointer_obj_base<u> {};
void f(t &x) { x.retire(); }
#elif REJECT == 7401 // clause 74: deleted
lw::hazard_pointer one;
lw::hazard_pointer two = one;
#elif REJECT == 8101 // clause 81: not a hazard-protectable type
lw::hazard_pointer hp;
std::atomic<int *> src;
void f() { hp.protect(src); }
#elif REJECT == 9101 // clause (none): not a hazard-protectable type
struct t {};
void f(lw::hazard_pointer_domain &domain, t *p) { domain.retire(p); }
#elif REJECT == 9102 // clause (none): the mutex has no upgradable reads
#include "latchwork/mutex.hpp"
#include "latchwork/upgrade.hpp"
lw::mutex mutex;
lw::upgrade_lock<lw::mutex> reading(mutex);
#else
struct t : lw::rcu_obj_base<t>, lw::hazard_pointer_obj_base<t> {};
lw::hazard_pointer hp;
std::atomic<t *> src;
void f(t &x) {
    static_cast<lw::rcu_obj_base<t> &>(x).retire();
    static_cast<lw::hazard_pointer_obj_base<t> &>(x).retire();
    hp.protect(src);
}
#endif
