package org.apache.spark.sql.siltstone

import java.math.{BigDecimal, BigInteger}

import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.{ColumnVector, ColumnarArray, ColumnarMap}
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String

/** A column of a batch in mapped memory, as Arrow lays it out: nothing is copied or converted.
  *
  * The addresses are of the batch that is being read; the memory is that of the connection.
  */
final class MappedVector(kind: DataType) extends ColumnVector(kind) {
  private var nulls = 0
  private var validity = 0L
  private var bit = 0
  private var values = 0L
  private var bytes = 0L
  private[siltstone] var memory: MappedMemory = _ // it stays for as long as somebody reads this

  /** Show another batch; its places are from the beginning of `memory`. */
  def show(
      memory: MappedMemory, nulls: Long, validity: Long, bit: Long, values: Long, bytes: Long): Unit = {
    val base = memory.address
    this.memory = memory
    this.nulls = nulls.toInt
    this.validity = base + validity
    this.bit = bit.toInt
    this.values = base + values
    this.bytes = base + bytes
  }

  private def isSet(bits: Long, row: Int): Boolean = {
    val at = bit + row
    (Platform.getByte(null, bits + (at >> 3)) & (1 << (at & 7))) != 0
  }

  override def close(): Unit = ()
  override def closeIfFreeable(): Unit = ()
  override def hasNull(): Boolean = nulls != 0
  override def numNulls(): Int = nulls
  override def isNullAt(row: Int): Boolean = nulls != 0 && !isSet(validity, row)
  override def getBoolean(row: Int): Boolean = isSet(values, row)
  override def getByte(row: Int): Byte = Platform.getByte(null, values + row)
  override def getShort(row: Int): Short = Platform.getShort(null, values + 2L * row)
  override def getInt(row: Int): Int = Platform.getInt(null, values + 4L * row)
  override def getLong(row: Int): Long = Platform.getLong(null, values + 8L * row)
  override def getFloat(row: Int): Float = Platform.getFloat(null, values + 4L * row)
  override def getDouble(row: Int): Double = Platform.getDouble(null, values + 8L * row)

  override def getDecimal(row: Int, precision: Int, scale: Int): Decimal =
    if (isNullAt(row)) null
    else if (precision <= Decimal.MAX_LONG_DIGITS) {
      // The upper eight of the sixteen bytes only repeat the sign.
      Decimal.createUnsafe(Platform.getLong(null, values + 16L * row), precision, scale)
    } else {
      val big = new Array[Byte](16)
      var at = 0
      while (at < 16) {
        big(15 - at) = Platform.getByte(null, values + 16L * row + at)
        at += 1
      }
      Decimal.apply(new BigDecimal(new BigInteger(big), scale), precision, scale)
    }

  override def getUTF8String(row: Int): UTF8String =
    if (isNullAt(row)) null
    else {
      val first = Platform.getInt(null, values + 4L * row)
      val end = Platform.getInt(null, values + 4L * row + 4)
      UTF8String.fromAddress(null, bytes + first, end - first)
    }
  override def getBinary(row: Int): Array[Byte] =
    if (isNullAt(row)) null else getUTF8String(row).getBytes

  private def none = throw new UnsupportedOperationException(s"$kind is not mapped")
  override def getArray(row: Int): ColumnarArray = none
  override def getMap(row: Int): ColumnarMap = none
  override def getChild(at: Int): ColumnVector = none
}
