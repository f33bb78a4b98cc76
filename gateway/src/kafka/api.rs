//! The shape of a handler: one implementation of [`Api`] per Kafka API, one line in the list.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::{Decodable, Encodable, Message};
use sluice_engine::tablet::Batches;
use sluice_protocol::fetch_body::Piece;

use super::Broker;

/// A response frame in pieces.
pub(crate) type Frame = Vec<Piece<Batches>>;

/// A boxed future of a response.
pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a request came with.
#[derive(Clone)]
pub(crate) struct Context {
    /// The server.
    pub(crate) broker: Arc<Broker>,
    /// The client's name for itself.
    pub(crate) client_id: String,
    /// The client's address.
    pub(crate) peer: SocketAddr,
    /// The address it connected to.
    pub(crate) local: SocketAddr,
    /// Echoed in the response.
    pub(crate) correlation_id: i32,
}

/// What the first phase of a request leaves. The first phase fixes the order in which requests of
/// one connection take effect; what is pending completes later and is answered in order.
pub(crate) enum Started<R> {
    /// The response.
    Ready(R),
    /// The response is to come.
    Pending(BoxFuture<R>),
    /// A frame that is encoded already, in pieces.
    Frame(BoxFuture<Frame>),
    /// No response (acks=0); `false` closes the connection, the only way to tell.
    Silent(BoxFuture<bool>),
}

/// One Kafka API.
pub(crate) trait Api {
    /// Its key.
    const KEY: ApiKey;
    /// Its request, whose decoder says which versions are served.
    type Request: Decodable + Message + Send;
    /// Its response.
    type Response: Encodable + Message + Send + 'static;

    /// Serves one request.
    fn start(
        cx: &Context,
        version: i16,
        request: Self::Request,
    ) -> impl Future<Output = Started<Self::Response>> + Send;
}
