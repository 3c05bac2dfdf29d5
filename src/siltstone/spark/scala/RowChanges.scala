package org.apache.spark.sql.siltstone

import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.expressions.{FieldReference, NamedReference}
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.connector.write.RowLevelOperation.Command
import org.apache.spark.sql.execution.{SparkPlan, SQLExecution}
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanHelper
import org.apache.spark.sql.execution.columnar.{InMemoryRelation, InMemoryTableScanExec}
import org.apache.spark.sql.execution.datasources.v2.{DataSourceV2ScanRelation, DataSourceV2ScanExecBase}
import org.apache.spark.sql.connector.read.Scan
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** UPDATE, MERGE, and a DELETE that needs a scan: Spark reads the rows at the pin of the statement,
  * and says by their keys what becomes of them.
  */
class KeyedOperation(target: Target, source: Source, info: RowLevelOperationInfo)
    extends SupportsDelta {
  override val command: Command = info.command
  if (command != Command.DELETE) requireKey()

  // The store may answer the condition of a DELETE: then nobody asks for a scan.
  private def requireKey(): Unit = if (source.key.isEmpty) {
    throw new SiltstoneException("RequestError",
      s"$command of rows of '${source.name}' goes by their key, and it has none; a table without a" +
        " key takes INSERT, TRUNCATE, and a DELETE by a condition that the store answers")
  }
  override def rowId(): Array[NamedReference] =
    source.key.map(name => FieldReference.column(name): NamedReference).toArray

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = {
    requireKey()
    new TableScanBuilder(source, ScanOptions(None, None))
  }
  override def newWriteBuilder(info: LogicalWriteInfo): DeltaWriteBuilder = new DeltaWriteBuilder {
    override def build(): DeltaWrite = new DeltaWrite {
      override def description(): String = s"siltstone: $command ${source.name}"
      override def toBatch: DeltaBatchWrite =
        new StagedWrite(source.name, jobs(info), Some(StatementReads.of(source, isolation(info))))
    }
  }

  private def isolation(info: LogicalWriteInfo): String =
    info.options.getOrDefault("isolation", target.isolation)

  /** Inserts, updates and deletes, in the order in which they are committed. */
  private def jobs(info: LogicalWriteInfo): Seq[Job] = {
    requireKey() // of a condition that is never true Spark makes no scan
    val key = info.rowIdSchema.get
    def job(change: String, columns: StructType, oldKey: StructType = new StructType()) =
      Job.plan(target, columns, info.options, _.put("change", change).put("isolation", isolation(info)), oldKey)
    command match {
      case Command.DELETE => Seq(job("delete", key))
      case Command.UPDATE => Seq(job("update", info.schema, key))
      case Command.MERGE =>
        Seq(job("insert", info.schema), job("update", info.schema, key), job("delete", key))
    }
  }
}

/** What the plan of a statement reads of a store: the lowest seq, and which tables. */
case class StatementReads(seq: Long, tables: Seq[Long], isolation: String) {
  def put(head: ObjectNode): Unit = {
    val read = head.putObject("read").put("seq", seq).put("isolation", isolation)
    val ids = read.putArray("tables")
    tables.foreach(each => ids.add(each))
  }
}

object StatementReads extends AdaptiveSparkPlanHelper {
  /** Those of the statement that this thread runs, which writes `target`. A frame in it may be of an
    * earlier seq, or be cached: what was committed since is a change that it has not seen.
    */
  def of(target: Source, isolation: String): StatementReads = {
    val id = SparkSession.active.sparkContext.getLocalProperty(SQLExecution.EXECUTION_ID_KEY)
    val running = Option(id).flatMap(each => Option(SQLExecution.getQueryExecution(each.toLong)))
      .getOrElse(throw new IllegalStateException("Spark does not tell the plan of this statement"))
    val read = (target.pin, Some(target.id)) +:
      ofPlan(running.optimizedPlan).filter { case (pin, _) => pin.store == target.pin.store }
    StatementReads(read.map(_._1.seq).min, read.flatMap(_._2).distinct, isolation)
  }

  // A pin, and a table whose later rows would have counted: a range of changes stays as it is.
  private type Read = (Pin, Option[Long])

  private def ofPlan(plan: LogicalPlan): Seq[Read] = plan.collectWithSubqueries {
    case scanned: DataSourceV2ScanRelation => ofScan(scanned.scan)
    case cached: InMemoryRelation => ofRun(cached.cacheBuilder.cachedPlan)
  }.flatten
  private def ofRun(plan: SparkPlan): Seq[Read] = collectWithSubqueries(plan) {
    case scanned: DataSourceV2ScanExecBase => ofScan(scanned.scan)
    case cached: InMemoryTableScanExec => ofRun(cached.relation.cacheBuilder.cachedPlan)
  }.flatten
  private def ofScan(scan: Scan): Seq[Read] = scan match {
    case ours: TableScan => Seq((ours.source.pin, Some(ours.source.id)))
    case ours: CountScan => Seq((ours.source.pin, Some(ours.source.id)))
    case ours: ChangesScan => Seq((ours.pin, None))
    case _ => Nil
  }
}
