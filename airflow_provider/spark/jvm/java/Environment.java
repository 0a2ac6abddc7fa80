package airflow_provider;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.ArrayList;
import java.util.Arrays;

/**
 * Spark's environment, for reflection.py. Uses method handles: listing the methods of SparkEnv in 4.3 finds one that
 * names a class which PySpark's jars lack.
 */
public final class Environment {
    /** @param nothing not used */
    public Environment(String nothing) {}

    /** A member, such as mapOutputTracker, and the full name of its class. */
    public Object member(String name, String kind) throws Throwable {
        ClassLoader loader = Thread.currentThread().getContextClassLoader();
        Class environment = loader.loadClass("org.apache.spark.SparkEnv");
        MethodHandles.Lookup lookup = MethodHandles.publicLookup();
        Object current = lookup.findStatic(environment, "get", MethodType.methodType(environment))
                .invokeWithArguments(new ArrayList());
        return lookup.findVirtual(environment, name, MethodType.methodType(loader.loadClass(kind)))
                .invokeWithArguments(Arrays.asList(new Object[] {current}));
    }
}
