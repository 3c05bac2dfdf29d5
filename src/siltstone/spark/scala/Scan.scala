package org.apache.spark.sql.siltstone

import java.util.OptionalLong
import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.expressions.aggregate.{Aggregation, CountStar}
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.metric.CustomMetric
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.types._

/** Takes from Spark what a query needs of a table. */
class TableScanBuilder(source: Source) extends ScanBuilder with SupportsPushDownRequiredColumns
    with SupportsPushDownV2Filters with SupportsPushDownLimit with SupportsPushDownAggregates {
  private var columns = source.schema
  private var answered = Array.empty[Predicate]
  private var filters = Seq.empty[String]
  private var isFiltered = false // by the store or by Spark
  private var limit: Option[Int] = None
  private var counts = 0

  override def pruneColumns(required: StructType): Unit = columns = required

  override def pushPredicates(predicates: Array[Predicate]): Array[Predicate] =
    if (predicates.isEmpty) predicates
    else {
      isFiltered = true
      val found = predicates.zip(Predicates.answered(source, predicates))
      answered = found.collect { case (each, Some(_)) => each }
      filters = found.flatMap(_._2).toSeq
      found.collect { case (each, None) => each }
    }
  override def pushedPredicates(): Array[Predicate] = answered

  /** Only without a filter does the plan know how many rows a task has. */
  override def pushLimit(rows: Int): Boolean = {
    if (!isFiltered) limit = Some(rows)
    !isFiltered
  }
  override def isPartiallyPushed: Boolean = false

  private def isCount(of: Aggregation): Boolean =
    !isFiltered && limit.isEmpty && of.groupByExpressions.isEmpty &&
      of.aggregateExpressions.nonEmpty && of.aggregateExpressions.forall(_.isInstanceOf[CountStar])
  override def supportCompletePushDown(of: Aggregation): Boolean = isCount(of)
  override def pushAggregation(of: Aggregation): Boolean = {
    if (isCount(of)) counts = of.aggregateExpressions.length
    counts > 0
  }

  override def build(): Scan =
    if (counts > 0) CountScan(source.name, source.pin, source.rows, counts)
    else TableScan(source, columns, filters, limit)
}

/** `count(*)`: the plan knows it. */
case class CountScan(table: String, pin: Pin, rowsOfTable: Long, counts: Int) extends LocalScan {
  override def readSchema(): StructType =
    StructType((0 until counts).map(n => StructField(s"count_$n", LongType, nullable = false)))
  override def rows(): Array[InternalRow] = {
    Source.tell(pin, table)
    Array(InternalRow.fromSeq(Seq.fill(counts)(rowsOfTable)))
  }
  override def description(): String = s"siltstone: count of $table at $pin"
}

/** Some columns and rows of a table. Equal scans are equal, so Spark reads once what a query reads
  * twice.
  */
case class TableScan(source: Source, columns: StructType, filters: Seq[String], limit: Option[Int])
    extends Scan with Batch with SupportsReportStatistics {
  override def readSchema(): StructType = columns
  override def description(): String =
    s"siltstone: ${source.name} at ${source.pin}" +
      (if (filters.isEmpty) "" else filters.mkString(", filter ", " AND ", "")) +
      limit.map(rows => s", limit $rows").getOrElse("")
  override def toBatch: Batch = this
  override def columnarSupportMode(): Scan.ColumnarSupportMode = Scan.ColumnarSupportMode.SUPPORTED
  override def planInputPartitions(): Array[InputPartition] = {
    Source.tell(source.pin, source.name)
    source.pin.plan((source.id, columns, filters, limit, parallelism), planned()).toArray
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
