import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;

/** Sends one message per key as a producer in Java does that wants them in order, and prints key and queue. */
public class OrderProducer {
    public static void main(String[] args) {
        try {
            send(args);
            System.exit(0);
        } catch (Throwable e) {
            e.printStackTrace();
            System.exit(1); // threads of the client run on
        }
    }

    private static void send(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("order-producer");
        producer.setNamesrvAddr(args[0]);
        producer.setMqClientApiTimeout(60000); // for a machine that does much else
        producer.setSendMsgTimeout(60000);
        producer.start();
        for (int i = 2; i < args.length; i++) {
            Message message = new Message(args[1], args[i].getBytes(StandardCharsets.UTF_8));
            SendResult result = producer.send(message, new SelectMessageQueueByHash(), args[i]);
            System.out.println("sent " + args[i] + " " + result.getMessageQueue().getBrokerName() + " " + result.getMessageQueue().getQueueId());
        }
    }
}
