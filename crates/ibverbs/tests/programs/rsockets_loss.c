/* The same over a network that loses packets, where the ends of both directions overtake each other.
 *
 * links: udp
 * run: --loss 1%
 * arguments: 12 30 rsockets
 * arguments: 31 30 rsockets
 */
#include "rsockets_stress.c"
