import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import io.undertow.Undertow;
import io.undertow.server.HttpServerExchange;
import io.undertow.server.handlers.BlockingHandler;
import io.undertow.util.Headers;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A contender of the benchmark: what people have in Java. A TransactionMQProducer sends half messages, to the queues that it picks
 * itself. JDBC makes the local transaction, which is that of the plain handler: a row by which check-backs are answered, and the
 * note. Undertow serves.
 *
 * Arguments: PORT NAMESERVERS JDBC-URL USER PASSWORD
 */
public final class Producer implements TransactionListener {
    private static final int CONNECTIONS = 32; // as all contenders

    private record Note(String id, String shardKey, String payload) {}

    private final HikariDataSource pool;
    private final TransactionMQProducer producer;

    private Producer(String nameservers, String url, String user, String password) throws Exception {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl(url);
        config.setUsername(user);
        config.setPassword(password);
        config.setAutoCommit(false);
        config.setMaximumPoolSize(CONNECTIONS);
        pool = new HikariDataSource(config);
        producer = new TransactionMQProducer("bench-java");
        producer.setNamesrvAddr(nameservers);
        producer.setTransactionListener(this);
        producer.start();
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
        Note note = (Note) argument;
        try (Connection connection = pool.getConnection()) {
            try (PreparedStatement row = connection.prepareStatement("insert into bench.java_tx (id, shard_key, body) values (?, ?, ?)");
                 PreparedStatement change = connection.prepareStatement(
                     "insert into bench.java_notes (id, shard_key, n) values (?, ?, (?::jsonb->>'n')::int)")) {
                row.setString(1, note.id);
                row.setString(2, note.shardKey);
                row.setBytes(3, message.getBody());
                row.executeUpdate();
                change.setString(1, note.id);
                change.setString(2, note.shardKey);
                change.setString(3, note.payload);
                change.executeUpdate();
            }
            connection.commit();
            return LocalTransactionState.COMMIT_MESSAGE;
        } catch (SQLException e) {
            return LocalTransactionState.UNKNOW; // the check-back finds out
        }
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        try (Connection connection = pool.getConnection();
             PreparedStatement row = connection.prepareStatement("select 1 from bench.java_tx where id = ?")) {
            row.setString(1, message.getKeys());
            try (ResultSet found = row.executeQuery()) {
                boolean committed = found.next();
                connection.commit();
                return committed ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.UNKNOW;
            }
        } catch (SQLException e) {
            return LocalTransactionState.UNKNOW;
        }
    }

    private void post(HttpServerExchange exchange) throws Exception {
        JSONObject request = JSON.parseObject(exchange.getInputStream().readAllBytes());
        String payload = request.getJSONObject("payload").toString();
        Note note = new Note(timeOrdered().toString(), request.getString("shard_key"), payload);
        Message message = new Message("bench-java", "", note.id, payload.getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("SHARDING_KEY", note.shardKey);
        TransactionSendResult result = producer.sendMessageInTransaction(message, note);
        exchange.setStatusCode(result.getLocalTransactionState() == LocalTransactionState.COMMIT_MESSAGE ? 201 : 500);
        exchange.getResponseHeaders().put(Headers.CONTENT_TYPE, "application/json");
        exchange.getResponseSender().send("{\"id\":\"" + note.id + "\",\"queue\":" + result.getMessageQueue().getQueueId() + "}");
    }

    /** A UUID of version 7, as the other contenders make, because random ids cost the database more. */
    private static UUID timeOrdered() {
        ThreadLocalRandom random = ThreadLocalRandom.current();
        return new UUID(System.currentTimeMillis() << 16 | 0x7000 | random.nextInt(1 << 12), 1L << 63 | random.nextLong() >>> 2);
    }

    public static void main(String[] args) throws Exception {
        Producer producer = new Producer(args[1], args[2], args[3], args[4]);
        Undertow.builder()
            .addHttpListener(Integer.parseInt(args[0]), "127.0.0.1")
            .setWorkerThreads(CONNECTIONS)
            .setHandler(new BlockingHandler(exchange -> {
                if (exchange.getRequestPath().equals("/readyz")) {
                    exchange.setStatusCode(200);
                    return;
                }
                producer.post(exchange);
            }))
            .build()
            .start();
    }
}
