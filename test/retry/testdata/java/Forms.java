import java.util.*;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;

/**
 * Shows which keys pulsar-client-go cannot write, and which retry topic the Java client uses: "publish" sends messages with keys of
 * all kinds, "show" prints messages, "retry" reconsumes a message of several topics.
 */
public class Forms {
    public static void main(String[] args) throws Exception {
        String what = args[1];
        List<String> topics = Arrays.asList(args).subList(2, args.length);
        try (PulsarClient client = PulsarClient.builder().serviceUrl(args[0]).build()) {
            if (what.equals("publish")) {
                try (Producer<byte[]> p = client.newProducer().topic(topics.get(0)).enableBatching(false).create()) {
                    p.newMessage().keyBytes(new byte[]{1, 2, (byte) 200}).value("bytes".getBytes()).send();
                    p.newMessage().key("").value("empty".getBytes()).send();
                    p.newMessage().key("k").value("string".getBytes()).send();
                    p.newMessage().value("none".getBytes()).send();
                }
                return;
            }
            try (Consumer<byte[]> c = client.newConsumer().topics(topics).subscriptionName(what.equals("retry") ? "sub" : "show")
                    .subscriptionType(SubscriptionType.Shared).enableRetry(what.equals("retry"))
                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                    .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(1).build()).subscribe()) {
                for (Message<byte[]> m; (m = c.receive(5, TimeUnit.SECONDS)) != null;) {
                    System.out.println(new String(m.getData()) + " of " + m.getTopicName() + " hasKey=" + m.hasKey() + " key=" + m.getKey()
                            + " base64=" + m.hasBase64EncodedKey() + " origin=" + m.getProperty("ORIGIN_MESSAGE_ID"));
                    if (what.equals("retry") && m.getProperty("RECONSUMETIMES") == null) {
                        c.reconsumeLater(m, 0, TimeUnit.SECONDS);
                    } else {
                        c.acknowledge(m);
                    }
                }
            }
        }
    }
}
