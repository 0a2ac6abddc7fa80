package airflow_provider;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.ObjectOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** Words, and perhaps a serialized value after them, that compiled.py fetches in pieces. */
public final class Answer {
    private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    private final DataOutputStream words = new DataOutputStream(this.bytes);
    private byte[] all;
    private int read;

    public void say(String word) throws IOException {
        byte[] text = word.getBytes(StandardCharsets.UTF_8);
        this.words.writeInt(text.length + 1);
        this.words.write(text);
    }

    public void say(String word, String second) throws IOException {
        this.say(word);
        this.say(second);
    }

    /** Ends the words. */
    public Answer end() throws IOException {
        this.words.writeInt(0);
        this.all = this.bytes.toByteArray();
        return this;
    }

    /** Ends the words; a value follows. */
    public Answer end(Object value) throws IOException {
        this.words.writeInt(0);
        ObjectOutputStream serialized = new ObjectOutputStream(this.words);
        serialized.writeObject(value);
        serialized.flush();
        this.all = this.bytes.toByteArray();
        return this;
    }

    /** The number of bytes. */
    public int size() {
        return this.all.length;
    }

    /** The next bytes: words, each preceded by its length plus one, a 0, and the value. */
    public byte[] next(int size) {
        int from = this.read;
        this.read = Math.min(this.all.length, from + size);
        return Arrays.copyOfRange(this.all, from, this.read);
    }
}
