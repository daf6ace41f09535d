package com.ibm.disni.verbs;

import java.io.IOException;

/**
 * Posts send requests. Their operations are fixed; addresses, lengths, keys, flags and numbers can be changed
 * in place.
 */
public abstract class SVCPostSend implements StatefulVerbCall<SVCPostSend> {
    /** For the implementation. */
    public SVCPostSend() {}

    /**
     * A request, to change it.
     *
     * @param index from 0
     * @return the request
     * @throws IOException there is no such request
     */
    public abstract SendWRMod getWrMod(int index) throws IOException;

    /** A serialised request; as {@code ibv_send_wr}. */
    public interface SendWRMod {
        /**
         * Names the request.
         *
         * @param wrId comes back in the completion
         */
        void setWr_id(long wrId);

        /**
         * Sets the flags of the request.
         *
         * @param flags bits of {@code IbvSendWR.IBV_SEND_…}
         */
        void setSend_flags(int flags);

        /** {@return its number} */
        long getWr_id();

        /** {@return pieces of memory} */
        int getNum_sge();

        /** {@return what it does} */
        int getOpcode();

        /** {@return its flags} */
        int getSend_flags();

        /** {@return where in the peer's memory it works} */
        RdmaMod getRdmaMod();

        /**
         * A piece of memory.
         *
         * @param index from 0
         * @return the piece
         * @throws IndexOutOfBoundsException there is no such piece
         */
        SgeMod getSgeMod(int index);
    }

    /** The peer's memory. */
    public interface RdmaMod {
        /**
         * Sets the address.
         *
         * @param address where
         */
        void setRemote_addr(long address);

        /** {@return where} */
        long getRemote_addr();

        /**
         * Sets the peer's key.
         *
         * @param rkey the peer's key
         */
        void setRkey(int rkey);

        /** {@return the peer's key} */
        int getRkey();

        /**
         * Sets a number without meaning.
         *
         * @param reserved is ignored
         */
        void setReserved(int reserved);

        /** {@return 0} */
        int getReserved();
    }

    /** A piece of this program's memory; checked when the call is executed. */
    public interface SgeMod {
        /**
         * Sets the address.
         *
         * @param address where
         */
        void setAddr(long address);

        /** {@return where} */
        long getAddr();

        /**
         * Sets the length.
         *
         * @param length in bytes
         */
        void setLength(int length);

        /** {@return in bytes} */
        int getLength();

        /**
         * Sets the key of the memory.
         *
         * @param lkey the region's key
         */
        void setLkey(int lkey);

        /** {@return the region's key} */
        int getLkey();
    }
}
