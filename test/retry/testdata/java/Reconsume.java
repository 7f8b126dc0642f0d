import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;

/**
 * Receives messages and prints their fields and properties. With "retry" it reconsumes each message with a delay of one second; with
 * "dead" without a delay, until all messages are dead letters. With "read" it acknowledges the messages.
 */
public class Reconsume {
    public static void main(String[] args) throws Exception {
        String url = args[0], topic = args[1], subscription = args[2], what = args[3];
        int n = Integer.parseInt(args[4]);
        try (PulsarClient client = PulsarClient.builder().serviceUrl(url).build();
                Consumer<byte[]> consumer = client.newConsumer().topic(topic).subscriptionName(subscription)
                        .subscriptionType(SubscriptionType.Shared).enableRetry(!what.equals("read"))
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(what.equals("dead") ? 1 : 5).build()).subscribe()) {
            for (int i = 0; i < n * (what.equals("dead") ? 2 : 1); i++) {
                Message<byte[]> msg = consumer.receive(20, TimeUnit.SECONDS);
                System.out.println(new String(msg.getData()) + " RECONSUMETIMES " + msg.getProperty("RECONSUMETIMES")
                        + " REAL_TOPIC " + msg.getProperty("REAL_TOPIC") + " own " + msg.getProperty("own")
                        + " key " + msg.getKey() + " ordering " + (msg.hasOrderingKey() ? new String(msg.getOrderingKey()) : null)
                        + " event " + msg.getEventTime() + " reason " + msg.getProperty("EXCEPTION_MESSAGE"));
                if (what.equals("read")) {
                    consumer.acknowledge(msg);
                } else {
                    consumer.reconsumeLater(msg, what.equals("dead") ? 0 : 1, TimeUnit.SECONDS);
                }
            }
        }
    }
}
