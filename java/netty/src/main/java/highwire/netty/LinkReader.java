package highwire.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.channel.ChannelPipeline;
import io.netty.channel.RecvByteBufAllocator;
import io.netty.channel.socket.ChannelInputShutdownEvent;
import io.netty.channel.socket.ChannelInputShutdownReadComplete;

/** What a channel reads from its {@link Link}, when its program wants it, and how the program hears of the peer's end. In the channel's event loop. */
final class LinkReader {
    private final HighwireSocketChannel channel;
    private boolean isWanted;
    /** The program has asked for the read itself, so that auto-read does not matter. */
    private boolean isExplicit;
    /** 0 while the peer may write, 1 once its end was told, 2 once a read after that was answered. */
    private int ended;

    LinkReader(HighwireSocketChannel channel) {
        this.channel = channel;
    }

    /** The program wants to read. */
    void begin() {
        isWanted = true;
        isExplicit = !channel.config().isAutoRead();
    }

    boolean mayRead() {
        return isWanted && ended < 2 && (isExplicit || channel.config().isAutoRead());
    }

    /** Whether the program is to hear of the peer's end: once all is read, also if it reads nothing more, as over epoll. */
    boolean mayEnd(Link link) {
        return ended < 2 && link.isPeerFinished() && link.readable() == 0;
    }

    /** Reads for as long as the allocator's handle says. */
    @SuppressWarnings("deprecation")
    void read(Link link) {
        ChannelPipeline pipeline = channel.pipeline();
        RecvByteBufAllocator.Handle handle = channel.unsafe().recvBufAllocHandle();
        handle.reset(channel.config());
        do {
            int length = Math.min(link.readable(), handle.guess());
            if (length <= 0) {
                break;
            }
            ByteBuf bytes = take(link, handle, length);
            handle.attemptedBytesRead(bytes.readableBytes());
            handle.lastBytesRead(bytes.readableBytes());
            handle.incMessagesRead(1);
            isExplicit = false;
            pipeline.fireChannelRead(bytes);
        } while (channel.isOpen() && !channel.isInputShutdown() && handle.continueReading());
        handle.readComplete();
        pipeline.fireChannelReadComplete();
        if (!isExplicit && !channel.config().isAutoRead()) {
            isWanted = false;
        }
    }

    @SuppressWarnings("deprecation")
    private ByteBuf take(Link link, RecvByteBufAllocator.Handle handle, int length) {
        ByteBufAllocator allocator = channel.config().getAllocator();
        if (link.mayLend(length)) {
            return link.lend(allocator, length);
        }
        ByteBuf bytes = handle.allocate(allocator);
        link.copy(bytes, Math.min(length, bytes.writableBytes()));
        return bytes;
    }

    /** Tells the program that the peer writes no more. */
    void end() {
        isExplicit = false;
        if (ended > 0 || channel.isInputShutdown()) {
            ended = 2;
            channel.pipeline().fireUserEventTriggered(ChannelInputShutdownReadComplete.INSTANCE);
        } else if (channel.config().isAllowHalfClosure()) {
            ended = 1;
            channel.shutdownInput();
            channel.pipeline().fireUserEventTriggered(ChannelInputShutdownEvent.INSTANCE);
        } else {
            channel.unsafe().close(channel.voidPromise());
        }
    }
}
