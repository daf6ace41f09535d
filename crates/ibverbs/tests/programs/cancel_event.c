/* The same with threads that wait in another way.
 * run: --wake event
 */
#include "cancel.c"
