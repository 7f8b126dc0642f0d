import com.google.gson.Gson;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.*;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;

/** Does the tasks of package internal/worker with the Java client. That package describes the protocol. */
public class Worker {
    static class Task {
        String kind, url, topic;
        int messages, redeliveries, minMs, maxMs, firstMs, spreadMs, dueInMs, ackTimeoutMs, tickMs, seconds;
        Integer precisionBits;
        boolean mixed;
    }

    static class Report {
        List<Double> samples = new ArrayList<>();
        Map<String, Double> figures = new TreeMap<>();
    }

    final BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    final Gson gson = new Gson();
    final Task task;
    final PulsarClient client;
    volatile long due = System.nanoTime() + TimeUnit.HOURS.toNanos(1);

    Worker() throws Exception {
        task = gson.fromJson(in.readLine(), Task.class);
        client = PulsarClient.builder().serviceUrl(task.url).build();
    }

    public static void main(String[] args) {
        try {
            Worker w = new Worker();
            Report report = switch (w.task.kind) {
                case "lateness" -> w.lateness();
                case "waiting" -> w.waiting();
                case "consume" -> w.consume();
                case "idle" -> w.idle();
                default -> throw new IllegalArgumentException("unknown kind of task " + w.task.kind);
            };
            System.out.println(w.gson.toJson(report));
            System.exit(0);
        } catch (Exception e) {
            System.err.println(e);
            System.exit(1);
        }
    }

    Consumer<byte[]> subscribe(MessageListener<byte[]> listener) throws Exception {
        ConsumerBuilder<byte[]> b = client.newConsumer().topic(task.topic).subscriptionName("benchmark")
                .subscriptionType(SubscriptionType.Shared)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
        if (listener != null) {
            b.messageListener(listener);
        }
        if (task.precisionBits != null) {
            b.negativeAckRedeliveryDelayPrecision(task.precisionBits);
        }
        if (task.ackTimeoutMs > 0) {
            b.ackTimeout(task.ackTimeoutMs, TimeUnit.MILLISECONDS);
            if (task.tickMs > 0) {
                b.ackTimeoutTickTime(task.tickMs, TimeUnit.MILLISECONDS);
            }
            if (task.minMs > 0) {
                b.ackTimeoutRedeliveryBackoff(this::delay);
            }
        } else if (task.minMs > 0) {
            b.negativeAckRedeliveryBackoff(this::delay);
        }
        return b.subscribe();
    }

    /** The policy of the task, in milliseconds. */
    long delay(int redeliveryCount) {
        if (redeliveryCount == 0 && task.dueInMs > 0) {
            return Math.max(0, (due - System.nanoTime()) / 1_000_000);
        }
        if (redeliveryCount == 0 && task.firstMs > 0) {
            return task.firstMs + ThreadLocalRandom.current().nextInt(task.spreadMs + 1);
        }
        return backoff(redeliveryCount);
    }

    long backoff(int redeliveryCount) {
        return Math.min(task.maxMs, (long) task.minMs << Math.min(redeliveryCount, 20));
    }

    Report lateness() throws Exception {
        Consumer<byte[]> c = subscribe(null);
        publish(task.messages);
        Report report = new Report();
        int[] deliveries = new int[task.messages];
        long[] since = new long[task.messages];
        double begin = cpuNanos(), surplus = 0;
        for (int open = task.messages; open > 0;) {
            Message<byte[]> msg = receive(c);
            long now = System.nanoTime();
            int i = index(msg);
            int n = deliveries[i]++;
            int fails = task.mixed ? 1 + i % task.redeliveries : task.redeliveries;
            if (n > fails) {
                surplus++; // delivered again although it was acknowledged
                continue;
            }
            if (n > 0) {
                double planned = task.ackTimeoutMs + (task.minMs > 0 ? backoff(n - 1) : 0);
                report.samples.add(Math.round((now - since[i]) / 1e3) / 1e3 - planned);
            }
            if (n == fails) {
                c.acknowledge(msg);
                open--;
                continue;
            }
            since[i] = System.nanoTime();
            if (task.ackTimeoutMs > 0) {
                since[i] = now;
            } else {
                c.negativeAcknowledge(msg);
            }
        }
        report.figures.put("surplus", surplus);
        report.figures.put("cpuSeconds", (cpuNanos() - begin) / 1e9);
        return report;
    }

