package highwire.benchmarks.echo;

import highwire.verbs.Opcode;
import highwire.verbs.PostSend;
import java.io.IOException;

/** SEND and RECV, both ways. */
final class SendEcho extends VerbsEcho {
    SendEcho(Waits waits) {
        super(waits);
    }

    @Override
    void answer(VerbsEnd end) throws IOException, InterruptedException {
        PostSend back = end.back(Opcode.SEND);
        while (end.awaitReceived()) {
            back.exec();
            end.reap();
        }
    }

    @Override
    Asking ask(VerbsEnd end) {
        PostSend send = end.outgoing(Opcode.SEND);
        return new Asking(end) {
            @Override
            int exchange(int number) throws IOException, InterruptedException {
                end.number(number);
                send.exec();
                end.awaitReceived();
                end.reap();
                return end.first();
            }
        };
    }
}
