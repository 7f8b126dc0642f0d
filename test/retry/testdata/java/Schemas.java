import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.client.api.schema.GenericRecord;

/** Reads messages with the schemas that they were written with, and prints their fields. */
public class Schemas {
    public static void main(String[] args) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(args[0]).build();
                Consumer<GenericRecord> consumer = client.newConsumer(Schema.AUTO_CONSUME()).topic(args[1]).subscriptionName(args[2])
                        .subscriptionType(SubscriptionType.Shared)
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe()) {
            for (int i = 0; i < Integer.parseInt(args[3]); i++) {
                Message<GenericRecord> msg = consumer.receive(20, TimeUnit.SECONDS);
                StringBuilder fields = new StringBuilder();
                try {
                    for (var field : msg.getValue().getFields()) {
                        fields.append(' ').append(field.getName()).append('=').append(msg.getValue().getField(field));
                    }
                } catch (RuntimeException e) {
                    fields.append(" damaged");
                }
                System.out.println(msg.getProperty("name") + ":" + fields);
                consumer.acknowledge(msg);
            }
        }
    }
}
