package highwire.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.socket.SocketChannel;
import java.io.ByteArrayOutputStream;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CopyOnWriteArrayList;

/** The last handler of a channel: remembers all that comes. */
final class End extends ChannelInboundHandlerAdapter {
    final SocketChannel channel;
    final List<Throwable> exceptions = new CopyOnWriteArrayList<>();
    final List<Object> events = new CopyOnWriteArrayList<>();
    /** Messages that are kept as they came, if so. */
    final Queue<ByteBuf> kept = new ConcurrentLinkedQueue<>();
    volatile boolean isKeeping;
    volatile boolean isInactive;
    volatile int reads;
    private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();

    End(Channel channel) {
        this.channel = (SocketChannel) channel;
    }

    HighwireSocketChannel highwire() {
        return (HighwireSocketChannel) channel;
    }

    boolean isOverQueuePair() {
        return channel instanceof HighwireSocketChannel own && own.isOverQueuePair();
    }

    ChannelFuture write(byte[] some) {
        return channel.writeAndFlush(Unpooled.wrappedBuffer(some));
    }

    synchronized byte[] bytes() {
        return bytes.toByteArray();
    }

    synchronized int size() {
        return bytes.size();
    }

    void awaitBytes(int count) {
        Engine.until(count + " bytes", () -> size() >= count);
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object message) {
        ByteBuf buffer = (ByteBuf) message;
        synchronized (this) {
            byte[] some = new byte[buffer.readableBytes()];
            buffer.getBytes(buffer.readerIndex(), some);
            bytes.writeBytes(some);
            reads++;
        }
        if (isKeeping) {
            kept.add(buffer);
        } else {
            buffer.release();
        }
    }

    @Override
    public void userEventTriggered(ChannelHandlerContext context, Object event) {
        events.add(event);
    }

    @Override
    public void channelInactive(ChannelHandlerContext context) {
        isInactive = true;
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        exceptions.add(cause);
    }
}
