//! The gateway: the Kafka front end, the group coordinator, and the wiring of the server.
//!
//! [`Gateway::start`] opens the data directory and the listeners; [`Gateway::stop`] drains and closes.

pub mod cli;
pub mod config;
pub mod convert;
mod coordinator;
mod http;
pub mod kafka;
mod metrics;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sluice_engine::{Backend, Clock, Disk, Embedded, EngineConfig, ErrorKind, RealDisk, SystemClock};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

pub use config::{Config, ConfigError};

/// Why the server did not start; its display is the one line that the operator sees.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory cannot be used.
    #[error("{0}")]
    Engine(#[from] sluice_engine::Error),
    /// An address cannot be listened on.
    #[error("cannot listen on {address} ({key}): {error}")]
    Listen {
        /// The config key.
        key: &'static str,
        /// The address.
        address: SocketAddr,
        /// The operating system's reason.
        error: std::io::Error,
    },
    /// A fault of the server itself.
    #[error("cannot start: {0}")]
    Internal(String),
}

impl StartError {
    /// The process's exit code, after sysexits(3): 73 the directory cannot be created or written, 75 it
    /// is in use, 78 its format is not ours, 69 an address is taken, 70 our own fault.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Engine(error) => match error.kind {
                ErrorKind::Busy => 75,
                ErrorKind::Unsupported => 78,
                ErrorKind::NoSpace | ErrorKind::StorageFailed => 73,
                _ => 70,
            },
            Self::Listen { .. } => 69,
            Self::Internal(_) => 70,
        }
    }
}

/// A running server.
pub struct Gateway {
    engine: Arc<Embedded>,
    kafka: SocketAddr,
    flight: SocketAddr,
    http: SocketAddr,
    stop: watch::Sender<bool>,
    ready: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

/// How long a stop waits for connections to drain.
const DRAIN: Duration = Duration::from_secs(10);

async fn bind(key: &'static str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let fault = |error| StartError::Listen { key, address, error };
    let listener = TcpListener::bind(address).await.map_err(fault)?;
    let bound = listener.local_addr().map_err(fault)?;
    Ok((listener, bound))
}

async fn serve_flight(backend: Arc<dyn Backend>, listener: TcpListener, stop: watch::Receiver<bool>) {
    if let Err(error) = sluice_flight::serve(backend, listener, stop).await {
        tracing::error!(%error, "flight");
    }
}

impl Gateway {
    /// Opens the data directory and the listeners.
    ///
    /// # Errors
    /// [`StartError`], worded for the operator.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        Self::start_on(config, Arc::new(RealDisk), Arc::new(SystemClock)).await
    }

    /// The same on a given disk and clock.
    ///
    /// # Errors
    /// As [`Gateway::start`].
    pub async fn start_on(config: Config, disk: Arc<dyn Disk>, clock: Arc<dyn Clock>) -> Result<Self, StartError> {
        // Addresses first: a taken port must not leave an unclean start behind.
        let (kafka_listener, kafka) = bind("kafka.listen", config.kafka_listen).await?;
        let (flight_listener, flight) = bind("flight.listen", config.flight_listen).await?;
        let (http_listener, http) = bind("http.listen", config.http_listen).await?;
        let engine_config = EngineConfig {
            sync_interval_ms: config.log_sync_interval_ms,
            retention_interval_ms: config.log_retention_interval_ms,
            producer_expiry_ms: config.log_producer_expiry_ms,
            visibility: config.visibility,
            acks_all: config.acks_all,
            ..EngineConfig::new(&config.data_dir)
        };
        let engine_clock = Arc::clone(&clock);
        let opened = tokio::task::spawn_blocking(move || Embedded::open(engine_config, disk, engine_clock)).await;
        let engine = Arc::new(opened.map_err(|error| StartError::Internal(error.to_string()))??);
        let backend: Arc<dyn Backend> = Arc::clone(&engine) as Arc<dyn Backend>;
        let group_config = coordinator::GroupConfig {
            session_timeout_min_ms: config.groups_session_timeout_min_ms,
            session_timeout_max_ms: config.groups_session_timeout_max_ms,
            initial_rebalance_delay_ms: config.groups_initial_rebalance_delay_ms,
            group_max_size: usize::MAX,
        };
        let retention_ms = config.groups_offsets_retention_minutes.saturating_mul(60_000);
        let coordinator =
            coordinator::Coordinator::load(Arc::clone(&backend), Arc::clone(&clock), group_config, retention_ms)
                .await?;
        let metrics = metrics::Metrics::new().map_err(|error| StartError::Internal(error.to_string()))?;
        let flight_backend = Arc::clone(&backend);
        let broker = Arc::new(kafka::Broker {
            backend,
            coordinator: Arc::clone(&coordinator),
            clock,
            metrics: metrics.clone(),
            listen: kafka,
            large_frames: Arc::new(Semaphore::new(config.kafka_in_flight_bytes_max)),
            config,
        });
        let ready = Arc::new(AtomicBool::new(true));
        let (stop, stopped) = watch::channel(false);
        let pages = http::Pages { metrics, engine: Arc::clone(&engine), ready: Arc::clone(&ready) };
        let mut http_stop = stopped.clone();
        let flight_stop = stopped.clone();
        let tasks = vec![
            tokio::spawn(kafka::listen(broker, kafka_listener, stopped)),
            tokio::spawn(serve_flight(flight_backend, flight_listener, flight_stop)),
            tokio::spawn(coordinator.run_timers()),
            tokio::spawn(async move {
                let served = axum::serve(http_listener, http::router(pages));
                tokio::select! {
                    outcome = served => if let Err(error) = outcome { tracing::error!(%error, "http"); },
                    _ = http_stop.wait_for(|stop| *stop) => {}
                }
            }),
        ];
        tracing::info!(%kafka, %flight, %http, "serving");
        Ok(Self { engine, kafka, flight, http, stop, ready, tasks })
    }

    /// The address of the Kafka listener.
    #[must_use]
    pub fn kafka_address(&self) -> SocketAddr {
        self.kafka
    }

    /// The address of the Flight listener.
    #[must_use]
    pub fn flight_address(&self) -> SocketAddr {
        self.flight
    }

    /// The address of the HTTP listener.
    #[must_use]
    pub fn http_address(&self) -> SocketAddr {
        self.http
    }

    /// The engine, for tests that look behind the protocol.
    #[must_use]
    pub fn engine(&self) -> &Arc<Embedded> {
        &self.engine
    }

    /// Stops taking requests, answers those that were taken, syncs and closes.
    ///
    /// # Errors
    /// The engine's; the next start then recovers as after a crash.
    pub async fn stop(self) -> Result<(), sluice_engine::Error> {
        self.ready.store(false, Ordering::Release);
        let _ = self.stop.send(true);
        let deadline = tokio::time::Instant::now() + DRAIN;
        // Connections hold a receiver each; the listeners and ours are the others.
        while self.stop.receiver_count() > 0 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for task in &self.tasks {
            task.abort();
        }
        let engine = Arc::clone(&self.engine);
        match tokio::task::spawn_blocking(move || engine.close()).await {
            Ok(outcome) => outcome,
            Err(error) => Err(sluice_engine::Error::new(ErrorKind::Internal, error.to_string())),
        }
    }
}
