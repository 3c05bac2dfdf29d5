package org.apache.spark.sql.siltstone

import java.util.OptionalLong
import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.expressions.aggregate.{Aggregation, CountStar}
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.metric.CustomMetric
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream
import org.apache.spark.sql.types._
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Takes from Spark what a query needs of a table. */
class TableScanBuilder(source: Source, options: ScanOptions) extends ScanBuilder with SupportsPushDownRequiredColumns
    with SupportsPushDownV2Filters with SupportsPushDownLimit with SupportsPushDownAggregates {
  private var columns = source.schema
  private var answered = Array.empty[Predicate]
  private var filters = options.filter.toSeq
  private var isFiltered = options.filter.isDefined // by the store or by Spark
  private var limit: Option[Int] = None
  private var counts = 0

  override def pruneColumns(required: StructType): Unit = columns = required

  override def pushPredicates(predicates: Array[Predicate]): Array[Predicate] =
    if (predicates.isEmpty) predicates
    else {
      isFiltered = true
      val found = predicates.zip(Predicates.answered(source, predicates))
      answered = found.collect { case (each, Some(_)) => each }
      filters = options.filter.toSeq ++ found.flatMap(_._2)
      found.collect { case (each, None) => each }
    }
  override def pushedPredicates(): Array[Predicate] = answered

  /** Only without a filter does the plan know how many rows a task has. */
  override def pushLimit(rows: Int): Boolean = {
    if (!isFiltered) limit = Some(rows)
    !isFiltered
  }
  override def isPartiallyPushed: Boolean = false

  // Spark 4.3 takes what was pushed for null, and then refuses it for a column that may not be null.
  private def isCount(of: Aggregation): Boolean =
    !Statement.writes && !isFiltered && limit.isEmpty && of.groupByExpressions.isEmpty &&
      of.aggregateExpressions.nonEmpty && of.aggregateExpressions.forall(_.isInstanceOf[CountStar])
  override def supportCompletePushDown(of: Aggregation): Boolean = isCount(of)
  override def pushAggregation(of: Aggregation): Boolean = {
    if (isCount(of)) counts = of.aggregateExpressions.length
    counts > 0
  }

  override def build(): Scan =
    if (counts > 0) CountScan(source, counts)
    else TableScan(source, columns, filters, limit, options.taskRows)
}

/** What a reader may say: a filter in the SQL of the store, and how many stored rows a task has. */
case class ScanOptions(filter: Option[String], taskRows: Option[String])

object ScanOptions {
  private val ofSpark = Set("versionasof", "timestampasof") // which has taken them already
  private val ours = Seq("filter", "maxRowsPerTask")

  def apply(options: CaseInsensitiveStringMap): ScanOptions = {
    val known = ofSpark ++ ours.map(_.toLowerCase)
    options.keySet.asScala.find(key => !known(key.toLowerCase)).foreach { key =>
      throw new SiltstoneException("RequestError",
        s"a read through a catalog has no option '$key'; it has ${ours.mkString(" and ")}")
    }
    // A filter may end in a comment.
    ScanOptions(Option(options.get("filter")).map(text => s"($text\n)"), Option(options.get("maxRowsPerTask")))
  }
}

/** `count(*)`: the plan knows it. */
case class CountScan(source: Source, counts: Int) extends LocalScan {
  override def readSchema(): StructType =
    StructType((0 until counts).map(n => StructField(s"count_$n", LongType, nullable = false)))
  override def rows(): Array[InternalRow] = {
    Source.tell(source.pin, source.name)
    Array(InternalRow.fromSeq(Seq.fill(counts)(source.rows)))
  }
  override def description(): String = s"siltstone: count of ${source.name} at ${source.pin}"
}

/** Some columns and rows of a table. Equal scans are equal, so Spark reads once what a query reads
  * twice.
  */
case class TableScan(source: Source, columns: StructType, filters: Seq[String], limit: Option[Int],
    taskRows: Option[String]) extends Scan with Batch with SupportsReportStatistics {
  override def readSchema(): StructType = columns
  override def description(): String =
    s"siltstone: ${source.said}" +
      (if (filters.isEmpty) "" else filters.mkString(", filter ", " AND ", "").replace("\n", "")) +
      limit.map(rows => s", limit $rows").getOrElse("")
  override def toBatch: Batch = this
  override def toMicroBatchStream(checkpoint: String): MicroBatchStream = throw new SiltstoneException(
    "RequestError",
    s"${source.name} is no stream: its changes are, spark.readStream.table(\"..${source.name}.${ChangesTable.suffix}\")")
  override def columnarSupportMode(): Scan.ColumnarSupportMode = Scan.ColumnarSupportMode.SUPPORTED
  override def planInputPartitions(): Array[InputPartition] = {
    Source.tell(source.pin, source.name)
    source.pin.plan((source.id, columns, filters, limit, taskRows, parallelism), planned()).toArray
  }
  override def createReaderFactory(): PartitionReaderFactory =
    BatchReaderFactory(columns, source.pin.store)
  override def supportedCustomMetrics(): Array[CustomMetric] = Array(new WaitMetric, new BatchesMetric)
  override def estimateStatistics(): Statistics = new Statistics {
    private val rows = limit.map(n => math.min(n.toLong, source.rows)).getOrElse(source.rows)
    override def numRows(): OptionalLong = OptionalLong.of(rows)
    override def sizeInBytes(): OptionalLong = OptionalLong.of(source.bytes(columns, rows))
  }

  private def parallelism: Int = SparkSession.active.leafNodeDefaultParallelism

  private def planned(): Seq[InputPartition] = {
    val head = Daemon.request("plan").put("token", source.pin.token).put("table", source.name)
      .put("parallelism", parallelism).put("application", Daemon.application)
    taskRows.foreach(head.put("task_rows", _))
    val names = head.putArray("columns")
    columns.fieldNames.foreach(each => names.add(each))
    val wanted = head.putArray("filters")
    filters.foreach(each => wanted.add(each))
    limit.fold[Any](head.putNull("limit"))(n => head.put("limit", n))
    val (answer, payload) = Daemon.call(head)
    var at = 0
    answer.get("rows").asScala.zip(answer.get("sizes").asScala).map { case (rows, size) =>
      val tasks = java.util.Arrays.copyOfRange(payload, at, at + size.asInt)
      at += size.asInt
      // Where only the number of rows matters, and the plan knows it, no task reads any.
      val isCounted = columns.isEmpty && filters.isEmpty
      TasksPartition(rows.asLong, if (isCounted) None else Some(tasks))
    }.toSeq
  }
}

/** Scan tasks, pickled; None: only their number of rows is wanted. */
case class TasksPartition(rows: Long, tasks: Option[Array[Byte]]) extends InputPartition
