//! Bytes of messages: little-endian numbers, and a length in front of each part of variable length. Reading never panics and allocates no
//! more than it was sent.

/// Bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

pub(crate) trait Encode {
    fn put(&self, to: &mut Vec<u8>);

    /// Many, one behind the other.
    fn put_all(items: &[Self], to: &mut Vec<u8>)
    where
        Self: Sized,
    {
        items.iter().for_each(|item| item.put(to));
    }
}

pub(crate) trait Decode: Sized {
    fn take(from: &mut &[u8]) -> Result<Self, Malformed>;

    /// Takes `count` items, one behind the other. The caller has checked that there are at least `count`
    /// bytes, and an item is at least a byte.
    fn take_all(from: &mut &[u8], count: usize) -> Result<Vec<Self>, Malformed> {
        (0..count).map(|_| Self::take(from)).collect()
    }
}

macro_rules! number {
    ($($kind:ty),*) => {$(
        impl Encode for $kind {
            fn put(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }
        }
        impl Decode for $kind {
            fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
                let (bytes, rest) = from.split_first_chunk().ok_or(Malformed)?;
                *from = rest;
                Ok(<$kind>::from_le_bytes(*bytes))
            }
        }
    )*};
}
number!(u16, u32, u64);

// Byte strings are copied all at once, because they make up most of a message.
impl Encode for u8 {
    fn put(&self, to: &mut Vec<u8>) {
        to.push(*self);
    }

    fn put_all(items: &[u8], to: &mut Vec<u8>) {
        to.extend_from_slice(items);
    }
}

impl Decode for u8 {
    fn take(from: &mut &[u8]) -> Result<u8, Malformed> {
        let (&byte, rest) = from.split_first().ok_or(Malformed)?;
        *from = rest;
        Ok(byte)
    }

    fn take_all(from: &mut &[u8], count: usize) -> Result<Vec<u8>, Malformed> {
        let (bytes, rest) = from.split_at_checked(count).ok_or(Malformed)?;
        *from = rest;
        Ok(bytes.to_vec())
    }
}

impl Encode for bool {
    fn put(&self, to: &mut Vec<u8>) {
        u8::from(*self).put(to);
    }
}

impl Decode for bool {
    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }
}

impl<T: Encode> Encode for Option<T> {
    fn put(&self, to: &mut Vec<u8>) {
        self.is_some().put(to);
        if let Some(value) = self {
            value.put(to);
        }
    }
}

impl<T: Decode> Decode for Option<T> {
    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(if bool::take(from)? { Some(T::take(from)?) } else { None })
    }
}

impl<T: Encode> Encode for Box<T> {
    fn put(&self, to: &mut Vec<u8>) {
        (**self).put(to);
    }
}

impl<T: Decode> Decode for Box<T> {
    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        T::take(from).map(Box::new)
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn put(&self, to: &mut Vec<u8>) {
        u32::try_from(self.len()).expect("fewer than 2^32 items").put(to);
        T::put_all(self, to);
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        let count = u32::take(from)?;
        // Every item is at least a byte: a length that cannot be true ends at once.
        if count as usize > from.len() {
            return Err(Malformed);
        }
        T::take_all(from, count as usize)
    }
}

impl<A: Encode, B: Encode> Encode for (A, B) {
    fn put(&self, to: &mut Vec<u8>) {
        self.0.put(to);
        self.1.put(to);
    }
}

impl<A: Decode, B: Decode> Decode for (A, B) {
    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        Ok((A::take(from)?, B::take(from)?))
    }
}

/// Encoding of a struct is its fields in order; of a newtype, its number.
macro_rules! fields {
    ($kind:path { $($field:tt),* }) => {
        impl $crate::codec::Encode for $kind {
            fn put(&self, to: &mut Vec<u8>) {
                $( self.$field.put(to); )*
            }
        }
        impl $crate::codec::Decode for $kind {
            fn take(from: &mut &[u8]) -> Result<Self, $crate::codec::Malformed> {
                Ok(Self { $( $field: $crate::codec::Decode::take(from)?, )* })
            }
        }
    };
}

/// Encoding of an enum is a tag, then the variant's fields.
macro_rules! variants {
    ($kind:ident { $($tag:literal => $variant:ident { $($field:tt),* }),* $(,)? }) => {
        impl $crate::codec::Encode for $kind {
            fn put(&self, to: &mut Vec<u8>) {
                match self {
                    $( $kind::$variant { $($field),* } => {
                        $crate::codec::Encode::put(&($tag as u8), to);
                        $( $field.put(to); )*
                    } )*
                }
            }
        }
        impl $crate::codec::Decode for $kind {
            fn take(from: &mut &[u8]) -> Result<Self, $crate::codec::Malformed> {
                Ok(match <u8 as $crate::codec::Decode>::take(from)? {
                    $( $tag => $kind::$variant { $($field: $crate::codec::Decode::take(from)?),* }, )*
                    _ => return Err($crate::codec::Malformed),
                })
            }
        }
    };
}
pub(crate) use {fields, variants};

/// Room for a key, a transaction's name and a short value.
const MESSAGE_BYTES_USUAL: usize = 96;

/// A whole message.
pub(crate) fn encode(message: &impl Encode) -> Vec<u8> {
    // Most messages are shorter: one allocation instead of four.
    let mut bytes = Vec::with_capacity(MESSAGE_BYTES_USUAL);
    message.put(&mut bytes);
    bytes
}

/// A whole message and nothing after it.
pub(crate) fn decode<T: Decode>(mut bytes: &[u8]) -> Result<T, Malformed> {
    let message = T::take(&mut bytes)?;
    if bytes.is_empty() { Ok(message) } else { Err(Malformed) }
}
