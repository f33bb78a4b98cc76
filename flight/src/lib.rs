//! Arrow Flight and Flight SQL: tables as streams of record batches, lookups, writes, and SQL with Flink's DDL.

mod arrow;
pub mod client;
mod command;
pub mod ddl;
mod execute;
mod lookup;
mod metadata;
mod put;
mod query;
mod relation;
mod rows;
mod scan;
mod service;
mod session;
mod sql;
pub mod status;
mod tables;
mod ticket;
mod write;

use std::sync::Arc;

use arrow_flight::flight_service_server::FlightServiceServer;
use sluice_engine::Backend;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::TcpListenerStream;

pub use service::Service;
use session::Connection;

/// Largest message that a client may send, bytes.
const MESSAGE_MAX: usize = 64 << 20;
/// Largest headers of a request, bytes: some tokens pass 8 KiB (flight.md §1.1).
const HEADERS_MAX: u32 = 64 << 10;

/// Serves Flight until told to stop; streams that run are finished.
///
/// # Errors
/// What ended it, worded for the log.
pub async fn serve(
    backend: Arc<dyn Backend>,
    listener: TcpListener,
    mut stop: watch::Receiver<bool>,
) -> Result<(), String> {
    // Whoever stops the server waits until every receiver is gone: this one stays to the end of the last stream.
    let _draining = stop.clone();
    let service = Service::new(backend).map_err(|status| status.message().to_owned())?;
    let service = FlightServiceServer::new(service).max_decoding_message_size(MESSAGE_MAX);
    let stopped = async move {
        // An error says that the sender is gone, which is a stop as well.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    let server = tonic::transport::Server::builder().http2_max_header_list_size(HEADERS_MAX).add_service(service);
    let connections = TcpListenerStream::new(listener).map(|accepted| {
        let stream = accepted?;
        // Small answers must not wait for more to go with them.
        stream.set_nodelay(true)?;
        Ok::<_, std::io::Error>(Connection::new(stream))
    });
    let served = server.serve_with_incoming_shutdown(connections, stopped).await;
    served.map_err(|error| error.to_string())
}
