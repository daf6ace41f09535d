//! A frame's layers, and the rules and hashes that use them.

use highwire_verbs::{FlowRule, FlowSpec, SPREAD_KEY_LEN, Spread, SpreadFields};
use highwire_wire::{LAYER_KEY_LEN, Layer, LayerKind, Layers};

/// Any bytes as an Ethernet frame; the first byte is not part of it, and chooses where it is cut and which
/// bit is flipped.
pub(crate) fn layers(input: &[u8]) {
    let Some((&choice, bytes)) = input.split_first() else { return };
    let Ok(layers) = Layers::parse(bytes) else {
        assert!(bytes.len() < 14, "whatever has an Ethernet header is a frame");
        return;
    };
    let list: Vec<Layer> = layers.iter().copied().collect();
    assert_eq!((list[0].kind, list[0].is_inner), (LayerKind::Ethernet, false));
    assert!(list.is_sorted_by_key(|layer| layer.is_inner), "a tunnel's inside comes after its outside");
    for (index, layer) in list.iter().enumerate() {
        let is_same = |other: &Layer| (other.kind, other.is_inner) == (layer.kind, layer.is_inner);
        assert_eq!(list.iter().position(is_same), Some(index), "a layer is there once");
        let spec = FlowSpec::new(layer.kind, layer.is_inner, &layer.key, &[0xFF; LAYER_KEY_LEN]);
        let is_untagged = layer.kind == LayerKind::Ethernet && layer.key[16] == 0;
        assert_eq!(spec.matches(&layers), !is_untagged, "a frame is as it is");
        let mut other = spec;
        other.value[usize::from(choice >> 3) % 4] ^= 1 << (choice & 7);
        assert!(!other.matches(&layers), "and not otherwise");
    }
    assert!(FlowRule::new(Vec::new()).matches(&layers));
    let key: [u8; SPREAD_KEY_LEN] = std::array::from_fn(|index| choice.wrapping_mul(index as u8 | 1));
    for fields in [SpreadFields::ALL.0, SpreadFields::ALL.0 & !SpreadFields::INNER.0, u64::from(choice)] {
        let _ = Spread { key, fields: SpreadFields(fields) }.hash(&layers);
    }
    let cut = &bytes[..bytes.len() - usize::from(choice) % bytes.len()];
    if let Ok(fewer) = Layers::parse(cut) {
        let kinds: Vec<_> = fewer.iter().map(|layer| (layer.kind, layer.is_inner)).collect();
        assert!(kinds.len() <= list.len(), "less has no more layers");
        let same = kinds.iter().zip(&list).all(|(kind, layer)| *kind == (layer.kind, layer.is_inner));
        assert!(same, "what is left is the same");
    }
}
