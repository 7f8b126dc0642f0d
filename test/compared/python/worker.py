"""A consumer's process with the Python client. job.go of the runner describes its input and output."""

import json
import os
import sys
import threading
import time

import pulsar

FAILURES, ACK_TIMEOUT_MS, NACK_DELAY_MS = 2, 10_000, 1000


class Worker:
    def __init__(self, job):
        self.job = job
        self.file = os.open(job["file"], os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self.failed = {}
        self.client = pulsar.Client(job["url"], logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        timeout = ACK_TIMEOUT_MS if job["workload"] == "timeout" else None
        self.consumer = self.client.subscribe(
            job["topic"],
            "compared",
            consumer_type=pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
            negative_ack_redelivery_delay_ms=NACK_DELAY_MS,
            unacked_messages_timeout_ms=timeout,
            batch_index_ack_enabled=job["best"],
        )
        self.write("started")
        print("ready", flush=True)

    def write(self, event, **fields):
        line = {"at": time.time_ns() // 1000, "event": event, "consumer": self.job["name"], **fields}
        os.write(self.file, (json.dumps(line) + "\n").encode())

    def run(self):
        while True:
            self.handle(self.consumer.receive())

    def handle(self, msg):
        name, workload = msg.data().decode(), self.job["workload"]
        n, copy = int(name), str(msg.message_id())
        self.write("delivered", message=name, count=msg.redelivery_count(), retry=0, copy=copy)
        fails = {
            "nack": self.failed.get(name, 0) < FAILURES,
            "batch": n % 10 == 4 and self.failed.get(name, 0) < FAILURES,
            "timeout": n % 4 == 0 and self.failed.get(name, 0) < 1,
        }[workload]
        if fails:
            self.failed[name] = self.failed.get(name, 0) + 1
            delay = ACK_TIMEOUT_MS if workload == "timeout" else NACK_DELAY_MS
            self.write("nacked", message=name, delay=delay * 1000, copy=copy)
            if workload != "timeout":
                self.consumer.negative_acknowledge(msg)
            return
        self.write("acking", message=name)
        try:
            self.consumer.acknowledge(msg)
        except Exception:
            self.write("refused", message=name)
            return
        self.write("acked", message=name, confirmed=False)


worker = Worker(json.loads(sys.stdin.readline()))
threading.Thread(target=worker.run, daemon=True).start()
sys.stdin.read()
os._exit(0)
