//! How a node shows another one that it belongs to the cluster: challenge and answer, without the key on the wire.
//!
//! ```text
//!   asks ── Challenge { nonce } ──────────────▶ answers
//!        ◀── Challenged { nonce, proof } ──────   proof: of the answering end, over both nonces
//!        ── Prove { proof } ──────────────────▶   proof: of the asking end, over both nonces
//!        ◀── Welcome ─────────────────────────
//! ```
//!
//! Both ends draw a nonce, so no proof of another conversation is one of this. The two proofs are of different kinds, so neither end can
//! give back what it was given.

use std::fmt;

/// Bytes of a nonce.
pub(crate) const NONCE_BYTES: usize = 32;
/// Bytes of a proof.
pub(crate) const PROOF_BYTES: usize = 32;

const CONTEXT: &str = "highwire store 2026: nodes prove to each other that they are of one cluster";

/// The key with which nodes of one cluster prove that they are.
#[derive(Clone)]
pub(crate) struct NodeKey([u8; 32]);

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeKey(…)")
    }
}

/// Whose proof it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Asks = 1,
    Answers = 2,
}

impl NodeKey {
    /// Derived from the register's secret, and the cluster's key if there is one.
    pub(crate) fn new(secret: u64, cluster: Option<&[u8; 32]>) -> NodeKey {
        let material = [&secret.to_be_bytes()[..], cluster.map_or(&[][..], |key| &key[..])].concat();
        NodeKey(blake3::derive_key(CONTEXT, &material))
    }

    pub(crate) fn prove(
        &self,
        end: End,
        asks: &[u8; NONCE_BYTES],
        answers: &[u8; NONCE_BYTES],
    ) -> [u8; PROOF_BYTES] {
        *self.proof(end, asks, answers).as_bytes()
    }

    /// Whether a proof is right; the comparison takes the same time wherever they differ.
    pub(crate) fn is_proved(
        &self,
        end: End,
        asks: &[u8; NONCE_BYTES],
        answers: &[u8; NONCE_BYTES],
        proof: [u8; PROOF_BYTES],
    ) -> bool {
        self.proof(end, asks, answers) == blake3::Hash::from_bytes(proof)
    }

    fn proof(&self, end: End, asks: &[u8; NONCE_BYTES], answers: &[u8; NONCE_BYTES]) -> blake3::Hash {
        blake3::keyed_hash(&self.0, &[&[end as u8][..], asks, answers].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_of_one_end_one_conversation_and_one_key() {
        let (cluster, asks, answers) = ([7; 32], [1; NONCE_BYTES], [2; NONCE_BYTES]);
        let key = NodeKey::new(9, Some(&cluster));
        let proof = key.prove(End::Asks, &asks, &answers);
        assert!(key.is_proved(End::Asks, &asks, &answers, proof));
        assert!(!key.is_proved(End::Answers, &asks, &answers, proof), "it was given back");
        assert!(!key.is_proved(End::Asks, &asks, &[3; NONCE_BYTES], proof), "of another conversation");
        assert!(!key.is_proved(End::Asks, &answers, &asks, proof));
        for other in [NodeKey::new(8, Some(&cluster)), NodeKey::new(9, None), NodeKey::new(9, Some(&[6; 32]))]
        {
            assert!(!other.is_proved(End::Asks, &asks, &answers, proof));
        }
        for byte in 0..PROOF_BYTES {
            let mut bent = proof;
            bent[byte] ^= 1;
            assert!(!key.is_proved(End::Asks, &asks, &answers, bent), "byte {byte}");
        }
    }
}
