//! The command line and what an operator sees when something is wrong: one line and an exit code.

use std::process::{Command, Output};

use sluice_compat_tests::{Outcome, Server, binary};

const FREE: [&str; 4] = ["--flight-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];

fn serve(arguments: &[&str], environment: &[(&str, &str)]) -> Outcome<Output> {
    let mut command = Command::new(binary()?);
    command.args(["serve", "--kafka-listen", "127.0.0.1:0"]).args(FREE).args(arguments);
    Ok(command.envs(environment.iter().copied()).env("SLUICE_LOG", "off").output()?)
}

fn assert_one_line(output: &Output, code: i32, words: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    for word in words {
        assert!(text.contains(word), "'{word}' is not in: {text}");
    }
}

#[test]
fn a_second_server_on_the_same_directory_is_refused() -> Outcome<()> {
    let server = Server::start(&[])?;
    let directory = server.directory().to_string_lossy().into_owned();
    let output = serve(&["--data-dir", &directory], &[])?;
    assert_one_line(&output, 75, &["another server uses the data directory", &directory]);
    Ok(())
}

#[test]
fn a_taken_port_is_named() -> Outcome<()> {
    let server = Server::start(&[])?;
    let other = tempfile::tempdir()?;
    let directory = other.path().to_string_lossy().into_owned();
    let mut command = Command::new(binary()?);
    command.args(["serve", "--data-dir", &directory]).args(FREE);
    let output = command.env("SLUICE_KAFKA_LISTEN", server.bootstrap()).env("SLUICE_LOG", "off").output()?;
    assert_one_line(&output, 69, &["cannot listen on", server.bootstrap(), "kafka.listen"]);
    Ok(())
}

#[test]
fn a_directory_that_cannot_be_made_is_named() -> Outcome<()> {
    let output = serve(&["--data-dir", "/dev/null/sluice"], &[])?;
    assert_one_line(&output, 73, &["/dev/null/sluice"]);
    Ok(())
}

#[test]
fn an_unknown_key_names_the_nearest() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("sluice.toml");
    std::fs::write(&file, "[kafka]\nlisten-on = \"127.0.0.1:9092\"\n")?;
    let directory = folder.path().join("data").to_string_lossy().into_owned();
    let output = serve(&["--data-dir", &directory, "--config", &file.to_string_lossy()], &[])?;
    assert_one_line(&output, 78, &["unknown config key 'kafka.listen-on'", "did you mean 'kafka.listen'"]);
    let output = serve(&["--data-dir", &directory], &[("SLUICE_KAFKA_LISTEM", "x")])?;
    assert_one_line(&output, 78, &["SLUICE_KAFKA_LISTEM", "SLUICE_KAFKA_LISTEN"]);
    Ok(())
}

#[test]
fn a_newer_format_is_refused_by_name() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("VERSION"), "sluice-data 99\n")?;
    let output = serve(&["--data-dir", &folder.path().to_string_lossy()], &[])?;
    assert_one_line(&output, 78, &["format 99"]);
    Ok(())
}

#[test]
fn topics_from_the_command_line() -> Outcome<()> {
    let server = Server::start(&[])?;
    let topic = |arguments: &[&str]| -> Outcome<(bool, String)> {
        let output =
            Command::new(binary()?).args(["topic", "--server", server.bootstrap()]).args(arguments).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        Ok((output.status.success(), text))
    };
    assert_eq!(
        topic(&["create", "orders", "--partitions", "3", "--option", "retention.ms=60000"])?.1,
        "created topic 'orders' with 3 topic partition(s)\n"
    );
    assert_eq!(topic(&["list"])?, (true, "orders\t3\n".to_owned()));
    let (_, text) = topic(&["describe", "orders"])?;
    assert!(text.contains("topic partition 2: offsets 0..0, leader epoch 0"), "{text}");
    assert!(text.contains("option retention.ms=60000"), "{text}");
    let (good, text) = topic(&["create", "orders"])?;
    assert!(!good && text.contains("already exists"), "{text}");
    let (good, text) = topic(&["create", "x", "--option", "retention.mss=1"])?;
    assert!(!good && text.contains("Unknown topic config name: retention.mss"), "{text}");
    assert_eq!(topic(&["delete", "orders"])?, (true, "deleted topic 'orders'\n".to_owned()));
    assert!(!topic(&["describe", "orders"])?.0);
    Ok(())
}

#[test]
fn health_and_metrics_are_served() -> Outcome<()> {
    let server = Server::start(&[])?;
    let get = |path: &str| -> Outcome<String> {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(server.http())?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    assert!(get("/healthz")?.starts_with("HTTP/1.1 200"));
    assert!(get("/readyz")?.ends_with("ready\n"));
    assert!(get("/metrics")?.contains("\nsluice_buckets 0\n"));
    Ok(())
}

#[test]
fn sigterm_ends_cleanly_and_the_next_start_scans_nothing() -> Outcome<()> {
    let mut server = Server::start(&[])?;
    server.stop()?;
    assert!(server.directory().join("CLEAN").exists());
    server.spawn()?;
    assert!(!server.directory().join("CLEAN").exists());
    server.stop()
}
