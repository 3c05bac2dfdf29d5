package org.apache.spark.sql.siltstone

import java.io.{EOFException, InputStream}
import java.lang.ref.Cleaner
import java.util.concurrent.atomic.AtomicBoolean
import scala.jdk.CollectionConverters._

import org.apache.arrow.vector.VectorSchemaRoot
import org.apache.arrow.vector.ipc.ArrowStreamReader
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.metric.{CustomSumMetric, CustomTaskMetric}
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.ArrowUtils
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector, ColumnarBatch}

class WaitMetric extends CustomSumMetric {
  override def name(): String = "pythonWait"
  override def description(): String = "time that tasks waited for Python (ms)"
}
class BatchesMetric extends CustomSumMetric {
  override def name(): String = "batches"
  override def description(): String = "number of batches"
}
case class TaskMetric(override val name: String, override val value: Long) extends CustomTaskMetric

/** What an executor needs for a read, besides its tasks. */
case class BatchReaderFactory(columns: StructType, store: String) extends PartitionReaderFactory {
  override def supportColumnarReads(partition: InputPartition): Boolean = true
  override def createReader(partition: InputPartition): PartitionReader[InternalRow] =
    throw new UnsupportedOperationException("reads are columnar")
  override def createColumnarReader(partition: InputPartition): PartitionReader[ColumnarBatch] =
    partition match {
      case TasksPartition(rows, None) => new CountedRows(rows)
      case TasksPartition(_, Some(tasks)) => TaskReader.open(columns, store, tasks)
      case other => throw new IllegalArgumentException(s"$other is no partition of siltstone")
    }
}

/** So many rows without columns. */
class CountedRows(private var left: Long) extends PartitionReader[ColumnarBatch] {
  private var rows = 0
  override def next(): Boolean = {
    rows = math.min(left, 1 << 20).toInt
    left -= rows
    rows > 0
  }
  override def get(): ColumnarBatch = new ColumnarBatch(Array.empty[ColumnVector], rows)
  override def close(): Unit = ()
}

object TaskReader {
  val end = -1
  val grown = -2
  val failed = -3

  /** Let Python read tasks; their batches come through memory of Python's, if it can be mapped. */
  def open(columns: StructType, store: String, tasks: Array[Byte]): PartitionReader[ColumnarBatch] =
    SiltstoneException.inTask(Daemon.again(begun(columns, store, tasks)))

  private def begun(
      columns: StructType, store: String, tasks: Array[Byte]): PartitionReader[ColumnarBatch] = {
    val connection = Daemon.take()
    try {
      connection.send(
        Daemon.request("read").put("columns", columns.json).put("store", store).put("maps", true), tasks)
      val place = connection.receive()._1
      if (!place.has("region")) new StreamReader(connection)
      else connection.memory(place) match {
        case Some(memory) =>
          connection.sendByte(1)
          new MappedReader(connection, columns, memory)
        case None =>
          connection.sendByte(0)
          new StreamReader(connection)
      }
    } catch {
      case e: Throwable =>
        connection.close()
        throw e
    }
  }
}

/** Batches in mapped memory.
  *
  * Spark closes a reader at the end of its task, where a thread that feeds a script may still read
  * from it. So memory is not unmapped then: Python empties it, and it goes with the last vector.
  */
