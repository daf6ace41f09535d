package highwire.netty;

import java.util.concurrent.atomic.AtomicInteger;

/** A block of receive memory: in use while the stream is in it, and while bytes of it are lent. */
final class Block {
    final int index;
    private final Link link;
    private final AtomicInteger users = new AtomicInteger();

    Block(Link link, int index) {
        this.link = link;
        this.index = index;
    }

    /** The stream may enter it. */
    void begin() {
        users.set(1);
    }

    void retain() {
        users.incrementAndGet();
    }

    /** Any thread: the stream has left it, or bytes came back. */
    void release() {
        if (users.decrementAndGet() == 0) {
            link.freed(this);
        }
    }
}
