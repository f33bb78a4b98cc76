//! One connection: frames in, ordered responses out, everything bounded.
//!
//! The reader decodes a frame and runs the first phase of its request, which fixes the order; the
//! writer awaits what is pending and writes responses in request order. A client that stops reading
//! fills the bounded queue between them, and then nothing more is read from it.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sluice_engine::tablet::{Batches, FileRange};
use sluice_protocol::fetch_body::Piece;
use sluice_protocol::frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};

use super::Broker;
use super::api::{Context, Frame};
use super::handlers::{self, Closed, Outcome};

/// Requests of one connection whose responses are outstanding.
const IN_FLIGHT_MAX: usize = 64;
/// Frames up to this size are read without asking for room: connections are limited in number.
const SMALL_FRAME: usize = 1 << 20;
/// Bytes asked for ahead of what has arrived.
const READ_AHEAD: usize = 64 << 10;

struct Outgoing {
    outcome: Outcome,
    /// Room taken by the request's frame; given back when it is answered.
    _room: Option<OwnedSemaphorePermit>,
}

/// Serves a connection until either side ends it.
pub(crate) async fn serve(broker: &Arc<Broker>, stream: TcpStream, peer: SocketAddr, mut stop: watch::Receiver<bool>) {
    let _ = stream.set_nodelay(true);
    let Ok(local) = stream.local_addr() else { return };
    let (reader, writer) = stream.into_split();
    let (sender, receiver) = mpsc::channel(IN_FLIGHT_MAX);
    let idle = Duration::from_millis(broker.config.kafka_idle_timeout_ms);
    let mut writing = tokio::spawn(write_all(writer, receiver, idle));
    let cx = Context { broker: Arc::clone(broker), client_id: String::new(), peer, local, correlation_id: 0 };
    let reading = read_all(cx, reader, sender, idle);
    let stopped = async { drop(stop.wait_for(|stop| *stop).await) };
    tokio::select! {
        outcome = reading => match outcome {
            Ok(()) => {}
            Err(reason) => tracing::debug!(%peer, %reason, "closing the connection"),
        },
        outcome = &mut writing => {
            if let Ok(Err(reason)) = outcome {
                tracing::debug!(%peer, %reason, "closing the connection");
            }
            return;
        }
        () = stopped => {}
    }
    // The client said its last word, a request was refused, or the server stops: what was taken up is
    // answered, but nothing parked is waited for. A group learns from the drop that its member went away.
    if timeout(Duration::from_secs(2), &mut writing).await.is_err() {
        writing.abort();
    }
}

#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Frame(#[from] sluice_protocol::DecodeError),
    #[error("{0}")]
    Request(#[from] Closed),
    #[error("idle for too long")]
    Idle,
    #[error("a frame stalled")]
    Stalled,
    #[error("the writer ended")]
    Writer,
}

async fn read_all(
    mut cx: Context,
    mut reader: OwnedReadHalf,
    sender: mpsc::Sender<Outgoing>,
    idle: Duration,
) -> Result<(), Ended> {
    let broker = Arc::clone(&cx.broker);
    let stall = Duration::from_millis(broker.config.kafka_frame_stall_ms);
    let mut buf = BytesMut::with_capacity(READ_AHEAD);
    loop {
        if !fill(&mut reader, &mut buf, 4, Instant::now() + idle, Ended::Idle).await? {
            return Ok(());
        }
        let Some(prefix) = buf.first_chunk::<4>() else { return Ok(()) };
        let len = frame::frame_len(*prefix, broker.config.kafka_frame_bytes_max)?;
        // One deadline for the whole, not one for each byte: a frame that drips must not hold its room for ever.
        let small = 4 + len.min(SMALL_FRAME);
        if !fill(&mut reader, &mut buf, small, Instant::now() + stall, Ended::Stalled).await? {
            return Ok(());
        }
        // Room is taken only for a frame that has begun to come: an announced length alone must not take any.
        let room = if len > SMALL_FRAME {
            let permits = len.min(broker.config.kafka_in_flight_bytes_max) as u32;
            Some(Arc::clone(&broker.large_frames).acquire_many_owned(permits).await.map_err(|_| Ended::Writer)?)
        } else {
            None
        };
        let deadline = Instant::now() + stall * (1 + len / SMALL_FRAME) as u32;
        if !fill(&mut reader, &mut buf, 4 + len, deadline, Ended::Stalled).await? {
            return Ok(());
        }
        let mut body = buf.split_to(4 + len).freeze().slice(4..);
        broker.metrics.received_bytes.inc_by(len as u64 + 4);
        let header = frame::read_request_header(&mut body)?;
        cx.client_id.clone_from(&header.client_id);
        cx.correlation_id = header.correlation_id;
        broker.metrics.count_request(header.api_key);
        let outcome = handlers::dispatch(&cx, &header, body).await?;
        sender.send(Outgoing { outcome, _room: room }).await.map_err(|_| Ended::Writer)?;
    }
}

