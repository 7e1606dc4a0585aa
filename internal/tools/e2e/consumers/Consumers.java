import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** The same as main.go, with the Java client. */
class Consumers {
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.US_ASCII);

    public static void main(String[] args) throws Exception {
        int status = 0;
        try {
            for (int i = 2; i < args.length; i += 3) {
                start(args[0], args[1], args[i], args[i + 1].equals("orderly"), args[i + 2]);
            }
            System.in.readAllBytes();
        } catch (Exception e) {
            e.printStackTrace();
            status = 1;
        }
        Runtime.getRuntime().halt(status); // the groups are never used again, and the clients' threads would go on
    }

    private static void start(String nameservers, String topic, String group, boolean orderly, String tags) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameservers);
        consumer.setInstanceName(group);
        consumer.setMqClientApiTimeout(30_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (tags.startsWith("sql:")) {
            consumer.subscribe(topic, MessageSelector.bySql(tags.substring(4)));
        } else {
            consumer.subscribe(topic, tags);
        }
        if (orderly) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(m -> print(group, m));
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(m -> print(group, m));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
    }

    private static void print(String group, MessageExt m) {
        List<String> fields = new ArrayList<>();
        for (String field : new String[] {group, m.getTopic(), m.getBrokerName(), String.valueOf(m.getQueueId()),
            String.valueOf(m.getQueueOffset()), m.getMsgId(), m.getTransactionId(), m.getTags(), m.getKeys()}) {
            fields.add(encode(field == null ? "" : field));
        }
        fields.add(Base64.getEncoder().encodeToString(m.getBody()));
        for (Map.Entry<String, String> property : m.getProperties().entrySet()) {
            fields.add(encode(property.getKey()));
            fields.add(encode(property.getValue()));
        }
        synchronized (OUT) {
            OUT.println("message\t" + String.join("\t", fields));
        }
    }

    private static String encode(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
