package com.ibm.disni.verbs;

import highwire.verbs.MemoryRegion;
import highwire.verbs.Opcode;
import highwire.verbs.PostSend;
import highwire.verbs.QueueFullException;
import highwire.verbs.SendRequest;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.util.List;

/**
 * Send requests, serialised once. Numbers, the peer's memory, and addresses and lengths within a region are changed in the serialised form; other flags,
 * another region, and another length of inline data make it anew at the next execution.
 */
final class PostSendCall extends SVCPostSend {
    private static final Opcode[] OPCODES = Opcode.values();

    private final IbvQP queuePair;
    private final Request[] requests;
    /** Null if it must be made anew. */
    private PostSend call;
    private boolean isFreed;

    PostSendCall(IbvQP queuePair, List<IbvSendWR> described) throws IOException {
        this.queuePair = queuePair;
        this.requests = new Request[described.size()];
        for (int i = 0; i < requests.length; i++) {
            requests[i] = new Request(described.get(i));
        }
        serialise();
    }

    @Override
    public SVCPostSend execute() throws IOException {
        if (isFreed) {
            throw new IOException("the call was freed");
        }
        if (call == null) {
            serialise();
        }
        for (int i = 0; i < requests.length; i++) {
            requests[i].bringUp(call.request(i));
        }
        try {
            call.exec();
        } catch (QueueFullException e) {
            throw new IOException("the send queue is full", e);
        } catch (IllegalStateException e) {
            throw new IOException(e.getMessage(), e);
        }
        return this;
    }

    private void serialise() throws IOException {
        SendRequest[] described = new SendRequest[requests.length];
        try {
            for (int i = 0; i < described.length; i++) {
                described[i] = requests[i].describe();
            }
            call = queuePair.queuePair.postSend(described);
        } catch (IndexOutOfBoundsException | IllegalArgumentException | IllegalStateException e) {
            throw new IOException("the requests cannot be posted: " + e.getMessage(), e);
        }
    }

    @Override
    public SendWRMod getWrMod(int index) throws IOException {
        if (index < 0 || index >= requests.length) {
            throw new IOException("the call has " + requests.length + " requests, none is number " + index);
        }
        return requests[index];
    }

    @Override
    public boolean isValid() {
        return !isFreed && (call == null ? queuePair.isOpen() : call.valid());
    }

    @Override
    public SVCPostSend free() {
        isFreed = true;
        return this;
    }

    /** A request as it is now, ahead of its serialised form while it is dirty. */
    private final class Request implements SendWRMod, RdmaMod {
        private final Opcode opcode;
        private final int imm;
        private final long compareAdd;
        private final long swap;
        private final Piece[] pieces;
        private long wrId;
        private int flags;
        private long remoteAddress;
        private int rkey;
        private boolean isDirty;

        Request(IbvSendWR described) throws IOException {
            if (described.getOpcode() < 0 || described.getOpcode() >= OPCODES.length) {
                throw new IOException("there is no opcode " + described.getOpcode());
            }
            this.opcode = OPCODES[described.getOpcode()];
            this.wrId = described.getWr_id();
            this.flags = described.getSend_flags();
            this.imm = described.getImm_data();
            boolean isAtomic = opcode == Opcode.COMPARE_SWAP || opcode == Opcode.FETCH_ADD;
            this.remoteAddress = isAtomic ? described.getAtomic().getRemote_addr() : described.getRdma().getRemote_addr();
            this.rkey = isAtomic ? described.getAtomic().getRkey() : described.getRdma().getRkey();
            this.compareAdd = described.getAtomic().getCompare_add();
            this.swap = described.getAtomic().getSwap();
            this.pieces = described.getSg_list().stream().map(sge -> new Piece(this, sge)).toArray(Piece[]::new);
        }

        private boolean isInline() {
            return (flags & IbvSendWR.IBV_SEND_INLINE) != 0;
        }