class MappedReader(connection: Connection, columns: StructType, private var memory: MappedMemory)
    extends PartitionReader[ColumnarBatch] {
  private val vectors = columns.fields.map(each => new MappedVector(each.dataType))
  private val batch = new ColumnarBatch(vectors.asInstanceOf[Array[ColumnVector]])
  private val isOver = new AtomicBoolean(false)
  private var isShown = false
  private var waited = 0L
  private var batches = 0L

  override def next(): Boolean = SiltstoneException.inTask {
    if (isShown) connection.sendByte(1)
    isShown = false
    var rows = number()
    while (rows == TaskReader.grown) {
      val place = connection.receive()._1
      memory = connection.memory(place).getOrElse(
        throw SiltstoneException.unavailable(s"${place.get("path").asText} cannot be mapped any more"))
      rows = number()
    }
    if (rows < 0) over(rows) else show(rows)
  }

  private def number(): Int = {
    val begin = System.nanoTime()
    val found = connection.bytes(4).getInt()
    waited += System.nanoTime() - begin
    found
  }

  private def over(how: Int): Boolean =
    try {
      if (how == TaskReader.failed) connection.receive()
      false
    } finally if (isOver.compareAndSet(false, true)) Daemon.give(connection)

  private def show(rows: Int): Boolean = {
    val numbers = connection.bytes(40 * connection.bytes(4).getInt())
    vectors.foreach { vector =>
      vector.show(memory, numbers.getLong(), numbers.getLong(), numbers.getLong(), numbers.getLong(),
        numbers.getLong())
    }
    batch.setNumRows(rows)
    isShown = true
    batches += 1
    true
  }

  override def get(): ColumnarBatch = batch
  override def currentMetricsValues(): Array[CustomTaskMetric] =
    Array(TaskMetric("pythonWait", waited / 1000000), TaskMetric("batches", batches))
  override def close(): Unit = if (isOver.compareAndSet(false, true)) connection.disconnect()
}

/** Batches of an Arrow stream. Their memory is freed when no thread can reach it: see above. */
class StreamReader(connection: Connection) extends PartitionReader[ColumnarBatch] {
  private val stream = new ArrowBatches(connection)
  private lazy val batch = new ColumnarBatch(
    stream.root.getFieldVectors.asScala.map(each => new ArrowColumnVector(each): ColumnVector).toArray)
  @volatile private var isOver = false
  private var batches = 0L

  override def next(): Boolean = SiltstoneException.inTask {
    isOver = !stream.next()
    if (!isOver) batches += 1
    !isOver
  }
  override def get(): ColumnarBatch = {
    batch.setNumRows(stream.root.getRowCount)
    batch
  }
  override def currentMetricsValues(): Array[CustomTaskMetric] =
    Array(TaskMetric("pythonWait", stream.waited / 1000000), TaskMetric("batches", batches))
  override def close(): Unit =
    if (isOver || batches == 0) stream.run()
    else {
      stream.stop()
      StreamReader.cleaner.register(batch, stream)
    }
}

object StreamReader {
  private lazy val cleaner = Cleaner.create()
}

/** An Arrow stream and its memory, which `run` frees. */
final class ArrowBatches(connection: Connection) extends Runnable {
  private val chunks = new Chunks(connection)
  private val allocator = ArrowUtils.rootAllocator.newChildAllocator("siltstone", 0, Long.MaxValue)
  private val reader = new ArrowStreamReader(chunks, allocator)

  def root: VectorSchemaRoot = reader.getVectorSchemaRoot
  def waited: Long = chunks.waited

  def next(): Boolean = {
    val isThere = reader.loadNextBatch()
    if (!isThere) chunks.finish()
    isThere
  }

  /** Let no more come. */
  def stop(): Unit = connection.disconnect()

  override def run(): Unit = {
    reader.close(false)
    allocator.close()
    chunks.close()
  }
}

/** The pieces of a stream, one after the other. */
class Chunks(connection: Connection) extends InputStream {
  private var left = 0
  private var isOver = false
  var waited = 0L

  /** Read what follows the stream: whether all went well. */
  def finish(): Unit = if (!isOver) {
    if (read() >= 0) throw new EOFException("more follows the end of an Arrow stream")
  }

  override def read(): Int = {
    val one = new Array[Byte](1)
    if (read(one, 0, 1) < 0) -1 else one(0) & 0xff
  }
  override def read(into: Array[Byte], first: Int, size: Int): Int =
    if (size == 0) 0
    else {
      val begin = System.nanoTime()
      if (left == 0 && !isOver) begun(connection.bytes(4).getInt())
      val found = if (isOver) -1 else connection.readInto(into, first, math.min(size, left))
      if (found > 0) left -= found
      waited += System.nanoTime() - begin
      found
    }
  private def begun(size: Int): Unit =
    if (size > 0) left = size
    else {
      isOver = true
      if (size == TaskReader.failed) connection.receive()
    }
  override def close(): Unit = if (isOver) Daemon.give(connection) else connection.close()
}
