package org.apache.spark.sql.siltstone

import java.util.{EnumSet, Set => JSet, UUID}
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.spark.sql.connector.catalog.{
  CatalogV2Util, Changelog, ChangelogContext, ChangelogRange, Column, Identifier, SupportsRead, TableCapability}
import org.apache.spark.sql.connector.expressions.{FieldReference, NamedReference}
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.connector.read.streaming._
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** shop.orders.changes: the changes of shop.orders, as a stream. */
class ChangesTable(uri: String, store: String, table: String, schemaOfChanges: StructType) extends SupportsRead {
  override def name(): String = s"$table.${ChangesTable.suffix}"
  override def columns(): Array[Column] = CatalogV2Util.structTypeToV2Columns(schemaOfChanges)
  // Only a scan knows whether it is of a batch, and can say what to do instead.
  override def capabilities(): JSet[TableCapability] =
    EnumSet.of(TableCapability.MICRO_BATCH_READ, TableCapability.BATCH_READ)
  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = () => new Scan {
    override def readSchema(): StructType = schemaOfChanges
    override def description(): String = s"siltstone: changes of $table"
    override def columnarSupportMode(): Scan.ColumnarSupportMode = Scan.ColumnarSupportMode.SUPPORTED
    override def toBatch: Batch = throw new SiltstoneException(
      "RequestError",
      s"$table.${ChangesTable.suffix} is a stream, for spark.readStream.table; in a batch read" +
        s" $table CHANGES FROM VERSION .. TO VERSION ..")
    override def toMicroBatchStream(checkpoint: String): MicroBatchStream =
      new Feed(uri, store, table, schemaOfChanges, options)
  }
}

object ChangesTable {
  val suffix = "changes"

  /** The stream of a name that no table has; None: it is not the name of one. */
  def of(pin: Pin, id: Identifier): Option[ChangesTable] =
    if (id.name != suffix || id.namespace.isEmpty) None
    else {
      val table = id.namespace.mkString(".")
      val found = Daemon.call(Daemon.request("feed").put("uri", pin.uri).put("table", table))._1
      if (found.has("missing")) None
      else {
        val schema = DataType.fromJson(found.get("schema").asText).asInstanceOf[StructType]
        Some(new ChangesTable(pin.uri, pin.store, table, schema))
      }
    }
}

/** An offset, as Python has it in Spark's log. */
case class FeedOffset(override val json: String) extends Offset

/** A run of a query. Python takes its steps, and says what the run has decided; that is kept here, for
  * the next process if one dies.
  */
class Feed(uri: String, store: String, table: String, schema: StructType, options: CaseInsensitiveStringMap)
    extends MicroBatchStream with SupportsTriggerAvailableNow {
  private val token = UUID.randomUUID().toString
  private var run: Option[JsonNode] = None

  private def take(step: String, more: ObjectNode => Unit = _ => ()): (JsonNode, Array[Byte]) = synchronized {
    val head = Daemon.request("feed_step").put("token", token).put("uri", uri).put("table", table)
      .put("columns", schema.json).put("step", step)
    val said = head.putObject("options")
    options.asCaseSensitiveMap.forEach((key, value) => said.put(key, value))
    run.foreach(head.set[JsonNode]("run", _))
    more(head)
    val found = Daemon.call(head)
    run = Option(found._1.get("run")).orElse(run)
    found
  }
  private def offset(found: (JsonNode, Array[Byte])): Option[Offset] =
    Option(found._1.get("offset")).filter(!_.isNull).map(each => FeedOffset(each.asText))

  override def initialOffset(): Offset = offset(take("initial")).orNull
  override def deserializeOffset(json: String): Offset = FeedOffset(json)
  override def getDefaultReadLimit: ReadLimit = {
    val rows = take("limit")._1.get("rows")
    if (rows.isNull) ReadLimit.allAvailable() else ReadLimit.maxRows(rows.asLong)
  }
  override def prepareForTriggerAvailableNow(): Unit = take("target")
  override def reportLatestOffset(): Offset = offset(take("newest")).orNull
  override def latestOffset(): Offset =
    throw new UnsupportedOperationException("a stream of changes is asked with a start and a limit")
  override def latestOffset(start: Offset, limit: ReadLimit): Offset = offset(take("latest", head => {
    head.put("start", start.json)
    limit match {
      case rows: ReadMaxRows => head.put("rows", rows.maxRows)
      case _ => ()
    }
  })).orNull
  override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] =
    ChangeTasks.of(take("plan", _.put("start", start.json).put("end", end.json)))
  override def createReaderFactory(): PartitionReaderFactory = BatchReaderFactory(schema, store)
  override def commit(end: Offset): Unit = take("commit", _.put("end", end.json))
  override def stop(): Unit = take("stop")
}

