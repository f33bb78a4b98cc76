//! Clients that break the protocol, by accident or on purpose: whatever they send, others are served.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, MetadataRequest};
use kafka_protocol::protocol::Request;
use sluice_gateway::kafka::handlers::served_apis;

use crate::apis::{Sample, assert_serves, samples};
use crate::fixture::{
    Client, Dice, FETCH, PRODUCE, Server, batch, fetch_request, produce_request, raw_frame, request_frame, sized_batch,
};

/// Sends bytes on a connection of their own, then nothing more; reads what comes until the close.
async fn provoke(server: &Server, bytes: &[u8]) -> Vec<Bytes> {
    let mut client = server.client().await;
    client.try_send_raw(bytes).await;
    client.finish().await;
    let mut replies = Vec::new();
    while let Some(frame) = client.frame().await {
        replies.push(frame);
    }
    replies
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impossible_frame_lengths_close_the_connection() {
    let server = Server::start_with(|config| config.kafka_frame_bytes_max = 100_000).await;
    let mut witness = server.client().await;
    for len in [-1, i32::MIN, i32::MAX, 100_001] {
        let mut client = server.client().await;
        client.try_send_raw(&len.to_be_bytes()).await;
        client.assert_closed().await;
        assert_serves(&mut witness).await;
    }
    for len in [0, 1, 7, 9] {
        let frame = [&(len as i32).to_be_bytes()[..], &vec![0; len]].concat();
        let mut client = server.client().await;
        client.try_send_raw(&frame).await;
        client.assert_closed().await;
    }
    let most = produce_request("t", 0, -1, Some(Bytes::from(vec![0; 90_000])));
    assert_eq!(witness.call(PRODUCE, most).await.responses[0].partition_responses[0].error_code, 3);
}

fn body_of<R: Request>(version: i16, request: &R) -> Vec<u8> {
    let empty = raw_frame::<R>(version, 1, &[]).len();
    request_frame(version, 1, request)[empty..].to_vec()
}

async fn send_every_prefix<R: Request>(server: &Server, version: i16, request: &R) {
    let body = body_of(version, request);
    let mut witness = server.client().await;
    for len in 0..body.len() {
        let replies = provoke(server, &raw_frame::<R>(version, 1, &body[..len])).await;
        assert!(replies.is_empty(), "{} bytes of {} of key {} were answered", len, body.len(), R::KEY);
    }
    assert_serves(&mut witness).await;
    assert_eq!(provoke(server, &raw_frame::<R>(version, 1, &body)).await.len(), 1);
    // A frame that breaks off.
    let whole = raw_frame::<R>(version, 1, &body);
    for len in 1..whole.len() {
        assert!(provoke(server, &whole[..len]).await.is_empty());
    }
    assert_serves(&mut witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_prefix_of_a_request_is_taken_for_one() {
    let server = Server::start().await;
    server.client().await.create("t", 1).await;
    send_every_prefix(&server, PRODUCE, &produce_request("t", 0, -1, Some(batch(1).into()))).await;
    send_every_prefix(&server, 3, &produce_request("t", 0, -1, Some(batch(1).into()))).await;
    send_every_prefix(&server, FETCH, &fetch_request("t", &[(0, 0), (1, 7)], 1 << 20, 0, 0)).await;
    send_every_prefix(&server, 4, &fetch_request("t", &[(0, 0)], 1 << 20, 0, 0)).await;
    send_every_prefix(&server, 5, &crate::groups::join_request("g", "", 60_000)).await;
    let all = MetadataRequest::default().with_topics(None);
    send_every_prefix(&server, 12, &all).await;
    send_every_prefix(&server, 4, &all).await;
}

/// P78: counts and lengths overwritten with what cannot be, in every API.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_count_from_the_wire_is_believed() {
    let server = Server::start().await;
    let mut witness = server.client().await;
    let edges = |sample: &Sample| {
        served_apis().iter().any(|one| one.key == sample.key && [one.min, one.max].contains(&sample.version))
    };
    let hostile: [&[u8]; 5] = [
        &[0x7f, 0xff, 0xff, 0xff],
        &[0xff, 0xff, 0xff, 0xff, 0x07],
        &[0xff, 0xff, 0xff, 0xff, 0x0f],
        &[0x80; 6],
        &[0x7f, 0xff],
    ];
    for sample in samples().into_iter().filter(edges) {
        for at in sample.body..sample.frame.len() {
            for count in hostile {
                let mut frame = BytesMut::from(&sample.frame[..at]);
                frame.put_slice(count);
                // As long as before at least, and with room for a few elements.
                frame.put_slice(sample.frame.get(at + count.len()..).unwrap_or_default());
                frame.put_slice(&[0; 8]);
                let len = (frame.len() - 4) as i32;
                frame[..4].copy_from_slice(&len.to_be_bytes());
                for reply in provoke(&server, &frame).await {
                    assert!(sample.decodes(reply), "{:?} v{} at {at}", sample.key, sample.version);
                }
            }
        }
        assert_serves(&mut witness).await;
    }
}

/// A body that is all counts: nothing is allocated for what the bytes cannot hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_of_one_repeated_byte_are_survived_by_every_api() {
    let server = Server::start().await;
    let mut witness = server.client().await;
    for sample in samples() {
        for (byte, len) in [(0x00, 64), (0x01, 64), (0x02, 200), (0x7f, 64), (0x80, 64), (0xff, 64), (0x20, 5_000)] {
            let mut frame = BytesMut::from(&sample.frame[..sample.body]);
            frame.put_bytes(byte, len);
            let len = (frame.len() - 4) as i32;
            frame[..4].copy_from_slice(&len.to_be_bytes());
            if sample.key == ApiKey::Fetch && byte == 0x01 {
                // A fetch that may wait for 16843009 ms.
                continue;
            }
            provoke(&server, &frame).await;
        }
        assert_serves(&mut witness).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_random_frames_are_survived() {
    let server = Server::start().await;
    let mut witness = server.client().await;
    witness.create("t", 1).await;
    let keys: Vec<_> = served_apis();
    for seed in 1..=1_000u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut frame = BytesMut::new();
        frame.put_i32(0);
        if dice.below(4) > 0 {
            let served = keys[dice.below(keys.len() as u64) as usize];
            let span = (served.max - served.min + 1) as u64;
            frame.put_i16(served.key as i16);
            frame.put_i16(served.min + dice.below(span) as i16);
            frame.put_slice(&[0, 0, 0, 9, 0xff, 0xff]);
            frame.put_bytes(0, usize::from(dice.below(2) == 0));
        }
        for _ in 0..dice.below(120) {
            // Small numbers pass for counts more often than random bytes do.
            frame.put_u8(if dice.below(2) == 0 { dice.below(4) as u8 } else { dice.next() as u8 });
        }
        let len = (frame.len() - 4) as i32;
        frame[..4].copy_from_slice(&len.to_be_bytes());
        let mut client = server.client().await;
        client.try_send_raw(&frame).await;
        drop(client);
        assert_serves(&mut witness).await;
        if seed % 100 == 0 {
            assert_eq!(witness.fetch("t", 0, 0).await.error_code, 0, "seed {seed}");
        }
    }
}

/// Real requests with some bytes changed: they come further than random ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutated_requests_are_survived() {
    let server = Server::start().await;
    let mut witness = server.client().await;
    witness.create("t", 1).await;
    let good = [
        request_frame(PRODUCE, 1, &produce_request("t", 0, -1, Some(batch(3).into()))),
        request_frame(FETCH, 1, &fetch_request("t", &[(0, 0)], 1 << 20, 0, 0)),
        request_frame(5, 1, &crate::groups::join_request("g", "", 6_000)),
        request_frame(12, 1, &MetadataRequest::default().with_topics(None)),
    ];
    for seed in 1..=600u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut frame = good[dice.below(4) as usize].to_vec();
        for _ in 0..=dice.below(4) {
            let at = 4 + dice.below(frame.len() as u64 - 4) as usize;
            frame[at] = dice.next() as u8;
        }
        let mut client = server.client().await;
        client.try_send_raw(&frame).await;
        drop(client);
        assert_serves(&mut witness).await;
    }
    let part = witness.fetch("t", 0, 0).await;
    assert_eq!(part.error_code, 0);
}

