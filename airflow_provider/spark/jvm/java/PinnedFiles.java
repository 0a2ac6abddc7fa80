package airflow_provider;

import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.InMemoryFileIndex;
import org.apache.spark.sql.execution.datasources.PartitionSpec;
import org.apache.spark.sql.types.StructType;

/**
 * The files of a pinned source, for every DataFrame that is made of it; for file_source.py. When other files are
 * pinned, plans made from then on read those, even for DataFrames that a script already has, under the same columns.
 */
public final class PinnedFiles implements FileIndex {
    private volatile InMemoryFileIndex files;

    /** @param files those to read from now on */
    public PinnedFiles(InMemoryFileIndex files) {
        this.files = files;
    }

    /** Reads other files from now on; their partitions have the same columns. */
    public void pin(InMemoryFileIndex others) {
        this.files = others;
    }

    public SEQ rootPaths() {
        return this.files.rootPaths();
    }

    public SEQ listFiles(SEQ partitionFilters, SEQ dataFilters) {
        return this.files.listFiles(partitionFilters, dataFilters);
    }

    public SEQ allFiles() {
        return this.files.allFiles();
    }

    public PartitionSpec partitionSpec() {
        return this.files.partitionSpec();
    }

    public String[] inputFiles() {
        return this.files.inputFiles();
    }

    public void refresh() {
        this.files.refresh();
    }

    public long sizeInBytes() {
        return this.files.sizeInBytes();
    }

    public StructType partitionSchema() {
        return this.files.partitionSchema();
    }

    public scala.Option metadataOpsTimeNs() {
        return this.files.metadataOpsTimeNs();
    }

    public boolean equals(Object other) {
        return other instanceof PinnedFiles && this.files.equals(((PinnedFiles) other).files);
    }

    public int hashCode() {
        return this.files.hashCode();
    }
}
