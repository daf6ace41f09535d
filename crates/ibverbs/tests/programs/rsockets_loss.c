/* The same over a network that loses packets, where the ends of both directions overtake each other.
 *
 * links: udp
 * run: --loss 15%
 * arguments: 12 40 rsockets
 * arguments: 31 40 rsockets
 */
#include "rsockets_stress.c"
