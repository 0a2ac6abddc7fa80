package airflow_provider;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.File;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InvalidClassException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.ObjectStreamClass;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.lang.ref.WeakReference;
import java.nio.file.CopyOption;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Locale;
import java.util.Set;

import org.apache.commons.io.FileUtils;
import org.apache.spark.SparkConf;
import org.apache.spark.io.CompressionCodec;
import org.apache.spark.io.CompressionCodec$;
import org.apache.spark.rdd.RDD;
import org.apache.spark.serializer.JavaSerializer;
import org.apache.spark.serializer.SerializerManager;
import org.apache.spark.sql.execution.columnar.DefaultCachedBatch;
import org.apache.spark.storage.BlockData;
import org.apache.spark.storage.BlockManager;
import org.apache.spark.storage.BlockResult;
import org.apache.spark.storage.BlockStatus;
import org.apache.spark.storage.RDDBlockId;
import org.apache.spark.util.LongAccumulator;

/**
 * Copies partitions of a cached frame out of this JVM's block manager, and puts them back; for cached_batches.py.
 *
 * A partition's file is what Spark writes if it has no room in memory: batches of columns, one Java object after the
 * other, compressed. Only objects of the classes that batches are made of are read from it.
 */
public final class CachedBatches {
    private static final String UNCOMPRESSED = "none";
    private static final Set CODECS = new HashSet(Arrays.asList(new Object[] {"lz4", "lzf", "snappy", "zstd"}));
    private static final int BUFFER = 1 << 16;
    private static final scala.reflect.ClassTag TYPE = scala.reflect.ClassTag$.MODULE$.apply(DefaultCachedBatch.class);

    static final Set CLASSES = new HashSet(Arrays.asList(new Object[] {
        DefaultCachedBatch.class.getName(),
        "[[B",
        "[B",
        "[Ljava.lang.Object;", // the rest is statistics
        "org.apache.spark.sql.catalyst.InternalRow",
        "org.apache.spark.sql.catalyst.expressions.GenericInternalRow",
        "org.apache.spark.sql.catalyst.expressions.UnsafeRow",
        "org.apache.spark.sql.types.Decimal",
        "org.apache.spark.unsafe.types.CalendarInterval",
        "org.apache.spark.unsafe.types.UTF8String",
        "scala.math.BigDecimal",
        "scala.math.ScalaNumber",
        "java.math.BigDecimal",
        "java.math.BigInteger",
        "java.math.MathContext",
        "java.math.RoundingMode",
        "java.lang.Boolean",
        "java.lang.Byte",
        "java.lang.Double",
        "java.lang.Enum",
        "java.lang.Float",
        "java.lang.Integer",
        "java.lang.Long",
        "java.lang.Number",
        "java.lang.Short",
    }));

    /** @param nothing not used */
    public CachedBatches(String nothing) {}

    /**
     * What is here of a frame: a line with the id of its RDD, then for each partition its index, its bytes, and whether
     * they are there as Spark writes them. Empty if nothing has asked for its rows yet; null if the script has dropped it.
     *
     * @param held the frame's InMemoryRelation
     * @param codec with which Spark compresses what it writes
     */
    public String look(BlockManager blocks, WeakReference held, String codec) throws Exception {
        Object relation = held.get();
        if (relation == null) {
            return null;
        }
        RDD cached = (RDD) Members.field(Members.call(relation, "cacheBuilder"), "_cachedColumnBuffers");
        if (cached == null) {
            return "";
        }
        StringBuilder answer = new StringBuilder().append(cached.id()).append('\n');
        int partitions = cached.getNumPartitions();
        for (int i = 0; i < partitions; i++) {
            scala.Option found = blocks.getStatus(new RDDBlockId(cached.id(), i));
            if (found.isDefined()) {
                BlockStatus status = (BlockStatus) found.get();
                long size = status.diskSize() > 0 ? status.diskSize() : status.memSize();
                if (size > 0) { // else a task writes it now
                    answer.append(i).append(' ').append(size).append(' ');
                    answer.append(isWritten(status, codec)).append('\n');
                }
            }
        }
        return answer.toString();
    }

