// liburcu's readers, inlined into a loop: what `reclaimbench` compares with.
#define _LGPL_SOURCE
#include <urcu/urcu-memb.h>
#include <urcu/urcu-qsbr.h>

void latchwork_urcu_memb_register(void) { urcu_memb_register_thread(); }
void latchwork_urcu_memb_unregister(void) { urcu_memb_unregister_thread(); }
void latchwork_urcu_qsbr_register(void) { urcu_qsbr_register_thread(); }
void latchwork_urcu_qsbr_unregister(void) { urcu_qsbr_unregister_thread(); }
void latchwork_urcu_memb_synchronize(void) { urcu_memb_synchronize_rcu(); }

unsigned long latchwork_urcu_memb_read(unsigned long **root, unsigned long times)
{
	unsigned long sum = 0;
	for (unsigned long i = 0; i < times; i++) {
		urcu_memb_read_lock();
		sum += *rcu_dereference(*root);
		urcu_memb_read_unlock();
	}
	return sum;
}

unsigned long latchwork_urcu_qsbr_read(unsigned long **root, unsigned long times)
{
	unsigned long sum = 0;
	for (unsigned long i = 0; i < times; i++) {
		urcu_qsbr_read_lock();
		sum += *rcu_dereference(*root);
		urcu_qsbr_read_unlock();
		urcu_qsbr_quiescent_state();
	}
	return sum;
}
