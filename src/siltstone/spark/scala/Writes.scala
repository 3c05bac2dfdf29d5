package org.apache.spark.sql.siltstone

import java.io.{BufferedOutputStream, ByteArrayOutputStream, OutputStream}
import java.util.{EnumSet, Set => JSet}

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.arrow.vector.VectorSchemaRoot
import org.apache.arrow.vector.ipc.ArrowStreamWriter
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.JoinedRow
import org.apache.spark.sql.connector.catalog.{Column, StagedTable, SupportsWrite, TableCapability, TableInfo}
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.connector.write.streaming.{StreamingDataWriterFactory, StreamingWrite}
import org.apache.spark.sql.execution.arrow.ArrowWriter
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.{ArrowUtils, CaseInsensitiveStringMap}

/** A table that a statement writes: one that is there, or (with a key, or none) one that it makes. */
case class Target(uri: String, table: String, insert: String, isolation: String, source: Option[Source],
    creates: Option[Seq[String]]) {
  def isolation(options: CaseInsensitiveStringMap): String = options.getOrDefault("isolation", isolation)
  def isSerializable(options: CaseInsensitiveStringMap): Boolean = isolation(options) == "serializable"
}

/** Takes from Spark what a statement writes. */
class TableWriteBuilder(target: Target, info: LogicalWriteInfo, run: SinkRun = new SinkRun(() => ()),
    replacesTable: Boolean = false)
    extends WriteBuilder with SupportsOverwriteV2 with SupportsStreamingUpdateAsAppend {
  private var overwrites = false
  private var replaced: Option[String] = None

  override def canOverwrite(predicates: Array[Predicate]): Boolean = Predicates.areAll(predicates) ||
    target.source.exists(Predicates.answered(_, predicates).forall(_.isDefined))
  override def overwrite(predicates: Array[Predicate]): WriteBuilder = {
    overwrites = true
    if (!Predicates.areAll(predicates)) replaced = target.source.map(Predicates.whole(_, predicates))
    this
  }
  override def truncate(): WriteBuilder = {
    overwrites = true
    this
  }
  override def build(): Write = new Write {
    override def description(): String = s"siltstone: ${target.table}"
    override def toBatch: BatchWrite = {
      val isByKey = target.source.exists(_.key.nonEmpty && !overwrites)
      val read = Option.when(isByKey || target.isSerializable(info.options))(
        StatementReads.of(target, info.options, readsTarget = false))
      new StagedWrite(target.table, Seq(planned(read)), read)
    }
    override def toStreaming: StreamingWrite = new StreamedWrite(
      new StagedWrite(target.table, Seq(Job(info.schema, new StructType(), run.planned(sinkHead())))))
  }

  private def sinkHead(): ObjectNode =
    Job.head("plan_sink", target, info.schema, info.options)
      .put("query", info.queryId).put("overwrites", overwrites)
  private def planned(read: Option[StatementReads]): Job = Job.plan(target, info.schema, info.options, head => {
    read.foreach(_.putLoads(head))
    head.put("overwrites", overwrites).put("replaces_table", replacesTable)
    replaced.foreach(head.put("replaces", _))
    target.creates.foreach { key =>
      val names = head.putArray("creates")
      key.foreach(each => names.add(each))
    }
  })
}

/** Rows of one kind that a statement writes, as Python planned them, pickled. Of an update the old
  * key comes behind each row.
  */
case class Job(schema: StructType, oldKey: StructType, planned: Array[Byte]) {
  val columns: StructType = StructType(schema ++ oldKey)
}

object Job {
  def plan(target: Target, schema: StructType, options: CaseInsensitiveStringMap,
      more: ObjectNode => Unit, oldKey: StructType = new StructType()): Job = {
    val head = this.head("plan_write", target, schema, options).put("insert", target.insert)
      .put("isolation", target.isolation(options))
      .put("retries", SQLConf.get.getConfString("spark.siltstone.retries", null))
    more(head)
    Job(schema, oldKey, Daemon.call(head)._2)
  }

  def head(op: String, target: Target, schema: StructType, options: CaseInsensitiveStringMap): ObjectNode = {
    val head = Daemon.request(op).put("uri", target.uri).put("table", target.table)
      .put("columns", schema.json).put("application", Daemon.application)
    val texts = head.putObject("options")
    options.asCaseSensitiveMap.forEach((key, value) => texts.put(key, value))
    target.source.foreach(source => head.put("id", source.id))
    head
  }
}

