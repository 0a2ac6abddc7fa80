package airflow_provider;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.lang.ref.WeakReference;
import java.util.List;
import java.util.zip.CRC32;
import java.util.zip.CheckedOutputStream;

import org.apache.spark.SparkConf;
import org.apache.spark.io.CompressionCodec$;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.columnar.DefaultCachedBatch;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.storage.BlockData;
import org.apache.spark.storage.BlockManager;
import org.apache.spark.storage.BlockResult;
import org.apache.spark.storage.BlockStatus;
import org.apache.spark.storage.RDDBlockId;
import org.apache.spark.util.LongAccumulator;

/**
 * Copies partitions of a cached frame out of this JVM's block manager, and puts them back; for cached_batches.py.
 *
 * A partition is a sequence of Spark's batches of columns: bytes, encoded and compressed by column, and statistics.
 */
public final class CachedBatches {
    private static final String CODEC = "lz4";
    private static final int BUFFER = 1 << 16;
    private static final scala.reflect.ClassTag TYPE = scala.reflect.ClassTag$.MODULE$.apply(DefaultCachedBatch.class);

    /** @param nothing not used */
    public CachedBatches(String nothing) {}

    /**
     * What is here of a frame: a line with the id of its RDD, then for each partition its index, and its bytes in memory
     * and on disk. Empty if nothing has asked for its rows yet; null if the script has dropped it.
     *
     * @param held the frame's InMemoryRelation
     */
    public String look(BlockManager blocks, WeakReference held) throws Exception {
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
            scala.Option status = blocks.getStatus(new RDDBlockId(cached.id(), i));
            if (status.isDefined()) {
                long size = ((BlockStatus) status.get()).memSize() + ((BlockStatus) status.get()).diskSize();
                if (size > 0) { // else a task writes it now
                    answer.append(i).append(' ').append(size).append('\n');
                }
            }
        }
        return answer.toString();
    }

    /**
     * Writes a partition into a file; returns its rows, its batches' bytes as Spark counts them, the CRC-32 of the file,
     * and the nanoseconds of CPU that this took. Empty if the partition is not here any more, or has batches of another kind.
     *
     * @param relation the frame's InMemoryRelation
     */
    public String write(BlockManager blocks, Object relation, RDD cached, int partition, String path) throws Exception {
        RDDBlockId block = new RDDBlockId(cached.id(), partition);
        scala.Option status = blocks.getStatus(block);
        if (!status.isDefined()) {
            return "";
        }
        UnsafeProjection flat = UnsafeProjection.create(typesOfStatistics(relation));
        if (((BlockStatus) status.get()).memSize() == 0) { // asked for its values, Spark would take it into memory again
            scala.Option found = blocks.getLocalBytes(block);
            if (!found.isDefined()) {
                return "";
            }
            BlockData content = (BlockData) found.get();
            try {
                return write(blocks.serializerManager().dataDeserializeStream(block, content.toInputStream(), TYPE), flat, path);
            } finally {
                content.dispose();
                blocks.releaseLock(block, scala.Option.empty());
            }
        }
        scala.Option found = blocks.getLocalValues(block);
        if (!found.isDefined()) {
            return "";
        }
        scala.collection.Iterator batches = ((BlockResult) found.get()).data();
        try {
            return write(batches, flat, path);
        } finally {
            while (batches.hasNext()) { // its end gives the block free
                batches.next();
            }
        }
    }

    private static String write(scala.collection.Iterator batches, UnsafeProjection flat, String path) throws Exception {
        long began = ownTime();
        CRC32 crc = new CRC32();
        long rows = 0;
        long size = 0;
        FileOutputStream file = new FileOutputStream(path);
        try {
            DataOutputStream out = new DataOutputStream(new BufferedOutputStream(
                    codec().compressedOutputStream(new CheckedOutputStream(file, crc)), BUFFER));
            while (batches.hasNext()) {
                Object next = batches.next();
                if (!(next instanceof DefaultCachedBatch)) {
                    return "";
                }
                DefaultCachedBatch batch = (DefaultCachedBatch) next;
                rows += batch.numRows();
                size += batch.sizeInBytes();
                write(batch, flat, out);
            }
            out.writeInt(-1);
            out.close();
        } finally {
            file.close();
        }
        return rows + " " + size + " " + crc.getValue() + " " + (ownTime() - began);
    }

    private static long ownTime() {
        return java.lang.management.ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    }

    private static void write(DefaultCachedBatch batch, UnsafeProjection flat, DataOutputStream out) throws IOException {
        byte[][] columns = batch.buffers();
        out.writeInt(batch.numRows());
        out.writeInt(columns.length);
        for (int i = 0; i < columns.length; i++) {
            out.writeInt(columns[i].length);
            out.write(columns[i]);
        }
        byte[] statistics = flat.apply(batch.stats()).getBytes();
        out.writeInt(statistics.length);
        out.write(statistics);
    }

    /**
     * Puts a partition into the block manager, as its task does; returns whether there was room for it.
     *
     * @param relation the frame's InMemoryRelation
     * @param rows of the partition
     * @param size of its batches, as Spark counts it
     */
    public boolean put(
            BlockManager blocks, Object relation, RDD cached, int partition, String path, long rows, long size)
            throws Exception {
        RDDBlockId block = new RDDBlockId(cached.id(), partition);
        if (blocks.getStatus(block).isDefined()) {
            return false;
        }
        Batches batches = new Batches(path, typesOfStatistics(relation).length);
        try {
            if (!blocks.putIterator(block, batches, cached.getStorageLevel(), true, TYPE)) {
                return false;
            }
        } finally {
            batches.close();
        }
        count(Members.call(relation, "cacheBuilder"), partition, rows, size);
        return true;
    }

    /** Lets Spark count a partition as it counts those that tasks make. */
    private static void count(Object builder, int partition, long rows, long size) throws Exception {
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

    private static org.apache.spark.io.CompressionCodec codec() {
        return CompressionCodec$.MODULE$.createCodec(new SparkConf(false), CODEC);
    }

    private static DataType[] typesOfStatistics(Object relation) throws Exception {
        List schema = Members.items(Members.call(Members.call(relation, "partitionStatistics"), "schema"));
        DataType[] types = new DataType[schema.size()];
        for (int i = 0; i < types.length; i++) {
            types[i] = ((Attribute) schema.get(i)).dataType();
        }
        return types;
    }

    /** The batches of a file. */
    public static final class Batches extends scala.collection.AbstractIterator {
        private final DataInputStream in;
        private final int statistics;
        private int rows;

        Batches(String path, int statistics) throws IOException {
            this.in = new DataInputStream(new BufferedInputStream(
                    codec().compressedInputStream(new FileInputStream(path)), BUFFER));
            this.statistics = statistics;
            this.rows = this.in.readInt();
        }

        public boolean hasNext() {
            return this.rows >= 0;
        }

        public Object next() {
            try {
                byte[][] columns = new byte[this.in.readInt()][];
                for (int i = 0; i < columns.length; i++) {
                    columns[i] = this.bytes();
                }
                byte[] counted = this.bytes();
                UnsafeRow row = new UnsafeRow(this.statistics);
                row.pointTo(counted, counted.length);
                DefaultCachedBatch batch = new DefaultCachedBatch(this.rows, columns, (InternalRow) row);
                this.rows = this.in.readInt();
                return batch;
            } catch (IOException failed) {
                throw new java.io.UncheckedIOException(failed);
            }
        }

        private byte[] bytes() throws IOException {
            byte[] content = new byte[this.in.readInt()];
            this.in.readFully(content);
            return content;
        }

        void close() throws IOException {
            this.in.close();
        }
    }
}
