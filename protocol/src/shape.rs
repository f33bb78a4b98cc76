//! Walks a request's bytes along its shape before the decoder sees them.
//!
//! The decoder reserves memory for a count as soon as it has read it, before it
//! knows whether the bytes that are left could hold that many elements. A body
//! of eight bytes can therefore ask for gigabytes, and an allocation that fails
//! ends the process. The walker reads the same bytes with the same rules and
//! allocates nothing: a body it accepts holds every count it announces.
//!
//! What makes that a guarantee is that walker and decoder agree on where each
//! field starts. Wherever the two could drift apart (the size of a known tagged
//! field, the marker of an optional struct) the walker takes the strict reading.
//! Questions that do not move the position, such as a null where the protocol
//! has none or a string that is not UTF-8, are left to the decoder.

use crate::shape_table::MESSAGES;

/// Upper bound on what one request may make the decoder allocate for.
///
/// A count that the bytes can hold is not harmless yet: an element of one byte
/// on the wire can take a hundred in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapeLimits {
    /// Elements of all arrays together; tagged fields count as elements, since
    /// the decoder keeps an entry for each one it does not know.
    pub elements_max: usize,
}

impl Default for ShapeLimits {
    fn default() -> Self {
        Self {
            elements_max: 1_000_000,
        }
    }
}

/// What the walk of an accepted request found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walked {
    /// Elements over all arrays, tagged fields included; what
    /// [`ShapeLimits::elements_max`] bounds.
    pub elements: usize,
    /// Bytes the request's fields take. Less than the body when bytes trail,
    /// which the protocol allows.
    pub consumed: usize,
}

/// Why a body is not worth showing to the decoder.
///
/// Fields are named `Request.Struct.Field`, as the protocol's own definitions
/// name them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// The body ends inside a field.
    #[error("{field} needs {needed} bytes, {left} are left")]
    Truncated {
        /// The field that is cut off.
        field: &'static str,
        /// Bytes the field still needs.
        needed: usize,
        /// Bytes there are.
        left: usize,
    },
    /// An array announces more elements than the bytes left could hold.
    #[error("{field} announces {count} elements, {left} bytes are left")]
    CountTooLarge {
        /// The array.
        field: &'static str,
        /// The count on the wire.
        count: usize,
        /// Bytes there are.
        left: usize,
    },
    /// The arrays hold more elements together than the limit allows.
    #[error("{field} brings the request to {elements} elements, the limit is {elements_max}")]
    TooManyElements {
        /// The array that passed the limit.
        field: &'static str,
        /// Elements up to and including that array.
        elements: usize,
        /// The limit, from [`ShapeLimits::elements_max`].
        elements_max: usize,
    },
    /// A tagged field does not have the size it announces, or the marker of an
    /// optional struct is neither present (1) nor absent (negative).
    #[error("{field} does not have the length {length}")]
    BadLength {
        /// The field.
        field: &'static str,
        /// The size or marker on the wire.
        length: i64,
    },
    /// A variable-length integer does not end within five bytes.
    #[error("{field} starts with a varint of more than five bytes")]
    BadVarint {
        /// The field the integer belongs to.
        field: &'static str,
    },
    /// No shape is known for the request; its body cannot be walked.
    #[error("no known shape for API key {api_key} version {version}")]
    UnknownApi {
        /// The request's API key.
        api_key: i16,
        /// The request's version.
        version: i16,
    },
}

/// Refuses a request body that would make the decoder allocate out of
/// proportion.
///
/// `body` is what follows the request header. Bytes after the request's last
/// field are allowed, as the protocol has it.
///
/// # Errors
///
/// Names the first field that the bytes left cannot hold.
pub fn check_request(
    api_key: i16,
    version: i16,
    body: &[u8],
    limits: &ShapeLimits,
) -> Result<Walked, ShapeError> {
    let message =
        Message::find(api_key, version).ok_or(ShapeError::UnknownApi { api_key, version })?;
    let mut walker = Walker {
        left: body,
        version,
        flexible: message.flexible(version),
        elements: 0,
        elements_max: limits.elements_max,
    };
    walker.shape(message.shape)?;
    Ok(Walked {
        elements: walker.elements,
        consumed: body.len().saturating_sub(walker.left.len()),
    })
}

/// The versions something exists in, both ends included.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Versions {
    pub(crate) first: i16,
    pub(crate) last: i16,
}

impl Versions {
    const fn contain(self, version: i16) -> bool {
        self.first <= version && version <= self.last
    }
}

/// One request of the protocol.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) api_key: i16,
    pub(crate) versions: Versions,
    /// From this version on, lengths are compact and structs end in tags.
    pub(crate) flexible_since: Option<i16>,
    pub(crate) shape: &'static Shape,
}