    /**
     * Copies a partition into a file; returns the codec that it is compressed with, the CRC-32 of the file, and the
     * nanoseconds of CPU that this took. Empty if the partition is not here any more, or has batches of another kind.
     *
     * @param sparks the codec of what Spark has written
     * @param ours the codec for what it has not
     */
    public String write(BlockManager blocks, RDD cached, int partition, String path, String sparks, String ours)
            throws Exception {
        long began = ownTime();
        RDDBlockId block = new RDDBlockId(cached.id(), partition);
        scala.Option found = blocks.getStatus(block);
        if (!found.isDefined()) {
            return "";
        }
        BlockStatus status = (BlockStatus) found.get();
        boolean written = isWritten(status, sparks);
        Path file = new File(path).toPath();
        boolean there;
        if (!written) {
            there = writeValues(blocks, block, status.memSize() > 0, file, ours);
        } else if (status.diskSize() > 0) {
            there = link(blocks.diskBlockManager().getFile(block).toPath(), status.diskSize(), file);
        } else {
            there = copy(blocks, block, file);
        }
        if (!there) {
            return "";
        }
        long checksum = FileUtils.checksumCRC32(file.toFile());
        return (written ? sparks : ours) + " " + checksum + " " + (ownTime() - began);
    }

    /** Whether a partition is here as the bytes that Spark writes, in a form that can be read back. */
    private static boolean isWritten(BlockStatus status, String codec) {
        return (status.diskSize() > 0 || !status.storageLevel().deserialized()) && !codec.isEmpty();
    }

    /** With what Spark compresses the partitions that it writes; empty if they can be read with its own settings only. */
    public String codec(BlockManager blocks) throws IOException {
        SerializerManager writer = blocks.serializerManager();
        if (writer.getSerializer(TYPE, true).getClass() != JavaSerializer.class || writer.encryptionEnabled()) {
            return "";
        }
        OutputStream nowhere = new ByteArrayOutputStream();
        OutputStream through = writer.wrapForCompression(new RDDBlockId(0, 0), nowhere);
        through.close();
        if (through == nowhere) {
            return UNCOMPRESSED;
        }
        String codec = CompressionCodec$.MODULE$.getCodecName(blocks.conf()).toLowerCase(Locale.ROOT);
        return CODECS.contains(codec) ? codec : "";
    }

    private static boolean link(Path source, long size, Path file) throws IOException {
        if (!source.toFile().exists()) {
            return false;
        }
        try {
            Files.createLink(file, source);
        } catch (IOException elsewhere) { // on another disk
            Files.copy(source, file, new CopyOption[0]);
        }
        return Files.size(file) == size;
    }

    private static boolean copy(BlockManager blocks, RDDBlockId block, Path file) throws Exception {
        scala.Option found = blocks.getLocalBytes(block);
        if (!found.isDefined()) {
            return false;
        }
        BlockData content = (BlockData) found.get();
        InputStream bytes = content.toInputStream();
        try {
            Files.copy(bytes, file, new CopyOption[0]);
            return true;
        } finally {
            bytes.close();
            content.dispose();
            blocks.releaseLock(block, scala.Option.empty());
        }
    }

    /** Writes the batches of a partition; if it is on disk and asked for them, Spark would take it into memory again. */
    private static boolean writeValues(
            BlockManager blocks, RDDBlockId block, boolean inMemory, Path file, String codec) throws Exception {
        scala.Option found = inMemory ? blocks.getLocalValues(block) : blocks.getLocalBytes(block);
        if (!found.isDefined()) {
            return false;
        }
        if (!inMemory) {
            BlockData content = (BlockData) found.get();
            try {
                InputStream bytes = content.toInputStream();
                return write(blocks.serializerManager().dataDeserializeStream(block, bytes, TYPE), file, codec);
            } finally {
                content.dispose();
                blocks.releaseLock(block, scala.Option.empty());
            }
        }
        scala.collection.Iterator batches = ((BlockResult) found.get()).data();
        try {
            return write(batches, file, codec);
        } finally {
            while (batches.hasNext()) { // its end gives the block free
                batches.next();
            }
        }
    }

    private static boolean write(scala.collection.Iterator batches, Path path, String codec) throws IOException {
        FileOutputStream file = new FileOutputStream(path.toFile());
        try {
            OutputStream content = UNCOMPRESSED.equals(codec) ? file : named(codec).compressedOutputStream(file);
            ObjectOutputStream out = new ObjectOutputStream(new BufferedOutputStream(content, BUFFER));
            while (batches.hasNext()) {
                Object next = batches.next();
                if (!(next instanceof DefaultCachedBatch)) {
                    return false;
                }
                out.writeObject(next);
                out.reset(); // else it keeps the batch
            }
            out.close();
            return true;
        } finally {
            file.close();
        }
    }

