/* The program in C, compiled as C++. */
#include "rcu_list.c"