/// Frames that never end: the others are served meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_frames_hold_nobody_up() {
    let server = Server::start().await;
    let mut witness = server.client().await;
    witness.create("t", 1).await;
    let frame = request_frame(PRODUCE, 1, &produce_request("t", 0, -1, Some(batch(1).into())));
    let mut slow = Vec::new();
    for at in 0..100 {
        let mut client = server.client().await;
        client.send_raw(&frame[..1 + at % (frame.len() - 1)]).await;
        slow.push(client);
    }
    // Announced, not sent: no memory and no room is taken for it.
    for _ in 0..20 {
        let mut client = server.client().await;
        client.send_raw(&(100i32 << 20).to_be_bytes()).await;
        client.send_raw(&[0; 100]).await;
        slow.push(client);
    }
    assert_serves(&mut witness).await;
    assert_eq!(witness.produce("t", 0, batch(1)).await.error_code, 0);
    // Larger than what is read without asking for room.
    let large = witness.produce("t", 0, sized_batch(1, 3 << 20)).await;
    assert_eq!(large.error_code, 10, "read and judged");
    drop(slow);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_that_stalls_is_given_up() {
    let server = Server::start_with(|config| config.kafka_frame_stall_ms = 300).await;
    let mut client = server.client().await;
    client.send_raw(&[0, 0, 1, 0, 0]).await;
    client.assert_closed().await;
    // Also when a byte comes now and then.
    let mut drip = server.client().await;
    drip.send_raw(&200i32.to_be_bytes()).await;
    let mut sent = 0;
    let closed = async {
        let frame = drip_until_closed(&mut drip, &mut sent).await;
        assert!(frame.is_none());
    };
    closed.await;
    assert!(sent < 200, "given up before the frame was whole");
    assert_serves(&mut server.client().await).await;
}