    Report waiting() throws Exception {
        Consumer<byte[]> c = subscribe(null);
        publish(2000);
        published();
        for (int i = 0; i < 2000; i++) {
            c.acknowledge(receive(c));
        }
        Thread.sleep(1000);
        List<MessageId> ids = new ArrayList<>(task.messages);
        double before = heap(), n = task.messages;
        long nacking = 0;
        publish(task.messages);
        for (int i = 0; i < task.messages; i++) {
            Message<byte[]> msg = receive(c);
            ids.add(msg.getMessageId());
            long begin = System.nanoTime();
            if (i == 0) {
                due = begin + task.dueInMs * 1_000_000L;
            }
            c.negativeAcknowledge(msg);
            nacking += System.nanoTime() - begin;
        }
        Report report = new Report();
        double withIds = heap();
        ids.clear();
        double withoutIds = heap();
        report.figures.put("nackNs", nacking / n);
        report.figures.put("bytes", (withoutIds - before) / n);
        report.figures.put("idBytes", (withIds - withoutIds) / n);
        report.figures.put("idlePercent", idleCPU());
        if (task.dueInMs > 0) {
            handOver(c, report.figures);
        }
        return report;
    }

    void handOver(Consumer<byte[]> c, Map<String, Double> figures) throws Exception {
        Thread.sleep(Math.max(0, (due - System.nanoTime()) / 1_000_000 - 1000));
        BitSet seen = new BitSet(task.messages);
        double early = 0, begin = cpuNanos();
        for (int open = task.messages; open > 0;) {
            Message<byte[]> msg = receive(c);
            if (System.nanoTime() < due) {
                early++;
            }
            if (!seen.get(index(msg))) {
                seen.set(index(msg));
                open--;
            }
            c.acknowledge(msg);
        }
        figures.put("handOverMs", (System.nanoTime() - due) / 1e6);
        figures.put("handOverCPUus", (cpuNanos() - begin) / 1e3 / task.messages);
        figures.put("early", early);
    }

    Report consume() throws Exception {
        publish(task.messages);
        published();
        Consumer<byte[]> c = subscribe(null);
        int warmUp = task.messages / 10;
        double begin = 0, cpuBegin = 0, n = task.messages - warmUp;
        for (int i = 0; i < task.messages; i++) {
            if (i == warmUp) {
                begin = System.nanoTime();
                cpuBegin = cpuNanos();
            }
            c.acknowledge(receive(c));
        }
        Report report = new Report();
        report.figures.put("cpuUs", (cpuNanos() - cpuBegin) / 1e3 / n);
        report.figures.put("perSecond", n / ((System.nanoTime() - begin) / 1e9));
        return report;
    }

    Report idle() throws Exception {
        double before = heap();
        subscribe((c, msg) -> c.negativeAcknowledge(msg));
        Thread.sleep(3000);
        Report report = new Report();
        report.figures.put("heapBytes", heap() - before);
        report.figures.put("idlePercent", idleCPU());
        publish(task.messages);
        published();
        Thread.sleep(3000);
        report.figures.put("waitingPercent", idleCPU());
        return report;
    }

    static Message<byte[]> receive(Consumer<byte[]> c) throws Exception {
        Message<byte[]> msg = c.receive(60, TimeUnit.SECONDS);
        if (msg == null) {
            throw new Exception("no message for a minute");
        }
        return msg;
    }

    static int index(Message<byte[]> msg) {
        return Integer.parseInt(new String(msg.getData()));
    }

    void publish(int n) {
        System.out.println("{\"publish\": " + n + "}");
    }

    void published() throws Exception {
        in.readLine();
    }

    static double cpuNanos() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    double idleCPU() throws Exception {
        double begin = cpuNanos();
        Thread.sleep(task.seconds * 1000L);
        return (cpuNanos() - begin) / 1e7 / task.seconds;
    }

    static double heap() throws Exception {
        for (int i = 0; i < 3; i++) {
            System.gc();
            Thread.sleep(100);
        }
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }
}
