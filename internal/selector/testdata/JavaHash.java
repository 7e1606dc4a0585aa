import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * Reads a count, and as many keys with a number of queues each; answers each with its String.hashCode and the index of
 * the queue. The index comes from the formula, or with the argument "client" from the RocketMQ client itself, which must
 * be on the class path then.
 */
public class JavaHash {
    public static void main(String[] args) throws Exception {
        Picker picker = args.length > 0 && args[0].equals("client") ? new Client() : JavaHash::formula;
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out));
        for (int left = in.readInt(); left > 0; left--) {
            byte[] utf8 = new byte[in.readInt()];
            in.readFully(utf8);
            int queues = in.readInt();
            String key = StandardCharsets.UTF_8.newDecoder()
                .onMalformedInput(CodingErrorAction.REPORT)
                .decode(ByteBuffer.wrap(utf8)).toString();
            out.writeInt(key.hashCode());
            out.writeInt(picker.pick(queues, key));
        }
        out.flush();
    }

    interface Picker {
        int pick(int queues, Object key) throws Exception;
    }

    static int formula(int queues, Object key) {
        int value = key.hashCode() % queues;
        if (value < 0) {
            value = Math.abs(value);
        }
        return value;
    }

    /** Calls SelectMessageQueueByHash by reflection, so that this file runs without the client, too. */
    static class Client implements Picker {
        private final Object selector;
        private final Method select;
        private final Method queueId;
        private final List<List<Object>> lists = new ArrayList<>();

        Client() throws Exception {
            Class<?> type = Class.forName("org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash");
            Class<?> message = Class.forName("org.apache.rocketmq.common.message.Message");
            Class<?> queue = Class.forName("org.apache.rocketmq.common.message.MessageQueue");
            selector = type.getConstructor().newInstance();
            select = type.getMethod("select", List.class, message, Object.class);
            queueId = queue.getMethod("getQueueId");
            List<Object> queues = new ArrayList<>();
            lists.add(queues);
            for (int id = 0; id < 64; id++) {
                queues = new ArrayList<>(queues);
                queues.add(queue.getConstructor(String.class, String.class, int.class).newInstance("orders", "broker-a", id));
                lists.add(queues);
            }
        }

        public int pick(int queues, Object key) throws Exception {
            return (int) queueId.invoke(select.invoke(selector, lists.get(queues), null, key));
        }
    }
}
