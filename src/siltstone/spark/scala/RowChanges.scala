package org.apache.spark.sql.siltstone

import java.util.UUID

import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.Table
import org.apache.spark.sql.connector.expressions.{FieldReference, NamedReference}
import org.apache.spark.sql.connector.read.{Scan, ScanBuilder}
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.connector.write.RowLevelOperation.Command
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanHelper
import org.apache.spark.sql.execution.columnar.{CachedRDDBuilder, InMemoryRelation, InMemoryTableScanExec}
import org.apache.spark.sql.execution.datasources.v2.{
  DataSourceV2Relation, DataSourceV2ScanExecBase, DataSourceV2ScanRelation}
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
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
        " key takes INSERT, TRUNCATE, and a DELETE by a condition that the store answers, without" +
        " options")
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
      override def toBatch: DeltaBatchWrite = {
        val read = StatementReads.of(target, info.options, readsTarget = true)
        new StagedWrite(source.name, jobs(info, read), Some(read))
      }
    }
  }

  /** Inserts, updates and deletes, in the order in which they are committed. */
  private def jobs(info: LogicalWriteInfo, read: StatementReads): Seq[Job] = {
    requireKey() // of a condition that is never true Spark makes no scan
    val key = info.rowIdSchema.get
    def job(change: String, columns: StructType, oldKey: StructType = new StructType()) =
      Job.plan(target, columns, info.options, head => {
        read.putLoads(head.put("change", change))
      }, oldKey)
    command match {
      case Command.DELETE => Seq(job("delete", key))
      case Command.UPDATE => Seq(job("update", info.schema, key))
      case Command.MERGE =>
        Seq(job("insert", info.schema), job("update", info.schema, key), job("delete", key))
    }
  }
}

/** What the plan of a statement reads of the store that it writes: the lowest seq that counts, if
  * any, and of which tables. `loads` are the options of reads by `format("siltstone")`, of any store;
  * `expected` is the seq that counts instead, as the statement says.
  */
case class StatementReads(now: Long, seq: Option[Long], tables: Seq[Long], isolation: String,
    loads: Seq[CaseInsensitiveStringMap], expected: Option[String]) {
  def putLoads(head: ObjectNode): Unit = {
    val all = head.putArray("loads")
    loads.foreach { options =>
      val texts = all.addObject()
      options.asCaseSensitiveMap.forEach((name, text) => texts.put(name, text))
    }
  }
  def put(head: ObjectNode): Unit = {
    val read = head.putObject("read").put("now", now).put("isolation", isolation)
    seq.fold(read.putNull("seq"))(read.put("seq", _))
    expected.fold(read.putNull("expected"))(text => read.put("expected", text.toLong))
    val ids = read.putArray("tables")
    tables.foreach(each => ids.add(each))
  }
}

object StatementReads extends AdaptiveSparkPlanHelper {
  /** Those of the statement that this thread runs, which writes `target`, and may read it to do so. A
    * frame in it may be of an earlier seq, or be cached: what was committed since is a change that it
    * has not seen. Of other tables that counts for a serializable statement alone.
    */
  def of(target: Target, options: CaseInsensitiveStringMap, readsTarget: Boolean): StatementReads = {
    val session = SparkSession.active
    def local(name: String) = Option(session.sparkContext.getLocalProperty(name))
    val running = Statement.running
      .getOrElse(throw new IllegalStateException("Spark does not tell the plan of this statement"))
    val batch = local(StreamExecution.QUERY_ID_KEY)
      .flatMap(id => Option(session.sharedState.activeStreamingQueries.get(UUID.fromString(id))))
      .flatMap(stream => Option(stream.lastExecution))
    // What a stream reads beside its source, the frame of its batch hides.
    val plans = running.optimizedPlan +: batch.toSeq.map(_.optimizedPlan)
    val here = target.source.fold(Pin.take(target.uri))(_.pin) // one of no table tells the store alone
    val own = target.source.map(_.id)
    val read = plans.flatMap(ofPlan).filter { case (pin, table) =>
      pin.store == here.store && (target.isSerializable(options) || own.exists(table.contains(_)))
    } ++ (if (readsTarget) Seq((here, own)) else Nil)
    val seqs = read.map(_._1.seq)
    val now = if (own.isEmpty) seqs.maxOption.getOrElse(here.seq) else here.seq
    StatementReads(now, seqs.minOption, read.flatMap(_._2).distinct, target.isolation(options),
      loadsOf(running.optimizedPlan), Option(options.get("expectSeq")))
  }

  // A pin, and a table whose later rows would have counted: a range of changes stays as it is.
  private type Read = (Pin, Option[Long])

  private def loadsOf(plan: LogicalPlan): Seq[CaseInsensitiveStringMap] = plan.collectWithSubqueries {
    case scanned: DataSourceV2ScanRelation => loadsOf(scanned.relation)
    case DataSourceV2Relation(python: PythonTable, _, _, _, options, _) if python.name == "siltstone" =>
      Seq(options)
    case cached: InMemoryRelation => loadsOf(cached.cacheBuilder.logicalPlan)
  }.flatten

  private def ofPlan(plan: LogicalPlan): Seq[Read] = plan.collectWithSubqueries {
    case scanned: DataSourceV2ScanRelation => ofScan(scanned.scan)
    case relation: DataSourceV2Relation => ofTable(relation.table)
    case cached: InMemoryRelation => ofCached(cached.cacheBuilder)
  }.flatten
  // A physical plan that has run lacks counts, and scans without rows; the logical one has the tables.
  private def ofCached(made: CachedRDDBuilder): Seq[Read] =
    ofPlan(made.logicalPlan) ++ ofRun(made.cachedPlan)
  private def ofRun(plan: SparkPlan): Seq[Read] = collectWithSubqueries(plan) {
    case scanned: DataSourceV2ScanExecBase => ofScan(scanned.scan)
    case cached: InMemoryTableScanExec => ofCached(cached.relation.cacheBuilder)
  }.flatten
  private def ofScan(scan: Scan): Seq[Read] = scan match {
    case ours: TableScan => Seq((ours.source.pin, Some(ours.source.id)))
    case ours: CountScan => Seq((ours.source.pin, Some(ours.source.id)))
    case ours: ChangesScan => Seq((ours.pin, None))
    case _ => Nil
  }
  private def ofTable(table: Table): Seq[Read] = table match {
    case ours: SiltstoneTable => Seq((ours.source.pin, Some(ours.source.id)))
    case _ => Nil
  }
}
