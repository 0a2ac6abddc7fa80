package airflow_provider;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.datasources.FileStatusCache;

/** The stored partitions' files, so that Spark need not list them; for relation.py. */
public final class StoredFiles {
    private static final long BLOCK = 128L << 20;

    /** @param nothing not used */
    public StoredFiles(String nothing) {}

    /**
     * The files of a folder.
     *
     * @param files a line for each: its name and its number of bytes
     */
    public Files of(Configuration configuration, String folder, String files) throws IOException {
        Path path = new Path(folder);
        return new Files(path.getFileSystem(configuration).makeQualified(path), files.split("\n"));
    }

    /** Files that never change. */
    public static final class Files extends FileStatusCache {
        private final Map known = new HashMap();
        private final List paths = new ArrayList();

        Files(Path folder, String[] lines) {
            for (int i = 0; i < lines.length; i++) {
                int end = lines[i].lastIndexOf(' ');
                Path path = new Path(folder + "/" + lines[i].substring(0, end));
                long size = Long.parseLong(lines[i].substring(end + 1));
                this.paths.add(path);
                this.known.put(path, new FileStatus[] {new FileStatus(size, false, 1, BLOCK, 0, path)});
            }
        }

        /** In the order in which they were given. */
        public List paths() {
            return this.paths;
        }

        public scala.Option getLeafFiles(Path path) {
            return scala.Option.apply(this.known.get(path));
        }

        public void putLeafFiles(Path path, FileStatus[] files) {}

        public void invalidateAll() {}
    }
}