    private static long ownTime() {
        return java.lang.management.ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    }

    /**
     * Puts a partition into the block manager, as its task does.
     *
     * @param relation the frame's InMemoryRelation
     * @param codec with which the file is compressed
     * @return empty text if it is there now, null if there is no room for it, else why the file cannot be read
     */
    public String put(
            BlockManager blocks, Object relation, RDD cached, int partition, String path, String codec)
            throws Exception {
        RDDBlockId block = new RDDBlockId(cached.id(), partition);
        if (blocks.getStatus(block).isDefined()) {
            return null;
        }
        Batches batches = new Batches(path, codec);
        try {
            batches.open();
            if (!blocks.putIterator(block, batches, cached.getStorageLevel(), true, TYPE)) {
                return null;
            }
        } catch (UncheckedIOException unreadable) {
            return unreadable.toString();
        } finally {
            batches.close();
        }
        count(Members.call(relation, "cacheBuilder"), partition, batches.rows, batches.size);
        return "";
    }

    /** Lets Spark count a partition as it counts those that tasks make; its counters are for one thread. */
    private static synchronized void count(Object builder, int partition, long rows, long size) throws Exception {
        try {
            Object counted = new scala.Tuple2(Long.valueOf(rows), Long.valueOf(size));
            Object all = Members.field(builder, "partitionStats");
            ((org.apache.spark.util.AccumulatorV2) all).add(new scala.Tuple2(Integer.valueOf(partition), counted));
        } catch (NoSuchFieldException older) {
            ((LongAccumulator) Members.field(builder, "rowCountStats")).add(rows);
            ((LongAccumulator) Members.field(builder, "sizeInBytesStats")).add(size);
            ((LongAccumulator) Members.field(builder, "materializedPartitions")).add(1L);
        }
    }

    private static CompressionCodec named(String name) {
        return CompressionCodec$.MODULE$.createCodec(new SparkConf(false), name);
    }

    /**
     * The batches of a file, and their rows and bytes as Spark counts them. Only what is wrong with its content is an
     * UncheckedIOException.
     */
    public static final class Batches extends scala.collection.AbstractIterator {
        private final InputStream file;
        private final String codec;
        private InputStream content;
        private ObjectInputStream in;
        private DefaultCachedBatch following;
        long rows;
        long size;

        Batches(String path, String codec) throws IOException {
            this.file = new BufferedInputStream(new FileInputStream(path), BUFFER);
            this.content = this.file;
            this.codec = codec;
        }

        void open() {
            try {
                if (!UNCOMPRESSED.equals(this.codec)) {
                    this.content = named(this.codec).compressedInputStream(this.file);
                }
                this.in = new OnlyBatches(this.content);
            } catch (IOException unreadable) {
                throw new UncheckedIOException(unreadable);
            }
            this.read();
        }

        void close() throws IOException {
            this.content.close(); // frees the native memory of a codec, too
            this.file.close();
        }

        public boolean hasNext() {
            return this.following != null;
        }

        public Object next() {
            DefaultCachedBatch batch = this.following;
            this.rows += batch.numRows();
            this.size += batch.sizeInBytes();
            this.read();
            return batch;
        }

        private void read() {
            try {
                this.following = (DefaultCachedBatch) this.in.readObject();
            } catch (EOFException end) {
                this.following = null;
            } catch (IOException unreadable) {
                throw new UncheckedIOException(unreadable);
            } catch (Exception unreadable) { // objects of other classes, or impossible ones
                throw new UncheckedIOException(new IOException(unreadable));
            }
        }
    }

    /** Reads batches, and refuses every object that is no part of one. */
    static final class OnlyBatches extends ObjectInputStream {
        OnlyBatches(InputStream file) throws IOException {
            super(file);
        }

        protected Class resolveClass(ObjectStreamClass described) throws IOException, ClassNotFoundException {
            if (!CLASSES.contains(described.getName())) {
                throw new InvalidClassException(described.getName(), "not a part of cached batches");
            }
            return Class.forName(described.getName(), false, DefaultCachedBatch.class.getClassLoader());
        }

        protected Class resolveProxyClass(String[] interfaces) throws IOException {
            throw new InvalidClassException("a proxy is not a part of cached batches");
        }
    }
}
