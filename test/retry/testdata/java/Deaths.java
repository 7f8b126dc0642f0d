import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;

/**
 * Prints how often a message is delivered with maxRedeliverCount 3. With "reconsume" it reconsumes the message, otherwise it nacks it.
 * With "partitions" it also prints the topic of each dead letter, and the topic that the message came from.
 */
public class Deaths {
    public static void main(String[] args) throws Exception {
        String topic = args[1], what = args[2];
        try (PulsarClient client = PulsarClient.builder().serviceUrl(args[0]).build()) {
            int deliveries = 0;
            try (Consumer<byte[]> c = client.newConsumer().topic(topic).subscriptionName("sub").subscriptionType(SubscriptionType.Shared)
                    .enableRetry(what.equals("reconsume")).negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS)
                    .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(3).initialSubscriptionName("audit").build()).subscribe()) {
                try (Producer<byte[]> p = client.newProducer().topic(topic).enableBatching(false).create()) {
                    p.newMessage().key("k").value("x".getBytes()).send();
                }
                for (Message<byte[]> m; (m = c.receive(5, TimeUnit.SECONDS)) != null; deliveries++) {
                    if (what.equals("reconsume")) {
                        c.reconsumeLater(m, 100, TimeUnit.MILLISECONDS);
                    } else {
                        c.negativeAcknowledge(m);
                    }
                }
            }
            System.out.println("delivered " + deliveries);
            for (int i = 0; what.equals("partitions") && i < 2; i++) {
                try (Reader<byte[]> dead = client.newReader().topic(topic + "-partition-" + i + "-sub-DLQ").startMessageId(MessageId.earliest).create()) {
                    for (Message<byte[]> m; (m = dead.readNext(1, TimeUnit.SECONDS)) != null;) {
                        System.out.println("dead in " + m.getTopicName() + " of " + m.getProperty("REAL_TOPIC"));
                    }
                }
            }
        }
    }
}
