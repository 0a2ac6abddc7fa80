package airflow_provider;

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;

import org.apache.spark.Partition;
import org.apache.spark.rdd.RDD;

/**
 * What scans of Iceberg's tables read; for sources.py and layout.py. Its files never change, so what a scan has planned
 * to read decides the rows. Iceberg's classes are found by their names: most jobs have none.
 */
public final class LakeScan {
    private static final String SCAN = "org.apache.iceberg.spark.source.SparkBatchQueryScan";
    private static final String[] FACTS = {
        "path", "content", "format", "specId", "partition", "recordCount", "fileSizeInBytes", "equalityFieldIds",
        "dataSequenceNumber", "firstRowId", "referencedDataFile", "contentOffset", "contentSizeInBytes"
    };

    private LakeScan() {}

    /**
     * What the scan of a BatchScanExec reads: the table's name, its columns, everything else that decides how files are
     * read, and a line for each file; null if that is not known, or not before the query runs.
     */
    public static List read(Object node) throws Exception {
        Object scan = Members.call(node, "scan");
        boolean filtersLater = !Members.items(Members.call(node, "runtimeFilters")).isEmpty();
        if (!scan.getClass().getName().equals(SCAN) || filtersLater) {
            return null;
        }
        try {
            return read(scan, Members.field(scan, "table"), columns(scan));
        } catch (ReflectiveOperationException unknown) { // of another version of Iceberg
            return null;
        }
    }

    /** With their ids. */
    private static Object columns(Object scan) throws Exception {
        try {
            return Members.field(scan, "expectedSchema");
        } catch (NoSuchFieldException renamed) { // since Iceberg 1.11
            return Members.field(scan, "projection");
        }
    }

    private static List read(Object scan, Object table, Object columns) throws Exception {
        TreeSet files = new TreeSet();
        Iterator groups = ((Collection) planned(scan)).iterator();
        while (groups.hasNext()) {
            Iterator tasks = ((Collection) Members.call(groups.next(), "tasks")).iterator();
            while (tasks.hasNext()) {
                String file = file(tasks.next());
                if (file == null) {
                    return null;
                }
                files.add(file);
            }
        }
        List read = new ArrayList();
        read.add(Members.call(table, "name"));
        read.add(columns.toString());
        read.add(Members.field(scan, "caseSensitive") + " " + new TreeMap((Map) Members.call(table, "properties")));
        read.addAll(files);
        return read;
    }

    /**
     * For each partition of a scan that was planned, the parts of files that it covers; null if they are not known.
     * Which partition comes first is left to chance if the table has several manifests.
     */
    public static List covered(Object node) throws Exception {
        List covered = new ArrayList();
        Partition[] partitions = ((RDD) Members.call(node, "inputRDD")).partitions();
        for (int i = 0; i < partitions.length; i++) {
            if (Members.method(partitions[i].getClass(), "inputPartitions", 0) == null) {
                return null;
            }
            List parts = new ArrayList();
            Iterator inputs = Members.items(Members.call(partitions[i], "inputPartitions")).iterator();
            while (inputs.hasNext()) {
                Object input = inputs.next();
                if (Members.method(input.getClass(), "taskGroup", 0) == null) {
                    return null;
                }
                Iterator tasks = ((Collection) Members.call(Members.call(input, "taskGroup"), "tasks")).iterator();
                while (tasks.hasNext()) {
                    Object task = tasks.next();
                    String file = file(task);
                    if (file == null) {
                        return null;
                    }
                    parts.add(Members.call(task, "start") + " " + Members.call(task, "length") + " " + file);
                }
            }
            Collections.sort(parts);
            covered.add(String.join("\n", parts));
        }
        return covered;
    }

    private static Object planned(Object scan) throws Exception {
        for (Class from = scan.getClass(); from != null; from = from.getSuperclass()) {
            Method[] methods = from.getDeclaredMethods();
            for (int i = 0; i < methods.length; i++) {
                if (methods[i].getName().equals("taskGroups") && !methods[i].isBridge()
                        && !Modifier.isAbstract(methods[i].getModifiers())) {
                    methods[i].setAccessible(true);
                    return Members.call(scan, methods[i], new Object[0]);
                }
            }
        }
        throw new NoSuchMethodException(scan.getClass().getName() + " has no method taskGroups");
    }

    /** A file with the deletes that apply to it; null if the task is of another kind. */
    private static String file(Object task) throws Exception {
        Method deletes = Members.method(task.getClass(), "deletes", 0);
        if (deletes == null || Members.method(task.getClass(), "file", 0) == null) {
            return null;
        }
        TreeSet deleted = new TreeSet();
        Iterator each = ((Collection) Members.call(task, deletes, new Object[0])).iterator();
        while (each.hasNext()) {
            deleted.add(facts(each.next()));
        }
        return facts(Members.call(task, "file")) + deleted;
    }

    private static String facts(Object file) throws Exception {
        StringBuilder facts = new StringBuilder();
        for (int i = 0; i < FACTS.length; i++) {
            Method fact = Members.method(file.getClass(), FACTS[i], 0);
            if (fact != null) { // it came with a later version of the format
                facts.append(FACTS[i]).append('=').append(Members.call(file, fact, new Object[0])).append(' ');
            }
        }
        return facts.toString();
    }
}
