//! What DataFusion refuses, as gRPC status.

use datafusion::error::DataFusionError;
use tonic::Status;

/// The gRPC status of an error of planning or running; what came from the engine keeps its own.
pub(crate) fn status_of(error: &DataFusionError) -> Status {
    let root = error.find_root();
    if let DataFusionError::External(inner) = root
        && let Some(status) = inner.downcast_ref::<Status>()
    {
        return status.clone();
    }
    let position = error.diagnostic().and_then(|told| told.span).map(|span| span.start);
    let position = position.map(|at| format!("line {}, column {}: ", at.line, at.column)).unwrap_or_default();
    let text = format!("{position}{}", root.strip_backtrace());
    match root {
        DataFusionError::Internal(_)
        | DataFusionError::IoError(_)
        | DataFusionError::ExecutionJoin(_)
        | DataFusionError::External(_) => Status::internal(text),
        DataFusionError::NotImplemented(_) => Status::unimplemented(text),
        DataFusionError::ResourcesExhausted(_) => Status::unavailable(text),
        _ => Status::invalid_argument(text),
    }
}
