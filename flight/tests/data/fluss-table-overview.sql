-- Statements of the Fluss documents, as they stand there.
CREATE DATABASE commerce;

USE commerce;

CREATE TABLE order_events (
    event_date STRING,
    event_id STRING,
    order_id BIGINT,
    event_type STRING,
    event_time TIMESTAMP(3)
) PARTITIONED BY (event_date)
WITH (
    'bucket.num' = '8',
    'bucket.key' = 'order_id',
    'table.log.ttl' = '7 d'
);

ALTER TABLE order_events ADD PARTITION (event_date = '2026-10-05');

CREATE TABLE orders (
    order_id BIGINT,
    customer_id BIGINT,
    status STRING,
    total_amount DECIMAL(18, 2),
    updated_at TIMESTAMP(3),
    PRIMARY KEY (order_id) NOT ENFORCED
) WITH (
    'bucket.num' = '8',
    'table.log.ttl' = '7 d'
);
