//! What the workspace promises about itself.

use std::collections::{BTreeMap, BTreeSet};

use sluice_compat_tests::{Outcome, crate_folder};

/// docs/architecture.md: who may use whom.
const EDGES: [(&str, &[&str]); 5] = [
    ("sluice-protocol", &[]),
    ("sluice-engine", &["sluice-protocol"]),
    ("sluice-flight", &["sluice-engine"]),
    ("sluice-gateway", &["sluice-engine", "sluice-flight", "sluice-protocol"]),
    ("sluice-compat-tests", &["sluice-engine", "sluice-gateway", "sluice-protocol"]),
];

#[test]
fn dependencies_go_one_way() -> Outcome<()> {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(crate_folder())
        .output()?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let allowed: BTreeMap<_, _> = EDGES.into_iter().collect();
    for package in metadata["packages"].as_array().ok_or("no packages")? {
        let name = package["name"].as_str().unwrap_or_default();
        let edges = package["dependencies"].as_array().ok_or("no dependencies")?.iter();
        let own: BTreeSet<&str> = edges
            .filter(|edge| edge["kind"].is_null())
            .filter_map(|edge| edge["name"].as_str())
            .filter(|edge| edge.starts_with("sluice-"))
            .collect();
        let may = allowed.get(name).ok_or_else(|| format!("{name} is not in the list of crates"))?;
        for edge in own {
            assert!(may.contains(&edge), "{name} must not depend on {edge}");
        }
    }
    Ok(())
}

#[test]
fn one_arrow_at_most_is_in_the_tree() -> Outcome<()> {
    let lock = std::fs::read_to_string(crate_folder().join("../Cargo.lock"))?;
    for name in ["arrow", "arrow-array", "parquet", "prost", "tonic"] {
        let count = lock.matches(&format!("name = \"{name}\"\n")).count();
        assert!(count <= 1, "{count} versions of {name}");
    }
    Ok(())
}

/// The table of APIs in docs/compatibility.md is what the server answers to ApiVersions.
#[test]
fn the_documented_apis_are_the_served_ones() -> Outcome<()> {
    let docs = std::fs::read_to_string(crate_folder().join("../docs/compatibility.md"))?;
    let mut table = String::from("| key | API | versions |\n|---|---|---|\n");
    for served in sluice_gateway::kafka::handlers::served_apis() {
        let (key, min, max) = (served.key as i16, served.min, served.max);
        table += &format!("| {key} | {:?} | {min}-{max} |\n", served.key);
    }
    assert!(docs.contains(&table), "docs/compatibility.md must hold:\n{table}");
    Ok(())
}
