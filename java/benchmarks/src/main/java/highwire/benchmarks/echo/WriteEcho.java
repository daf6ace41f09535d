package highwire.benchmarks.echo;

import highwire.verbs.Opcode;
import highwire.verbs.PostSend;
import java.io.IOException;

/** WRITE, both ways; both ends spin on the last bytes of their memory. */
final class WriteEcho extends VerbsEcho {
    WriteEcho() {
        super(Waits.POLLING);
    }

    @Override
    void answer(VerbsEnd end) throws IOException {
        PostSend back = end.back(Opcode.WRITE);
        for (int number = 1; end.awaitNumber(number); number++) {
            back.exec();
            end.reap();
        }
    }

    @Override
    Asking ask(VerbsEnd end) {
        PostSend write = end.outgoing(Opcode.WRITE);
        return new Asking(end) {
            @Override
            int exchange(int number) throws IOException {
                end.number(number);
                write.exec();
                end.reap();
                end.awaitNumber(number);
                return end.first();
            }
        };
    }
}
