/* latchwork for C++17 and later: the locks of latchwork.h with the names and the interfaces of the standard library.
 *
 *     namespace locks = lw;                     // was: namespace locks = std;
 *     locks::mutex mutex;
 *     std::lock_guard lock(mutex);              // std's guards work with these locks
 *
 * | here                                     | in place of                                      |
 * | lw::mutex, lw::timed_mutex               | std::mutex, std::timed_mutex: one type           |
 * | lw::recursive_mutex, recursive_timed_mutex | std's                                          |
 * | lw::shared_mutex, lw::shared_timed_mutex | std's: one type                                  |
 * | lw::condition_variable, _any             | std's; with stop_token in C++20                  |
 * | lw::counting_semaphore, binary_semaphore | C++20's                                          |
 * | lw::lock_guard, unique_lock, ...         | std's own, by a using-declaration                |
 * | lw::basic_mutex<lw::mcs>, ...            | every lock of `latchwork list`                   |
 * | lw::upgrade_lock<M>, upgrade_to_unique_lock<M> | Boost.Thread's: upgradable reads           |
 * | lw::seqlock<T>                           |                                                  |
 * | lw::rcu_ptr<T>                           | a value that is read all the time and replaced as a whole |
 *
 * Each header of the directory latchwork that ends in .hpp can be included by itself. C++26's <rcu> and <hazard_pointer> are
 * latchwork/rcu and latchwork/hazard_pointer. docs/cpp.md is the manual. */
#ifndef LATCHWORK_HPP
#define LATCHWORK_HPP

#include "latchwork.h"

#include "latchwork/condition_variable.hpp"
#include "latchwork/locks.hpp"
#include "latchwork/mutex.hpp"
#include "latchwork/rcu_ptr.hpp"
#include "latchwork/semaphore.hpp"
#include "latchwork/seqlock.hpp"
#include "latchwork/shared_mutex.hpp"
#include "latchwork/upgrade.hpp"

#include <mutex>
#include <shared_mutex>

namespace lw {

using std::adopt_lock;
using std::adopt_lock_t;
using std::call_once;
using std::defer_lock;
using std::defer_lock_t;
using std::lock;
using std::lock_guard;
using std::once_flag;
using std::scoped_lock;
using std::shared_lock;
using std::try_lock;
using std::try_to_lock;
using std::try_to_lock_t;

} // namespace lw

#endif
