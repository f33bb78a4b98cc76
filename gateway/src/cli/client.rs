//! A small Kafka client for the command line: one connection, one request at a time.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, RequestHeader};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use sluice_protocol::frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Largest response that the command line reads.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    /// No server there, or it went away.
    #[error("{address}: {error}")]
    Connection {
        /// The server's address.
        address: String,
        /// The operating system's reason.
        error: std::io::Error,
    },
    /// The server's answer is not understood.
    #[error("the server's answer is not understood: {0}")]
    Protocol(String),
    /// The server refused.
    #[error("{0}")]
    Refused(String),
}

/// A connection to a server.
pub(super) struct Client {
    address: String,
    stream: TcpStream,
    correlation_id: i32,
}

impl Client {
    /// Connects.
    pub(super) async fn connect(address: &str) -> Result<Self, ClientError> {
        let fault = |error| ClientError::Connection { address: address.to_owned(), error };
        let stream = TcpStream::connect(address).await.map_err(fault)?;
        Ok(Self { address: address.to_owned(), stream, correlation_id: 0 })
    }

    /// Sends a request and reads its response.
    pub(super) async fn call<R: Encodable, A: Decodable>(
        &mut self,
        key: ApiKey,
        version: i16,
        request: &R,
    ) -> Result<A, ClientError> {
        self.correlation_id += 1;
        let protocol = |error: String| ClientError::Protocol(error);
        let mut out = BytesMut::new();
        out.put_i32(0);
        let header = RequestHeader::default()
            .with_request_api_key(key as i16)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation_id)
            .with_client_id(Some(StrBytes::from_static_str("sluice-cli")));
        header.encode(&mut out, key.request_header_version(version)).map_err(|error| protocol(error.to_string()))?;
        request.encode(&mut out, version).map_err(|error| protocol(error.to_string()))?;
        frame::finish_response(&mut out, 0);
        let mut answer = self.exchange(&out).await?;
        let flexible = key.response_header_version(version) >= 1;
        if answer.len() < 4 + usize::from(flexible) || answer.get_i32() != self.correlation_id {
            return Err(protocol("another correlation id".to_owned()));
        }
        if flexible {
            answer.advance(1);
        }
        A::decode(&mut answer, version).map_err(|error| protocol(error.to_string()))
    }

    async fn exchange(&mut self, out: &[u8]) -> Result<Bytes, ClientError> {
        let address = self.address.clone();
        let fault = move |error| ClientError::Connection { address: address.clone(), error };
        self.stream.write_all(out).await.map_err(&fault)?;
        let mut prefix = [0; 4];
        self.stream.read_exact(&mut prefix).await.map_err(&fault)?;
        let len =
            frame::frame_len(prefix, RESPONSE_BYTES_MAX).map_err(|error| ClientError::Protocol(error.to_string()))?;
        let mut answer = vec![0; len];
        self.stream.read_exact(&mut answer).await.map_err(&fault)?;
        Ok(answer.into())
    }
}
