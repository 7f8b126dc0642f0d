import com.google.gson.Gson;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.client.impl.MultiplierRedeliveryBackoff;

/** A consumer's process with the Java client. job.go of the runner describes its input and output. */
public class Worker {
    static final int FAILURES = 2;
    static final long FIRST = 1000, MAX = 4000, ACK_TIMEOUT = 10_000, RETRY = 3000;

    static class Job {
        String url, topic, workload, name, file;
        boolean best;
    }

    final Job job;
    final FileOutputStream file;
    final Consumer<byte[]> consumer;
    final Map<String, Integer> failed = new HashMap<>();

    Worker(Job job) throws Exception {
        this.job = job;
        file = new FileOutputStream(job.file, true);
        PulsarClient client = PulsarClient.builder().serviceUrl(job.url).build();
        ConsumerBuilder<byte[]> b = client.newConsumer().topic(job.topic).subscriptionName("compared")
                .subscriptionType(SubscriptionType.Shared).subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
        RedeliveryBackoff backoff = MultiplierRedeliveryBackoff.builder().minDelayMs(FIRST).maxDelayMs(MAX).multiplier(2).build();
        switch (job.workload) {
            case "nack" -> b.negativeAckRedeliveryBackoff(backoff);
            case "batch" -> b.negativeAckRedeliveryDelay(FIRST, TimeUnit.MILLISECONDS);
            case "timeout" -> b.ackTimeout(ACK_TIMEOUT, TimeUnit.MILLISECONDS);
            case "retry" -> b.negativeAckRedeliveryDelay(FIRST, TimeUnit.MILLISECONDS).enableRetry(true).deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(100).build());
            default -> throw new IllegalArgumentException(job.workload);
        }
        if (job.best) {
            b.enableBatchIndexAcknowledgment(true).isAckReceiptEnabled(true).acknowledgmentGroupTime(0, TimeUnit.MILLISECONDS)
                    .negativeAckRedeliveryDelayPrecision(0);
            if (job.workload.equals("timeout")) {
                b.ackTimeoutTickTime(100, TimeUnit.MILLISECONDS);
            }
        }
        consumer = b.subscribe();
        write("started", null, Map.of());
        System.out.println("ready");
    }

    synchronized void write(String event, String message, Map<String, Object> fields) throws Exception {
        JsonObject line = new JsonObject();
        line.addProperty("at", ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now()));
        line.addProperty("event", event);
        line.addProperty("consumer", job.name);
        if (message != null) {
            line.addProperty("message", message);
        }
        fields.forEach((name, value) -> {
            if (value instanceof Number n) {
                line.addProperty(name, n);
            } else if (value instanceof Boolean yes) {
                line.addProperty(name, yes);
            } else {
                line.addProperty(name, value.toString());
            }
        });
        file.write((line + "\n").getBytes(StandardCharsets.UTF_8));
    }

    void run() {
        try {
            while (true) {
                handle(consumer.receive());
            }
        } catch (Exception e) {
            System.err.println(e);
        }
    }

    void handle(Message<byte[]> msg) throws Exception {
        String name = new String(msg.getData(), StandardCharsets.UTF_8), copy = msg.getMessageId().toString();
        int n = Integer.parseInt(name), count = msg.getRedeliveryCount(), before = failed.getOrDefault(name, 0);
        int retry = Integer.parseInt(msg.getProperties().getOrDefault("RECONSUMETIMES", "0"));
        write("delivered", name, Map.of("count", count, "retry", retry, "copy", copy));
        boolean fails = switch (job.workload) {
            case "nack" -> before < FAILURES;
            case "batch" -> n % 10 == 4 && before < FAILURES;
            case "timeout" -> n % 4 == 0 && before < 1;
            default -> n % 2 == 0 && retry < FAILURES;
        };
        if (fails) {
            failed.merge(name, 1, Integer::sum);
            long delay = switch (job.workload) {
                case "nack" -> Math.min(MAX, FIRST << Math.min(count, 10));
                case "batch" -> FIRST;
                case "timeout" -> ACK_TIMEOUT;
                default -> RETRY;
            };
            write(job.workload.equals("retry") ? "reconsumed" : "nacked", name, Map.of("delay", delay * 1000, "copy", copy));
            switch (job.workload) {
                case "nack", "batch" -> consumer.negativeAcknowledge(msg);
                case "retry" -> {
                    if (!call(name, () -> consumer.reconsumeLater(msg, RETRY, TimeUnit.MILLISECONDS))) {
                        write("nacked", name, Map.of("delay", FIRST * 1000, "copy", copy));
                        consumer.negativeAcknowledge(msg);
                    }
                }
                default -> { } // workload timeout: neither acknowledged nor nacked
            }
            return;
        }
        write("acking", name, Map.of());
        if (call(name, () -> consumer.acknowledge(msg))) {
            write("acked", name, Map.of("confirmed", job.best));
        }
    }

    interface Call {
        void run() throws PulsarClientException;
    }

    boolean call(String name, Call call) throws Exception {
        try {
            call.run();
            return true;
        } catch (PulsarClientException e) {
            write("refused", name, Map.of("note", e.getClass().getSimpleName()));
            return false;
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        Worker w = new Worker(new Gson().fromJson(in.readLine(), Job.class));
        Thread t = new Thread(w::run);
        t.setDaemon(true);
        t.start();
        while (in.readLine() != null) {
            // the runner writes nothing more, and closes the pipe to end this process
        }
        System.exit(0);
    }
}
