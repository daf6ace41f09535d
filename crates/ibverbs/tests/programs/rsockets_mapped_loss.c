/* The same over a network that loses packets, where mappings wait for the peer to hear of the ones before them.
 *
 * links: udp
 * run: --loss 20%
 * arguments: 3 30
 * arguments: 4 30
 */
#include "rsockets_mapped.c"
