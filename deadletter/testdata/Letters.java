import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;

/** Makes dead letters of messages with an Avro schema, or reads the replayed messages. */
public class Letters {
    public static class Order {
        public long id;
        public String note;
    }

    public static void main(String[] args) throws Exception {
        String topic = args[1], subscription = args[2];
        int n = Integer.parseInt(args[4]);
        try (PulsarClient client = PulsarClient.builder().serviceUrl(args[0]).build();
                Consumer<Order> consumer = client.newConsumer(Schema.AVRO(Order.class)).topic(topic).subscriptionName(subscription)
                        .subscriptionType(SubscriptionType.Shared).enableRetry(true).negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS)
                        .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(1).initialSubscriptionName("audit").build()).subscribe()) {
            if (args[3].equals("read")) {
                for (int i = 0; i < n; i++) {
                    Message<Order> msg = consumer.receive(20, TimeUnit.SECONDS);
                    System.out.println(msg.getValue().id + " " + msg.getValue().note + " " + msg.getKey() + " " + msg.getEventTime()
                            + " " + msg.getProperty("REPLAY_COUNT") + " " + (msg.getSchemaVersion() != null));
                    consumer.acknowledge(msg);
                }
                return;
            }
            try (Producer<Order> producer = client.newProducer(Schema.AVRO(Order.class)).topic(topic).create()) {
                for (int i = 0; i < n; i++) {
                    Order order = new Order();
                    order.id = i;
                    order.note = "of Java";
                    producer.newMessage().value(order).key("key " + i).eventTime(1000 + i).sendAsync();
                }
                producer.flush();
            }
            try (Reader<byte[]> dead = client.newReader().topic(topic + "-" + subscription + "-DLQ").startMessageId(MessageId.earliest).create()) {
                Set<String> keys = new HashSet<>(); // a message may die twice
                while (keys.size() < n) {
                    Message<Order> msg = consumer.receive(200, TimeUnit.MILLISECONDS);
                    if (msg != null) {
                        consumer.negativeAcknowledge(msg);
                    }
                    for (Message<byte[]> letter; (letter = dead.readNext(10, TimeUnit.MILLISECONDS)) != null;) {
                        keys.add(letter.getKey());
                    }
                }
            }
        }
    }
}