impl Message {
    fn find(api_key: i16, version: i16) -> Option<&'static Self> {
        let found = MESSAGES.binary_search_by_key(&api_key, |message| message.api_key);
        found
            .ok()
            .and_then(|at| MESSAGES.get(at))
            .filter(|message| message.versions.contain(version))
    }

    fn flexible(&self, version: i16) -> bool {
        self.flexible_since.is_some_and(|since| version >= since)
    }
}

/// The fields of a struct, in the order they have on the wire.
#[derive(Debug)]
pub(crate) struct Shape {
    /// What errors call the struct's section of tagged fields.
    pub(crate) tags: &'static str,
    pub(crate) fields: &'static [Field],
}

impl Shape {
    /// The fewest bytes the struct can take. A count is held against this, so
    /// it must never be more than what an actual encoding takes.
    fn bytes_min(&self, version: i16, flexible: bool) -> usize {
        let fields: usize = self
            .fields
            .iter()
            .filter(|field| field.inline(version))
            .map(|field| field.kind.bytes_min(version, flexible))
            .sum();
        fields + usize::from(flexible)
    }

    fn tagged(&self, tag: u32, version: i16) -> Option<&'static Field> {
        self.fields
            .iter()
            .find(|field| field.tag_at(version) == Some(tag))
    }
}

/// One field of a struct.
#[derive(Debug)]
pub(crate) struct Field {
    /// What errors call the field.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) versions: Versions,
    /// The field's tag and the versions that send it tagged, not in line.
    pub(crate) tag: Option<(u32, Versions)>,
}

impl Field {
    /// The same field, sent among the struct's tags in some versions.
    pub(crate) const fn tagged(self, tag: u32, versions: Versions) -> Self {
        Self {
            tag: Some((tag, versions)),
            ..self
        }
    }

    fn tag_at(&self, version: i16) -> Option<u32> {
        self.tag
            .filter(|(_, tagged)| self.versions.contain(version) && tagged.contain(version))
            .map(|(tag, _)| tag)
    }

    fn inline(&self, version: i16) -> bool {
        self.versions.contain(version) && self.tag_at(version).is_none()
    }
}