        /** The whole request, from which the serialised form is made. */
        SendRequest describe() throws IOException {
            SendRequest request = new SendRequest(opcode)
                    .wrId(wrId)
                    .remote(remoteAddress, rkey)
                    .imm(imm)
                    .signaled(queuePair.isAllSignaled || (flags & IbvSendWR.IBV_SEND_SIGNALED) != 0)
                    .solicited((flags & IbvSendWR.IBV_SEND_SOLICITED) != 0)
                    .fence((flags & IbvSendWR.IBV_SEND_FENCE) != 0);
            if (opcode == Opcode.COMPARE_SWAP) {
                request.compareSwap(compareAdd, swap);
            } else if (opcode == Opcode.FETCH_ADD) {
                request.add(compareAdd);
            }
            int total = 0;
            for (Piece piece : pieces) {
                piece.find();
                total += piece.length;
                if (!isInline()) {
                    request.sge(piece.region, piece.offset(), piece.length);
                }
            }
            isDirty = isInline();
            return isInline() ? request.inline(new byte[total]) : request;
        }

        /** Writes the changes into the serialised form; inline data is read at each execution. */
        void bringUp(PostSend.Request serialised) throws IOException {
            if (!isDirty) {
                return;
            }
            serialised.wrId(wrId);
            if (opcode != Opcode.SEND && opcode != Opcode.SEND_WITH_IMM) {
                serialised.remoteAddress(remoteAddress).rkey(rkey);
            }
            try {
                if (isInline()) {
                    long to = 0;
                    for (Piece piece : pieces) {
                        MemorySegment.copy(piece.region.segment(), piece.offset(), serialised.inlineData(), to, piece.length);
                        to += piece.length;
                    }
                    return;
                }
                for (int i = 0; i < pieces.length; i++) {
                    serialised.sge(i, pieces[i].offset(), pieces[i].length);
                }
            } catch (IndexOutOfBoundsException | IllegalStateException e) {
                throw new IOException("a request cannot be posted: " + e.getMessage(), e);
            }
            isDirty = false;
        }

        @Override
        public void setWr_id(long wrId) {
            this.wrId = wrId;
            isDirty = true;
        }

        @Override
        public long getWr_id() {
            return wrId;
        }

        @Override
        public void setSend_flags(int flags) {
            if (flags != this.flags) {
                this.flags = flags;
                call = null;
            }
        }

        @Override
        public int getSend_flags() {
            return flags;
        }

        @Override
        public int getNum_sge() {
            return pieces.length;
        }

        @Override
        public int getOpcode() {
            return opcode.number();
        }

        @Override
        public RdmaMod getRdmaMod() {
            return this;
        }

        @Override
        public SgeMod getSgeMod(int index) {
            return pieces[index];
        }

        @Override
        public void setRemote_addr(long address) {
            remoteAddress = address;
            isDirty = true;
        }

        @Override
        public long getRemote_addr() {
            return remoteAddress;
        }

        @Override
        public void setRkey(int rkey) {
            this.rkey = rkey;
            isDirty = true;
        }

        @Override
        public int getRkey() {
            return rkey;
        }

        @Override
        public void setReserved(int reserved) {}

        @Override
        public int getReserved() {
            return 0;
        }
    }

    /** A piece of memory as it is now. */
    private final class Piece implements SgeMod {
        private final Request request;
        private long address;
        private int length;
        private int lkey;
        private MemoryRegion region;

        Piece(Request request, IbvSge described) {
            this.request = request;
            this.address = described.getAddr();
            this.length = described.getLength();
            this.lkey = described.getLkey();
        }

        void find() throws IOException {
            region = queuePair.getPd().region(lkey);
        }

        long offset() {
            return address - region.address();
        }

        @Override
        public void setAddr(long address) {
            this.address = address;
            request.isDirty = true;
        }

        @Override
        public long getAddr() {
            return address;
        }

        @Override
        public void setLength(int length) {
            if (length != this.length && request.isInline()) {
                call = null;
            }
            this.length = length;
            request.isDirty = true;
        }

        @Override
        public int getLength() {
            return length;
        }

        @Override
        public void setLkey(int lkey) {
            if (lkey != this.lkey) {
                this.lkey = lkey;
                call = null;
            }
        }

        @Override
        public int getLkey() {
            return lkey;
        }
    }
}