async fn drip_until_closed(client: &mut Client, sent: &mut usize) -> Option<Bytes> {
    for _ in 0..200 {
        client.try_send_raw(&[0]).await;
        *sent += 1;
        match tokio::time::timeout(std::time::Duration::from_millis(50), client.frame()).await {
            Ok(frame) => return frame,
            Err(_) => continue,
        }
    }
    client.frame().await
}

/// A client that asks for much and reads nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_holds_nobody_up() {
    let server = Server::start().await;
    let mut witness = server.client().await;
    witness.create("t", 1).await;
    for _ in 0..20 {
        assert_eq!(witness.produce("t", 0, sized_batch(1, 1_000_000)).await.error_code, 0);
    }
    let mut deaf = server.client().await;
    let frame = request_frame(FETCH, 1, &fetch_request("t", &[(0, 0)], i32::MAX, 0, 0));
    for _ in 0..200 {
        deaf.try_send_raw(&frame).await;
    }
    for _ in 0..20 {
        assert_serves(&mut witness).await;
        assert_eq!(witness.fetch("t", 0, 0).await.error_code, 0);
    }
    // It may still change its mind, and gets every answer whole.
    for _ in 0..200 {
        assert!(deaf.frame().await.is_some_and(|frame| frame.len() > 20_000_000));
    }
}

/// Decompressed sizes are capped; a small batch cannot ask for gigabytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_unpacks_to_too_much_is_refused() {
    use sluice_protocol::batch::{HEADER_LEN, with_payload};
    use sluice_protocol::records::compress;
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    let zeros = vec![0u8; 300 << 20];
    let packed = compress(4, &zeros).expect("compresses");
    drop(zeros);
    let bomb = with_payload(&batch(1), 4, &packed);
    assert!(bomb.len() < 1 << 20 && bomb.len() > HEADER_LEN);
    assert_eq!(client.produce("t", 0, bomb).await.error_code, 87);
    assert_eq!(client.fetch("t", 0, 0).await.high_watermark, 0);
}
