//! Arrow Flight: so far only how the engine's refusals read in gRPC.

pub mod status;