/** orders CHANGES FROM VERSION 5 TO VERSION 9: the changes of a table in a range, as a batch. */
class TableChanges(pin: Pin, table: String, found: JsonNode) extends Changelog {
  private val schema = DataType.fromJson(found.get("schema").asText).asInstanceOf[StructType]
  override def name(): String = s"$table.${ChangesTable.suffix}"
  override def columns(): Array[Column] = CatalogV2Util.structTypeToV2Columns(schema)
  // A row of a feed is a change of its key; what there was before it does not say.
  override def containsCarryoverRows(): Boolean = false
  override def containsIntermediateChanges(): Boolean = true
  override def representsUpdateAsDeleteAndInsert(): Boolean = false
  override def rowId(): Array[NamedReference] =
    found.get("key").asScala.map(each => FieldReference.column(each.asText): NamedReference).toArray
  override def rowVersion(): NamedReference = FieldReference.column("_commit_version")
  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = {
    TableChanges.refuseOthers(options)
    new ScanBuilder with SupportsPushDownRequiredColumns {
      private var columns = schema
      override def pruneColumns(required: StructType): Unit = columns = required
      override def build(): Scan =
        ChangesScan(pin, table, columns, found.get("since").asLong, found.get("until").asLong)
    }
  }
}

object TableChanges {
  private val ofSpark = Set("startingversion", "endingversion", "startingtimestamp", "endingtimestamp",
    "startingboundinclusive", "endingboundinclusive", "deduplicationmode", "computeupdates")

  /** Spark has taken those that name a range. */
  def refuseOthers(options: CaseInsensitiveStringMap): Unit =
    options.keySet.asScala.find(key => !ofSpark(key.toLowerCase)).foreach { key =>
      throw new SiltstoneException("RequestError", s"a read of changes has no option '$key'")
    }

  /** The range that a statement names; None: there is no such table. */
  def of(pin: Pin, table: String, asked: ChangelogContext): Option[TableChanges] = {
    val head = Daemon.request("changes").put("token", pin.token).put("uri", pin.uri).put("table", table)
      .put("dedup", asked.deduplicationMode.value).put("updates", asked.computeUpdates)
    asked.range match {
      case range: ChangelogRange.VersionRange =>
        head.putObject("start").put("version", range.startingVersion).put("inclusive", range.startingBoundInclusive)
        range.endingVersion.ifPresent(version =>
          head.putObject("end").put("version", version).put("inclusive", range.endingBoundInclusive))
      case range: ChangelogRange.TimestampRange =>
        head.putObject("start").put("time_us", range.startingTimestamp).put("inclusive", range.startingBoundInclusive)
        range.endingTimestamp.ifPresent(time =>
          head.putObject("end").put("time_us", time.longValue).put("inclusive", range.endingBoundInclusive))
      case _ => ()
    }
    Seq("start", "end").filter(!head.has(_)).foreach(head.putNull(_))
    val found = Daemon.call(head)._1
    if (found.has("missing")) None else Some(new TableChanges(pin, table, found))
  }
}

/** Some columns of the changes (since, until] of a table; its pin is held for as long as it may be read. */
case class ChangesScan(pin: Pin, table: String, columns: StructType, since: Long, until: Long) extends Scan with Batch {
  override def readSchema(): StructType = columns
  override def description(): String = s"siltstone: changes of $table after seq $since, up to seq $until"
  override def columnarSupportMode(): Scan.ColumnarSupportMode = Scan.ColumnarSupportMode.SUPPORTED
  override def toBatch: Batch = this
  override def toMicroBatchStream(checkpoint: String): MicroBatchStream = throw new SiltstoneException(
    "RequestError", s"a stream reads $table.${ChangesTable.suffix}, by spark.readStream.table")
  override def planInputPartitions(): Array[InputPartition] = ChangeTasks.of(Daemon.call(
    Daemon.request("plan_changes").put("uri", pin.uri).put("table", table).put("columns", columns.json)
      .put("since", since).put("until", until)))
  override def createReaderFactory(): PartitionReaderFactory = BatchReaderFactory(columns, pin.store)
}

object ChangeTasks {
  /** The partitions in an answer. */
  def of(found: (JsonNode, Array[Byte])): Array[InputPartition] = {
    val (answer, payload) = found
    var at = 0
    answer.get("sizes").asScala.map { size =>
      val tasks = java.util.Arrays.copyOfRange(payload, at, at + size.asInt)
      at += size.asInt
      TasksPartition(0, Some(tasks)): InputPartition
    }.toArray
  }
}
