"""The part of kafka-topics.sh that librdkafka's tests use, over confluent-kafka's admin client."""
import argparse, sys
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

p = argparse.ArgumentParser()
p.add_argument("--bootstrap-server", required=True)
what = p.add_mutually_exclusive_group(required=True)
for w in ("create", "alter", "delete", "list", "describe"):
    what.add_argument("--" + w, action="store_true")
p.add_argument("--topic")
p.add_argument("--partitions", type=int, default=-1)
p.add_argument("--replication-factor", type=int, default=-1)
p.add_argument("--config", action="append", default=[])
p.add_argument("--if-exists", action="store_true")
p.add_argument("--if-not-exists", action="store_true")
a = p.parse_args()
if not a.topic and not (a.list or a.describe):
    p.error("--topic is missing")

admin = AdminClient({"bootstrap.servers": a.bootstrap_server})


def there():
    return a.topic in admin.list_topics(timeout=20).topics


try:
    if a.create:
        if not (a.if_not_exists and there()):
            config = dict(c.split("=", 1) for c in a.config)
            new = NewTopic(a.topic, a.partitions, a.replication_factor, config=config)
            admin.create_topics([new], operation_timeout=20)[a.topic].result(30)
    elif a.alter:
        admin.create_partitions([NewPartitions(a.topic, a.partitions)], operation_timeout=20)[a.topic].result(30)
    elif a.delete:
        if not (a.if_exists and not there()):
            admin.delete_topics([a.topic], operation_timeout=20)[a.topic].result(30)
    else:
        for name, t in sorted(admin.list_topics(a.topic, timeout=20).topics.items()):
            print(name if a.list else "Topic: %s\tPartitionCount: %d" % (name, len(t.partitions)))
except KafkaException as e:
    sys.exit("kafka-topics: %s" % e)
