package airflow_provider;

import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.file.CopyOption;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;

import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.lib.output.FileOutputCommitter;

/** Moves the folders of committed tasks as they are, in one step each; for kept_output.py. */
public final class KeptTasks {
    public KeptTasks(String none) {}

    /**
     * Moves a folder in one step; returns whether it was there.
     *
     * @throws IOException the file system cannot do that in one step, or not at all
     */
    public boolean move(FileSystem system, Path from, Path to) throws IOException {
        if (!system.exists(from)) {
            return false;
        }
        system.mkdirs(to.getParent());
        if (system.getUri().getScheme().equals("file")) { // which Hadoop would copy to another disk
            Files.move(local(from), local(to), new CopyOption[] {StandardCopyOption.ATOMIC_MOVE});
        } else if (!system.rename(from, to)) {
            throw new IOException(from + " cannot be moved to " + to);
        }
        return true;
    }

    private static java.nio.file.Path local(Path path) {
        return new File(path.toUri().getPath()).toPath();
    }

    /**
     * The tasks' folders in the folders of several attempts: each with its path, whether it is as its task has left it,
     * and the names of its files. Before them come the attempts whose job had started to commit.
     *
     * @param marker the name of the folder that says so
     */
    public Answer look(FileSystem system, Path folder, String marker) throws IOException {
        Answer answer = new Answer();
        FileStatus[] attempts = entries(system, folder);
        for (int i = 0; i < attempts.length; i++) {
            Path pending = new Path(attempts[i].getPath(), FileOutputCommitter.PENDING_DIR_NAME);
            if (system.exists(new Path(pending, marker))) {
                answer.say("commits", attempts[i].getPath().getName());
            }
            FileStatus[] tasks = entries(system, attempts[i].getPath());
            for (int j = 0; j < tasks.length; j++) {
                if (tasks[j].isDirectory() && !tasks[j].getPath().equals(pending)) {
                    List files = new ArrayList();
                    boolean whole = whole(system, tasks[j], files);
                    answer.say("task", tasks[j].getPath().toString());
                    answer.say(whole ? "whole" : "changed");
                    for (int k = 0; k < files.size(); k++) {
                        answer.say("file", (String) files.get(k));
                    }
                }
            }
        }
        return answer.end();
    }

    /** The contents of a folder; empty if it does not exist. */
    private static FileStatus[] entries(FileSystem system, Path folder) throws IOException {
        try {
            return system.listStatus(folder);
        } catch (FileNotFoundException none) {
            return new FileStatus[0];
        }
    }

    /**
     * Whether nothing was added to a folder, or removed, since something in it was last written. A file is written
     * after it is created, and its creation is the last change of its folder.
     *
     * @param files gets the names of all files
     */
    private static boolean whole(FileSystem system, FileStatus folder, List files) throws IOException {
        FileStatus[] entries = system.listStatus(folder.getPath());
        boolean whole = true;
        long written = Long.MIN_VALUE;
        for (int i = 0; i < entries.length; i++) {
            written = Math.max(written, entries[i].getModificationTime());
            if (entries[i].isDirectory()) {
                whole &= whole(system, entries[i], files);
            } else {
                files.add(entries[i].getPath().getName());
            }
        }
        return whole && folder.getModificationTime() <= written;
    }
}