/** What a statement writes: tasks stage rows of some kinds, the driver commits all, or none. */
class StagedWrite(table: String, jobs: Seq[Job], read: Option[StatementReads] = None)
    extends DeltaBatchWrite {
  private var tasks = 0

  override def createBatchWriterFactory(info: PhysicalWriteInfo): RowsWriterFactory = {
    tasks = info.numPartitions
    RowsWriterFactory(jobs)
  }
  override def commit(messages: Array[WriterCommitMessage]): Unit = {
    val (head, payload) = asked(messages)
    Daemon.change(head, payload, s"rows of this statement are in $table")
  }
  /** Commit a batch of a stream, which is done once, however often it is asked for. */
  def commit(batch: Long, messages: Array[WriterCommitMessage]): Unit = {
    val (head, payload) = asked(messages)
    Daemon.call(head.put("batch", batch), payload)
  }
  private def asked(messages: Array[WriterCommitMessage]): (ObjectNode, Array[Byte]) = {
    val all = messages.toSeq.map(StagedRows.of)
    if (all.length != tasks) {
      throw new IllegalStateException(s"$tasks tasks wrote, ${all.length} said what")
    }
    val head = Daemon.request("commit")
    read.foreach(_.put(head))
    (head, packed(head, all))
  }
  override def abort(messages: Array[WriterCommitMessage]): Unit = {
    val head = Daemon.request("abort")
    Daemon.call(head, packed(head, messages.toSeq.filter(_ != null).map(StagedRows.of)))
  }

  private def packed(head: ObjectNode, all: Seq[StagedRows]): Array[Byte] = {
    val writes = head.putArray("writes")
    val bytes = new ByteArrayOutputStream()
    jobs.indices.foreach { n =>
      val pieces = all.filter(_.written(n) != null)
      val write = writes.addObject().put("rows", pieces.map(_.rows(n)).sum)
      val sizes = write.putArray("sizes")
      (jobs(n).planned +: pieces.map(_.written(n))).foreach { each =>
        sizes.add(each.length)
        bytes.write(each)
      }
    }
    bytes.toByteArray
  }
}

/** A run of a query that writes a table: what Python said of its start with the first batch. */
class SinkRun(begun: () => Unit) {
  private var start: Option[JsonNode] = None

  /** The job of a batch. */
  def planned(head: ObjectNode): Array[Byte] = synchronized {
    start.foreach(head.set[JsonNode]("start", _))
    val (answer, job) = Daemon.call(head)
    start = Some(answer.get("start"))
    begun()
    job
  }
}

/** A batch of a stream. */
class StreamedWrite(batch: StagedWrite) extends StreamingWrite {
  override def createStreamingWriterFactory(info: PhysicalWriteInfo): StreamingDataWriterFactory =
    batch.createBatchWriterFactory(info)
  override def commit(epoch: Long, messages: Array[WriterCommitMessage]): Unit =
    batch.commit(epoch, messages)
  override def abort(epoch: Long, messages: Array[WriterCommitMessage]): Unit = batch.abort(messages)
}

/** What a task staged of each job: how many rows it was given, and what Python knows of them,
  * pickled; null: it was given none.
  */
case class StagedRows(rows: Array[Long], written: Array[Array[Byte]]) extends WriterCommitMessage

object StagedRows {
  /** In a session that had the jar added, tasks have this class from another loader: rows of a
    * message that was skipped for that would be lost.
    */
  def of(message: WriterCommitMessage): StagedRows = message match {
    case null => throw new IllegalStateException("a task that wrote said nothing")
    case ours: StagedRows => ours
    case other if other.getClass.getName == classOf[StagedRows].getName =>
      def field(name: String): Any = other.getClass.getMethod(name).invoke(other)
      StagedRows(field("rows").asInstanceOf[Array[Long]], field("written").asInstanceOf[Array[Array[Byte]]])
    case other => throw new IllegalStateException(s"a task that wrote said a ${other.getClass.getName}")
  }
}

case class RowsWriterFactory(jobs: Seq[Job]) extends DeltaWriterFactory with StreamingDataWriterFactory {
  override def createWriter(partition: Int, task: Long): DeltaWriter[InternalRow] =
    new RowsWriter(jobs, partition)
  override def createWriter(partition: Int, task: Long, batch: Long): DataWriter[InternalRow] =
    createWriter(partition, task)
}

/** Sends the rows of a task to Python, those of each job in a stream of its own. */
class RowsWriter(jobs: Seq[Job], partition: Int) extends DeltaWriter[InternalRow] {
  private val streams = new Array[RowStream](jobs.length)
  private val withKey = new JoinedRow()
  private val (inserts, updates, deletes) = (0, math.min(1, jobs.length - 1), jobs.length - 1)

