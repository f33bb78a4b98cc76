//! The durable form of a group. Versioned, length-prefixed, and checked: no bytes make [`GroupRecord::decode`] panic
//! or reserve more memory than they themselves take.

use bytes::Bytes;

/// The only version so far. A reader refuses versions it does not know.
const VERSION: u8 = 1;
/// The least a member takes: five lengths, one tag, two timeouts.
const MEMBER_SIZE_MIN: usize = 5 * 4 + 1 + 2 * 4;

/// The hard state of a group at the end of a rebalance. Layout, integers big-endian:
///
/// ```text
///   0  version         u8      1
///   1  group id        text
///   .  protocol type   option of text
///   .  generation      i32
///   .  protocol name   option of text
///   .  leader          option of text
///   .  state since     i64     milliseconds since 1970; -1 if not known
///   .  member count    u32     each at least 29 bytes
///   .  members         count * {
///        member id          text
///        instance id        option of text
///        client id          text
///        client host        text
///        session timeout    i32
///        rebalance timeout  i32
///        subscription       bytes
///        assignment         bytes
///      }
///   text, bytes:     length u32, that many bytes (text: UTF-8)
///   option of text:  u8 0, or u8 1 and text
/// ```
/// Nothing may follow the last member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GroupRecord {
    /// The group's name.
    pub(crate) group_id: String,
    /// `None` for a group that never had a member.
    pub(crate) protocol_type: Option<String>,
    /// The generation the members are in, or the last one.
    pub(crate) generation: i32,
    /// The chosen protocol; `None` for an Empty group.
    pub(crate) protocol_name: Option<String>,
    /// The leader's member id; `None` for an Empty group.
    pub(crate) leader: Option<String>,
    /// When the group came into its state; offsets of an Empty group expire counting from here (KIP-211).
    pub(crate) state_since_ms: i64,
    /// In order of arrival. None means Empty, else Stable.
    pub(crate) members: Vec<MemberRecord>,
}

/// The hard state of one member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MemberRecord {
    /// The member's id.
    pub(crate) member_id: String,
    /// Its instance id, if static.
    pub(crate) group_instance_id: Option<String>,
    /// The client's name for itself.
    pub(crate) client_id: String,
    /// Where it connected from.
    pub(crate) client_host: String,
    /// A silent member is removed after this long.
    pub(crate) session_timeout_ms: i32,
    /// How long a rebalance waits for it.
    pub(crate) rebalance_timeout_ms: i32,
    /// Its metadata for the chosen protocol.
    pub(crate) subscription: Bytes,
    /// What the leader gave it.
    pub(crate) assignment: Bytes,
}

impl GroupRecord {
    /// The bytes to store.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_bytes(&mut out, self.group_id.as_bytes());
        put_option(&mut out, self.protocol_type.as_deref());
        out.extend_from_slice(&self.generation.to_be_bytes());
        put_option(&mut out, self.protocol_name.as_deref());
        put_option(&mut out, self.leader.as_deref());
        out.extend_from_slice(&self.state_since_ms.to_be_bytes());
        put_length(&mut out, self.members.len());
        for member in &self.members {
            put_bytes(&mut out, member.member_id.as_bytes());
            put_option(&mut out, member.group_instance_id.as_deref());
            put_bytes(&mut out, member.client_id.as_bytes());
            put_bytes(&mut out, member.client_host.as_bytes());
            out.extend_from_slice(&member.session_timeout_ms.to_be_bytes());
            out.extend_from_slice(&member.rebalance_timeout_ms.to_be_bytes());
            put_bytes(&mut out, &member.subscription);
            put_bytes(&mut out, &member.assignment);
        }
        out
    }

    /// Reads what [`GroupRecord::encode`] wrote; anything else is an error that says where it went wrong.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut reader = Reader { left: bytes };
        let version = reader.u8("version")?;
        if version != VERSION {
            return Err(format!("group record: version {version} is not known"));
        }
        let mut record = Self {
            group_id: reader.text("group id")?,
            protocol_type: reader.option("protocol type")?,
            generation: i32::from_be_bytes(reader.array("generation")?),
            protocol_name: reader.option("protocol name")?,
            leader: reader.option("leader")?,
            state_since_ms: i64::from_be_bytes(reader.array("state since")?),
            members: Vec::new(),
        };
        let count = reader.length("member count")?;
        if count > reader.left.len() / MEMBER_SIZE_MIN {
            return Err(format!("group record: {count} members do not fit in {} bytes", reader.left.len()));
        }
        record.members.reserve_exact(count);
        for _ in 0..count {
            record.members.push(MemberRecord::read(&mut reader)?);
        }
        if reader.left.is_empty() {
            Ok(record)
        } else {
            Err(format!("group record: {} bytes after the last member", reader.left.len()))
        }
    }
}

impl MemberRecord {
    fn read(reader: &mut Reader<'_>) -> Result<Self, String> {
        Ok(Self {
            member_id: reader.text("member id")?,
            group_instance_id: reader.option("instance id")?,
            client_id: reader.text("client id")?,
            client_host: reader.text("client host")?,
            session_timeout_ms: i32::from_be_bytes(reader.array("session timeout")?),
            rebalance_timeout_ms: i32::from_be_bytes(reader.array("rebalance timeout")?),
            subscription: Bytes::copy_from_slice(reader.bytes("subscription")?),
            assignment: Bytes::copy_from_slice(reader.bytes("assignment")?),
        })
    }
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    debug_assert!(u32::try_from(length).is_ok(), "request frames are far below 4 GiB");
    out.extend_from_slice(&(length as u32).to_be_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_length(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_option(out: &mut Vec<u8>, text: Option<&str>) {
    out.push(u8::from(text.is_some()));
    if let Some(text) = text {
        put_bytes(out, text.as_bytes());
    }
}

/// Takes fields off the front; every read is checked against what is left.
struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize, field: &str) -> Result<&'a [u8], String> {
        let Some((taken, left)) = self.left.split_at_checked(count) else {
            return Err(format!("group record: {field} needs {count} bytes, {} are left", self.left.len()));
        };
        self.left = left;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, field: &str) -> Result<[u8; N], String> {
        let taken = self.take(N, field)?;
        taken.try_into().map_err(|_| format!("group record: {field} is cut short"))
    }

    fn u8(&mut self, field: &str) -> Result<u8, String> {
        self.array(field).map(|[byte]| byte)
    }

    fn length(&mut self, field: &str) -> Result<usize, String> {
        let length = u32::from_be_bytes(self.array(field)?);
        usize::try_from(length).map_err(|_| format!("group record: {field} of {length} is too large"))
    }

    fn bytes(&mut self, field: &str) -> Result<&'a [u8], String> {
        let length = self.length(field)?;
        self.take(length, field)
    }

    fn text(&mut self, field: &str) -> Result<String, String> {
        let bytes = self.bytes(field)?;
        str::from_utf8(bytes).map(str::to_owned).map_err(|error| format!("group record: {field}: {error}"))
    }

    fn option(&mut self, field: &str) -> Result<Option<String>, String> {
        match self.u8(field)? {
            0 => Ok(None),
            1 => self.text(field).map(Some),
            tag => Err(format!("group record: {field} has the tag {tag}")),
        }
    }
}
