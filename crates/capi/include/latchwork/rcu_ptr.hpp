/* lw::rcu_ptr<T>, and a guard for sections of RCU. */
#ifndef LATCHWORK_RCU_PTR_HPP
#define LATCHWORK_RCU_PTR_HPP

#include "rcu.h"

#include <memory>
#include <utility>

namespace lw {

/* A section of RCU, until the end of the block. */
class rcu_section {
  public:
    rcu_section() noexcept { lw_rcu_read_lock(); }
    ~rcu_section() { lw_rcu_read_unlock(); }
    rcu_section(const rcu_section &) = delete;
    rcu_section &operator=(const rcu_section &) = delete;
};

/* A value that is read all the time and replaced as a whole. */
template <class T> class rcu_ptr {
    struct Node {
        lw_rcu_head head = {};
        T value;
        template <class... Args> explicit Node(Args &&...args) : value(std::forward<Args>(args)...) {}
    };

    static void reclaim(lw_rcu_head *head) noexcept { delete reinterpret_cast<Node *>(head); }
    static void retire(Node *node) noexcept {
        if (node) {
            lw_rcu_call(nullptr, &node->head, reinterpret_cast<lw_rcu_callback *>(&reclaim));
        }
    }

  public:
    /* The value, in a section. It stays as it is until this is destroyed. */
    class reference {
      public:
        ~reference() { lw_rcu_read_unlock(); }
        reference(const reference &) = delete;
        reference &operator=(const reference &) = delete;
        const T &operator*() const noexcept { return node_->value; }
        const T *operator->() const noexcept { return &node_->value; }
        const T *get() const noexcept { return node_ ? &node_->value : nullptr; }
        explicit operator bool() const noexcept { return node_ != nullptr; }

      private:
        friend class rcu_ptr;
        explicit reference(Node *const *from) noexcept : node_((lw_rcu_read_lock(), lw_rcu_dereference(from))) {}
        const Node *node_;
    };

    constexpr rcu_ptr() noexcept = default;
    template <class... Args>
    explicit rcu_ptr(std::in_place_t, Args &&...args) : node_(new Node(std::forward<Args>(args)...)) {}
    explicit rcu_ptr(T value) : rcu_ptr(std::in_place, std::move(value)) {}
    ~rcu_ptr() { retire(node_); }
    rcu_ptr(const rcu_ptr &) = delete;
    rcu_ptr &operator=(const rcu_ptr &) = delete;

    reference read() const noexcept { return reference(&node_); }

    /* Replaces the value. The old one is destroyed when no reader has it any more. */
    void store(T value) { retire(lw_rcu_exchange(&node_, new Node(std::move(value)))); }
    void reset() noexcept { retire(lw_rcu_exchange(&node_, static_cast<Node *>(nullptr))); }

    /* Replaces the value by `change(value)`, and tries again if another thread has replaced it meanwhile. There must be
     * one. `change` runs in a section: it must not wait for readers, nor take long. */
    template <class F> void update(F change) {
        retire(exchange_for(change)); // outside of the section, where it can reclaim what was retired before
    }

  private:
    /* Returns the node that was replaced. */
    template <class F> Node *exchange_for(F &change) {
        rcu_section section;
        Node *old = lw_rcu_dereference(&node_);
        for (;;) {
            std::unique_ptr<Node> next(new Node(change(static_cast<const T &>(old->value))));
            if (__atomic_compare_exchange_n(&node_, &old, next.get(), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
                next.release();
                return old;
            }
        }
    }

    Node *node_ = nullptr;
};

} // namespace lw

#endif
