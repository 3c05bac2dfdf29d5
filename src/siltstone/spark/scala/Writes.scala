package org.apache.spark.sql.siltstone

import java.io.{BufferedOutputStream, ByteArrayOutputStream, OutputStream}
import java.util.{EnumSet, Set => JSet}

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.arrow.vector.VectorSchemaRoot
import org.apache.arrow.vector.ipc.ArrowStreamWriter
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.catalog.{Column, StagedTable, SupportsWrite, TableCapability}
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.connector.write.streaming.{StreamingDataWriterFactory, StreamingWrite}
import org.apache.spark.sql.execution.arrow.ArrowWriter
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.ArrowUtils

/** A table that a statement writes: one that is there, or (with a key, or none) one that it makes. */
case class Target(uri: String, table: String, insert: String, source: Option[Source], creates: Option[Seq[String]])

/** Takes from Spark what a statement writes. */
class TableWriteBuilder(target: Target, info: LogicalWriteInfo, run: SinkRun = new SinkRun(() => ()))
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
    override def toBatch: BatchWrite = new StagedWrite(target.table, info.schema, planned())
    override def toStreaming: StreamingWrite =
      new StreamedWrite(new StagedWrite(target.table, info.schema, run.planned(sinkHead())))
  }

  private def head(op: String): ObjectNode = {
    val head = Daemon.request(op).put("uri", target.uri).put("table", target.table)
      .put("columns", info.schema.json).put("application", Daemon.application)
      .put("overwrites", overwrites)
    val options = head.putObject("options")
    info.options.asCaseSensitiveMap.forEach((key, value) => options.put(key, value))
    target.source.foreach(source => head.put("id", source.id))
    head
  }
  private def sinkHead(): ObjectNode = head("plan_sink").put("query", info.queryId)
  private def planned(): Array[Byte] = {
    val head = this.head("plan_write").put("insert", target.insert)
    replaced.foreach(head.put("replaces", _))
    target.creates.foreach { key =>
      val names = head.putArray("creates")
      key.foreach(each => names.add(each))
    }
    Daemon.call(head)._2
  }
}

/** The job of a statement: tasks stage rows, the driver commits all of them, or none. */
class StagedWrite(table: String, schema: StructType, job: Array[Byte]) extends BatchWrite {
  private var tasks = 0

  override def createBatchWriterFactory(info: PhysicalWriteInfo): RowsWriterFactory = {
    tasks = info.numPartitions
    RowsWriterFactory(schema, job)
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
    val pieces = messages.map(StagedRows.of)
    if (pieces.length != tasks) {
      throw new IllegalStateException(s"$tasks tasks wrote, ${pieces.length} said what")
    }
    val head = Daemon.request("commit").put("rows", pieces.map(_._1).sum)
    (head, packed(head, pieces.map(_._2)))
  }
  override def abort(messages: Array[WriterCommitMessage]): Unit = {
    val head = Daemon.request("abort")
    Daemon.call(head, packed(head, messages.filter(_ != null).map(StagedRows.of(_)._2)))
  }

  private def packed(head: ObjectNode, pieces: Array[Array[Byte]]): Array[Byte] = {
    val sizes = head.putArray("sizes")
    val all = new ByteArrayOutputStream()
    (job +: pieces).foreach { each =>
      sizes.add(each.length)
      all.write(each)
    }
    all.toByteArray
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

/** What a task staged: how many rows it was given, and what Python knows of them, pickled. */
case class StagedRows(rows: Long, written: Array[Byte]) extends WriterCommitMessage

object StagedRows {
  /** In a session that had the jar added, tasks have this class from another loader: rows of a
    * message that was skipped for that would be lost.
    */
  def of(message: WriterCommitMessage): (Long, Array[Byte]) = message match {
    case null => throw new IllegalStateException("a task that wrote said nothing")
    case ours: StagedRows => (ours.rows, ours.written)
    case other if other.getClass.getName == classOf[StagedRows].getName =>
      def field(name: String): Any = other.getClass.getMethod(name).invoke(other)
      (field("rows").asInstanceOf[Long], field("written").asInstanceOf[Array[Byte]])
    case other => throw new IllegalStateException(s"a task that wrote said a ${other.getClass.getName}")
  }
}

case class RowsWriterFactory(schema: StructType, job: Array[Byte]) extends DataWriterFactory
    with StreamingDataWriterFactory {
  override def createWriter(partition: Int, task: Long): DataWriter[InternalRow] =
    new RowsWriter(schema, job, partition)
  override def createWriter(partition: Int, task: Long, batch: Long): DataWriter[InternalRow] =
    createWriter(partition, task)
}

/** Sends the rows of a task to Python, in batches. */
class RowsWriter(schema: StructType, job: Array[Byte], partition: Int) extends DataWriter[InternalRow] {
  private val connection = Daemon.take()
  private val allocator = ArrowUtils.rootAllocator.newChildAllocator("siltstone write", 0, Long.MaxValue)
  private val root =
    VectorSchemaRoot.create(ArrowUtils.toArrowSchema(schema, "UTC", true, false, true), allocator)
  private val rows = ArrowWriter.create(root)
  private val pieces = new BufferedOutputStream(new SentPieces(connection), 1 << 20)
  private val batches = new ArrowStreamWriter(root, null, pieces)
  private var inBatch = 0
  private var total = 0L
  private var isDone = false
  begin()

  private def begin(): Unit = SiltstoneException.inTask {
    try {
      connection.send(Daemon.request("write").put("task", partition), job)
      batches.start()
    } catch { // nobody has this object yet, to close it
      case e: Throwable => close(); throw e
    }
  }

  override def write(row: InternalRow): Unit = {
    rows.write(row)
    inBatch += 1
    total += 1
    if (inBatch == RowsWriter.rowsMax || (inBatch % 256 == 0 && rows.sizeInBytes() > RowsWriter.bytesMax)) {
      flush()
    }
  }
  private def flush(): Unit = if (inBatch > 0) SiltstoneException.inTask {
    rows.finish()
    batches.writeBatch()
    rows.reset()
    inBatch = 0
  }
  override def commit(): WriterCommitMessage = SiltstoneException.inTask {
    flush()
    batches.end()
    pieces.flush()
    connection.sendNumber(0)
    var isAnswered = false
    try {
      val (_, written) = connection.receive()
      isAnswered = true
      StagedRows(total, written)
    } catch {
      case e: SiltstoneException.Gone => throw e
      case e: SiltstoneException => isAnswered = true; throw e
    } finally if (isAnswered) {
      isDone = true
      Daemon.give(connection)
    }
  }
  override def abort(): Unit = ()
  override def close(): Unit = {
    if (!isDone) connection.close()
    root.close()
    allocator.close()
  }
}

object RowsWriter {
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

/** The table of `CREATE TABLE .. AS SELECT`: the commit of its rows makes it. */
class NewTable(target: Target, schema: Array[Column]) extends StagedTable with SupportsWrite {
  override def name(): String = target.table
  override def columns(): Array[Column] = schema
  override def capabilities(): JSet[TableCapability] = EnumSet.of(TableCapability.BATCH_WRITE)
  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder =
    new TableWriteBuilder(target, info)
  override def commitStagedChanges(): Unit = ()
  override def abortStagedChanges(): Unit = ()
}
