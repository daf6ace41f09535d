/** Netty's socket channels over queue pairs: {@code HighwireSocketChannel} takes the place of {@code EpollSocketChannel}. */
package highwire.netty;
