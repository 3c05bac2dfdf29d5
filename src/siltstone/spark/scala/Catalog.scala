package org.apache.spark.sql.siltstone

import java.util.{Map => JMap, Set => JSet}
import java.util.{HashMap, Collections, EnumSet}
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.sql.catalyst.analysis.{NoSuchNamespaceException, NoSuchTableException}
import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** A store as a catalog of Spark: spark.sql.catalog.shop is this class, .uri where the store is. */
class SiltstoneCatalog extends TableCatalog with SupportsNamespaces {
  private var catalog = ""
  private var uri = ""

  override def initialize(name: String, options: CaseInsensitiveStringMap): Unit = {
    catalog = name
    uri = options.getOrDefault("uri", "")
    if (uri.isEmpty) {
      throw new SiltstoneException(
        "RequestError", s"catalog $name has no store: set spark.sql.catalog.$name.uri")
    }
  }
  override def name(): String = catalog
  override def defaultNamespace(): Array[String] = Array.empty

  override def loadTable(id: Identifier): Table = table(id, Statement.pin(uri))
  override def loadTable(id: Identifier, version: String): Table =
    table(id, Pin.take(uri, _.put("version", version)))
  override def loadTable(id: Identifier, timeMicros: Long): Table =
    table(id, Pin.take(uri, _.put("time_us", timeMicros)))

  private def table(id: Identifier, pin: Pin): Table = {
    val name = (id.namespace.toSeq :+ id.name).mkString(".")
    new SiltstoneTable(
      pin.source(name, Source.load(pin, name)).getOrElse(throw new NoSuchTableException(id)))
  }

  private def listed(namespace: Array[String]): JsonNode = {
    val head = Daemon.request("list").put("uri", uri)
    val levels = head.putArray("namespace")
    namespace.foreach(each => levels.add(each))
    Daemon.call(head)._1
  }
  private def texts(found: JsonNode): Array[String] = found.asScala.map(_.asText).toArray

  override def listTables(namespace: Array[String]): Array[Identifier] = {
    val found = listed(namespace)
    if (!found.get("exists").asBoolean) throw new NoSuchNamespaceException(namespace)
    texts(found.get("tables")).map(Identifier.of(namespace, _))
  }
  override def listNamespaces(): Array[Array[String]] = listNamespaces(Array.empty[String])
  override def listNamespaces(namespace: Array[String]): Array[Array[String]] = {
    val found = listed(namespace)
    if (!found.get("exists").asBoolean) throw new NoSuchNamespaceException(namespace)
    texts(found.get("namespaces")).map(namespace :+ _)
  }
  override def namespaceExists(namespace: Array[String]): Boolean =
    listed(namespace).get("exists").asBoolean
  override def loadNamespaceMetadata(namespace: Array[String]): JMap[String, String] =
    if (namespaceExists(namespace)) new HashMap[String, String]()
    else throw new NoSuchNamespaceException(namespace)

  private def refused(what: String) = throw new UnsupportedOperationException(
    s"catalog $catalog only reads: $what is not there; write through Python, or format(\"siltstone\")")
  override def createTable(id: Identifier, info: TableInfo): Table = refused("CREATE TABLE")
  override def alterTable(id: Identifier, changes: TableChange*): Table = refused("ALTER TABLE")
  override def dropTable(id: Identifier): Boolean = refused("DROP TABLE")
  override def renameTable(from: Identifier, to: Identifier): Unit = refused("ALTER TABLE .. RENAME")
  override def createNamespace(namespace: Array[String], properties: JMap[String, String]): Unit =
    refused("CREATE NAMESPACE")
  override def alterNamespace(namespace: Array[String], changes: NamespaceChange*): Unit =
    refused("ALTER NAMESPACE")
  override def dropNamespace(namespace: Array[String], cascade: Boolean): Boolean =
    refused("DROP NAMESPACE")
}

/** A table at a pin, as Python describes it. */
final class Source(val pin: Pin, val name: String, val said: String, val id: Long, val rows: Long,
    val schema: StructType, width: Long, widths: Map[String, Long],
    val properties: JMap[String, String]) {
  /** How many bytes Spark should assume of so many rows, with these columns. */
  def bytes(columns: StructType, of: Long): Long =
    math.max(1L, of * (width + columns.fieldNames.map(widths.getOrElse(_, 0L)).sum))

  override def equals(other: Any): Boolean = other match {
    case that: Source => id == that.id && pin == that.pin
    case _ => false
  }
  override def hashCode(): Int = (pin, id).##
}

object Source {
  /** Record a read, which later overwrites by this application must know. */
  def tell(pin: Pin, table: String): Unit = Daemon.call(
    Daemon.request("tell").put("token", pin.token).put("table", table)
      .put("application", Daemon.application))

  /** Describe a table; None: there is none of that name. */
  def load(pin: Pin, name: String): Option[Source] = {
    val found = Daemon.call(Daemon.request("load").put("token", pin.token).put("table", name))._1
    if (found.has("missing")) None
    else {
      val schema = DataType.fromJson(found.get("schema").asText).asInstanceOf[StructType]
      val widths = schema.fieldNames.zip(found.get("widths").asScala.map(_.asLong)).toMap
      val properties = new HashMap[String, String]()
      found.get("properties").properties.asScala.foreach(e => properties.put(e.getKey, e.getValue.asText))
      Some(new Source(pin, name, found.get("said").asText, found.get("id").asLong, found.get("rows").asLong, schema,
        found.get("width").asLong, widths, Collections.unmodifiableMap(properties)))
    }
  }
}

/** A table of a statement. It has no `version()`: with one, Spark loads the tables of a frame again
  * before it runs, outside of the analysis, and so each at another seq.
  */
class SiltstoneTable(val source: Source) extends SupportsRead {
  override def name(): String = source.name
  override def id(): String = s"${source.pin.store}#${source.id}"
  override def columns(): Array[Column] = CatalogV2Util.structTypeToV2Columns(source.schema)
  override def properties(): JMap[String, String] = source.properties
  override def capabilities(): JSet[TableCapability] = EnumSet.of(TableCapability.BATCH_READ)
  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    new TableScanBuilder(source, ScanOptions(options))
}
