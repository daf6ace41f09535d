package highwire.benchmarks.echo;

import java.io.IOException;

/** Queue pairs of Highwire. A subclass chooses the operations. */
abstract class VerbsEcho implements Echo {
    private final Waits waits;

    VerbsEcho(Waits waits) {
        this.waits = waits;
    }

    /** Prepares the server's memory before a client comes. */
    void prepare(VerbsEnd end) {}

    /** The server's thread, until its end is stopped. */
    abstract void answer(VerbsEnd end) throws IOException, InterruptedException;

    /** The client, over an end that is connected. */
    abstract Asking ask(VerbsEnd end);

    abstract static class Asking extends Turns {
        final VerbsEnd end;

        Asking(VerbsEnd end) {
            this.end = end;
        }

        @Override
        public final String introduction() {
            return end.introduction();
        }

        @Override
        public final void close() throws IOException {
            end.close();
        }
    }

    private final class Answering implements Server {
        private final VerbsEnd end;
        private Thread thread;

        Answering(int bytes) throws IOException {
            end = new VerbsEnd(bytes, waits);
            prepare(end);
        }

        @Override
        public String introduction() {
            return end.introduction();
        }

        @Override
        public void meet(String client) throws IOException {
            end.connect(client);
            thread = Thread.ofPlatform().name("echo").daemon().start(this::run);
        }

        private void run() {
            try {
                answer(end);
            } catch (IOException | InterruptedException e) {
                // One of the ends was closed.
            }
        }

        @Override
        public void close() throws Exception {
            end.stop();
            if (thread != null) {
                thread.interrupt();
                thread.join();
            }
            end.close();
        }
    }

    @Override
    public final Server serve(int bytes) throws IOException {
        return new Answering(bytes);
    }

    @Override
    public final Client connect(String server, int bytes) throws IOException {
        VerbsEnd end = new VerbsEnd(bytes, waits);
        end.connect(server);
        return ask(end);
    }
}
