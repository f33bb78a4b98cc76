//! What a connection remembers: its current database (design §7).

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use sluice_engine::catalog::{DEFAULT_DATABASE, View};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tonic::metadata::MetadataMap;
use tonic::transport::server::Connected;
use tonic::{Extensions, Status};

/// Headers that name the database to begin in: what JDBC makes of parameters in its URI.
const HEADERS: [&str; 2] = ["database", "schema"];

/// Prepared statements whose parameters a connection remembers, for clients that do not take the new handle.
const BOUND_MAX: usize = 64;

/// How long a connection that was closed waits for its client to close it too.
const LINGER: Duration = Duration::from_secs(5);

/// One connection's memory.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    database: Arc<Mutex<String>>,
    bound: Arc<Mutex<VecDeque<Bound>>>,
}

/// A handle and its parameters.
type Bound = (Vec<u8>, Vec<u8>);

impl Default for Session {
    fn default() -> Self {
        Self::of(DEFAULT_DATABASE)
    }
}

impl Session {
    /// One that begins in a database.
    pub(crate) fn of(database: &str) -> Self {
        Self { database: Arc::new(Mutex::new(database.to_owned())), bound: Arc::default() }
    }

    /// The session of a request: its connection's, or one of its own where a header names a database.
    ///
    /// # Errors
    /// NOT_FOUND for a database that is not there.
    pub(crate) fn of_request(extensions: &Extensions, metadata: &MetadataMap, view: &View) -> Result<Self, Status> {
        let named = HEADERS.iter().find_map(|header| metadata.get(*header)?.to_str().ok());
        let session: Session = extensions.get::<Session>().cloned().unwrap_or_default();
        match named {
            Some(database) if session.database() == DEFAULT_DATABASE => {
                check(view, database)?;
                Ok(Self::of(database))
            }
            _ => Ok(session),
        }
    }

    /// The current database.
    pub(crate) fn database(&self) -> String {
        self.database.lock().map_or_else(|poisoned| poisoned.into_inner().clone(), |database| database.clone())
    }

    /// Makes a database the current one.
    ///
    /// # Errors
    /// NOT_FOUND.
    pub(crate) fn use_database(&self, view: &View, name: &str) -> Result<(), Status> {
        check(view, name)?;
        if let Ok(mut database) = self.database.lock() {
            name.clone_into(&mut database);
        }
        Ok(())
    }

    /// Remembers the parameters of a prepared statement.
    pub(crate) fn bind(&self, handle: &[u8], parameters: Vec<u8>) {
        self.unbind(handle);
        let Ok(mut bound) = self.bound.lock() else { return };
        if bound.len() == BOUND_MAX {
            bound.pop_front();
        }
        bound.push_back((handle.to_vec(), parameters));
    }

    /// The parameters of a prepared statement.
    pub(crate) fn bound(&self, handle: &[u8]) -> Option<Vec<u8>> {
        let bound = self.bound.lock().ok()?;
        bound.iter().find(|(known, _)| known == handle).map(|(_, parameters)| parameters.clone())
    }

    /// Forgets a prepared statement.
    pub(crate) fn unbind(&self, handle: &[u8]) {
        if let Ok(mut bound) = self.bound.lock() {
            bound.retain(|(known, _)| known != handle);
        }
    }
}

fn check(view: &View, name: &str) -> Result<(), Status> {
    if view.has_database(name) {
        return Ok(());
    }
    Err(Status::not_found(format!("no database is called '{name}'")))
}

/// A connection with its session.
pub(crate) struct Connection {
    stream: TcpStream,
    session: Session,
    /// From its close on: when to wait no longer.
    linger: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, session: Session::default(), linger: None }
    }
}

impl Connected for Connection {
    type ConnectInfo = Session;

    fn connect_info(&self) -> Session {
        self.session.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Says that nothing more will come, then waits until the client closes, or [`LINGER`] has passed. A socket that
    /// goes while bytes of the client are unread, be it a window update, is reset (RFC 1122 §4.2.2.13): the client
    /// would lose the end of a stream that it has not read yet.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, linger, .. } = &mut *self;
        if linger.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
        }
        let linger = linger.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        let mut unread = [0; 1024];
        while linger.as_mut().poll(cx).is_pending() {
            let mut unread = ReadBuf::new(&mut unread);
            let read = ready!(Pin::new(&mut *stream).poll_read(cx, &mut unread));
            if read.is_err() || unread.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_close_with_bytes_unread_loses_nothing_of_what_was_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let mut client = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("connects");
        let mut connection = Connection::new(listener.accept().await.expect("accepts").0);
        connection.write_all(&[7; 100_000]).await.expect("sends");
        client.write_all(b"not read by the server").await.expect("sends");
        let mut closing = tokio::spawn(async move { connection.shutdown().await });
        let waited = tokio::time::timeout(Duration::from_millis(100), &mut closing).await;
        waited.expect_err("the close waits for the client");
        let mut read = Vec::new();
        client.read_to_end(&mut read).await.expect("no reset");
        assert_eq!(read, vec![7; 100_000]);
        drop(client);
        closing.await.expect("no panic").expect("closes");
    }
}