/// How a field is laid out.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// A value of so many bytes.
    Fixed(usize),
    /// Length and bytes, the length two bytes wide unless compact.
    String,
    /// Length and bytes, the length four bytes wide unless compact.
    Bytes,
    /// An array of values of so many bytes each.
    FixedArray(usize),
    StringArray,
    StructArray(&'static Shape),
    Struct(&'static Shape),
    /// A struct that follows a marker byte in some versions.
    NullableStruct(&'static Shape, Versions),
}

impl Kind {
    fn bytes_min(self, version: i16, flexible: bool) -> usize {
        match self {
            Self::Fixed(size) => size,
            Self::NullableStruct(_, nullable) if nullable.contain(version) => 1,
            Self::Struct(shape) | Self::NullableStruct(shape, _) => {
                shape.bytes_min(version, flexible)
            }
            _ if flexible => 1,
            Self::String => 2,
            Self::Bytes | Self::FixedArray(_) | Self::StringArray | Self::StructArray(_) => 4,
        }
    }
}

/// Tag and size are a byte each at the least.
const TAG_BYTES_MIN: usize = 2;

/// The position of the walk. Its depth is that of the shape, never of the
/// bytes, which is why plain recursion is safe.
struct Walker<'a> {
    left: &'a [u8],
    version: i16,
    flexible: bool,
    elements: usize,
    elements_max: usize,
}

impl<'a> Walker<'a> {
    fn shape(&mut self, shape: &'static Shape) -> Result<(), ShapeError> {
        for field in shape.fields {
            if field.inline(self.version) {
                self.field(field)?;
            }
        }
        if self.flexible {
            self.tags(shape)?;
        }
        Ok(())
    }

    fn field(&mut self, field: &'static Field) -> Result<(), ShapeError> {
        let name = field.name;
        match field.kind {
            Kind::Fixed(size) => self.take(name, size).map(drop),
            Kind::String => self.string(name),
            Kind::Bytes => self.bytes(name),
            Kind::FixedArray(size) => self.fixed_array(name, size),
            Kind::StringArray => self.string_array(name),
            Kind::StructArray(shape) => self.struct_array(name, shape),
            Kind::Struct(shape) => self.shape(shape),
            Kind::NullableStruct(shape, nullable) if nullable.contain(self.version) => {
                self.nullable_struct(name, shape)
            }
            Kind::NullableStruct(shape, _) => self.shape(shape),
        }
    }

    fn string(&mut self, name: &'static str) -> Result<(), ShapeError> {
        let length = if self.flexible {
            self.compact_length(name)?
        } else {
            usize::try_from(i16::from_be_bytes(self.array(name)?)).ok()
        };
        self.take(name, length.unwrap_or(0)).map(drop)
    }

    fn bytes(&mut self, name: &'static str) -> Result<(), ShapeError> {
        let length = self.length(name)?;
        self.take(name, length).map(drop)
    }

    fn fixed_array(&mut self, name: &'static str, size: usize) -> Result<(), ShapeError> {
        let count = self.length(name)?;
        self.announce(name, count, size)?;
        self.take(name, count.saturating_mul(size)).map(drop)
    }

    fn string_array(&mut self, name: &'static str) -> Result<(), ShapeError> {
        let count = self.length(name)?;
        let bytes_min = Kind::String.bytes_min(self.version, self.flexible);
        self.announce(name, count, bytes_min)?;
        for _ in 0..count {
            self.string(name)?;
        }
        Ok(())
    }

    fn struct_array(
        &mut self,
        name: &'static str,
        shape: &'static Shape,
    ) -> Result<(), ShapeError> {
        let count = self.length(name)?;
        if count == 0 {
            return Ok(());
        }
        let bytes_min = shape.bytes_min(self.version, self.flexible);
        self.announce(name, count, bytes_min)?;
        for _ in 0..count {
            self.shape(shape)?;
        }
        Ok(())
    }

    /// Kafka takes every marker that is not negative as present, the decoder
    /// every one that is not 1 as absent; the ones they read differently are
    /// refused, or the decoder would read the struct's bytes as later fields.
    fn nullable_struct(
        &mut self,
        name: &'static str,
        shape: &'static Shape,
    ) -> Result<(), ShapeError> {
        match i8::from_be_bytes(self.array(name)?) {
            1 => self.shape(shape),
            marker if marker < 0 => Ok(()),
            marker => Err(ShapeError::BadLength {
                field: name,
                length: i64::from(marker),
            }),
        }
    }

    fn tags(&mut self, shape: &'static Shape) -> Result<(), ShapeError> {
        let name = shape.tags;
        let count = widen(self.varint(name)?);
        self.announce(name, count, TAG_BYTES_MIN)?;
        for _ in 0..count {
            let tag = self.varint(name)?;
            let size = widen(self.varint(name)?);
            let value = self.take(name, size)?;
            if let Some(field) = shape.tagged(tag, self.version) {
                self.tagged(field, value)?;
            }
        }
        Ok(())
    }

    /// The decoder skips the announced size only for tags it does not know and
    /// reads the others until they end: a known field must end where its size
    /// says, or all that follows is read from another position.
    fn tagged(&mut self, field: &'static Field, value: &'a [u8]) -> Result<(), ShapeError> {
        let after = std::mem::replace(&mut self.left, value);
        self.field(field)?;
        if !self.left.is_empty() {
            return Err(ShapeError::BadLength {
                field: field.name,
                length: i64::try_from(value.len()).unwrap_or(i64::MAX),
            });
        }
        self.left = after;
        Ok(())
    }

    /// Admits `count` elements before anything is done for any of them.
    fn announce(
        &mut self,
        field: &'static str,
        count: usize,
        bytes_min: usize,
    ) -> Result<(), ShapeError> {
        let left = self.left.len();
        if count > left / bytes_min.max(1) {
            return Err(ShapeError::CountTooLarge { field, count, left });
        }
        let elements = self.elements.saturating_add(count);
        if elements > self.elements_max {
            return Err(ShapeError::TooManyElements {
                field,
                elements,
                elements_max: self.elements_max,
            });
        }
        self.elements = elements;
        Ok(())
    }

    /// A length or count that is not a string's; null reads as zero, since both
    /// are followed by nothing.
    fn length(&mut self, field: &'static str) -> Result<usize, ShapeError> {
        let length = if self.flexible {
            self.compact_length(field)?
        } else {
            usize::try_from(i32::from_be_bytes(self.array(field)?)).ok()
        };
        Ok(length.unwrap_or(0))
    }

    fn compact_length(&mut self, field: &'static str) -> Result<Option<usize>, ShapeError> {
        Ok(self.varint(field)?.checked_sub(1).map(widen))
    }

    /// Bits beyond the 32nd are dropped: Kafka and the decoder both do.
    fn varint(&mut self, field: &'static str) -> Result<u32, ShapeError> {
        let mut value = 0;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array(field)?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(ShapeError::BadVarint { field })
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], ShapeError> {
        let (&taken, left) = self.left.split_first_chunk().ok_or(ShapeError::Truncated {
            field,
            needed: N,
            left: self.left.len(),
        })?;
        self.left = left;
        Ok(taken)
    }

    fn take(&mut self, field: &'static str, needed: usize) -> Result<&'a [u8], ShapeError> {
        let (taken, left) =
            self.left
                .split_at_checked(needed)
                .ok_or(ShapeError::Truncated {
                    field,
                    needed,
                    left: self.left.len(),
                })?;
        self.left = left;
        Ok(taken)
    }
}

/// Saturates where a pointer is narrower than 32 bits: such a count is refused
/// all the same.
fn widen(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