/// Reads until `buf` holds `len` bytes; `false` when the client closed at a frame's border.
async fn fill(
    reader: &mut OwnedReadHalf,
    buf: &mut BytesMut,
    len: usize,
    deadline: Instant,
    late: Ended,
) -> Result<bool, Ended> {
    while buf.len() < len {
        // Never more ahead than has come: an announced length alone must not cost memory.
        let ahead = (len - buf.len()).min(buf.len().max(READ_AHEAD));
        buf.reserve(ahead);
        match timeout_at(deadline, reader.read_buf(buf)).await {
            Err(_) => return Err(late),
            Ok(Ok(0)) if buf.is_empty() => return Ok(false),
            Ok(Ok(0)) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(read) => read.map(drop)?,
        }
    }
    Ok(true)
}

async fn write_all(
    mut writer: OwnedWriteHalf,
    mut receiver: mpsc::Receiver<Outgoing>,
    patience: Duration,
) -> Result<(), Ended> {
    while let Some(outgoing) = receiver.recv().await {
        let frames = match outgoing.outcome {
            Outcome::Ready(frames) => frames,
            Outcome::Pending(pending) => match pending.await? {
                Some(frames) => frames,
                None => continue,
            },
        };
        match timeout(patience, write_pieces(&mut writer, frames)).await {
            Ok(outcome) => outcome?,
            Err(_) => return Err(Ended::Stalled),
        }
    }
    let _ = writer.shutdown().await;
    Ok(())
}

/// Pieces that one call writes at most.
const SLICES_MAX: usize = 64;

async fn write_pieces(writer: &mut OwnedWriteHalf, pieces: Frame) -> io::Result<()> {
    let mut slices = VecDeque::new();
    for piece in pieces {
        match piece {
            Piece::Envelope(bytes) | Piece::Records(Batches::Bytes(bytes)) => slices.push_back(bytes),
            Piece::Records(Batches::File(range)) => {
                write_slices(writer, &mut slices).await?;
                send_range(writer, &range).await?;
            }
        }
    }
    write_slices(writer, &mut slices).await
}

async fn write_slices(writer: &mut OwnedWriteHalf, pieces: &mut VecDeque<Bytes>) -> io::Result<()> {
    while let Some(first) = pieces.front() {
        if first.is_empty() {
            pieces.pop_front();
            continue;
        }
        let slices: Vec<IoSlice<'_>> = pieces.iter().take(SLICES_MAX).map(|piece| IoSlice::new(piece)).collect();
        let mut written = writer.write_vectored(&slices).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        while let Some(first) = pieces.front_mut().filter(|_| written > 0) {
            let n = written.min(first.len());
            let _ = first.split_to(n);
            written -= n;
            if first.is_empty() {
                pieces.pop_front();
            }
        }
    }
    Ok(())
}

/// Sends from the page cache; the bytes never enter this process.
async fn send_range(writer: &OwnedWriteHalf, range: &FileRange) -> io::Result<()> {
    let stream: &TcpStream = writer.as_ref();
    let mut sent = 0;
    while sent < range.len() {
        let send = || range.send_to(stream.as_fd(), sent);
        sent += stream.async_io(Interest::WRITABLE, send).await?;
    }
    Ok(())
}
