package org.apache.spark.sql.siltstone

import java.util.{Collections, Map => JMap}

import org.apache.spark.SparkContext
import org.apache.spark.api.plugin.{DriverPlugin, ExecutorPlugin, PluginContext, SparkPlugin}

/** Starts the Python process with its JVM, so that the first query need not wait for it. */
class SiltstonePlugin extends SparkPlugin {
  override def driverPlugin(): DriverPlugin = new DriverPlugin {
    override def init(spark: SparkContext, context: PluginContext): JMap[String, String] = {
      Daemon.begin()
      Collections.emptyMap[String, String]()
    }
  }
  override def executorPlugin(): ExecutorPlugin = new ExecutorPlugin {
    override def init(context: PluginContext, more: JMap[String, String]): Unit = Daemon.begin()
  }
}
