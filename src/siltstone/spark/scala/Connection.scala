package org.apache.spark.sql.siltstone

import java.io.IOException
import java.net.UnixDomainSocketAddress
import java.nio.{ByteBuffer, ByteOrder, MappedByteBuffer}
import java.nio.channels.{ClosedByInterruptException, FileChannel, SocketChannel}
import java.nio.file.{Path, StandardOpenOption}

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.spark.storage.StorageUtils

/** Memory of the Python process, mapped for as long as this is reachable, or until it is let go. */
final class MappedMemory(region: Long, map: MappedByteBuffer) {
  val address: Long = map.asInstanceOf[sun.nio.ch.DirectBuffer].address()
  def is(other: Long): Boolean = region == other
  def unmap(): Unit = StorageUtils.dispose(map)
}

/** A connection to the Python process, and the memory of it that is mapped here.
  *
  * One thread uses it. A thread that is interrupted closes it, and Python then ends its work.
  */
final class Connection(val running: Daemon.Running) {
  private val channel = SocketChannel.open(UnixDomainSocketAddress.of(running.socket))
  private var buffer = ByteBuffer.allocateDirect(4096).order(ByteOrder.LITTLE_ENDIAN)
  private var mapped: Option[MappedMemory] = None

  def isOpen: Boolean = channel.isOpen

  def close(): Unit = {
    disconnect()
    unmap()
  }

  /** Close it, and leave the memory to the collector, as another thread may be reading it. */
  def disconnect(): Unit = channel.close()

  def send(head: ObjectNode, payload: Array[Byte]): Unit = {
    val text = Daemon.json.writeValueAsBytes(head)
    val all = ByteBuffer.allocate(8 + text.length + payload.length).order(ByteOrder.LITTLE_ENDIAN)
    write(all.putInt(text.length).put(text).putInt(payload.length).put(payload).flip())
  }

  def sendByte(value: Int): Unit = {
    buffer.clear().limit(1)
    write(buffer.put(0, value.toByte))
  }

  def sendNumber(value: Int): Unit = {
    buffer.clear().limit(4)
    write(buffer.putInt(0, value))
  }

  def sendBytes(bytes: Array[Byte], first: Int, size: Int): Unit =
    write(ByteBuffer.wrap(bytes, first, size))

  private def write(bytes: ByteBuffer): Unit = guarded {
    while (bytes.hasRemaining) channel.write(bytes)
  }

  /** The next `size` bytes; they are there until the next call. */
  def bytes(size: Int): ByteBuffer = guarded {
    if (buffer.capacity < size) buffer = ByteBuffer.allocateDirect(size).order(ByteOrder.LITTLE_ENDIAN)
    buffer.clear().limit(size)
    while (buffer.hasRemaining) if (channel.read(buffer) < 0) throw new IOException("it ended")
    buffer.flip()
  }

  /** Read some of the next bytes into an array: at least one. */
  def readInto(into: Array[Byte], first: Int, size: Int): Int = guarded {
    val found = channel.read(ByteBuffer.wrap(into, first, size))
    if (found < 0) throw new IOException("it ended")
    found
  }

  private def guarded[T](body: => T): T =
    try body
    catch {
      case e: ClosedByInterruptException => throw e
      case e: IOException => throw new SiltstoneException.Gone(running, e)
    }

  private def block(): Array[Byte] = {
    val found = new Array[Byte](bytes(4).getInt())
    bytes(found.length).get(found)
    found
  }

  /** The next answer and its payload. */
  def receive(): (JsonNode, Array[Byte]) = {
    val head = Daemon.json.readTree(block())
    val payload = block()
    if (head.has("error")) {
      throw new SiltstoneException(head.get("kind").asText, head.get("error").asText)
    }
    (head, payload)
  }

  /** Memory of the Python process; None: this process may not open it. */
  def memory(place: JsonNode): Option[MappedMemory] = {
    val region = place.get("region").asLong
    if (!mapped.exists(_.is(region))) {
      unmap()
      mapped = opened(place).map(new MappedMemory(region, _))
    }
    mapped
  }

  private def opened(place: JsonNode): Option[MappedByteBuffer] =
    try {
      val file = FileChannel.open(Path.of(place.get("path").asText), StandardOpenOption.READ)
      try Some(file.map(FileChannel.MapMode.READ_ONLY, 0, place.get("size").asLong))
      finally file.close()
    } catch {
      case e: ClosedByInterruptException => throw e
      case _: IOException | _: SecurityException => None
    }

  private def unmap(): Unit = {
    mapped.foreach(_.unmap())
    mapped = None
  }
}
