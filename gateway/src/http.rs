//! `/metrics`, `/healthz` and `/readyz`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use sluice_engine::Embedded;

use crate::metrics::Metrics;

/// What the pages show.
#[derive(Clone)]
pub(crate) struct Pages {
    pub(crate) metrics: Metrics,
    pub(crate) engine: Arc<Embedded>,
    /// Set while the listeners serve.
    pub(crate) ready: Arc<AtomicBool>,
}

/// All routes.
pub(crate) fn router(pages: Pages) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(pages)
}

async fn ready(State(pages): State<Pages>) -> (StatusCode, &'static str) {
    if pages.ready.load(Ordering::Acquire) {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}

async fn metrics(State(pages): State<Pages>) -> String {
    pages.metrics.render(&pages.engine.stats())
}
