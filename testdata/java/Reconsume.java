import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;

/** Receives two messages with retries enabled, prints what they say of themselves, and reconsumes them a second later. */
public class Reconsume {
    public static void main(String[] args) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(args[0]).build();
                Consumer<byte[]> consumer = client.newConsumer().topic(args[1]).subscriptionName(args[2])
                        .subscriptionType(SubscriptionType.Shared).enableRetry(true)
                        .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(5).build()).subscribe()) {
            for (int i = 0; i < 2; i++) {
                Message<byte[]> msg = consumer.receive(20, TimeUnit.SECONDS);
                System.out.println(new String(msg.getData()) + " RECONSUMETIMES " + msg.getProperty("RECONSUMETIMES")
                        + " REAL_TOPIC " + msg.getProperty("REAL_TOPIC"));
                consumer.reconsumeLater(msg, 1, TimeUnit.SECONDS);
            }
        }
    }
}
