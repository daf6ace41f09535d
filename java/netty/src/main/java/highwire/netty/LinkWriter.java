package highwire.netty;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelOutboundBuffer;
import io.netty.channel.FileRegion;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.WritableByteChannel;

/** What a channel writes into its {@link Link}, as far as there is room. In the channel's event loop. */
final class LinkWriter {
    private static final int BUFFERS_MAX = 1024;
    private static final long BYTES_PER_WRITE_MAX = 1 << 20;

    private boolean wantsRoom;

    /** Whether something is left to write that needs room. */
    boolean wantsRoom() {
        return wantsRoom;
    }

    /** What was left is tried again. */
    void retry() {
        wantsRoom = false;
    }

    /**
     * Writes and publishes.
     *
     * @param turns messages or parts of messages at most
     * @return false if that was too few, so that the event loop has to come back
     */
    boolean write(ChannelOutboundBuffer in, Outgoing outgoing, int turns) throws IOException {
        long before = outgoing.sent();
        try {
            return writeAll(in, outgoing, turns);
        } finally {
            if (outgoing.sent() != before) {
                outgoing.publish();
            }
        }
    }

    private boolean writeAll(ChannelOutboundBuffer in, Outgoing outgoing, int turns) throws IOException {
        wantsRoom = false;
        for (int left = turns; !in.isEmpty() && !wantsRoom; left--) {
            Object message = in.current();
            if (left == 0) {
                return false;
            }
            if (message instanceof FileRegion region) {
                wantsRoom = !writeRegion(in, region, outgoing);
            } else if (!((ByteBuf) message).isReadable()) {
                in.remove();
            } else {
                ByteBuffer[] buffers = in.nioBuffers(BUFFERS_MAX, BYTES_PER_WRITE_MAX);
                long bytes = in.nioBufferSize();
                long written = outgoing.write(buffers, in.nioBufferCount());
                in.removeBytes(written);
                wantsRoom = written < bytes;
            }
        }
        return true;
    }

    /** Copies as much of a region as there is room for; whether that is all. */
    private static boolean writeRegion(ChannelOutboundBuffer in, FileRegion region, Outgoing outgoing) throws IOException {
        while (region.transferred() < region.count()) {
            if (outgoing.room() == 0) {
                return false;
            }
            long count = region.transferTo(new Sink(outgoing), region.transferred());
            if (count <= 0) {
                return false;
            }
            in.progress(count);
        }
        in.remove();
        return true;
    }

    /** Where a file region is copied to. */
    private record Sink(Outgoing outgoing) implements WritableByteChannel {
        @Override
        public int write(ByteBuffer from) {
            return (int) outgoing.write(new ByteBuffer[] {from}, 1);
        }

        @Override
        public boolean isOpen() {
            return true;
        }

        @Override
        public void close() {}
    }
}
