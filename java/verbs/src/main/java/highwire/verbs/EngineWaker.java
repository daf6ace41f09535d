package highwire.verbs;

import java.io.FileInputStream;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.DatagramChannel;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;

/** How a program wakes an engine that sleeps: by the named pipe in the engine's directory. Without a pipe, by an empty datagram. */
abstract class EngineWaker {
    /** The pipe of lane 0, whose board programs ring. */
    static final String PIPE = "bell-0";

    static EngineWaker open(Path directory, InetSocketAddress engine) throws IOException {
        Path pipe = directory.resolve(PIPE);
        try {
            BasicFileAttributes is = Files.readAttributes(pipe, BasicFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
            if (is.isOther()) {
                return new Pipe(pipe);
            }
        } catch (IOException e) {
            // There is none, or none that this program may ring.
        }
        return new Datagram(engine);
    }

    /** The engine's own timer makes up for a wake-up that is lost. */
    abstract void wake();

    abstract void close();

    /**
     * Writes a byte for each ring, and the engine takes it.
     *
     * <p>The pipe is opened for reading and writing: then opening waits for no reader, and writing raises nothing when the engine has gone. The classes are those
     * that know no interrupts: an interrupted thread that writes through a channel closes it.
     */
    private static final class Pipe extends EngineWaker {
        /** Rings that nobody has heard, behind which another is not needed. Every pipe holds more, so that no write waits. */
        private static final int RINGS_MAX = 64;

        private final RandomAccessFile pipe;
        private final FileInputStream rings;

        Pipe(Path path) throws IOException {
            pipe = new RandomAccessFile(path.toFile(), "rw");
            rings = new FileInputStream(pipe.getFD());
        }

        @Override
        void wake() {
            try {
                if (rings.available() < RINGS_MAX) {
                    pipe.write(1);
                }
            } catch (IOException e) {
                // It is closed, and with it the context.
            }
        }

        @Override
        void close() {
            try {
                pipe.close();
            } catch (IOException e) {
                // The kernel closes it even if it reports an error.
            }
        }
    }

    private static final class Datagram extends EngineWaker {
        private final InetSocketAddress engine;
        private final DatagramChannel socket;

        Datagram(InetSocketAddress engine) throws IOException {
            this.engine = engine;
            socket = DatagramChannel.open();
            socket.configureBlocking(false);
        }

        @Override
        void wake() {
            try {
                socket.send(ByteBuffer.allocate(0), engine);
            } catch (IOException e) {
                // A full socket means that the engine has enough wake-ups waiting.
            }
        }

        @Override
        void close() {
            try {
                socket.close();
            } catch (IOException e) {
                // The kernel closes it even if it reports an error.
            }
        }
    }
}