  private def stream(job: Int): RowStream = {
    if (streams(job) == null) streams(job) = new RowStream(jobs(job), partition)
    streams(job)
  }
  override def write(row: InternalRow): Unit = insert(row)
  override def insert(row: InternalRow): Unit = stream(inserts).write(row)
  override def update(metadata: InternalRow, key: InternalRow, row: InternalRow): Unit =
    stream(updates).write(withKey(row, key))
  override def delete(metadata: InternalRow, key: InternalRow): Unit = stream(deletes).write(key)

  override def commit(): WriterCommitMessage = {
    if (jobs.length == 1) stream(0): Unit // a batch of a stream without a row counts, too
    StagedRows(
      streams.map(each => if (each == null) 0L else each.total),
      streams.map(each => if (each == null) null else each.end()))
  }
  override def abort(): Unit = ()
  override def close(): Unit = streams.foreach(each => if (each != null) each.close())
}

/** The rows of one job in a task, in batches. */
class RowStream(job: Job, partition: Int) {
  var total = 0L
  private val connection = Daemon.take()
  private val allocator = ArrowUtils.rootAllocator.newChildAllocator("siltstone write", 0, Long.MaxValue)
  private val root =
    VectorSchemaRoot.create(ArrowUtils.toArrowSchema(job.columns, "UTC", true, false, true), allocator)
  private val rows = ArrowWriter.create(root)
  private val pieces = new BufferedOutputStream(new SentPieces(connection), 1 << 20)
  private val batches = new ArrowStreamWriter(root, null, pieces)
  private var inBatch = 0
  private var isDone = false
  begin()

  private def begin(): Unit = SiltstoneException.inTask {
    try {
      connection.send(
        Daemon.request("write").put("task", partition).put("old_keys", job.oldKey.length), job.planned)
      batches.start()
    } catch { // nobody has this object yet, to close it
      case e: Throwable => close(); throw e
    }
  }

  def write(row: InternalRow): Unit = {
    rows.write(row)
    inBatch += 1
    total += 1
    if (inBatch == RowStream.rowsMax || (inBatch % 256 == 0 && rows.sizeInBytes() > RowStream.bytesMax)) {
      flush()
    }
  }
  private def flush(): Unit = if (inBatch > 0) SiltstoneException.inTask {
    rows.finish()
    batches.writeBatch()
    rows.reset()
    inBatch = 0
  }

  /** What Python says of the rows. */
  def end(): Array[Byte] = SiltstoneException.inTask {
    flush()
    batches.end()
    pieces.flush()
    connection.sendNumber(0)
    var isAnswered = false
    try {
      val (_, written) = connection.receive()
      isAnswered = true
      written
    } catch {
      case e: SiltstoneException.Gone => throw e
      case e: SiltstoneException => isAnswered = true; throw e
    } finally if (isAnswered) {
      isDone = true
      Daemon.give(connection)
    }
  }
  def close(): Unit = {
    if (!isDone) connection.close()
    root.close()
    allocator.close()
  }
}

object RowStream {
  private val rowsMax = 16384
  private val bytesMax = 16 << 20
}

/** A stream whose bytes go to Python in pieces, each after its length. */
class SentPieces(connection: Connection) extends OutputStream {
  override def write(value: Int): Unit = write(Array(value.toByte), 0, 1)
  override def write(bytes: Array[Byte], first: Int, size: Int): Unit = if (size > 0) {
    connection.sendNumber(size)
    connection.sendBytes(bytes, first, size)
  }
}

/** The table of `CREATE TABLE .. AS SELECT`, or what replaces one: the commit of its rows makes it. */
class NewTable(target: Target, info: TableInfo, replaces: Boolean) extends StagedTable with SupportsWrite {
  private var hasRows = false

  override def name(): String = target.table
  override def columns(): Array[Column] = info.columns
  override def capabilities(): JSet[TableCapability] =
    EnumSet.of(TableCapability.BATCH_WRITE, TableCapability.TRUNCATE)
  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = {
    hasRows = true
    new TableWriteBuilder(target, info, replacesTable = replaces)
  }
  override def commitStagedChanges(): Unit = if (!hasRows) {
    Definition.create(target.uri, target.table, Defaults.of(info.columns, info.schema),
      target.creates.getOrElse(Nil), replaces)
  }
  override def abortStagedChanges(): Unit = ()
}
