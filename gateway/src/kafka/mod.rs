//! The Kafka front end: listener, connections, handlers.

pub(crate) mod api;
pub(crate) mod connection;
pub(crate) mod error;
pub mod handlers;
pub(crate) mod names;

use std::net::SocketAddr;
use std::sync::Arc;

use kafka_protocol::protocol::StrBytes;
use sluice_engine::catalog::TableInfo;
use sluice_engine::{Backend, BucketId, Clock};
use sluice_protocol::ErrorCode;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::config::Config;
use crate::coordinator::Coordinator;
use crate::metrics::Metrics;

/// What every handler works with.
pub(crate) struct Broker {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) coordinator: Arc<Coordinator>,
    pub(crate) config: Config,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Metrics,
    /// The address that the Kafka listener is bound to.
    pub(crate) listen: SocketAddr,
    /// Bytes of large frames that may be in flight on all connections together.
    pub(crate) large_frames: Arc<Semaphore>,
}

/// The leader epoch that a client may assert, and what it means.
pub(crate) fn check_epoch(asserted: i32, current: i32) -> Result<(), ErrorCode> {
    match asserted {
        -1 => Ok(()),
        epoch if epoch < current => Err(ErrorCode::FencedLeaderEpoch),
        epoch if epoch > current => Err(ErrorCode::UnknownLeaderEpoch),
        _ => Ok(()),
    }
}

/// Static text as the codec wants it.
pub(crate) fn text(value: impl Into<String>) -> StrBytes {
    StrBytes::from_string(value.into())
}

impl Broker {
    /// The address that clients which came by `local` are told to use.
    pub(crate) fn advertised(&self, local: SocketAddr) -> (String, i32) {
        if let Some((host, port)) = self.config.kafka_advertised.rsplit_once(':')
            && let Ok(port) = port.parse()
        {
            return (host.trim_matches(['[', ']']).to_owned(), port);
        }
        let ip = if self.listen.ip().is_unspecified() { local.ip() } else { self.listen.ip() };
        (ip.to_string(), i32::from(self.listen.port()))
    }

    /// The table that owns a topic name.
    pub(crate) fn topic(&self, name: &str) -> Option<Arc<TableInfo>> {
        self.backend.tables().by_name(name).cloned()
    }

    /// A topic partition's bucket.
    pub(crate) fn bucket(&self, info: &TableInfo, partition: i32) -> Result<BucketId, ErrorCode> {
        let bucket = u32::try_from(partition).ok().and_then(|number| info.bucket_at(number));
        bucket.ok_or(ErrorCode::UnknownTopicOrPartition)
    }
}

/// Accepts connections until told to stop.
pub(crate) async fn listen(broker: Arc<Broker>, listener: TcpListener, mut stop: watch::Receiver<bool>) {
    let connections = Arc::new(Semaphore::new(broker.config.kafka_connections_max));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.changed() => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: do not spin on it.
                tracing::warn!(%error, "accepting a connection");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else {
            tracing::warn!(%peer, "refused: kafka.connections-max connections are open");
            continue;
        };
        let (broker, stop) = (Arc::clone(&broker), stop.clone());
        tokio::spawn(async move {
            broker.metrics.connections.inc();
            connection::serve(&broker, stream, peer, stop).await;
            broker.metrics.connections.dec();
            drop(permit);
        });
    }
}
