package airflow_provider;

import java.io.ObjectOutputStream;
import java.security.DigestOutputStream;
import java.security.MessageDigest;
import java.util.Collections;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.concurrent.Future;

import org.apache.commons.io.output.NullOutputStream;

/** Represents what a broadcast holds; for exchanges.py. Creates nothing by asking. */
public final class BroadcastContent {
    private static final int TOGETHER = 1000;

    private final Map known = Collections.synchronizedMap(new WeakHashMap());

    public BroadcastContent(String none) {}

    /**
     * A digest over the rows that a broadcast holds, in their order, and over how they are found; null if it has not
     * been sent.
     *
     * @param exchange a BroadcastExchangeExec
     */
    public byte[] digest(Object exchange) throws Exception {
        Future sent = (Future) Members.field(exchange, "relationFuture");
        if (sent == null || !sent.isDone()) {
            return null;
        }
        Object held = Members.call(sent.get(), "value");
        byte[] content = (byte[]) this.known.get(held);
        if (content == null) {
            content = digestOf(held);
            this.known.put(held, content);
        }
        return content;
    }

    private static byte[] digestOf(Object held) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        ObjectOutputStream written = new ObjectOutputStream(new DigestOutputStream(NullOutputStream.INSTANCE, digest));
        if (held instanceof Object[]) { // rows, for joins without keys
            Object[] rows = (Object[]) held;
            for (int row = 0; row < rows.length; row++) {
                if (row % TOGETHER == 0) {
                    written.reset(); // or it keeps all of them
                }
                written.writeObject(rows[row]);
            }
        } else {
            written.writeObject(held);
        }
        written.close();
        return digest.digest();
    }
}
