/* The same with threads that wait in another way.
 * run: --wake power
 */
#include "cancel.c"
