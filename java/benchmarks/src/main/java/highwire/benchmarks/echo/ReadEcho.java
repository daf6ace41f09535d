package highwire.benchmarks.echo;

import highwire.verbs.PostSend;
import java.io.IOException;

/** READ: the message lies at the server, which does nothing. */
final class ReadEcho extends VerbsEcho {
    private static final int THERE = 0x52454144;

    ReadEcho(Waits waits) {
        super(waits);
    }

    @Override
    void prepare(VerbsEnd end) {
        end.number(THERE);
    }

    @Override
    void answer(VerbsEnd end) {}

    @Override
    Asking ask(VerbsEnd end) {
        PostSend read = end.read();
        return new Asking(end) {
            @Override
            int exchange(int number) throws IOException, InterruptedException {
                end.forget();
                read.exec();
                end.awaitSent();
                return end.first() == THERE ? number : end.first();
            }
        };
    }
}
