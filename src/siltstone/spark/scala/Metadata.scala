package org.apache.spark.sql.siltstone

import java.util.{EnumSet, Set => JSet}

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.read.{LocalScan, Scan, ScanBuilder}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** What a store knows of a table or of itself: Python says which columns, and gives all rows. */
class MetadataTable(pin: Pin, called: String, schema: StructType) extends SupportsRead {
  override def name(): String = called
  override def id(): String = s"${pin.store}#$called"
  override def columns(): Array[Column] = CatalogV2Util.structTypeToV2Columns(schema)
  override def capabilities(): JSet[TableCapability] = EnumSet.of(TableCapability.BATCH_READ)
  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = {
    if (!options.isEmpty) throw new SiltstoneException(
      "RequestError", s"$called is metadata, and a read of it has no options; it has ${options.keySet}")
    new ScanBuilder {
      override def build(): Scan = MetadataScan(pin, called, schema)
    }
  }
}

object MetadataTable {
  /** None: there is no metadata of that name. */
  def load(pin: Pin, name: String, isPast: Boolean): Option[MetadataTable] = {
    val found = ask(pin, name, isPast, withRows = false)._1
    if (found.has("missing")) None
    else Some(new MetadataTable(pin, name, LocalRows.schemaOf(found.get("schema").asText)))
  }

  def ask(pin: Pin, name: String, isPast: Boolean, withRows: Boolean): (JsonNode, Array[Byte]) =
    Daemon.call(Daemon.request("metadata").put("token", pin.token).put("table", name)
      .put("is_past", isPast).put("with_rows", withRows))
}

case class MetadataScan(pin: Pin, table: String, schema: StructType) extends LocalScan {
  override def readSchema(): StructType = schema
  override def description(): String = s"siltstone: $table at $pin"
  override def rows(): Array[InternalRow] =
    LocalRows.read(schema, MetadataTable.ask(pin, table, isPast = false, withRows = true)._2)
}
