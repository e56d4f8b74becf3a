#include <latchwork.hpp>

int main() {
    lw::mutex mutex;
    const std::lock_guard guard(mutex);
    return lw::rcu_ptr<int>(7).read().operator*() - 7;
}
