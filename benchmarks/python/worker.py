"""Does the precision tasks of package internal/worker with the Python client. That package describes the protocol."""

import json
import sys
import time

import pulsar


def lateness(consumer, task):
    """Fails on every message a number of times and measures when it comes back."""
    count = task["messages"]
    print(json.dumps({"publish": count}), flush=True)
    deliveries, since, samples = [0] * count, [0.0] * count, []
    surplus, opened, begin = 0, count, time.process_time()
    while opened:
        msg = consumer.receive(60_000)
        now = time.monotonic()
        i = int(msg.data())
        n = deliveries[i]
        deliveries[i] += 1
        fails = 1 + i % task["redeliveries"] if task.get("mixed") else task["redeliveries"]
        if n > fails:
            surplus += 1
            continue
        if n > 0:
            samples.append(round((now - since[i]) * 1000 - planned(task, n - 1), 3))
        if n == fails:
            consumer.acknowledge(msg)
            opened -= 1
            continue
        since[i] = time.monotonic()
        if "ackTimeoutMs" in task:
            since[i] = now
        else:
            consumer.negative_acknowledge(msg)
    return {"samples": samples, "figures": {"surplus": surplus, "cpuSeconds": time.process_time() - begin}}


def planned(task, redelivery_count):
    backoff = min(task.get("maxMs", 0), task.get("minMs", 0) * 2**redelivery_count)
    return task.get("ackTimeoutMs", 0) + backoff


def main():
    task = json.loads(sys.stdin.readline())
    client = pulsar.Client(task["url"], logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(
        task["topic"],
        "benchmark",
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        negative_ack_redelivery_delay_ms=task.get("minMs") or 60_000,
        unacked_messages_timeout_ms=task.get("ackTimeoutMs"),
    )
    report = {"lateness": lateness}[task["kind"]](consumer, task)
    print(json.dumps(report), flush=True)
    client.close()


main()
