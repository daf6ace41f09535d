package highwire.netty;

import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.UnpooledDirectByteBuf;
import java.nio.ByteBuffer;

/** Received bytes where the peer has written them. Releasing the buffer gives them back. */
final class LentByteBuf extends UnpooledDirectByteBuf {
    private final Memory memory;
    private final Block block;

    LentByteBuf(ByteBufAllocator allocator, Memory memory, Block block, ByteBuffer bytes) {
        super(allocator, bytes, bytes.remaining());
        this.memory = memory;
        this.block = block;
        memory.retain();
        block.retain();
    }

    @Override
    protected void deallocate() {
        super.deallocate();
        block.release();
        memory.release();
    }
}
