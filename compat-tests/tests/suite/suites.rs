//! Every foreign suite, one after the other: two cores are not enough for two JVMs and a server.
//!
//! `SLUICE_TEST_SKIP` names suites to leave out (space-separated); each one is counted loudly.
//! `SLUICE_TEST_LONG` runs the long forms.

use std::sync::Mutex;

use sluice_compat_tests::{Outcome, Server, run_suite};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const QUICK_GROUPS: (&str, &str) = ("SLUICE_GROUPS_INITIAL_REBALANCE_DELAY_MS", "0");

fn is_left_out(name: &str) -> bool {
    let left_out = std::env::var("SLUICE_TEST_SKIP").unwrap_or_default();
    let skip = left_out.split_whitespace().any(|other| other == name);
    if skip {
        // Straight to the terminal: a skip must be seen although the test counts as passed.
        let _ = std::fs::write("/dev/stderr", format!("SKIPPED SUITE {name} (SLUICE_TEST_SKIP)\n"));
    }
    skip
}

fn is_long() -> bool {
    std::env::var_os("SLUICE_TEST_LONG").is_some()
}

fn run(name: &str, partitions: &'static str, arguments: &[&str]) -> Outcome<()> {
    run_with(&[QUICK_GROUPS, ("SLUICE_KAFKA_DEFAULT_PARTITIONS", partitions)], name, arguments)
}

fn run_with(settings: &[(&'static str, &str)], name: &str, arguments: &[&str]) -> Outcome<()> {
    if is_left_out(name) {
        return Ok(());
    }
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let server = Server::start(settings)?;
    let text = run_suite(name, server.bootstrap(), arguments, &[])?;
    let last = text.lines().rev().find(|line| line.contains(" passed,")).unwrap_or_default();
    println!("suite {name}: {last}");
    Ok(())
}

#[test]
fn apache_kafka_java_tools_and_clients() -> Outcome<()> {
    run("java", "4", &[])
}

#[test]
fn older_java_clients() -> Outcome<()> {
    run("java-old", "4", &[])
}

#[test]
fn kcat() -> Outcome<()> {
    run("kcat", "4", &[])
}

#[test]
fn confluent_kafka_python() -> Outcome<()> {
    run("confluent-kafka", "4", &[])
}

#[test]
fn pyarrow_adbc_and_jdbc_over_flight() -> Outcome<()> {
    with_flight("flight")
}

/// The README's tour: 336,776 flights, planes and weather through every door, compared with the package's own files.
#[test]
fn the_tour() -> Outcome<()> {
    with_flight("tour")
}

fn with_flight(name: &str) -> Outcome<()> {
    if is_left_out(name) {
        return Ok(());
    }
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let server = Server::start(&[QUICK_GROUPS, ("SLUICE_KAFKA_DEFAULT_PARTITIONS", "4")])?;
    let text = run_suite(name, server.bootstrap(), &[server.flight()], &[])?;
    println!("suite {name}: {}", text.lines().rev().find(|line| line.contains(" passed,")).unwrap_or_default());
    Ok(())
}

#[test]
fn franz_go() -> Outcome<()> {
    run("franz-go", "4", &[])
}

#[test]
fn kafkajs() -> Outcome<()> {
    run("kafkajs", "4", &[])
}

#[test]
fn flink_sql() -> Outcome<()> {
    if is_left_out("flink") {
        return Ok(());
    }
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let server = Server::start(&[QUICK_GROUPS, ("SLUICE_KAFKA_DEFAULT_PARTITIONS", "1")])?;
    // Case b writes an upsert-kafka table: its topic is a table with a primary key, made in SQL.
    server.sql(
        "CREATE TABLE `fl-b-pk` (id INT, v BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('kafka.key.format' = 'json')",
    )?;
    let text = run_suite("flink", server.bootstrap(), &["a", "b"], &[("RUN", "pk")])?;
    println!("suite flink: {}", text.lines().rev().find(|line| line.contains(" passed,")).unwrap_or_default());
    Ok(())
}

#[test]
fn spark_batch_and_streaming() -> Outcome<()> {
    run("spark", "1", &[])
}

#[test]
fn librdkafka_own_tests() -> Outcome<()> {
    // 0113/n_wildcard wants two members that join within milliseconds to meet in one rebalance.
    let settings = [("SLUICE_GROUPS_INITIAL_REBALANCE_DELAY_MS", "300"), ("SLUICE_KAFKA_DEFAULT_PARTITIONS", "4")];
    run_with(&settings, "librdkafka", if is_long() { &["--long"] } else { &[] })
}

#[test]
fn golden_answers_of_apache_kafka() -> Outcome<()> {
    let out = tempfile::tempdir()?;
    run("golden", "1", &[&out.path().to_string_lossy()])
}

/// 336,776 real rows through kill -9 in the middle of producing and of consuming.
#[test]
fn nycflights_across_kill_9() -> Outcome<()> {
    nycflights("nycflights", "0")
}

#[test]
fn nycflights_into_a_typed_table_across_kill_9() -> Outcome<()> {
    nycflights("nycflights-typed", "1")
}

fn nycflights(name: &str, typed: &str) -> Outcome<()> {
    if is_left_out(name) {
        return Ok(());
    }
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = tempfile::tempdir()?;
    let script = sluice_compat_tests::crate_folder().join("lab/kill-and-restart.sh");
    let mut server = Server::start(&[QUICK_GROUPS, ("SLUICE_KAFKA_DEFAULT_PARTITIONS", "4")])?;
    let bootstrap = server.bootstrap().to_owned();
    // From here on the script owns the process: it kills it and starts its successors.
    let pid_file = folder.path().join("pid");
    std::fs::write(&pid_file, server.pid().ok_or("not running")?.to_string())?;
    let command = server.command()?;
    let mut line = format!("bash {} {}", script.display(), pid_file.display());
    for word in std::iter::once(command.get_program()).chain(command.get_args()) {
        line = format!("{line} '{}'", word.to_string_lossy());
    }
    let environment = [QUICK_GROUPS, ("SLUICE_KAFKA_DEFAULT_PARTITIONS", "4"), ("TYPED", typed)];
    let outcome = run_suite("nycflights", &bootstrap, &[&line], &environment);
    let last = std::fs::read_to_string(&pid_file)?;
    std::process::Command::new("kill").args(["-9", last.trim()]).status()?;
    server.kill()?;
    println!("suite {name}: {}", outcome?.lines().last().unwrap_or_default());
    Ok(())
}
